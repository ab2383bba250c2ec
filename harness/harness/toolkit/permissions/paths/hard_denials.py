"""``.aiexclude`` files on the target: what the people there keep from agents, in the syntax of ``.gitignore``."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import anyio

from ...context import ExecutionContext
from ...errors import FileError
from .belowsearch import NAME, BelowSearch
from .globs import matches

__all__ = ["NAME", "AiExclude", "excluded", "parse_lines"]

SIZE_LIMIT = 256 << 10
"""Bytes of one file; a longer one excludes everything."""
KEPT = 4096
"""Directories whose file is remembered."""
EVERYTHING = ("*",)


def parse_lines(text: str) -> tuple[str, ...]:
    """The patterns of a file, in their order. Pure."""
    lines = (line.rstrip("\r").rstrip() for line in text.split("\n"))
    return tuple(line for line in lines if line and not line.startswith("#"))


def excluded(patterns: Sequence[str], relative: str) -> str:
    """The pattern that excludes a path below the file's directory; empty when none does. Pure.

    As in ``.gitignore``: the last that matches decides, and what is in an excluded directory stays excluded.
    """
    names = relative.strip("/").split("/")
    for count in range(1, len(names) + 1):
        found = _last(patterns, "/".join(names[:count]))
        if found:
            return found
    return ""


def _last(patterns: Sequence[str], relative: str) -> str:
    for pattern in reversed(patterns):
        plain = pattern.removeprefix("!").replace("\\", "").rstrip("/")
        if "/" in plain:  # from the file's directory on
            found = matches(f"/{plain.lstrip('/')}", f"/{relative}", "path")
        else:
            found = matches(plain, relative, "path")
        if found:
            return "" if pattern.startswith("!") else pattern
    return ""


@dataclass(frozen=True, slots=True)
class _Known:
    patterns: tuple[str, ...]
    until: float


class AiExclude:
    """Reads these files where the paths are, and remembers them for a moment.

    Args:
        seconds: how long a file, or that there is none, is taken for known.
    """

    def __init__(self, seconds: float, clock: Callable[[], float]) -> None:
        self._seconds = seconds
        self._clock = clock
        self._known: dict[tuple[str, str], _Known] = {}
        self._below: dict[tuple[str, tuple[str, ...], bool], tuple[str, float]] = {}

    async def reason(self, path: str, execution: ExecutionContext) -> str:
        """Which pattern of which file excludes this real path; empty when none does.

        Raises:
            HarnessError: the link was lost.
        """
        directories = _above(path)
        known = await self._learn(directories, execution)
        for directory in directories:
            found = excluded(known[directory], path[len(directory.rstrip("/")) :])
            if found:
                return f"{posixpath.join(directory, NAME)} excludes it ({found})"
        return ""

    async def among(
        self, paths: Collection[str], execution: ExecutionContext, top: str, holders: Collection[str] | None
    ) -> set[str]:
        """Those of many real paths that are excluded. See :meth:`HardDenials.excluded`.

        Raises:
            HarnessError: the link was lost.
        """
        above = {parent: _above(f"{parent.rstrip('/')}/x") for parent in {posixpath.dirname(path) for path in paths}}
        every = {directory for directories in above.values() for directory in directories}
        outside = frozenset(_above(top)) if holders is not None else frozenset()
        looked = [name for name in every if holders is None or name in holders or name in outside]
        told = {name: lines for name, lines in (await self._learn(looked, execution)).items() if lines}
        return {path for path in paths if told and _is_excluded(path, above[posixpath.dirname(path)], told)}

    async def below(self, tops: Sequence[str], execution: ExecutionContext, *, privileged: bool) -> str:
        """Which file below some real directories is excluded, or why that is not known; empty when none is.

        Args:
            privileged: directories that we may not look into count as unknown.

        Raises:
            HarnessError: the link was lost.
        """
        key = (execution.identity, tuple(tops), privileged)
        known = self._below.get(key)
        if known is None or self._clock() >= known[1]:
            if len(self._below) > KEPT:
                self._below.clear()
            began = self._clock()
            known = await self._looked_below(tops, execution, privileged=privileged), began + self._seconds
            self._below[key] = known
        return known[0]

    async def _looked_below(self, tops: Sequence[str], execution: ExecutionContext, *, privileged: bool) -> str:
        search = BelowSearch(execution, privileged=privileged)
        holders = await search.holders(tops)
        if isinstance(holders, str):
            return holders
        above = {directory for top in tops for directory in (*_above(top), top)}
        told = {name: lines for name, lines in (await self._learn([*above, *holders], execution)).items() if lines}
        if not told:
            return ""
        found = await search.named(tops, told)
        if isinstance(found, str):
            return found
        kept = [path for path in found if _is_excluded(path, _above(path), told)]
        return f"{kept[0]} is below, and an {NAME} keeps it back" if kept else ""

    async def _learn(self, directories: Sequence[str], execution: ExecutionContext) -> dict[str, tuple[str, ...]]:
        """The patterns of each directory. They are handed on, as another call may forget all that is remembered."""
        if len(self._known) > KEPT:
            self._known.clear()
        now = self._clock()
        remembered = {name: self._known.get((execution.identity, name)) for name in directories}
        told = {name: found.patterns for name, found in remembered.items() if found is not None and now < found.until}
        async with anyio.create_task_group() as tasks:
            for directory in remembered.keys() - told.keys():
                tasks.start_soon(self._read, directory, execution, now, told)
        return told

    async def _read(
        self, directory: str, execution: ExecutionContext, now: float, told: dict[str, tuple[str, ...]]
    ) -> None:
        told[directory] = await _patterns(posixpath.join(directory, NAME), execution)
        self._known[execution.identity, directory] = _Known(told[directory], now + self._seconds)


def _is_excluded(path: str, directories: Sequence[str], told: Mapping[str, Sequence[str]]) -> bool:
    return any(excluded(told[name], path[len(name.rstrip("/")) :]) for name in directories if name in told)


async def _patterns(path: str, execution: ExecutionContext) -> tuple[str, ...]:
    """What a file says. One that is there and cannot be read might say anything, so it excludes everything."""
    try:
        content = await execution.read_file(path, limit=SIZE_LIMIT)
    except FileError:
        return EVERYTHING if await _is_there(path, execution) else ()
    if content.size > SIZE_LIMIT:
        return EVERYTHING
    return parse_lines(content.text)


async def _is_there(path: str, execution: ExecutionContext) -> bool:
    try:
        await execution.stat(path, follow=False)
    except FileError:
        return False
    return True


def _above(path: str) -> list[str]:
    """The directories above an absolute path, the nearest last."""
    found = []
    while path != "/":
        path = posixpath.dirname(path)
        found.append(path)
    return found[::-1]
