"""A transport that starts programs in one container, identified by its id."""

from __future__ import annotations

import math
import re
from collections.abc import Awaitable, Callable, Sequence

import anyio
import anyio.lowlevel

from harness.errors import ConnectError, ConnectionLost, HarnessError, UnsupportedOperation
from harness.target import Target
from harness.transport import Process, Transport

from ..posix.supervised_process import (
    GroupLeader,
    SupervisedProcess,
    finish_start,
    kill_group,
    new_nonce,
    wait_for_start,
    wrapped_argv,
)
from .engine import Engine, EngineError, ExecRequest
from .information import ContainerInfo, container_removed, no_shell, refusal, replaced

__all__ = ["ContainerTransport"]

STALL = 60.0
"""Seconds without data after which a copy has failed."""
TMUX_DIRECTORY = "/tmp"  # noqa: S108  # tmux's socket directory is tmux-UID in it

_NO_USER = re.compile(r"unable to find user|no such user|no matching entries in passwd", re.IGNORECASE)


def _holds_sockets(path: str) -> bool:
    """Return whether tmux sockets at a mounted path can be shared with the host or other containers."""
    return f"{TMUX_DIRECTORY}/".startswith(f"{path.rstrip('/')}/") or path.startswith(f"{TMUX_DIRECTORY}/tmux-")


class ContainerTransport(Transport):
    """A transport into the container that had the target's name when this was created; never into another."""

    def __init__(
        self, target: Target, engine: Engine, info: ContainerInfo, *, base: Transport | None = None, user: str = ""
    ) -> None:
        self.target = target
        self.engine = engine
        self.info = info
        self._base = base
        self._user = user or target.last.user or ""
        self.max_channels = base.max_channels if base is not None else None
        self.shares_sockets = any(_holds_sockets(path) for path in info.mounts)

    async def open_process(self, argv: Sequence[str]) -> SupervisedProcess:
        nonce = new_nonce()
        request = self._exec(wrapped_argv(argv, nonce))
        return await finish_start(lambda: self._start(request, nonce), self.target, SupervisedProcess.aclose)

    async def _start(self, request: ExecRequest, nonce: str) -> SupervisedProcess:
        try:
            raw = await self.engine.execute(request)
        except EngineError as error:
            raise await self._start_error(error.message) from error
        process = SupervisedProcess(raw, nonce, self._kill, self._verdict)
        said = await wait_for_start(process, "the engine", self.target)
        if said is None:
            return process
        raise await self._start_error(said)

    async def copy_out(self, path: str, sink: Callable[[bytes], Awaitable[None]]) -> None:
        """Copy a path to ``sink`` as a tar archive; see :meth:`.engine.Engine.copy_out`.

        Raises:
            EngineError: the engine refused, not because of the container's state.
            ConnectError, ConnectionLost: the container or the engine cannot be reached.
        """
        with anyio.CancelScope(deadline=anyio.current_time() + STALL) as scope:

            async def timed(data: bytes) -> None:
                scope.deadline = math.inf
                await sink(data)
                scope.deadline = anyio.current_time() + STALL

            try:
                await self.engine.copy_out(self.info.container_id, path, timed)
                return
            except EngineError as error:
                if (fault := await self._look()) is not None:
                    raise fault from error
                raise
        raise ConnectionLost("the engine does not answer", target=self.target)

    async def _start_error(self, said: str) -> HarnessError:
        """Return the error for a failed start, preferably from the container's state."""
        try:
            fault = await self._look()
        except HarnessError as error:
            return error
        if fault is not None:
            return fault
        if _NO_USER.search(said):
            return UnsupportedOperation(
                f"cannot run as {self._user}: {said}",
                target=self.target,
                hint="use a user of the image, or a numeric id",
            )
        if '"sh"' in said or "`sh`" in said:
            return no_shell(self.info.image, said, self.target)
        return ConnectError(f"the engine failed to start the process: {said or 'no reason given'}", target=self.target)

    async def _look(self) -> ConnectError | None:
        """Inspect the container again; return the error for its current state, or None if it is running."""
        now = await self.engine.inspect(self.info.container_id)
        if now is None:
            other = await self.engine.inspect(self.info.name)
            return (
                container_removed(self.info, self.target) if other is None else replaced(self.info, other, self.target)
            )
        self.info = now
        return refusal(now, self.engine.name, self.target)

    def as_user(self, user: str) -> ContainerTransport:
        """Return a transport into the same container as another user, which needs no password."""
        return ContainerTransport(self.target, self.engine, self.info, base=self._base, user=user)

    async def _verdict(self, raw: Process) -> int:
        """Return the status of a program whose shell could not report it."""
        before = self.info.started_at
        try:
            fault = await self._look()
        except ConnectError as error:
            raise ConnectionLost(f"no exit status: {error.message}", target=self.target, hint=error.hint) from error
        if fault is None and self.info.started_at == before:
            return await raw.wait()
        what = fault.message if fault is not None else f"container {self.info.name} was restarted"
        raise ConnectionLost(f"no exit status: {what}", target=self.target, hint=fault.hint if fault else "")

    async def _kill(self, leader: GroupLeader, ladder: Sequence[tuple[str, float]], tree: bool) -> int:
        return await kill_group(self._execute, leader, ladder, self.target, tree=tree)

    async def _execute(self, argv: list[str]) -> Process:
        try:
            return await self.engine.execute(self._exec(argv))
        except EngineError as error:
            raise ConnectError(error.message, target=self.target) from error

    def _exec(self, argv: Sequence[str]) -> ExecRequest:
        return ExecRequest(self.info.container_id, tuple(argv), self._user)

    def interactive_argv(self, argv: Sequence[str]) -> list[str]:
        words = self.engine.interactive_argv(self._exec(argv))
        return self._base.interactive_argv(words) if self._base is not None else words

    def supervised_argv(self, argv: Sequence[str]) -> list[str]:
        words = self.engine.interactive_argv(self._exec(argv))
        return self._base.supervised_argv(words) if self._base is not None else words

    @property
    def state(self) -> str:
        return f"container {self.info.short_id} {self.info.state}"

    @property
    def identity(self) -> str:
        return self.info.container_id

    def describe(self) -> str:
        base = f" over {self._base.describe()}" if self._base is not None else ""
        return f"{self.engine.describe()}{base}, {self.state}"
