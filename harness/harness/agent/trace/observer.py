"""The seam to those who watch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...toolkit.events import Event

if TYPE_CHECKING:
    from pydantic_ai.models import Model

__all__ = ["Observer"]


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
