"""Which conversation ``harness exec`` is a part of: a new one, or a stored one that goes on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..context import ExecutionContext
from ..errors import ConfigError, HarnessError

if TYPE_CHECKING:
    from ..agent.sessions import SessionStore, SessionSummary

__all__ = ["Chosen", "session_to_resume"]


@dataclass(frozen=True, slots=True)
class Chosen:
    """What the command line says: an id, the last one, or neither for a new one."""

    session: str = ""
    last: bool = False

    @property
    def is_new(self) -> bool:
        """Neither is said."""
        return not (self.session or self.last)


async def session_to_resume(store: SessionStore, chosen: Chosen, target: ExecutionContext) -> SessionSummary | None:
    """The conversation that goes on; None for a new one.

    Raises:
        HarnessError: there is none.
        ConfigError: it is with another target.
    """
    if chosen.session:
        summary = await store.find(chosen.session)
        if summary.identity != target.identity:
            raise ConfigError(
                f"session {summary.session_id} is with {summary.target}, and this is {target.target}",
                hint="choose its target, or leave --session out",
            )
        return summary
    if not chosen.last:
        return None
    last = await store.last(target.identity)
    if last is None:
        raise HarnessError(f"there is no conversation with {target.target} yet", hint="leave --last out")
    return last
