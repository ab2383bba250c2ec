"""What a command would take that it does not name: files below the directories of which it takes everything.

Harness's own files, and what ``.aiexclude`` keeps back. The text of the command says which directories are meant, and
the target what is in them.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from ...context import ExecutionContext
from .blocklist import is_harness
from .harddenials import HardDenials
from .operand_paths import EntryPath, OperandPaths
from .shelltrees import HERE, Trees, feeds, listed, trees_of
from .targetpaths import RealPath

if TYPE_CHECKING:
    from .shelljudge import CommandJudgement, SimpleCommand

__all__ = ["TreeReader", "other_settings"]

MOST = 64
"""Directories of one command."""
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
        operands: what its words are on the target.
        entries: what it opens below directory operands.
        judgement: what the command is.
    """

    def __init__(
        self,
        execution: ExecutionContext,
        denials: HardDenials,
        operands: OperandPaths,
        entries: Sequence[EntryPath],
        judgement: CommandJudgement,
    ) -> None:
        self._execution = execution
        self._denials = denials
        self._operands = operands
        self._entries = entries
        self._commands = judgement.commands
        self._feeds = any(feeds(command.argv) for command in judgement.commands)

    async def reason(self) -> str:
        """Why somebody must be asked about it; empty when nobody must.

        Raises:
            HarnessError: the link was lost.
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
        if any(trees.into for _, trees in used):  # a directory that gets the entries of another with its name
            tops |= {entry.path.real: False for entry in self._entries if entry.writes and entry.path.is_dir}
        return await self._kept_back(tops)

    def _trees(self, command: SimpleCommand) -> Iterable[Trees]:
        if self._feeds and (places := listed(command.argv)):
            yield Trees(reads=places, changes=places)
        elif (trees := trees_of(command.argv, read_only=command.read_only)) != Trees():
            yield trees

    def _are_directories(self, command: SimpleCommand, trees: Trees) -> bool:
        """Whether two of its words may be directories."""
        found = (self._operands.all([word], command, ()) for word in trees.reads)
        return sum(any(path.is_dir or not path.is_known for path in paths) for paths in found) > 1

    async def _kept_back(self, tops: dict[str, bool]) -> str:
        if len(tops) > MOST:
            return f"it takes all of more than {MOST} directories"
        return await self._denials.below(tuple(tops), self._execution, privileged=any(tops.values())) if tops else ""

    async def _protected(self, command: SimpleCommand, trees: Trees, here: Sequence[RealPath]) -> str:
        for path in self._operands.all(trees.changes, command, here):
            if place := await self._above(path.forms):
                return _changes(command, path.given, place)
        for path in self._operands.all(trees.reads, command, here):
            if place := await self._above(path.forms, reads=True):
                return f"{command.argv[0]} may read all of {path.given}, and {place} is in it"
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
    return f"{command.argv[0]} may change all of {given}, and {place} is in it, which decides what may be done"
