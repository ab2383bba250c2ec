"""Where every call of an agent passes: nothing begins while it is paused, or once its turn is cancelled."""

from __future__ import annotations

import anyio

from ..toolkit.context import ToolContext
from ..toolkit.permissions.answers import Answer, Question
from ..toolkit.permissions.approver import Approver
from ..toolkit.seams import Next
from ..toolkit.values import CallOutcome, CallStatus, ToolCall, ToolResult

__all__ = ["Gate", "GatedApprover"]


class Gate:
    """A middleware around the calls of an agent and of its sub-agents."""

    def __init__(self) -> None:
        self._open = anyio.Event()
        self._open.set()
        self._cancelled = False

    @property
    def paused(self) -> bool:
        """Nothing begins."""
        return not self._open.is_set()

    def pause(self) -> None:
        """Let nothing begin until :meth:`resume`; what runs goes on."""
        if self._open.is_set():
            self._open = anyio.Event()

    def resume(self) -> None:
        """Let what waits begin."""
        self._open.set()

    def refuse(self, *, cancelled: bool) -> None:
        """Refuse whatever would begin, until it is told otherwise: the turn that asked for it is cancelled."""
        self._cancelled = cancelled

    async def passed(self) -> None:
        """Wait until it is open."""
        await self._open.wait()

    async def __call__(self, call: ToolCall, ctx: ToolContext, following: Next) -> CallOutcome:
        """Take a call through."""
        if not self._cancelled and self.paused:
            began = anyio.current_time()
            await self.passed()
            ctx.notes.waited += anyio.current_time() - began
        if self._cancelled:
            nothing = ToolResult.failure("cancelled", "not run: the operator cancelled the turn before it began")
            return CallOutcome(call, nothing, CallStatus.CANCELLED)
        return await following(call)


class GatedApprover(Approver):
    """Asks somebody else; what was allowed while the agent is paused begins when it goes on."""

    def __init__(self, approver: Approver, gate: Gate) -> None:
        self._approver = approver
        self._gate = gate

    @property
    def by_sight(self) -> bool:
        """See :class:`Approver`."""
        return self._approver.by_sight

    def expect(self, question: Question) -> None:
        """See :class:`Approver`."""
        self._approver.expect(question)

    def forget(self, question: Question) -> None:
        """See :class:`Approver`."""
        self._approver.forget(question)

    async def ready(self) -> None:
        """Wait while the agent is paused."""
        await self._approver.ready()
        await self._gate.passed()

    async def ask(self, question: Question) -> Answer:
        """See :class:`Approver`."""
        return await self._approver.ask(question)
