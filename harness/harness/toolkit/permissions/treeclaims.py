"""What a command would take that it does not name: files below the directories of which it takes everything.

Harness's own files, and what ``.aiexclude`` keeps back. The text of the command says which directories are meant, and
the target what is in them.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ...context import ExecutionContext
from .blocklist import is_harness
from .globs import has_wildcard
from .harddenials import HardDenials
from .shellpaths import braced, homeward
from .shelltrees import HERE, Trees, feeds, listed, trees_of
from .targetpaths import PathFinder, RealPath, at_home

if TYPE_CHECKING:
    from .shelljudge import CommandJudgement, SimpleCommand

__all__ = ["TreeReader", "other_settings"]

MOST = 64
"""Directories of one command."""
_CHANGES = frozenset({"cd", "pushd", "chdir"})
_SEVERAL = re.compile(r"[;\n`()]|\|\||(?<!&)&(?!&)")
"""What may run in spite of a ``cd`` that failed, or apart from it."""
_UNSURE = re.compile(r"^-|[$*?\[]")
_SETTING = re.compile(r"(?<![A-Za-z0-9_])(?:XDG_(?:CONFIG|STATE)_HOME|HARNESS_CONFIG)\+?=")
_HOME = re.compile(r"(?<![A-Za-z0-9_])HOME\+?=")


def other_settings(text: str, commands: Sequence[SimpleCommand]) -> str:
    """Why a command may start a harness that has other settings; empty when it does not. Pure."""
    texts = [text, *(" ".join(command.argv) for command in commands)]
    ours = [command.argv for command in commands if is_harness(command.argv)]
    if any(map(_SETTING.search, texts)):
        return "it sets a variable that leads a harness to other settings"
    if ours and (any(map(_HOME.search, texts)) or any(word.startswith("--conf") for argv in ours for word in argv)):
        return "it runs a harness with other settings"
    return ""


class TreeReader:
    """Looks below the directories of one command.

    Args:
        files: what its words are on the target, as they were found there.
        start: where it starts; empty when nobody knows.
        judgement: what the command is.
        text: as it is written.
    """

    def __init__(
        self,
        execution: ExecutionContext,
        denials: HardDenials,
        files: Sequence[RealPath],
        start: str,
        judgement: CommandJudgement,
        text: str,
    ) -> None:
        self._execution = execution
        self._denials = denials
        self._files = files
        self._start = start
        self._home = execution.capabilities.home
        self._commands = judgement.commands
        self._feeds = any(feeds(command.argv) for command in judgement.commands)
        self._entered = _entered(text, judgement.commands)

    async def reason(self) -> str:
        """Why somebody must be asked about it; empty when nobody must.

        Raises:
            HarnessError: the link was lost.
        """
        used = [(command, trees) for command in self._commands for trees in self._trees(command)]
        if not used:
            return ""
        here = await self._here() if any(HERE in (*one.reads, *one.changes) for _, one in used) else []
        for command, trees in used:
            if reason := await self._protected(command, trees, here):
                return reason
        tops: dict[str, bool] = {}
        for command, trees in used:
            for path in [] if trees.guessed else self._all((*trees.reads, *trees.changes), command, here):
                if path.is_dir or not path.is_known:
                    tops[path.real] = tops.get(path.real, False) or command.privileged
        return await self._kept_back(tops)

    def _trees(self, command: SimpleCommand) -> Iterable[Trees]:
        if self._feeds and (places := listed(command.argv)):
            yield Trees(reads=places, changes=places)
        elif (trees := trees_of(command.argv, read_only=command.read_only)) != Trees():
            yield trees

    async def _kept_back(self, tops: dict[str, bool]) -> str:
        if len(tops) > MOST:
            return f"it takes all of more than {MOST} directories"
        return await self._denials.below(tuple(tops), self._execution, privileged=any(tops.values())) if tops else ""

    async def _protected(self, command: SimpleCommand, trees: Trees, here: Sequence[RealPath]) -> str:
        for path in self._all(trees.changes, command, here):
            if place := await self._above(path.forms):
                return _changes(command, path.given, place)
        for path in self._all(trees.reads, command, here):
            if place := await self._above(path.forms, reads=True):
                return f"{command.argv[0]} may read all of {path.given}, and {place} is in it"
        for path in self._all([trees.into] if trees.into else [], command, here):
            entries = [posixpath.join(form, name) for form in path.forms for name in trees.names]
            if place := await self._above([*entries, *(() if path.is_dir else path.forms)]):
                return _changes(command, path.given, place)
        return ""

    async def _above(self, paths: Iterable[str], *, reads: bool = False) -> str:
        for path in paths:
            if place := await self._denials.place_below(path, self._execution, reads=reads):
                return place
        return ""

    # -- from words to directories

    def _all(self, words: Iterable[str], command: SimpleCommand, here: Sequence[RealPath]) -> list[RealPath]:
        return [path for word in words for path in (here if word == HERE else self._meant(word, command))]

    def _meant(self, word: str, command: SimpleCommand) -> list[RealPath]:
        """What a word may be: in each directory that a ``cd`` leads to, and each of the names that match it."""
        written = {_plain(path, self._home) for path in command.paths}
        if "$" in homeward(word):  # what it becomes is among the paths, and not among the words
            others = {_plain(one, self._home) for one in command.argv}
            return [path for path in self._files if _plain(path.given, self._home) in written - others]
        if "{" in word:
            return [found for form in braced([word]) if "{" not in form for found in self._meant(form, command)]
        if has_wildcard(word):
            matched = (path for path in self._files if _plain(path.given, self._home) not in written)
            return [replace(path, is_dir=True) for path in matched]  # what matches was not looked at
        plain = _plain(word, self._home)
        if self._entered and not plain.startswith("/"):
            return [path for path in self._files if path.given == posixpath.join(self._entered, word)]
        return [
            path
            for path in self._files
            if (given := _plain(path.given, self._home)) == plain or (given in written and given.endswith(f"/{plain}"))
        ]

    async def _here(self) -> list[RealPath]:
        """The directories in which it may run."""
        finder = PathFinder(self._execution)
        if self._entered:
            return [await finder.find(homeward(self._entered), self._start)]
        moves = [command for command in self._commands if command.argv and command.argv[0] in _CHANGES]
        words = {homeward(path) for command in moves for path in (command.paths or ("~",)) if path}
        start = [await finder.find(self._start, "")] if self._start.startswith("/") else []
        return [*start, *[await finder.find(word, self._start) for word in sorted(words)]]


def _changes(command: SimpleCommand, given: str, place: str) -> str:
    return f"{command.argv[0]} may change all of {given}, and {place} is in it, which decides what may be done"


def _plain(path: str, home: str) -> str:
    return at_home(homeward(path), home).rstrip("/") or "/"


def _entered(text: str, commands: Sequence[SimpleCommand]) -> str:
    """The directory in which all of it runs but its first command, ``cd DIRECTORY &&``; empty when that is not so."""
    moves = [command for command in commands if command.argv and command.argv[0] in _CHANGES]
    if len(moves) != 1 or moves[0] is not commands[0] or len(moves[0].argv) != 2 or _SEVERAL.search(text):
        return ""
    word = homeward(moves[0].argv[1])
    is_first = text.strip().removeprefix(moves[0].text).lstrip().startswith("&&")
    return word if is_first and not _UNSURE.search(word) else ""
