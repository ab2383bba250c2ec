"""Looking at directories: one search program on the target; what is found is parsed and matched here.

The answer to a small search comes in one round trip of the held shell. A search that finds more than that shell should
carry is done again in a process of its own, where it can be stopped at any time.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass

from harness.errors import FileError, FileNotFound, NotADirectory
from harness.results import DirEntry

from .filecalls import FileCalls
from .fileerrors import file_error, shown
from .fileparse import EntryParser, tolerable
from .filescript import INLINE_READ, call
from .glob import plan_glob
from .shell import Reply
from .transfer import drain

__all__ = ["Search", "glob_paths", "list_entries", "search"]

MAX_LISTED = 1_000_000


@dataclass(frozen=True, slots=True)
class Search:
    """A search below ``path``: the library's ``shape``, and for ``expand`` the pattern."""

    path: str
    shape: str
    pattern: str = ""

    def script(self, mark: str, cap: int) -> str:
        """The call, with at most ``cap`` bytes of answer (0: any)."""
        return call("hxf_tree", self.path, self.shape, mark, cap, self.pattern)


class _TooMany(Exception):
    pass


class _Kept:
    """What a search has found so far: ``choose`` makes results of an entry."""

    def __init__(self, mark: str, choose: Callable[[DirEntry], list[DirEntry]], maximum: int) -> None:
        self.results: list[DirEntry] = []
        self._parser = EntryParser(mark)
        self._choose = choose
        self._maximum = maximum

    async def feed(self, data: bytes) -> None:
        self._add(self._parser.feed(data))

    def finish(self) -> list[DirEntry]:
        self._add(self._parser.finish())
        return self.results

    def _add(self, entries: list[DirEntry]) -> None:
        for entry in entries:
            self.results += self._choose(entry)
        if len(self.results) > self._maximum:
            raise _TooMany


async def search(
    calls: FileCalls, wanted: Search, maximum: int, choose: Callable[[DirEntry], list[DirEntry]] = lambda entry: [entry]
) -> list[DirEntry]:
    """Run a search; results are sorted by name.

    Raises:
        FileError: more than ``maximum`` results; or the matching error of the directory.
    """
    mark = secrets.token_hex(12)
    try:
        return sorted(await _search(calls, wanted, _Kept(mark, choose, maximum), mark), key=lambda entry: entry.name)
    except _TooMany:
        raise FileError(
            f"{shown(wanted.path)}: more than {maximum} entries",
            target=calls.transport.target,
            hint="search a smaller part, or raise max_entries",
        ) from None


async def _search(calls: FileCalls, wanted: Search, kept: _Kept, mark: str) -> list[DirEntry]:
    reply = await calls.run(wanted.path, wanted.script(mark, INLINE_READ))
    if len(reply.stdout) < INLINE_READ:
        _check(calls, wanted.path, reply)
        return await _whole(calls, wanted, kept, reply)
    with calls.understanding(wanted.path, reply.stdout):
        EntryParser(mark).feed(reply.stdout)
    process = await calls.open_script(wanted.script(mark, 0))
    if process is None:
        reply = await calls.run(wanted.path, wanted.script(mark, 0))
        _check(calls, wanted.path, reply)
        return await _whole(calls, wanted, kept, reply)
    with calls.understanding(wanted.path, b"..."):
        _check(calls, wanted.path, await drain(process, kept.feed))
        return kept.finish()


async def _whole(calls: FileCalls, wanted: Search, kept: _Kept, reply: Reply) -> list[DirEntry]:
    with calls.understanding(wanted.path, reply.stdout):
        await kept.feed(reply.stdout)
        return kept.finish()


def _check(calls: FileCalls, path: str, reply: Reply) -> None:
    """Searches leave out what they may not enter; any other complaint is an error."""
    if reply.exit_code >= 70 or not tolerable(reply.stderr):
        raise file_error(path, reply.exit_code, reply.stderr, calls.transport.target)


async def list_entries(calls: FileCalls, path: str) -> list[DirEntry]:
    """The names in a directory."""
    return await search(calls, Search(path, "list"), MAX_LISTED)


async def glob_paths(calls: FileCalls, pattern: str, root: str, maximum: int) -> list[str]:
    """The paths that match a pattern below ``root``, or anywhere when the pattern is absolute or begins with ``~``."""
    plan = plan_glob(pattern)
    if plan.expression is None:
        return [pattern] if await _exists(calls, _join(root, pattern)) else []

    def choose(entry: DirEntry) -> list[DirEntry]:
        return [DirEntry(name, entry.type, entry.size) for name in plan.match(entry)]

    wanted = Search(_join(root, plan.prefix), plan.shape, plan.expansion or "")
    try:
        found = await search(calls, wanted, maximum, choose)
    except (FileNotFound, NotADirectory):
        if not plan.prefix:
            raise
        return []
    return sorted(([plan.prefix] if plan.includes_prefix else []) + [entry.name for entry in found])


def _join(root: str, path: str) -> str:
    return path if path.startswith(("/", "~")) else f"{root}/{path}" if path else root


async def _exists(calls: FileCalls, path: str) -> bool:
    try:
        await calls.run(path, call("hxf_status", path, 0))
    except (FileNotFound, NotADirectory):
        return False
    return True
