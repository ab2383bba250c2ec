"""One writer of a file at a time, among the calls of this process."""

from __future__ import annotations

import posixpath
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

import anyio

__all__ = ["PathLocks", "lock_keys"]


def lock_keys(backend: str, paths: Iterable[str], cwd: str) -> list[str]:
    """The keys of paths, in the order in which everybody takes them. Pure; links are left to the target's check."""
    return sorted({f"{backend}\0{posixpath.normpath(posixpath.join(cwd, path))}" for path in paths})


@dataclass(slots=True)
class _Held:
    lock: anyio.Lock = field(default_factory=anyio.Lock)
    users: int = 0


class PathLocks:
    """Locks by key, which exist only while somebody holds or wants them."""

    def __init__(self) -> None:
        self._held: dict[str, _Held] = {}

    @asynccontextmanager
    async def hold(self, keys: Iterable[str]) -> AsyncIterator[None]:
        """Hold all of these."""
        async with AsyncExitStack() as stack:
            for key in keys:
                await stack.enter_async_context(self._one(key))
            yield

    @asynccontextmanager
    async def _one(self, key: str) -> AsyncIterator[None]:
        held = self._held.setdefault(key, _Held())
        held.users += 1
        try:
            async with held.lock:
                yield
        finally:
            held.users -= 1
            if not held.users:
                del self._held[key]
