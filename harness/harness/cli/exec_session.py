"""Which conversation ``harness exec`` is a part of: a new one, or a stored one that goes on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from ..context import ExecutionContext
from ..errors import ConfigError, HarnessError
from .runtime import Session

if TYPE_CHECKING:
    from ..agent.sessions import NewSession, SessionStore, SessionSummary, StoredConversation, StoredLog

__all__ = ["Chosen", "Going", "going_on"]


@dataclass(frozen=True, slots=True)
class Chosen:
    """What the command line says: an id, the last one, or neither for a new one."""

    session: str = ""
    last: bool = False


@dataclass(frozen=True, slots=True)
class Going:
    """A conversation that is open for writing; ``stored`` is what was there before, None for a new one."""

    session_id: str
    log: StoredLog
    stored: StoredConversation | None = None


@asynccontextmanager
async def going_on(
    store: SessionStore, chosen: Chosen, session: Session, target: ExecutionContext, model: str
) -> AsyncIterator[Going]:
    """Open it.

    Raises:
        HarnessError: there is none, it is with another target, another process goes on with it, or it cannot be stored.
    """
    summary = await _found(store, chosen, target)
    if summary is None:
        new = await store.create(_new(session, target, model))
        async with store.writing(new.session_id) as log:
            yield Going(new.session_id, log)
        return
    async with store.writing(summary.session_id) as log:
        yield Going(summary.session_id, log, await store.load(summary.session_id))


async def _found(store: SessionStore, chosen: Chosen, target: ExecutionContext) -> SessionSummary | None:
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


def _new(session: Session, target: ExecutionContext, model: str) -> NewSession:
    from ..agent.sessions import NewSession

    tmux = session.settings.tmux
    name = tmux if isinstance(tmux, str) else session.settings.config.session if tmux else ""
    options = {key: value for key, value in asdict(session.invocation.choices).items() if value not in (None, ())}
    return NewSession(
        target=str(target.target),
        identity=target.identity,
        tmux=name,
        pane=target.pane or "",
        model=model,
        options=options,
    )
