"""Check of the host files that a command gives a container: files outside of the working directory ask."""

from __future__ import annotations

import posixpath
import re
from typing import TYPE_CHECKING

from ....context import ExecutionContext
from ....patterns.wildcards import has_wildcard
from ..paths.target_paths import PathResolver, RealPath
from .container_reach import Mount, container_reach, reaches_by_socket
from .operand_paths import OperandPaths
from .paths import homeward

if TYPE_CHECKING:
    from .classification import CommandClassification

__all__ = ["ContainerFiles", "reaches_any_file"]

_UNKNOWN = re.compile(r"[$`]")


def reaches_any_file(classification: CommandClassification) -> str:
    """Return why a command may access any host file through a container; empty if it may not. Pure."""
    for command in classification.commands:
        if not command.read_only and (reason := container_reach(command.argv).reason):
            return reason
        if not command.read_only and reaches_by_socket(command.argv):
            return f"{command.argv[0]} uses the socket of a container engine, which may access any file on the host"
    return ""


class ContainerFiles:
    """Resolves the host files that a command gives a container.

    Args:
        execution: the target.
        operands: the words of the command, resolved on the target.
        start: the working directory; empty if unknown.
    """

    def __init__(self, execution: ExecutionContext, operands: OperandPaths, start: str) -> None:
        self._execution = execution
        self._operands = operands
        self._start = start

    async def reason(self, classification: CommandClassification) -> str:
        """Return why the files require approval; empty if they do not.

        Raises:
            HarnessError: the connection was lost.
        """
        for command in classification.commands:
            reach = container_reach(() if command.read_only else command.argv)
            for mount in reach.mounts:
                if not mount.by_name and (reach.elsewhere or await self._is_outside(mount)):
                    return f"{command.argv[0]} gives a container {mount.source}, outside the working directory"
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
