"""Which files a command of git would show the content of: git on the target says their names.

``git log -p``, ``git show``, ``git diff`` and ``git grep`` show tracked files that no word names, also those of the
history, and git expands patterns in its own way. The same command with ``--name-only`` says which; it is run only where
the judge found that the command only reads. ``git show HASH`` and ``git cat-file -p HASH`` show a file that has no name
there.
"""

from __future__ import annotations

import posixpath
import re
import secrets
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...context import ExecutionContext
from ...results import Status
from .harddenials import HardDenials
from .operand_paths import OperandPaths

if TYPE_CHECKING:
    from .shelljudge import CommandJudgement, SimpleCommand
    from .shelltypes import Word

__all__ = ["GitShownFiles", "ShownRequest", "shown_request"]

SECONDS = 5.0
"""How long git may look; what is not known then is asked about."""
MAX_ANSWER_BYTES = 1 << 20
MAX_DIRECTORIES = 200
"""Directories of shown files whose ``.aiexclude`` is read; for more, what is below the repository is looked for."""
_SHOWING = frozenset({"show", "diff"})
"""These show content unless an option says otherwise; the others when one says so."""
_ON_REQUEST = frozenset({"log", "whatchanged", "diff-tree"})
_WITHIN_TREES = frozenset({"diff", "diff-tree", "grep"})
"""These show what is in a tree, and name it from there on."""
_PATCH = re.compile(
    r"-[A-Za-z0-9]*[puUcmWC].*|--(?:patch|unified|word-diff|color-words|binary|cc|function-context|pickaxe).*"
)
_NAMES_ONLY = frozenset({"--name-only", "--name-status", "--check", "--no-index"})
"""With one of these no content is shown, whatever else is said."""
_NO_PATCH = frozenset({"--no-patch", "--quiet", "-s"})
"""What an option for a patch takes back, in some versions wherever it stands."""
_GREP_NAMES = re.compile(r"-[^-efABCmO]*[lLcq].*|--(?:name-only|files-with|count|quiet).*")
"""In a group of letters nothing stands before these that takes the rest of the word (``-iecret``)."""
_SUMMARY = re.compile(r"--(?:stat|numstat|shortstat|dirstat|summary|raw)(?:=.*)?")
_DROPPED = re.compile(r"--(?:format|pretty|oneline|graph|color|no-color|decorate|relative|abbrev-commit)(?:=.*)?")
"""Options that would put other text between the names, or shorten them."""
_SAFE = ("--no-pager", "--no-optional-locks", "-c", "core.fsmonitor=false", "-c", "core.quotePath=false")


_WITH_VALUE = frozenset({"-C", "-c", "--git-dir", "--work-tree", "--namespace", "--exec-path", "--config-env"})
_UNNAMED = "it shows the content of an object, and which file that is, is not known: write COMMIT:FILE"
_VARIABLE = re.compile(r"(?<![A-Za-z0-9_])GIT_\w+\+?=")
_OPTIONS = "which files git would show cannot be found out with these options or variables"


@dataclass(frozen=True, slots=True)
class ShownRequest:
    """What git is asked about a command that shows content.

    ``leading``: the options before the sub-command. ``names``: the sub-command that names the files; empty when the
    words name all of them. ``objects``: operands that may be objects without a name, such as the hash of a file.
    """

    leading: tuple[str, ...]
    verb: str
    names: tuple[str, ...]
    objects: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Shown:
    """What git has said: the top of the repository, the files, relative to it, and what kind of object each is."""

    top: str
    names: tuple[str, ...]
    failure: str = ""
    types: tuple[str, ...] = ()


def shown_request(argv: Sequence[str]) -> ShownRequest | None:
    """What git is to be asked about ``argv``; None: it shows no content. Pure.

    Operands with a colon (``HEAD:FILE``) are judged by their words.
    """
    leading, verb, words = _parts(argv)
    if not verb or not _shows(verb, words):
        return None
    ended = words.index("--") if "--" in words else len(words)
    operands = [word for word in words[:ended] if not word.startswith("-")]
    if verb[0] == "cat-file":
        return ShownRequest(leading, verb[0], (), tuple(operands))
    greps = verb[0] == "grep"
    if greps and not any(re.match(r"-[^-]*[ef]|--(?:regexp|file)", word) for word in words[:ended]):
        operands = operands[1:]  # the first one is the pattern
    names = _names_command(verb, words[:ended], words[ended:])
    return ShownRequest(leading, verb[0], names, tuple(operands))


def _parts(argv: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """The options of git itself, the sub-command, and what follows it."""
    if not argv or posixpath.basename(argv[0]) != "git":
        return (), (), ()
    begin = 1
    while begin < len(argv) and argv[begin].startswith("-"):
        begin += 2 if argv[begin] in _WITH_VALUE else 1
    rest = tuple(argv[begin:])
    count = 2 if rest[:1] == ("stash",) else 1
    return tuple(argv[1:begin]), rest[:count], rest[count:]


def _names_command(verb: Sequence[str], words: Sequence[str], paths: Sequence[str]) -> tuple[str, ...]:
    """The sub-command that names what is shown; empty when only operands with a colon say what that is."""
    if verb[0] == "grep":
        return (*verb, "--name-only", "-z", "--full-name", *words, *paths)
    kept = [word for word in words if not (word in _NO_PATCH or _DROPPED.fullmatch(word) or _colon(word) >= 0)]
    if any(_colon(word) >= 0 for word in words) and all(word.startswith("-") for word in kept):
        return ()
    plain = ["--format="] if verb[0] in ("log", "show", "whatchanged") else []
    extra = ("-r",) if verb[0] == "diff-tree" else ()
    return (*verb, "--name-only", "-z", *extra, *plain, *kept, *paths)


def _shows(verb: Sequence[str], words: Sequence[str]) -> bool:
    options = [word for word in words[: words.index("--") if "--" in words else len(words)] if word.startswith("-")]
    if verb[0] == "grep":
        return "--no-index" not in options and not any(map(_GREP_NAMES.fullmatch, options))
    if verb[0] == "cat-file":
        return not any(re.fullmatch(r"-[tse]|--batch-check.*", option) for option in options)
    if not _NAMES_ONLY.isdisjoint(options):
        return False
    asked = any(map(_PATCH.fullmatch, options))
    if verb[0] in _SHOWING:
        silent = not _NO_PATCH.isdisjoint(options) or any(map(_SUMMARY.fullmatch, options))
        return asked or not silent
    return asked and (verb[0] in _ON_REQUEST or tuple(verb) == ("stash", "show"))


def _colon(word: str) -> int:
    """Where the colon of ``COMMIT:FILE`` or ``:FILE`` is; -1 in other words.

    As git finds it: none in braces (``HEAD@{12:00}``, ``HEAD^{/area: x}``), of ``:/text`` or ``:!pattern``.
    """
    if word.startswith(":"):
        return -1 if word[1:2] in tuple("/!(^") else 0
    depth = 0
    for place, letter in enumerate("" if word.startswith("-") else word):
        depth += (letter == "{") - (letter == "}")
        if letter == ":" and depth <= 0:
            return place
    return -1


def _object_names(operands: Sequence[str]) -> tuple[str, ...]:
    """The objects whose types say whether the operands show something that has no name: see :func:`_unnamed`."""
    parts = [part for word in operands for part in re.split(r"\.{2,3}", word.lstrip("^")) if part]
    names: list[str] = []
    for part in parts:
        colon = _colon(part)
        names += [part, f"{part}^{{}}"] if colon < 0 else [part, part[:colon] or "HEAD"]
    return tuple(name for name in names if "\n" not in name)


def _unnamed(request: ShownRequest, types: Sequence[str]) -> str:
    """Why what it shows may be another file than its words say. Pure.

    A blob that is not ``COMMIT:FILE`` has no name, and the files of a tree have only a part of theirs.
    """
    for name, kind in zip(_object_names(request.objects), types, strict=False):
        has_name = _colon(name) >= 0
        nameless = kind == "blob" and not has_name
        in_tree = kind == "tree" and not has_name and any(f"{name}:" in word for word in request.objects)
        below_tree = kind == "tree" and request.verb in _WITHIN_TREES
        if nameless or in_tree or below_tree:
            return _UNNAMED
    return ""


def _are_known(words: Sequence[Word]) -> bool:
    """Whether git gets these words, or names that they fit."""
    return all(word.known or word.pattern for word in words)


def _may_be_asked(command: SimpleCommand, texts: Sequence[str]) -> bool:
    """Whether git may be run for the names: the command does no more than read, but for what is around it."""
    if any(map(_VARIABLE.search, texts)):
        return False
    if command.read_only:
        return True
    from .shelljudge import judge_command  # the parser is loaded with the first command

    return judge_command(shlex.join(command.argv)).read_only


def _script(request: ShownRequest, mark: str) -> str:
    """Prints the top of the repository, the names, the mark, and the types of the objects."""
    git = ["git", *request.leading, *_SAFE]
    top = shlex.join([*git, "rev-parse", "--show-toplevel"])
    look = f"printf '%s\\n' \"$({top})\""
    if request.names:
        look += f"; {shlex.join([*git, *request.names])}"
    if objects := _object_names(request.objects):
        asked = shlex.join([*git, "cat-file", "--batch-check=%(objecttype)"])
        look += f"; printf '%s\\n' {mark}; printf '%s\\n' {shlex.join(objects)} | {asked}"
    return f"LC_ALL=C; export LC_ALL; {{ {look}; }} </dev/null | head -c {MAX_ANSWER_BYTES}"


class GitShownFiles:
    """Asks git on the target, beside the terminal: one process for a command that shows content of tracked files."""

    def __init__(self, execution: ExecutionContext, denials: HardDenials, operands: OperandPaths) -> None:
        self._execution = execution
        self._denials = denials
        self._operands = operands

    async def reason(self, judgement: CommandJudgement, environment: str = "") -> str:
        """Why somebody must be asked about what git would show; empty when nobody must.

        Args:
            environment: variables that are set for the command alone, as a text.

        Raises:
            HarnessError: the link was lost.
        """
        requests: list[ShownRequest] = []
        texts = [environment, *(command.text for command in judgement.commands)]
        for command in judgement.commands:
            request = shown_request(command.argv)
            if request is None:
                continue
            if not _are_known(command.words):
                return "which files git would show is only known at run time"
            if not _may_be_asked(command, texts):
                return _OPTIONS
            requests.append(request)
        if not requests:
            return ""
        places: list[str | None] = [path.real for path in await self._operands.here()]
        for request in dict.fromkeys(requests):
            for place in places or [None]:
                shown = await self._ask(request, place)
                if reason := await self._shown_reason(shown) or _unnamed(request, shown.types):
                    return reason
        return ""

    async def _ask(self, request: ShownRequest, place: str | None) -> _Shown:
        mark = secrets.token_hex(8)
        script = _script(request, mark)
        done = await self._execution.run_beside(script, cwd=place, timeout=SECONDS, max_output=MAX_ANSWER_BYTES)
        first, _, rest = done.stdout.partition("\n")
        if done.status is Status.TIMED_OUT or done.truncated or len(done.stdout.encode()) >= MAX_ANSWER_BYTES:
            return _Shown(first, (), "which files git would show is too much to be found out: limit it (-n 20)")
        listed, _, types = rest.partition(mark)
        found = [name for name in re.split(r"[\0\n]", listed) if name]
        found += [name.partition(":")[2] for name in found if ":" in name]  # git grep says COMMIT:NAME
        return _Shown(first, tuple(dict.fromkeys(found)), types=tuple(types.split("\n")[1:]))

    async def _shown_reason(self, shown: _Shown) -> str:
        if shown.failure or not shown.top.startswith("/"):
            return shown.failure
        home = self._execution.capabilities.home
        paths = [posixpath.join(shown.top, name) for name in shown.names]
        secret = next((reason for path in paths if (reason := self._denials.hidden(path, home))), "")
        if secret:
            return f"git would show it: {secret}"
        if len({posixpath.dirname(path) for path in paths}) > MAX_DIRECTORIES:
            return await self._denials.below((shown.top,), self._execution, privileged=False)
        kept_back = await self._denials.excluded(paths, self._execution, shown.top, None)
        return f"git would show {min(kept_back)}, which an .aiexclude keeps back" if kept_back else ""
