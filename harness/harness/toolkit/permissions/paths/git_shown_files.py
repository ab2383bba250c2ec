"""Check of the files whose content a git command would show, listed by git on the target.

``git log -p``, ``git show``, ``git diff`` and ``git grep`` show tracked files that no word names, also from the
history, and git expands patterns in its own way. The same command with ``--name-only`` lists them; it runs only if the
command only reads. ``git show HASH`` and ``git cat-file -p HASH`` show a file without its name.
"""

from __future__ import annotations

import posixpath
import re
import secrets
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ....context import ExecutionContext
from ....results import Status
from ..shell.git_commands import UNKNOWN_OPTIONS, ShownRequest, colon_at, object_names, shown_request
from ..shell.operand_paths import OperandPaths
from .hard_denials import HardDenials

if TYPE_CHECKING:
    from ..shell.classification import CommandClassification, SimpleCommand
    from ..shell.words import Word

__all__ = ["GitShownFiles"]

SECONDS = 5.0
"""Timeout of the git query; the command asks if it is exceeded."""
MAX_ANSWER_BYTES = 1 << 20
MAX_DIRECTORIES = 200
"""Directories of shown files whose ``.aiexclude`` is read; with more, everything below the repository is searched."""
_WITHIN_TREES = frozenset({"diff", "diff-tree", "diff-index", "difftool", "grep", "archive"})
"""These show the content of a tree, with names relative to it."""
_SAFE = ("--no-pager", "--no-optional-locks", "-c", "core.fsmonitor=false", "-c", "core.quotePath=false")
_UNNAMED = "it shows an object whose file name is unknown: write COMMIT:FILE"
_VARIABLE = re.compile(r"(?<![A-Za-z0-9_])GIT_\w+\+?=")
_HASH = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})? ?")
"""The prefix of a name in the output of ``rev-list --objects``."""


@dataclass(frozen=True, slots=True)
class _Shown:
    """The output of git: the top of the repository, the files relative to it, and the types of the objects."""

    top: str
    names: tuple[str, ...]
    failure: str = ""
    types: tuple[str, ...] = ()


def _unnamed(request: ShownRequest, types: Sequence[str]) -> str:
    """Return why it may show a file that its words do not name; empty if it does not. Pure.

    A blob that is not written as ``COMMIT:FILE`` has no name, and files of a tree have relative names only.
    """
    for name, kind in zip(object_names(request.objects), types, strict=False):
        has_name = colon_at(name) >= 0
        nameless = kind == "blob" and not has_name
        in_tree = kind == "tree" and not has_name and any(f"{name}:" in word for word in request.objects)
        below_tree = kind == "tree" and request.verb in _WITHIN_TREES
        if nameless or in_tree or below_tree:
            return _UNNAMED
    return ""


def _are_known(words: Sequence[Word]) -> bool:
    """Return whether git gets exactly these words, or names that match them."""
    return all(word.known or word.pattern for word in words)


def _may_be_asked(request: ShownRequest, command: SimpleCommand, texts: Sequence[str]) -> bool:
    """Return whether git may run to list the names: its words only read, and no ``GIT_`` variable is set."""
    if any(map(_VARIABLE.search, texts)):
        return False
    if command.read_only or request.made:
        return True
    from ..shell.classification import classify_command  # load the parser with the first command only

    return classify_command(shlex.join(command.argv)).read_only


def _script(request: ShownRequest, mark: str) -> str:
    """Return a script that prints the top of the repository, the names, the mark, and the types of the objects.

    It also marks an alias, and failures of listing commands built by harness.
    """
    git = ["git", *request.leading, *_SAFE]
    tops = (shlex.join([*git, "rev-parse", option]) for option in ("--show-toplevel", "--absolute-git-dir"))
    look = f"printf '%s\\n' \"$({' || '.join(tops)})\""
    if request.alias:
        look += f"; {shlex.join([*git, 'config', '--get', f'alias.{request.alias}'])} && printf %s {mark}-alias"
    for names in request.names:
        look += f"; {shlex.join([*git, *names])}"
        look += f" || printf %s {mark}-failed" if request.made else ""
    if objects := object_names(request.objects):
        asked = shlex.join([*git, "cat-file", "--batch-check=%(objecttype)"])
        look += f"; printf '%s\\n' {mark}; printf '%s\\n' {shlex.join(objects)} | {asked}"
    return f"LC_ALL=C; export LC_ALL; {{ {look}; }} </dev/null | head -c {MAX_ANSWER_BYTES}"


def _named_objects(request: ShownRequest) -> list[str]:
    """Return the files of ``COMMIT:FILE``, relative to the top of the repository."""
    tails = [word[colon_at(word) + 1 :] for word in request.objects if colon_at(word) >= 0]
    return [re.sub(r"^[0-3]:", "", tail) for tail in tails if tail and not tail.startswith(("./", "../"))]


class GitShownFiles:
    """Queries git on the target, outside the terminal, with one process per command that shows tracked files."""

    def __init__(self, execution: ExecutionContext, denials: HardDenials, operands: OperandPaths) -> None:
        self._execution = execution
        self._denials = denials
        self._operands = operands

    async def reason(self, classification: CommandClassification, environment: str = "") -> str:
        """Return why the files that git would show require approval; empty if they do not.

        Args:
            classification: that of the command.
            environment: variables set for this command only, as a text.

        Raises:
            HarnessError: the connection was lost.
        """
        requests: list[ShownRequest] = []
        texts = [environment, *(command.text for command in classification.commands)]
        for command in classification.commands:
            request = shown_request(command.argv)
            if request is None:
                continue
            if not _are_known(command.words):
                return "which files git would show is only known at run time"
            if request.reason or not _may_be_asked(request, command, texts):
                return request.reason or UNKNOWN_OPTIONS
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
        done = await self._execution.run_helper(script, cwd=place, timeout=SECONDS, max_output=MAX_ANSWER_BYTES)
        first, _, rest = done.stdout.partition("\n")
        if done.status is Status.TIMED_OUT or done.truncated or len(done.stdout.encode()) >= MAX_ANSWER_BYTES:
            return _Shown(first, (), "git would show too many files to check: limit it (-n 20)")
        if f"{mark}-alias" in rest:
            return _Shown(first, (), f"git {request.alias} is an alias: write the command itself")
        if f"{mark}-failed" in rest and first.startswith("/"):
            return _Shown(first, (), "could not list the files that git would show")
        listed, _, types = rest.partition(mark)
        found = [_HASH.sub("", name, count=1) for name in re.split(r"[\0\n]", listed) if name]
        found += [name.partition(":")[2] for name in found if ":" in name]  # git grep prints COMMIT:NAME
        names = dict.fromkeys(filter(None, (*found, *_named_objects(request))))
        top = first.removesuffix("/.git") if first != "/.git" else "/"
        return _Shown(top, tuple(names), types=tuple(types.split("\n")[1:]))

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
        return f"git would show {min(kept_back)}, which is excluded by an .aiexclude" if kept_back else ""
