"""What was running when a harness died, and what became of it."""

from __future__ import annotations

from dataclasses import dataclass

from ...context import ExecutionContext
from ...toolkit.ledger import NoRoomLedger, SqliteLedger
from .values import StoredConversation

__all__ = ["InFlight", "in_flight"]


@dataclass(frozen=True, slots=True)
class InFlight:
    """What was found out. Both texts are empty when nothing was going on."""

    operator: str = ""
    """Lines for the person at the prompt."""
    model: str = ""
    """The same for the model, as a note to be put before the next prompt."""


async def in_flight(
    stored: StoredConversation, ledger: SqliteLedger | NoRoomLedger, execution: ExecutionContext
) -> InFlight:
    """What was running in a conversation when its harness died, and what the target says about it now.

    Raises:
        HarnessError: it could not be found out.
    """
    raise NotImplementedError
