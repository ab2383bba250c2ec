"""A shell that is started before its command is known, so that a command pays for no process on its way."""

from __future__ import annotations

from dataclasses import dataclass

import anyio

from harness.errors import ConnectError, ConnectionLost

from . import jobscript
from .shell import HeldShell, Ticket
from .state import JobStore

__all__ = ["MOST_ORDER", "Warm", "WarmShells"]

READY_WITHIN = 1.0
MOST_ORDER = 2048
"""Bytes of an order; it must fit into a FIFO that nobody reads."""


@dataclass(frozen=True, slots=True)
class Warm:
    """A waiting shell: its job's id, the ticket of the reply to come, and the slot that its order goes to."""

    job_id: str
    ticket: Ticket
    slot: str


class WarmShells:
    """Keeps one waiting shell on the target once commands come one after the other."""

    def __init__(self, shell: HeldShell, store: JobStore, limit: int) -> None:
        self._shell = shell
        self._store = store
        self._limit = limit
        self._idle: Warm | None = None
        self._previous = {"a": "", "b": ""}
        self._turn = "a"
        self._busy = False

    async def take(self) -> Warm | None:
        """The waiting shell, if there is one; it is the caller's now.

        One that is still starting is waited for, for a moment, so that the ids of commands in a row rise.
        """
        warm = self._idle
        if warm is None or self._busy:
            return None
        self._busy = True
        try:
            with anyio.move_on_after(READY_WITHIN) as waiting:
                await warm.ticket.started()
        except ConnectionLost:
            self._idle = None
            return None
        finally:
            self._busy = False
        if waiting.cancelled_caught:
            return None
        self._idle = None
        if warm.ticket.done:  # it was declined, or ended before its time
            warm.ticket.forget()
            return None
        self._previous[warm.slot] = warm.job_id
        return warm

    async def prepare(self) -> None:
        """Start one if there is none and an id is at hand; returns at once.

        There is never a second one: two readers of a slot would take each other's orders.
        """
        if self._idle is not None or self._busy or (job_id := self._store.claim_ready()) is None:
            return
        self._busy = True
        self._turn = "b" if self._turn == "a" else "a"
        line = jobscript.warm_line(job_id, self._limit, self._turn, self._previous[self._turn])
        try:
            ticket = await self._shell.submit(line, acknowledged=True)
        except (ConnectionLost, ConnectError):
            return
        finally:
            self._busy = False
        self._idle = Warm(job_id, ticket, self._turn)
