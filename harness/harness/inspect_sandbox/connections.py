"""The connections of an evaluation: one for each destination, shared by its samples."""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from weakref import WeakKeyDictionary

import anyio

from ..context import ExecutionContext, connect
from ..errors import UnsupportedOperation
from .configuration import Destination

__all__ = ["acquire", "release"]


class _Connection:
    """A context that a task of its own opens and leaves.

    inspect_ai starts and ends a sample in two calls with nothing around both, so that neither can be the body of an
    ``async with``: cancel scopes of the caller would end out of order.
    """

    def __init__(self, destination: Destination) -> None:
        self.users = 0
        self._leave = asyncio.Event()
        self._opened: asyncio.Future[ExecutionContext] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._run(destination))

    @property
    def ended(self) -> bool:
        """True when it failed, or was lost for good."""
        return self._task.done()

    async def _run(self, destination: Destination) -> None:
        try:
            async with connect(destination.target, tmux=destination.tmux, config=destination.config) as context:
                self._opened.set_result(context)
                await self._leave.wait()
        except Exception as error:
            if not self._opened.done():
                self._opened.set_exception(error)
        finally:
            self._opened.cancel()

    async def context(self) -> ExecutionContext:
        return await asyncio.shield(self._opened)

    async def close(self) -> None:
        self._leave.set()
        await asyncio.wait([self._task])


Connections = MutableMapping[Destination, _Connection]
_LOOPS: WeakKeyDictionary[asyncio.AbstractEventLoop, Connections] = WeakKeyDictionary()


def _connections() -> Connections:
    """Return the connections of the running event loop."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        raise UnsupportedOperation(
            "harness sandboxes need asyncio, and this evaluation runs on another event loop",
            hint="leave INSPECT_ASYNC_BACKEND unset, or set it to asyncio",
        ) from None
    return _LOOPS.setdefault(loop, {})


async def acquire(destination: Destination) -> ExecutionContext:
    """Return the open context of a destination, connecting if need be; :func:`release` it when done.

    Raises:
        ConnectError: the target could not be reached or entered.
        UnsupportedOperation: the target has no usable tmux, or the evaluation does not run on asyncio.
    """
    known = _connections()
    found = known.get(destination)
    if found is None or found.ended:
        found = known[destination] = _Connection(destination)
    found.users += 1
    try:
        return await found.context()
    except BaseException:
        with anyio.CancelScope(shield=True):
            await _leave(known, destination, found)
        raise


async def release(destination: Destination) -> None:
    """Give a context of :func:`acquire` back; the connection is closed with its last user."""
    known = _connections()
    found = known.get(destination)
    if found is not None:
        await _leave(known, destination, found)


async def _leave(known: Connections, destination: Destination, connection: _Connection) -> None:
    connection.users -= 1
    if connection.users > 0:
        return
    if known.get(destination) is connection:
        del known[destination]
    await connection.close()
