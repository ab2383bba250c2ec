"""Access requests (claims) of a call: the paths, commands and keys of its tool and arguments."""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import anyio

from ...context import ExecutionContext
from ...patterns.wildcards import has_wildcard
from ..contract import Intent, PermissionRequest
from ..session.file_versions import target_path
from ..values import JsonObject, Subject
from .lookalikes import odd_characters
from .paths.git_shown_files import GitShownFiles
from .paths.hard_denials import HardDenials
from .paths.target_paths import PathResolver, RealPath, at_home, expand_pattern, find_cwd, links_among, reads_like_bash
from .questions import AccessItem, AccessRequest
from .rules.rule import Allows, RuleSubject, blocked, command_forms, is_harness, runs_past_the_policy
from .rules.settings import PermissionSettings
from .shell.commands_in_words import embedded_commands, embedded_reason
from .shell.container_files import ContainerFiles, reaches_any_file
from .shell.file_words import unseen_files
from .shell.operand_paths import EntryPath, OperandPaths
from .shell.paths import HERE, MAX_PATHS, AffectedDirectories, feeds, homeward, listed, trees_of
from .shell.shell_state import shell_state_reason
from .shell.unknown_words import unclear_programs, unknown_words_reason

if TYPE_CHECKING:
    from ..contract import ToolContext
    from .shell.classification import CommandClassification, SimpleCommand
    from .shell.typed_keys import KeysClassification

__all__ = [
    "TYPED_SECRET",
    "CommandReader",
    "TreeReader",
    "extras_of",
    "key_claims",
    "other_settings",
    "path_claim",
    "path_forms",
    "plain_forms",
    "read_claims",
]


# -- The claims of keys: their effect in the foreground process of a pane.


TYPED_SECRET = "<password>"  # noqa: S105  # a placeholder
"""The argument by which rules may deny input for a secret prompt; no rule allows it."""
_MAX_LINE_CHARS = 200


async def key_claims(
    subject: Subject, tool: str, ctx: ToolContext, command: Callable[[Subject], Awaitable[AccessRequest]]
) -> tuple[AccessRequest, ...]:
    """Return the claims of keys.

    If the keys run as a command, ``ctx.notes`` passes that command to the tool, so that exactly the checked one runs.

    Args:
        subject: the keys.
        tool: the name of the tool.
        ctx: the context of the call.
        command: builds the claim of a command.

    Raises:
        HarnessError: the connection was lost.
    """
    from .shell.typed_keys import judge_keys

    ctx.notes.keys_command = None
    classification = await judge_keys(subject, ctx)
    if classification.rule == "command" and classification.command is not None:
        claim = await command(classification.command)
        if classification.lent:  # what it may do denies as for a command, but a line editor of the operator reads it
            return (replace(claim, must_ask=claim.must_ask or classification.reason, unkept=True),)
        ctx.notes.keys_command = classification.command
        return (claim,)
    if classification.rule == "denied":
        return (replace(_plain(subject, classification, tool, ctx), forbidden=classification.reason),)
    if classification.rule == "password":
        claim = _secret(classification, tool, ctx)
        return (replace(claim, forbidden=classification.reason) if classification.lent else claim,)
    return (_plain(subject, classification, tool, ctx),)


def _secret(classification: KeysClassification, tool: str, ctx: ToolContext) -> AccessRequest:
    """Return the claim of a typed secret: it always asks, is not stored and never shown."""
    whole = RuleSubject(ctx.execution.identity, tool, TYPED_SECRET, allows="none")
    shown = f"type a secret: {classification.reason}"
    return AccessRequest(
        "keys", shown, whole, (AccessItem(shown, (whole,)),), must_ask=classification.reason, unkept=True, secret=True
    )


def _plain(subject: Subject, classification: KeysClassification, tool: str, ctx: ToolContext) -> AccessRequest:
    """Return the claim of harmless keys or keys for a program; the text includes the program."""
    harmless = classification.rule == "harmless"
    into = f" (into {classification.program})" if classification.program else ""
    text = f"{subject.text}{into}"
    whole = RuleSubject(ctx.execution.identity, tool, text, allows="broad" if harmless else "exact")
    piece = AccessItem(text, (whole,), read_only=harmless)
    line = f"; the last line on the screen is {classification.line[:_MAX_LINE_CHARS]!r}" if classification.line else ""
    asks = "" if harmless else f"{classification.reason}{line}"
    return AccessRequest("keys", text, whole, (piece,), must_ask=asks, unkept=classification.rule == "unknown")


# -- The claim of a file.


async def path_claim(
    subject: Subject, tool: str, base: str, execution: ExecutionContext, denials: HardDenials, *, read_only: bool
) -> AccessRequest:
    """Return the claim of reading or writing a path, resolved on the target.

    Args:
        subject: the path.
        tool: the name of the tool.
        base: the directory of a relative path.
        execution: the target.
        denials: the hard denials.
        read_only: the tool changes nothing.

    Raises:
        HarnessError: the connection was lost.
    """
    if "\0" in subject.text or not subject.text:
        return _no_path(subject, tool, execution)
    path = await PathResolver(execution).find(subject.text, base)
    writes = subject.kind == "write"
    forbidden = await denials.of_path(path, execution, writes=writes)
    odd = odd_characters(subject.text)
    certain = read_only and not writes and path.is_known and not odd
    forms = path_forms(path, tool, execution)
    return AccessRequest(
        kind=subject.kind,
        shown=_shown(subject, path, odd),
        whole=forms[0],
        pieces=(AccessItem(path.real, forms, certain),),
        forbidden=forbidden,
        must_ask=odd,
    )


def path_forms(
    path: RealPath, tool: str, execution: ExecutionContext, allows: Allows = "any"
) -> tuple[RuleSubject, ...]:
    """Return the names of a path for rules, the real path first; only it, also with ``~``, may allow."""
    identity, home = execution.identity, execution.capabilities.home.rstrip("/")
    names: dict[str, Allows] = {path.real: allows if path.is_known else _at_most_exact(allows)}
    if home and path.real.startswith(f"{home}/"):
        names["~" + path.real[len(home) :]] = names[path.real]
    for form in path.forms:
        names.setdefault(form, "none")
    return tuple(RuleSubject(identity, tool, name, "path", allows=way) for name, way in names.items())


def _at_most_exact(allows: Allows) -> Allows:
    return "exact" if allows != "none" else "none"


def _shown(subject: Subject, path: RealPath, odd: str) -> str:
    real = "" if path.real == subject.text else f" (that is {path.real})"
    note = f"; {odd}" if odd else ""
    return f"{subject.kind} {subject.text}{real}{note}"


def _no_path(subject: Subject, tool: str, execution: ExecutionContext) -> AccessRequest:
    whole = RuleSubject(execution.identity, tool, subject.text, "path", allows="none")
    return AccessRequest(subject.kind, subject.kind, whole, (), forbidden="the path is empty or contains a NUL")


# -- Files that a command accesses without naming them: below directories whose whole content it reads or changes.
#
# These are harness's own files, and files excluded by ``.aiexclude``. The command text shows the directories, and the
# target shows what is in them.


MAX_DIRECTORIES = 64
"""Maximum number of directories of one command."""
_SETTING = re.compile(r"(?<![A-Za-z0-9_])(?:XDG_(?:CONFIG|STATE)_HOME|HARNESS_CONFIG)\+?=")
_HOME = re.compile(r"(?<![A-Za-z0-9_])HOME\+?=")


def other_settings(text: str, commands: Sequence[SimpleCommand]) -> str:
    """Return why a command may start harness with other settings; empty if it may not. Pure."""
    texts = [text, *(" ".join(command.argv) for command in commands)]
    ours = [command.argv for command in commands if is_harness(command.argv)]
    if any(map(_SETTING.search, texts)):
        return "it sets a variable that changes the settings of harness"
    if ours and (any(map(_HOME.search, texts)) or any(word.startswith("--conf") for argv in ours for word in argv)):
        return "it runs harness with other settings"
    return ""


class TreeReader:
    """Checks the files below the directories of one command.

    Args:
        execution: the target.
        denials: the hard denials.
        operands: its words, resolved on the target.
        entries: the files that it opens below directory operands.
        classification: that of the command.
    """

    def __init__(
        self,
        execution: ExecutionContext,
        denials: HardDenials,
        operands: OperandPaths,
        entries: Sequence[EntryPath],
        classification: CommandClassification,
    ) -> None:
        self._execution = execution
        self._denials = denials
        self._operands = operands
        self._entries = entries
        self._commands = classification.commands
        self._feeds = any(feeds(command.argv) for command in classification.commands)

    async def reason(self) -> str:
        """Return why the command requires approval; empty if it does not.

        Raises:
            HarnessError: the connection was lost.
        """
        used = [
            (command, trees)
            for command in self._commands
            for trees in self._trees(command)
            if not trees.paired or self._are_directories(command, trees)
        ]
        if not used:
            return ""
        here = await self._operands.here() if any(HERE in (*one.reads, *one.changes) for _, one in used) else []
        for command, trees in used:
            if reason := await self._protected(command, trees, here):
                return reason
        tops: dict[str, bool] = {}
        for command, trees in used:
            for path in [] if trees.guessed else self._operands.all((*trees.reads, *trees.changes), command, here):
                if path.is_dir or not path.is_known:
                    tops[path.real] = tops.get(path.real, False) or command.privileged
        if any(trees.into for _, trees in used):  # an existing directory of that name is merged
            tops |= {entry.path.real: False for entry in self._entries if entry.writes and entry.path.is_dir}
        return await self._kept_back(tops)

    def _trees(self, command: SimpleCommand) -> Iterable[AffectedDirectories]:
        if self._feeds and (places := listed(command.argv)):
            yield AffectedDirectories(reads=places, changes=places)
        elif (trees := trees_of(command.argv, read_only=command.read_only)) != AffectedDirectories():
            yield trees

    def _are_directories(self, command: SimpleCommand, trees: AffectedDirectories) -> bool:
        """Return whether two of its words may be directories."""
        found = (self._operands.all([word], command, ()) for word in trees.reads)
        return sum(any(path.is_dir or not path.is_known for path in paths) for paths in found) > 1

    async def _kept_back(self, tops: dict[str, bool]) -> str:
        if len(tops) > MAX_DIRECTORIES:
            return f"it reads or changes more than {MAX_DIRECTORIES} whole directories"
        return await self._denials.below(tuple(tops), self._execution, privileged=any(tops.values())) if tops else ""

    async def _protected(self, command: SimpleCommand, trees: AffectedDirectories, here: Sequence[RealPath]) -> str:
        for path in self._operands.all(trees.changes, command, here):
            if place := await self._above(path.forms):
                return _changes(command, path.given, place)
        for path in self._operands.all(trees.reads, command, here):
            if place := await self._above(path.forms, reads=True):
                return f"{command.argv[0]} may read everything in {path.given}, which contains {place}"
        for path in self._operands.all([trees.into] if trees.into else [], command, here):
            entries = [posixpath.join(form, name) for form in path.forms for name in trees.names]
            if place := await self._above([*entries, *(() if path.is_dir else path.forms)]):
                return _changes(command, path.given, place)
        return ""

    async def _above(self, paths: Iterable[str], *, reads: bool = False) -> str:
        for path in paths:
            if place := await self._denials.place_below(path, self._execution, reads=reads):
                return place
        return ""


def _changes(command: SimpleCommand, given: str, place: str) -> str:
    return f"{command.argv[0]} may change everything in {given}, which contains the protected {place}"


# -- The claim of a command, from what the shell parser finds in it.


PLAIN_ARGUMENTS = frozenset(
    {
        *("command", "cmd", "cwd", "working_dir", "wait", "timeout", "timeout_ms", "on_timeout", "run_in_background"),
        *("pane", "target", "tty", "max_output", "description", "delay", "delay_ms"),
        *("risk", "mutation", "privesc", "why"),
    }
)
"""Arguments of a call that do not affect its command."""
WORD = re.compile(r"[^\s;&|<>()'\"`$={},:]+")
QUOTED = re.compile(r"\"(?:\\.|[^\"\\])*\"|'[^']*'|\\.", re.DOTALL)
EXPANSION = re.compile(r"[$`]")
_ODD = re.compile(r"/-[^/]*/?$|[\s*?\[\\]")
"""Names that a program may parse as an option, or that a shell splits: ``for f in *; do ls $f; done``."""
ASSIGNMENT = re.compile(r"[A-Za-z_]\w*(?:\[.*\])?\+?=")


_MAPPED = re.compile(r"""['"](\w+)['"]: """)
"""A variable in the text of an environment."""


def extras_of(arguments: JsonObject | str) -> str:
    """Return the other arguments that affect the command: environment, input, user. Pure."""
    if not isinstance(arguments, Mapping):
        return ""
    found = [f"{name}={arguments[name]!r}" for name in sorted(arguments) if name not in PLAIN_ARGUMENTS]
    return ", ".join(one for one in found if not one.endswith(("=None", "=''", "={}", "=[]", "=False")))


class CommandReader:
    """Builds the claims of commands for one decision.

    Args:
        execution: the target.
        denials: the hard denials.
        blocked: patterns of blocked commands.
        tool: the name of the tool.
        cwd: the start directory given by the call or the session; empty if only the target knows it.
        extras: the result of :func:`extras_of`.
        lookups: commands that look something up on other hosts count as reading.
    """

    def __init__(
        self,
        execution: ExecutionContext,
        denials: HardDenials,
        blocked: Sequence[str],
        tool: str,
        cwd: str,
        extras: str,
        *,
        lookups: bool = False,
    ) -> None:
        self._execution = execution
        self._denials = denials
        self._blocked = blocked
        self._tool = tool
        self._cwd = cwd
        self._extras = extras
        self._lookups = lookups
        self._odd_names = False
        self._user = ""

    async def claim(self, subject: Subject) -> AccessRequest:
        """Return the claim of running a text.

        Raises:
            HarnessError: the connection was lost.
        """
        self._user = subject.user or ""
        classification = _as_user(judge(subject.text, lookups=self._lookups), self._user)
        await self._find_cwd(subject)
        if not classification.parsed:
            return self._unparsed(subject, classification.reason)
        files = await self._files(subject, classification)
        operands = OperandPaths(self._execution, files or (), self._cwd, classification, subject.text)
        entries = await operands.entries()
        touched = (*(files or ()), *(entry.path for entry in entries or ()))
        forbidden = self._blocked_by(classification, touched) or await self._forbidden(
            classification, files or (), entries or ()
        )
        unknown = "it names too many files to be classified" if files is None or entries is None else ""
        beyond = "" if forbidden else unknown or await self._beyond(subject, classification, operands, entries or ())
        given = (
            ""
            if forbidden or beyond
            else await ContainerFiles(self._execution, operands, self._cwd).reason(classification)
        )
        return AccessRequest(
            kind="command",
            shown=self._shown(subject),
            whole=self._subjected(self._shown(subject), "broad"),
            pieces=self._pieces(subject, classification, touched, beyond),
            forbidden=forbidden,
            must_ask=beyond or given or self._must_ask(classification),
            unclear=unclear_programs(classification),
            embedded=embedded_commands(classification),
        )

    async def _beyond(
        self,
        subject: Subject,
        classification: CommandClassification,
        operands: OperandPaths,
        entries: Sequence[EntryPath],
    ) -> str:
        """Return why it may access what its words do not name, so that a rule for its words must not allow it."""
        reader = TreeReader(self._execution, self._denials, operands, entries, classification)
        variables = _MAPPED.sub(r"\1=", self._extras)
        past = (runs_past_the_policy(command.argv) for command in classification.commands)
        return (
            next(filter(None, past), "")
            or unknown_words_reason(classification, self._blocked)
            or other_settings(f"{subject.text}\n{variables}", classification.commands)
            or shell_state_reason(classification.commands, variables)
            or next(filter(None, (unseen_files(*_program(one.argv)) for one in classification.commands)), "")
            or reaches_any_file(classification)
            or embedded_reason(classification, self._blocked)
            or await reader.reason()
            or await GitShownFiles(self._execution, self._denials, operands).reason(classification, variables)
        )

    async def _find_cwd(self, subject: Subject) -> None:
        """Find the start directory: a pane keeps it, and a rule for one directory must not apply after a ``cd``."""
        cwd = at_home(self._cwd, self._execution.capabilities.home)
        if not cwd.startswith("/"):
            start = await find_cwd(subject.pane, self._execution, named=bool(cwd))
            cwd = cwd if start is None else posixpath.join(start, cwd)
        self._cwd = cwd

    def _must_ask(self, classification: CommandClassification) -> str:
        """Return why shells may parse the text differently, unless it runs in a shell with the grammar of bash."""
        return "" if not classification.doubt or reads_like_bash(self._execution) else classification.doubt

    def _shown(self, subject: Subject) -> str:
        return f"{subject.text}\n(with {self._extras})" if self._extras else subject.text

    def _subjected(self, text: str, allows: Allows) -> RuleSubject:
        return RuleSubject(self._execution.identity, self._tool, text, "text", self._cwd, allows)

    def _unparsed(self, subject: Subject, reason: str) -> AccessRequest:
        """Return the claim of a text that is not understood: it asks, or is denied if a word names a secret."""
        whole = self._subjected(self._shown(subject), "exact")
        home = self._execution.capabilities.home
        words = WORD.findall(subject.text)
        hidden = next((found for word in words if (found := self._denials.hidden(_from_root(word, home), home))), "")
        argvs = [tuple(subject.text.split()), *by_sudo(subject.text.split(), self._user)]
        forbidden = hidden or next(filter(None, (blocked(argv, self._blocked) for argv in argvs)), "")
        asks = f"the command is not understood: {reason}"
        by_user = (self._subjected(" ".join(argv), "none") for argv in argvs[1:])
        piece = AccessItem(subject.text, (whole, *by_user))
        return AccessRequest("command", self._shown(subject), whole, (piece,), forbidden, asks)

    def _blocked_by(self, classification: CommandClassification, files: Sequence[RealPath]) -> str:
        for command in classification.commands:
            named = {homeward(word) for word in command.paths}
            real = (path.real for path in files if path.given in named)
            paths = (*command.paths, *real)
            for argv in (command.argv, *by_sudo(command.argv, self._user)):
                if reason := blocked(argv, self._blocked, paths):
                    return reason
        return ""

    # -- the files that it names

    async def _files(self, subject: Subject, classification: CommandClassification) -> tuple[RealPath, ...] | None:
        """Return every file that a word may be; None if there are too many."""
        words = tuple(
            dict.fromkeys(homeward(path) for command in classification.commands for path in command.paths if path)
        )
        if not words:
            return ()
        if len(words) > MAX_PATHS:
            return None
        named = _only_named(classification)
        content = await self._found([word for word in words if word not in named], self._start(words))
        only = await self._found([word for word in words if word in named], self._start(words))
        if content is None or only is None:
            return None
        return (*content, *(replace(path, only_named=True) for path in only))

    async def _found(self, words: Sequence[str], start: str | None) -> tuple[RealPath, ...] | None:
        matched = await self._matched([word for word in words if has_wildcard(word)], start or "")
        if matched is None:
            return None
        files = await self._resolved(words, start or "")
        if ".." in (start or "").split("/"):  # a shell resolves .. by name, the kernel by directory
            files = (*files, *await self._resolved(words, posixpath.normpath(start or "")))
        certain = files if start is not None else tuple(replace(path, is_known=_rooted(path.given)) for path in files)
        return (*certain, *matched)

    def _start(self, words: Sequence[str]) -> str | None:
        """Return the directory of relative words; None if unknown."""
        return self._cwd if self._cwd.startswith("/") or all(map(_rooted, words)) else None

    async def _matched(self, patterns: Sequence[str], start: str) -> tuple[RealPath, ...] | None:
        """Return the files that wildcards match now; only links among them are resolved one by one."""
        names: dict[str, None] = {}
        for pattern in patterns:
            expanded = await expand_pattern(pattern, start, self._execution)
            if expanded is None:
                return None
            names |= dict.fromkeys(expanded)
        self._odd_names = self._odd_names or any(map(_ODD.search, names))
        links = await links_among(tuple(names), self._execution) if names else set()
        if links is None or len(links) > MAX_PATHS:
            return None
        directories = sorted({posixpath.dirname(name.rstrip("/")) or "/" for name in names})
        real = dict(zip(directories, await self._resolved(directories, "/"), strict=True))
        plain = (_in_directory(name.rstrip("/"), real) for name in names if name.rstrip("/") not in links)
        return (*plain, *await self._resolved(sorted(links), "/"))

    async def _resolved(self, names: Sequence[str], start: str) -> tuple[RealPath, ...]:
        found: dict[int, RealPath] = {}
        finder = PathResolver(self._execution)

        async def one(number: int, word: str) -> None:
            found[number] = await finder.find(word, start)

        async with anyio.create_task_group() as tasks:
            for number, word in enumerate(names):
                tasks.start_soon(one, number, word)
        return tuple(found[number] for number in range(len(names)))

    async def _forbidden(
        self, classification: CommandClassification, files: Sequence[RealPath], entries: Sequence[EntryPath]
    ) -> str:
        """Return the hard denial of one of its files; a program that does more than read may write what it names."""
        commands = classification.commands
        writing = {homeward(word) for command in commands if not command.read_only for word in command.paths}
        reading = {homeward(word) for command in commands if command.read_only for word in command.paths} - writing
        named = [EntryPath(path, not classification.read_only and path.given not in reading) for path in files]
        for one in (*named, *entries):
            reason = await self._denials.of_path(one.path, self._execution, writes=one.writes)
            if reason:
                return reason
        return ""

    # -- its pieces

    def _pieces(
        self, subject: Subject, classification: CommandClassification, files: Sequence[RealPath], beyond: str
    ) -> tuple[AccessItem, ...]:
        whole = self._subjected(self._shown(subject), "broad")
        named = [form for path in files for form in path_forms(path, self._tool, self._execution, "none")]
        certain = not self._extras and not self._odd_names and all(path.is_known for path in files)
        pieces = [
            AccessItem(
                command.text,
                (whole, *self._forms(command, classification, beyond), *named),
                command.read_only and certain,
            )
            for command in classification.commands
        ]
        if not classification.read_only and all(command.read_only for command in classification.commands):
            pieces.append(
                AccessItem(classification.reason or subject.text, (whole, *named))
            )  # syntax around the commands
        if not pieces:
            pieces.append(AccessItem(subject.text, (whole,), read_only=certain))
        return tuple(pieces)

    def _forms(
        self, command: SimpleCommand, classification: CommandClassification, beyond: str
    ) -> tuple[RuleSubject, ...]:
        """Return the texts of a simple command for rules; allow rules match those of :func:`plain_forms` only."""
        allowing = () if self._extras or classification.doubt or beyond else plain_forms(command)
        by_user = [" ".join(argv) for argv in by_sudo(command.argv, self._user)]
        forms = (command.text, " ".join(command.text.split()), *command_forms(command.argv), *by_user)
        denying = dict.fromkeys(forms)
        return (
            *(self._subjected(text, "any") for text in allowing),
            *(self._subjected(text, "none") for text in denying),
        )


def by_sudo(argv: Sequence[str], user: str) -> tuple[tuple[str, ...], ...]:
    """Return the commands that one with ``user`` also counts as, as what denies ``sudo`` denies it too. Pure."""
    return (("sudo", "-u", user, *argv), ("sudo", *argv)) if user and argv else ()


def _as_user(classification: CommandClassification, user: str) -> CommandClassification:
    if not user:
        return classification
    return replace(classification, commands=tuple(replace(one, privileged=True) for one in classification.commands))


def _only_named(classification: CommandClassification) -> set[str]:
    """Return the files whose content no command shows or changes; empty if names are passed on to a program."""
    if any(feeds(command.argv) for command in classification.commands):
        return set()
    content = {path for command in classification.commands for path in command.paths if path not in command.named}
    named = {path for command in classification.commands for path in command.named}
    return {homeward(path) for path in named} - {homeward(path) for path in content}


def _program(argv: Sequence[str]) -> tuple[str, Sequence[str]]:
    return (posixpath.basename(argv[0]), argv[1:]) if argv else ("", ())


def plain_forms(command: SimpleCommand) -> tuple[str, ...]:
    """Return the texts by which a pattern may allow a simple command. Pure.

    Empty for a command that writes a file with ``>`` (``echo *`` does not cover files), for words only known at run
    time, and for ``..`` in a path, which could leave a pattern. A wrapper (``sudo``) is a command of its own, but an
    assignment (``PATH=x make``) is not, so the text with it is then the only form.
    """
    if command.writes or EXPANSION.search(QUOTED.sub(_unless_double, command.text)):
        return ()
    if any(".." in word.split("/") for word in command.argv):
        return ()
    as_written = " ".join(command.text.split())
    return (as_written,) if ASSIGNMENT.match(as_written) else (as_written, " ".join(command.argv))


def _unless_double(match: re.Match[str]) -> str:
    return match[0] if match[0].startswith('"') else ""


def _in_directory(path: str, real: Mapping[str, RealPath]) -> RealPath:
    directory, name = posixpath.split(path)
    known = real[directory or "/"]
    return RealPath(path, path, posixpath.join(known.real, name), known.is_known)


def _rooted(word: str) -> bool:
    return word.startswith(("/", "~"))


def _from_root(word: str, home: str) -> str:
    plain = home + word[1:] if word.startswith("~/") else word
    return plain if plain.startswith("/") else f"/{plain}"


def judge(text: str, *, lookups: bool = False) -> CommandClassification:
    """Classify a command; the parser is loaded with the first one."""
    from .shell.classification import classify_command

    return classify_command(text, lookups=lookups)


# -- From a request to its claims: all queries of the target happen here; the decision needs none.


async def read_claims(
    request: PermissionRequest, ctx: ToolContext, settings: PermissionSettings, denials: HardDenials
) -> tuple[AccessRequest, ...]:
    """Return the claims of a call, in the order of its subjects; a call without a subject claims itself.

    Several subjects are resolved in parallel.

    Args:
        request: the call.
        ctx: its context.
        settings: the permission settings.
        denials: the hard denials.

    Raises:
        HarnessError: the connection was lost.
        ExceptionGroup: the same, for one of several subjects.
    """
    reader = _Reader(request, ctx, settings, denials)
    subjects = request.subjects or (Subject("other", request.call.name),)
    if len(subjects) == 1:
        return await reader.claims(subjects[0])
    found: dict[int, tuple[AccessRequest, ...]] = {}

    async def one(number: int, subject: Subject) -> None:
        found[number] = await reader.claims(subject)

    async with anyio.create_task_group() as tasks:
        for number, subject in enumerate(subjects):
            tasks.start_soon(one, number, subject)
    return tuple(claim for number in range(len(subjects)) for claim in found[number])


class _Reader:
    def __init__(
        self, request: PermissionRequest, ctx: ToolContext, settings: PermissionSettings, denials: HardDenials
    ) -> None:
        self._request = request
        self._ctx = ctx
        self._settings = settings
        self._denials = denials
        self._tool = request.call.name

    async def claims(self, subject: Subject) -> tuple[AccessRequest, ...]:
        if subject.kind == "command":
            return (await self._command(subject),)
        if subject.kind == "keys":
            return await key_claims(subject, self._tool, self._ctx, self._typed)
        if subject.kind in ("read", "write"):
            return (await self._path(subject),)
        if subject.kind == "screen":
            return (await self._screen(subject),)
        if subject.kind == "sudo":
            return (await self._sudo(subject),)
        return (self._text(subject),)

    async def _sudo(self, subject: Subject) -> AccessRequest:
        """Return the claim of a password for a ``sudo`` that waits: it always asks, and no rule or mode allows it."""
        command = await self._command(subject, keys=True)
        typed = RuleSubject(self._ctx.execution.identity, self._tool, TYPED_SECRET, allows="none")
        forms = (typed, *(replace(form, allows="none") for form in command.forms))
        asks = (
            f"it waits for your sudo password in pane {subject.pane}, to run as {subject.user};"
            " once approved, harness types the password there"
        )
        pieces = (AccessItem(subject.text, forms),)
        forbidden = command.forbidden
        return AccessRequest("sudo", subject.text, typed, pieces, forbidden=forbidden, must_ask=asks, unkept=True)

    async def _screen(self, subject: Subject) -> AccessRequest:
        """Return the claim of a screen: one of the operator's own panes asks, unless it is lent or chosen."""
        claim, execution = self._text(Subject("other", self._tool)), self._ctx.execution
        wanted = subject.pane or execution.pane
        if execution.has_terminal or not execution.has_panes or wanted == execution.pane:
            return claim
        panes = await execution.list_panes()
        pane = next((pane for pane in panes if wanted in (pane.name, pane.pane_id)), None)
        if pane is None or pane.lent:
            return claim
        return replace(claim, must_ask=f"pane {pane.pane_id} of the operator's own tmux is not lent")

    async def _typed(self, subject: Subject) -> AccessRequest:
        return await self._command(subject, keys=True)

    async def _command(self, subject: Subject, *, keys: bool = False) -> AccessRequest:
        reader = CommandReader(
            self._ctx.execution,
            self._denials,
            self._settings.blocked_commands,
            self._tool,
            "" if keys else self._start(subject),  # keys run in the directory of the pane's shell
            "" if keys else self._extras(),
            lookups=self._settings.network_lookups,
        )
        return await reader.claim(subject)

    def _extras(self) -> str:
        """Return the arguments that affect the command and are not in its text."""
        arguments, told = self._request.call.arguments, self._request.tool.covered_arguments()
        if not isinstance(arguments, Mapping):
            return extras_of(arguments)
        return extras_of({name: value for name, value in arguments.items() if name not in told})

    async def _path(self, subject: Subject) -> AccessRequest:
        return await path_claim(
            subject, self._tool, self._start(subject), self._ctx.execution, self._denials, read_only=self._is_harmless()
        )

    def _start(self, subject: Subject) -> str:
        """Return the start directory of the subject given by the call or the session; empty if none is given."""
        return target_path(self._ctx, subject.cwd) if subject.cwd else self._ctx.cwd or ""

    def _is_harmless(self) -> bool:
        return not self._request.mutating and not self._request.requires_approval

    def _text(self, subject: Subject) -> AccessRequest:
        text = self._call_text() if subject.text == self._tool else subject.text
        kind = "url" if subject.kind == "url" else "text"
        whole = RuleSubject(self._ctx.execution.identity, self._tool, text, "text" if kind == "text" else "url")
        named = replace(whole, text=subject.text)
        return AccessRequest(
            kind=subject.kind,
            shown=text,
            whole=whole,
            pieces=(AccessItem(text, (whole, named) if subject.text != self._tool else (whole,), False),),
            must_ask=odd_characters(text) if kind == "url" else "",
        )

    def _call_text(self) -> str:
        """Return the text of a call without a subject: a rule for it covers exactly these arguments."""
        arguments = self._request.call.arguments
        if not isinstance(arguments, Mapping):
            return f"{self._tool} {arguments}"
        kept: JsonObject = {name: value for name, value in arguments.items() if name not in Intent.model_fields}
        return f"{self._tool} {json.dumps(kept, sort_keys=True, ensure_ascii=False)}" if kept else self._tool
