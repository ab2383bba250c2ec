"""The seam to those who watch."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from ...toolkit.events import Event, EventBus

if TYPE_CHECKING:
    from pydantic_ai.models import Model

    from ..models import ModelProfile, OpenModel

__all__ = ["Observer", "observed", "watching"]

OpenOne = Callable[["ModelProfile"], AbstractAsyncContextManager["OpenModel"]]


class Observer:
    """Hears of every event, and sees what a model is sent and answers. It never waits and never raises.

    ``heard`` is called by the task that publishes: what a :class:`.events.RequestStarted` says holds for the request
    that this task makes next.
    """

    def heard(self, event: Event) -> None:
        """An event was published."""

    def model(self, model: Model) -> Model:
        """The model that is to be used instead; the default is the same one."""
        return model


def observed(open_one: OpenOne, observers: Sequence[Observer]) -> OpenOne:
    """Opens models as ``open_one`` does, so that all of these see their requests."""

    @asynccontextmanager
    async def opened(profile: ModelProfile) -> AsyncIterator[OpenModel]:
        async with open_one(profile) as found:
            model = found.model
            for observer in observers:
                model = observer.model(model)
            yield replace(found, model=model)

    return opened if observers else open_one


@contextmanager
def watching(events: EventBus, observers: Sequence[Observer]) -> Iterator[None]:
    """All of these hear what is published inside."""
    with ExitStack() as stack:
        for observer in observers:
            stack.enter_context(events.listening(observer.heard))
        yield
