"""Settings of notifications."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

if TYPE_CHECKING:
    from ..agent.models.keys import KeySource

__all__ = [
    "EVENTS",
    "WAITING_EVENTS",
    "EventKind",
    "NotificationSettings",
    "TemplateName",
    "TerminalProtocol",
    "WebhookSettings",
]

EventKind = Literal[
    "approval_waiting", "question_waiting", "budget_nearly_used", "agent_stopped", "fleet_ended", "job_ended"
]
EVENTS: Final[tuple[EventKind, ...]] = get_args(EventKind)
"""What can be notified of, the most urgent first."""
WAITING_EVENTS: Final[frozenset[EventKind]] = frozenset({"approval_waiting", "question_waiting", "budget_nearly_used"})
"""Those that wait for an operator, or soon will."""
TerminalProtocol = Literal["off", "auto", "osc9", "osc99", "osc777"]
TemplateName = Literal["json", "ntfy", "slack", "teams"]


@dataclass(frozen=True, slots=True)
class WebhookSettings:
    """A webhook: a URL that gets a POST request for each notification."""

    url: str | KeySource = field(repr=False)
    """The URL, or where it is kept: for most services it is a secret."""
    name: str = ""
    """Its name in messages; empty: the host of the URL."""
    template: TemplateName = "json"
    """The format of the request."""
    body: Mapping[str, Any] | None = None
    """The JSON object to send instead, with ``{title}``, ``{text}`` and others in its texts."""
    token: KeySource | None = None
    """Where the bearer token is kept, if the service needs one."""
    headers: Mapping[str, str | KeySource] = field(default_factory=dict, repr=False)
    """Further headers, or where their values are kept."""
    events: tuple[EventKind, ...] = EVENTS
    """The events to send; those that ``[notifications] events`` omits are not sent either."""


@dataclass(frozen=True, slots=True)
class NotificationSettings:
    """The operator's settings of notifications. Without a channel there are none."""

    events: tuple[EventKind, ...] = EVENTS
    """What to notify of."""
    bell: bool = False
    """Ring the bell of the terminal that harness runs in."""
    terminal: TerminalProtocol = "off"
    """Show a notification by an escape sequence of that terminal; ``auto`` chooses it by the terminal."""
    desktop: bool = False
    """Show a notification with ``notify-send``."""
    command: tuple[str, ...] = ()
    """A program and its arguments, which gets the notification as JSON on its standard input."""
    webhooks: tuple[WebhookSettings, ...] = ()
    """URLs that get a request."""
    min_duration: float = 30.0
    """Seconds that a job, a command, a run or a turn of an agent must have taken for a notification of its end."""
    max_per_minute: int = 6
    """Maximum notifications of ends in a minute, and of what waits; further events are put into the next one."""
    include_command: bool = False
    """Include commands and prompts, redacted."""
    include_output: bool = False
    """Include the last lines of outputs, answers of agents and reasons of failures, redacted."""

    @property
    def has_channels(self) -> bool:
        """Whether anything is configured that notifies."""
        return bool(self.events) and bool(
            self.bell or self.terminal != "off" or self.desktop or self.command or self.webhooks
        )
