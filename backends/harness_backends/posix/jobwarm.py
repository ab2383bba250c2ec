"""A shell that is started before its command is known, so that a command pays for no process on its way."""

from __future__ import annotations

from dataclasses import dataclass

from harness.errors import ConnectError, ConnectionLost

from . import jobscript
from .shell import HeldShell, Ticket
from .state import JobStore

__all__ = ["MOST_ORDER", "Warm", "WarmShells"]

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
        self._preparing = False

    def take(self) -> Warm | None:
        """The waiting shell, if it is known to be ready; it is the caller's now."""
        warm = self._idle
        if warm is None or not (warm.ticket.done or warm.ticket.acknowledged):
            return None
        self._idle = None
        if warm.ticket.done:  # it ended before its time, or with its link
            warm.ticket.forget()
            return None
        self._previous[warm.slot] = warm.job_id
        return warm

    async def prepare(self) -> None:
        """Start one if there is none and an id is at hand; returns at once.

        There is never a second one: two readers of a slot would take each other's orders.
        """
        if self._idle is not None or self._preparing or (job_id := self._store.claim_ready()) is None:
            return
        self._preparing = True
        self._turn = "b" if self._turn == "a" else "a"
        line = jobscript.warm_line(job_id, self._limit, self._turn, self._previous[self._turn])
        try:
            ticket = await self._shell.submit(line, acknowledged=True)
        except (ConnectionLost, ConnectError):
            return
        finally:
            self._preparing = False
        self._idle = Warm(job_id, ticket, self._turn)
