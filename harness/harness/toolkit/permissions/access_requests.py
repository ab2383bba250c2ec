"""The claim of a subject that is a command: what a real parser finds in it, never what it looks like."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import anyio

from ...context import ExecutionContext
from ..values import JsonObject, Subject
from .blocklist import blocked, command_forms, runs_past_the_policy
from .claims import Claim, Piece
from .container_files import ContainerFiles, reaches_any_file
from .embedded_commands import embedded_commands, embedded_reason
from .file_words import unseen_files
from .git_shown_files import GitShownFiles
from .globs import has_wildcard
from .harddenials import HardDenials
from .operand_paths import EntryPath, OperandPaths
from .pathclaims import path_forms
from .rules import Allows, Subjected
from .shell_state import shell_state_reason
from .shellpaths import MAX_PATHS, homeward
from .shelltrees import feeds
from .targetpaths import PathFinder, RealPath, at_home, expand_pattern, find_cwd, links_among, reads_like_bash
from .treeclaims import TreeReader, other_settings
from .unknown_words import unclear_programs, unknown_words_reason

if TYPE_CHECKING:
    from .shelljudge import CommandJudgement, SimpleCommand

__all__ = ["CommandReader", "extras_of", "plain_forms"]

PLAIN_ARGUMENTS = frozenset(
    {
        *("command", "cmd", "cwd", "working_dir", "wait", "timeout", "timeout_ms", "on_timeout", "run_in_background"),
        *("pane", "target", "tty", "max_output", "description", "delay", "delay_ms"),
        *("risk", "mutation", "privesc", "why"),
    }
)
"""Arguments of a call that do not change what its command does."""
WORD = re.compile(r"[^\s;&|<>()'\"`$={},:]+")
QUOTED = re.compile(r"\"(?:\\.|[^\"\\])*\"|'[^']*'|\\.", re.DOTALL)
EXPANSION = re.compile(r"[$`]")
_ODD = re.compile(r"/-[^/]*/?$|[\s*?\[\\]")
"""Names that a program may take for an option, or that a shell splits: ``for f in *; do ls $f; done``."""
ASSIGNMENT = re.compile(r"[A-Za-z_]\w*(?:\[.*\])?\+?=")


_MAPPED = re.compile(r"""['"](\w+)['"]: """)
"""A variable in the text of an environment."""


def extras_of(arguments: JsonObject | str) -> str:
    """What else decides what the command does: an environment, an input, a user. Pure."""
    if not isinstance(arguments, Mapping):
        return ""
    found = [f"{name}={arguments[name]!r}" for name in sorted(arguments) if name not in PLAIN_ARGUMENTS]
    return ", ".join(one for one in found if not one.endswith(("=None", "=''", "={}", "=[]", "=False")))


class CommandReader:
    """Makes claims of commands for one decision.

    Args:
        cwd: where commands start, as far as the call and the session say; empty when only the target knows.
        extras: of :func:`extras_of`.
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

    async def claim(self, subject: Subject) -> Claim:
        """What running this text would touch.

        Raises:
            HarnessError: the link was lost.
        """
        judgement = judge(subject.text, lookups=self._lookups)
        await self._find_cwd(subject)
        if not judgement.parsed:
            return self._unparsed(subject, judgement.reason)
        files = await self._files(subject, judgement)
        operands = OperandPaths(self._execution, files or (), self._cwd, judgement, subject.text)
        entries = await operands.entries()
        touched = (*(files or ()), *(entry.path for entry in entries or ()))
        forbidden = self._blocked_by(judgement, touched) or await self._forbidden(judgement, files or (), entries or ())
        unknown = "it names more files than can be judged" if files is None or entries is None else ""
        beyond = "" if forbidden else unknown or await self._beyond(subject, judgement, operands, entries or ())
        given = (
            "" if forbidden or beyond else await ContainerFiles(self._execution, operands, self._cwd).reason(judgement)
        )
        return Claim(
            kind="command",
            shown=self._shown(subject),
            whole=self._subjected(self._shown(subject), "broad"),
            pieces=self._pieces(subject, judgement, touched, beyond),
            forbidden=forbidden,
            must_ask=beyond or given or self._must_ask(judgement),
            unclear=unclear_programs(judgement),
            embedded=embedded_commands(judgement),
        )

    async def _beyond(
        self, subject: Subject, judgement: CommandJudgement, operands: OperandPaths, entries: Sequence[EntryPath]
    ) -> str:
        """Why it may touch what it does not name, so that a rule for its words says nothing of that."""
        reader = TreeReader(self._execution, self._denials, operands, entries, judgement)
        variables = _MAPPED.sub(r"\1=", self._extras)
        past = (runs_past_the_policy(command.argv) for command in judgement.commands)
        return (
            next(filter(None, past), "")
            or unknown_words_reason(judgement, self._blocked)
            or other_settings(f"{subject.text}\n{variables}", judgement.commands)
            or shell_state_reason(judgement.commands, variables)
            or next(filter(None, (unseen_files(*_program(one.argv)) for one in judgement.commands)), "")
            or reaches_any_file(judgement)
            or embedded_reason(judgement, self._blocked)
            or await reader.reason()
            or await GitShownFiles(self._execution, self._denials, operands).reason(judgement, variables)
        )

    async def _find_cwd(self, subject: Subject) -> None:
        """A pane keeps its directory: what is granted in one is not granted after a ``cd``, which asks nobody."""
        cwd = at_home(self._cwd, self._execution.capabilities.home)
        if not cwd.startswith("/"):
            start = await find_cwd(subject.pane, self._execution, named=bool(cwd))
            cwd = cwd if start is None else posixpath.join(start, cwd)
        self._cwd = cwd

    def _must_ask(self, judgement: CommandJudgement) -> str:
        """A text that shells read in different ways is judged as bash reads it: that must be how it will be read."""
        return "" if not judgement.doubt or reads_like_bash(self._execution) else judgement.doubt

    def _shown(self, subject: Subject) -> str:
        return f"{subject.text}\n(with {self._extras})" if self._extras else subject.text

    def _subjected(self, text: str, allows: Allows) -> Subjected:
        return Subjected(self._execution.identity, self._tool, text, "text", self._cwd, allows)

    def _unparsed(self, subject: Subject, reason: str) -> Claim:
        """Nothing is known of it, so it asks. Words in it that name secrets deny it: better one too many."""
        whole = self._subjected(self._shown(subject), "exact")
        home = self._execution.capabilities.home
        words = WORD.findall(subject.text)
        hidden = next((found for word in words if (found := self._denials.hidden(_from_root(word, home), home))), "")
        forbidden = hidden or blocked(subject.text.split(), self._blocked)
        asks = f"what it would do is not understood: {reason}"
        return Claim("command", self._shown(subject), whole, (Piece(subject.text, (whole,)),), forbidden, asks)

    def _blocked_by(self, judgement: CommandJudgement, files: Sequence[RealPath]) -> str:
        for command in judgement.commands:
            named = {homeward(word) for word in command.paths}
            real = (path.real for path in files if path.given in named)
            if reason := blocked(command.argv, self._blocked, (*command.paths, *real)):
                return reason
        return ""

    # -- the files that it names

    async def _files(self, subject: Subject, judgement: CommandJudgement) -> tuple[RealPath, ...] | None:
        """Every file that a word of it may be; None when there are too many."""
        words = tuple(dict.fromkeys(homeward(path) for command in judgement.commands for path in command.paths if path))
        if not words:
            return ()
        if len(words) > MAX_PATHS:
            return None
        named = _only_named(judgement)
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
        if ".." in (start or "").split("/"):  # a shell goes up by the name, and the kernel by the directory
            files = (*files, *await self._resolved(words, posixpath.normpath(start or "")))
        certain = files if start is not None else tuple(replace(path, is_known=_rooted(path.given)) for path in files)
        return (*certain, *matched)

    def _start(self, words: Sequence[str]) -> str | None:
        """The directory that relative words start from; None when nobody knows."""
        return self._cwd if self._cwd.startswith("/") or all(map(_rooted, words)) else None

    async def _matched(self, patterns: Sequence[str], start: str) -> tuple[RealPath, ...] | None:
        """The files that words with wildcards stand for now. Only links among them need a question each."""
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
        finder = PathFinder(self._execution)

        async def one(number: int, word: str) -> None:
            found[number] = await finder.find(word, start)

        async with anyio.create_task_group() as tasks:
            for number, word in enumerate(names):
                tasks.start_soon(one, number, word)
        return tuple(found[number] for number in range(len(names)))

    async def _forbidden(
        self, judgement: CommandJudgement, files: Sequence[RealPath], entries: Sequence[EntryPath]
    ) -> str:
        """Why nothing may touch one of its files. A program that does more than read may write what it names."""
        commands = judgement.commands
        writing = {homeward(word) for command in commands if not command.read_only for word in command.paths}
        reading = {homeward(word) for command in commands if command.read_only for word in command.paths} - writing
        named = [EntryPath(path, not judgement.read_only and path.given not in reading) for path in files]
        for one in (*named, *entries):
            reason = await self._denials.of_path(one.path, self._execution, writes=one.writes)
            if reason:
                return reason
        return ""

    # -- its pieces

    def _pieces(
        self, subject: Subject, judgement: CommandJudgement, files: Sequence[RealPath], beyond: str
    ) -> tuple[Piece, ...]:
        whole = self._subjected(self._shown(subject), "broad")
        named = [form for path in files for form in path_forms(path, self._tool, self._execution, "none")]
        certain = not self._extras and not self._odd_names and all(path.is_known for path in files)
        pieces = [
            Piece(
                command.text, (whole, *self._forms(command, judgement, beyond), *named), command.read_only and certain
            )
            for command in judgement.commands
        ]
        if not judgement.read_only and all(command.read_only for command in judgement.commands):
            pieces.append(Piece(judgement.reason or subject.text, (whole, *named)))  # what is around the commands
        if not pieces:
            pieces.append(Piece(subject.text, (whole,), read_only=certain))
        return tuple(pieces)

    def _forms(self, command: SimpleCommand, judgement: CommandJudgement, beyond: str) -> tuple[Subjected, ...]:
        """The texts of a simple command: rules that allow go by those of :func:`plain_forms` only."""
        allowing = () if self._extras or judgement.doubt or beyond else plain_forms(command)
        denying = dict.fromkeys((command.text, " ".join(command.text.split()), *command_forms(command.argv)))
        return (
            *(self._subjected(text, "any") for text in allowing),
            *(self._subjected(text, "none") for text in denying),
        )


def _only_named(judgement: CommandJudgement) -> set[str]:
    """The words of which no command shows or changes the content, unless their names are passed on to a program."""
    if any(feeds(command.argv) for command in judgement.commands):
        return set()
    content = {path for command in judgement.commands for path in command.paths if path not in command.named}
    named = {path for command in judgement.commands for path in command.named}
    return {homeward(path) for path in named} - {homeward(path) for path in content}


def _program(argv: Sequence[str]) -> tuple[str, Sequence[str]]:
    return (posixpath.basename(argv[0]), argv[1:]) if argv else ("", ())


def plain_forms(command: SimpleCommand) -> tuple[str, ...]:
    """The texts by which a pattern may allow a simple command. Pure.

    None for a command that writes a file by ``>``: ``echo *`` says nothing of files. None for what is only known at run
    time, and for ``..`` in a path, which leads out of a pattern. A wrapper (``sudo``) is a command of its own beside
    this one, but a variable that is set (``PATH=x make``) is not, so the text that has one is the only form.
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


def judge(text: str, *, lookups: bool = False) -> CommandJudgement:
    """The parser's judgement; it is loaded with the first command."""
    from .shelljudge import judge_command

    return judge_command(text, lookups=lookups)
