"""Files of the host that a command gives to a container: outside of the working directory, somebody is asked."""

from __future__ import annotations

import posixpath
import re
from typing import TYPE_CHECKING

from ....context import ExecutionContext
from ..globs import has_wildcard
from ..paths.target_paths import PathResolver, RealPath
from .container_reach import Mount, container_reach, reaches_by_socket
from .operand_paths import OperandPaths
from .paths import homeward

if TYPE_CHECKING:
    from .verdict import CommandClassification

__all__ = ["ContainerFiles", "reaches_any_file"]

_UNKNOWN = re.compile(r"[$`]")


def reaches_any_file(judgement: CommandClassification) -> str:
    """Why a command may reach any file of the host through a container; empty when it does not. Pure."""
    for command in judgement.commands:
        if not command.read_only and (reason := container_reach(command.argv).reason):
            return reason
        if not command.read_only and reaches_by_socket(command.argv):
            return f"{command.argv[0]} speaks to an engine of containers, which may reach any file of the host"
    return ""


class ContainerFiles:
    """Looks where the files are that a command gives to a container.

    Args:
        operands: the words of the command on the target.
        start: the working directory; empty when nobody knows.
    """

    def __init__(self, execution: ExecutionContext, operands: OperandPaths, start: str) -> None:
        self._execution = execution
        self._operands = operands
        self._start = start

    async def reason(self, judgement: CommandClassification) -> str:
        """Why somebody must be asked about them; empty when nobody must.

        Raises:
            HarnessError: the link was lost.
        """
        for command in judgement.commands:
            reach = container_reach(() if command.read_only else command.argv)
            for mount in reach.mounts:
                if not mount.by_name and (reach.elsewhere or await self._is_outside(mount)):
                    return f"{command.argv[0]} gives a container {mount.source}, outside of the working directory"
        return ""

    async def _is_outside(self, mount: Mount) -> bool:
        source = homeward(mount.source)
        if _UNKNOWN.search(source) or has_wildcard(source) or not self._start.startswith("/"):
            return True
        finder = PathResolver(self._execution)
        top = await finder.find(self._start, "")
        bases = [path.real for path in await self._operands.here()] or [top.real]
        found = [await finder.find(source, base) for base in bases]
        return any(_is_beyond(path, top.real) for path in found if not mount.only_directory or _may_be_directory(path))


def _may_be_directory(path: RealPath) -> bool:
    return path.is_dir or not path.is_known


def _is_beyond(path: RealPath, top: str) -> bool:
    is_below = f"{path.real}/".startswith(f"{posixpath.normpath(top)}/")
    return not path.is_known or top == "/" or not is_below
