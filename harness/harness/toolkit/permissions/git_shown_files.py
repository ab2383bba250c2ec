"""Which files a command of git would show the content of: git on the target says their names.

``git log -p``, ``git show``, ``git diff`` and ``git grep`` show tracked files that no word names, also those of the
history, and git expands patterns in its own way. The same command with ``--name-only`` says which; it is run only where
the judge found that the command only reads.
"""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...context import ExecutionContext
from ...results import Status
from .harddenials import HardDenials
from .operand_paths import OperandPaths

if TYPE_CHECKING:
    from .shelljudge import CommandJudgement
    from .shelltypes import Word

__all__ = ["GitShownFiles", "names_request"]

SECONDS = 5.0
"""How long git may look; what is not known then is asked about."""
MAX_ANSWER_BYTES = 1 << 20
MAX_DIRECTORIES = 200
"""Directories of shown files whose ``.aiexclude`` is read; for more, what is below the repository is looked for."""
_SHOWING = frozenset({"show", "diff"})
"""These show content unless an option says otherwise; the others when one says so."""
_ON_REQUEST = frozenset({"log", "whatchanged", "diff-tree"})
_PATCH = re.compile(
    r"-[A-Za-z0-9]*[puUcmWC].*|--(?:patch|unified|word-diff|color-words|binary|cc|function-context|pickaxe).*"
)
_SILENT = frozenset({"--name-only", "--name-status", "--no-patch", "--check", "--quiet", "-s", "--no-index"})
_GREP_NAMES = re.compile(r"-[A-Za-z]*[lLcq].*|--(?:name-only|files-with|count|quiet).*")
_SUMMARY = re.compile(r"--(?:stat|numstat|shortstat|dirstat|summary|raw)(?:=.*)?")
_DROPPED = re.compile(r"--(?:format|pretty|oneline|graph|color|no-color|decorate|relative|abbrev-commit)(?:=.*)?")
"""Options that would put other text between the names, or shorten them."""
_SAFE = ("--no-pager", "--no-optional-locks", "-c", "core.fsmonitor=false", "-c", "core.quotePath=false")


@dataclass(frozen=True, slots=True)
class _Shown:
    """What git has said: the top of the repository, and the files, relative to it."""

    top: str
    names: tuple[str, ...]
    failure: str = ""


def names_request(argv: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
    """The options before the sub-command, and the sub-command that names what ``argv`` shows; None: it shows nothing.

    Pure. Operands with a colon (``HEAD:FILE``) are judged by their words.
    """
    if not argv or posixpath.basename(argv[0]) != "git":
        return None
    begin = 1
    while begin < len(argv) and argv[begin].startswith("-"):
        begin += 2 if argv[begin] == "-C" else 1
    leading, rest = tuple(argv[1:begin]), list(argv[begin:])
    verb = rest[:2] if rest[:1] == ["stash"] else rest[:1]
    words = rest[len(verb) :]
    if not verb or not _shows(verb, words):
        return None
    ended = words.index("--") if "--" in words else len(words)
    greps = verb[0] == "grep"
    kept = [word for word in words[:ended] if greps or not (_DROPPED.fullmatch(word) or _names_blob(word))]
    plain = ["--format="] if verb[0] in ("log", "show", "whatchanged") else []
    if not greps and any(map(_names_blob, words[:ended])) and all(word.startswith("-") for word in kept):
        return None
    extra = {"grep": ("--full-name",), "diff-tree": ("-r",)}.get(verb[0], ())
    return leading, (*verb, "--name-only", "-z", *extra, *plain, *kept, *words[ended:])


def _shows(verb: Sequence[str], words: Sequence[str]) -> bool:
    options = [word for word in words[: words.index("--") if "--" in words else len(words)] if word.startswith("-")]
    if verb[0] == "grep":
        return "--no-index" not in options and not any(map(_GREP_NAMES.fullmatch, options))
    if not _SILENT.isdisjoint(options):
        return False
    asked = any(map(_PATCH.fullmatch, options))
    if verb[0] in _SHOWING:
        return asked or not any(map(_SUMMARY.fullmatch, options))
    return asked and (verb[0] in _ON_REQUEST or list(verb) == ["stash", "show"])


def _names_blob(word: str) -> bool:
    return not word.startswith("-") and ":" in word[1:]


def _are_known(words: Sequence[Word]) -> bool:
    """Whether git gets these words, or names that they fit."""
    return all(word.known or word.pattern for word in words)


class GitShownFiles:
    """Asks git on the target, beside the terminal: one process for a command that shows content of tracked files."""

    def __init__(self, execution: ExecutionContext, denials: HardDenials, operands: OperandPaths) -> None:
        self._execution = execution
        self._denials = denials
        self._operands = operands

    async def reason(self, judgement: CommandJudgement) -> str:
        """Why somebody must be asked about what git would show; empty when nobody must.

        Raises:
            HarnessError: the link was lost.
        """
        asked = {names_request(command.argv): command for command in judgement.commands if command.read_only}
        if any(request and not _are_known(command.words) for request, command in asked.items()):
            return "which files git would show is only known at run time"
        requests = [request for request in asked if request is not None]
        if not requests:
            return ""
        places: list[str | None] = [path.real for path in await self._operands.here()]
        for leading, words in requests:
            for place in places or [None]:
                if reason := await self._shown_reason(await self._ask(leading, words, place)):
                    return reason
        return ""

    async def _ask(self, leading: Sequence[str], words: Sequence[str], place: str | None) -> _Shown:
        git = ["git", *leading, *_SAFE]
        top, names = shlex.join([*git, "rev-parse", "--show-toplevel"]), shlex.join([*git, *words])
        look = f"printf '%s\\n' \"$({top})\"; {names}"
        script = f"LC_ALL=C; export LC_ALL; {{ {look}; }} </dev/null | head -c {MAX_ANSWER_BYTES}"
        done = await self._execution.run_beside(script, cwd=place, timeout=SECONDS, max_output=MAX_ANSWER_BYTES)
        first, _, rest = done.stdout.partition("\n")
        if done.status is Status.TIMED_OUT or done.truncated or len(done.stdout.encode()) >= MAX_ANSWER_BYTES:
            return _Shown(first, (), "which files git would show is too much to be found out: limit it (-n 20)")
        found = [name for name in re.split(r"[\0\n]", rest) if name]
        found += [name.partition(":")[2] for name in found if ":" in name]  # git grep says COMMIT:NAME
        return _Shown(first, tuple(dict.fromkeys(found)))

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
