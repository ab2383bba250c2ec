"""Which conversation ``harness exec`` is a part of: a new one, or a stored one that goes on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from ..context import ExecutionContext
from ..errors import ConfigError, HarnessError
from .resuming import WHERE, choices_for
from .streams import Interruption, run_async

if TYPE_CHECKING:
    from ..agent.storage import SessionStore, SessionSummary
    from .options import Invocation

__all__ = ["Chosen", "choose_its_target", "session_to_resume"]


@dataclass(frozen=True, slots=True)
class Chosen:
    """What the command line says: an id, the last one, or neither for a new one."""

    session: str = ""
    last: bool = False

    @property
    def is_new(self) -> bool:
        """Neither is said."""
        return not (self.session or self.last)


def choose_its_target(invocation: Invocation, session_id: str) -> None:
    """Let the conversation say where the run goes to, when the command line does not. Blocks.

    Raises:
        HarnessError: there is no such conversation, or its container is gone.
    """
    from ..agent.storage import SessionStore

    if any(getattr(invocation.choices, name) is not None for name in WHERE):
        return
    found: list[SessionSummary] = []

    async def find(interruption: Interruption) -> int:
        found.append(await SessionStore().find(session_id))
        return 0

    if code := run_async(find):
        raise click.exceptions.Exit(code)  # interrupted
    invocation.choices = choices_for(found[0], invocation.choices, here=False)


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
