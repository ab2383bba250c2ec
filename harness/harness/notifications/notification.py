"""What operators are notified of: events of sessions, put into one notification. Pure."""

from __future__ import annotations

import re
import socket
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from ..wording import single_line
from .settings import EVENTS, WAITING_EVENTS, EventKind

if TYPE_CHECKING:
    from ..toolkit.values import Json

__all__ = ["MAX_ITEMS", "MAX_READ_BYTES", "Notification", "NotificationItem", "last_lines", "short_line"]

MAX_ITEMS = 20
"""Events of a notification that it lists; more are only counted."""
SHOWN_ITEMS = 5
"""Events that its text lists."""
MAX_LINE_CHARS = 300
MAX_DETAIL_CHARS = 800
"""Characters of a command or an answer."""
MAX_OUTPUT_LINES = 10
MAX_READ_BYTES = 8_000
"""Bytes of the end of an output from which its last lines are taken."""
MAX_TEXT_CHARS = 2_500
_ESCAPE_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z^_])")
_MANY: Final[Mapping[EventKind, str]] = {
    "approval_waiting": "{} approvals wait",
    "question_waiting": "{} questions wait",
    "budget_nearly_used": "{} budgets are nearly used",
    "agent_stopped": "{} agents stopped",
    "fleet_ended": "{} runs ended",
    "job_ended": "{} jobs ended",
}
_ONE: Final[Mapping[EventKind, str]] = {
    "approval_waiting": "an approval waits",
    "question_waiting": "a question waits",
    "budget_nearly_used": "a budget is nearly used",
    "agent_stopped": "an agent stopped",
    "fleet_ended": "a run ended",
    "job_ended": "a job ended",
}


def short_line(text: str, limit: int = MAX_LINE_CHARS) -> str:
    """Return a text as one line without control, formatting and unpaired surrogate characters, cut to a limit."""
    line = single_line(text)
    return line if len(line) <= limit else f"{line[: limit - 2]} …"


def last_lines(data: bytes, redact: Callable[[str], str], *, is_cut: bool = False) -> str:
    """Return the last lines of an output, without escape sequences, and then redacted: they may have split a secret.

    Args:
        data: The end of the output.
        redact: Replaces secrets.
        is_cut: Whether there is output before it: then the first line, which may begin within a secret, is dropped.
    """
    text = data[-MAX_READ_BYTES:].decode("utf-8", "replace")
    if is_cut or len(data) > MAX_READ_BYTES:
        text = text.partition("\n")[2]
    lines = [short_line(line) for line in redact(_ESCAPE_SEQUENCE.sub("", text)).split("\n")]
    return "\n".join([line for line in lines if line][-MAX_OUTPUT_LINES:])


@dataclass(frozen=True, slots=True)
class NotificationItem:
    """One event. All texts are redacted before they get here; control characters are removed here.

    ``summary`` is what happened, without the target. ``detail`` is a command or a reason, ``output`` the last lines of
    an output, both only if the settings ask for it. ``session`` names the session in dashboards.
    """

    event: EventKind
    summary: str
    target: str = ""
    session: str = ""
    detail: str = ""
    output: str = ""
    read_output: Callable[[], Awaitable[str]] | None = field(default=None, repr=False, compare=False)
    """Reads ``output`` before the notification is sent."""
    hint: str = ""
    """How to get there without a dashboard."""
    exit_code: int | None = None
    seconds: float | None = None

    def cleaned(self) -> NotificationItem:
        """Return the event with texts that can be shown anywhere."""
        return replace(
            self,
            summary=short_line(self.summary),
            target=short_line(self.target),
            session=short_line(self.session),
            detail=short_line(self.detail, MAX_DETAIL_CHARS),
            output="\n".join(map(short_line, self.output.split("\n")[-MAX_OUTPUT_LINES:])),
            hint=short_line(self.hint),
        )

    @property
    def line(self) -> str:
        """The event in one line."""
        return f"{self.target}: {self.summary}" if self.target else self.summary

    def to_json(self) -> dict[str, Json]:
        """Return the event as a JSON object; what is unknown is omitted."""
        found: dict[str, Json] = {
            "event": self.event,
            "summary": self.summary,
            "target": self.target,
            "session": self.session,
            "detail": self.detail,
            "output": self.output,
            "exit_code": self.exit_code,
            "seconds": None if self.seconds is None else round(self.seconds, 1),
        }
        return {name: value for name, value in found.items() if value not in ("", None)}


@dataclass(frozen=True, slots=True)
class Notification:
    """One notification of some events; ``counts`` also has those that are not in ``items``."""

    items: tuple[NotificationItem, ...]
    counts: Mapping[EventKind, int]
    url: str = ""
    """Where a dashboard shows it; empty while none runs."""
    host: str = field(default_factory=socket.gethostname)
    """The machine that harness runs on."""
    moment: float = field(default_factory=time.time)
    is_test: bool = False

    @classmethod
    def of(cls, items: Collection[NotificationItem], more: Mapping[EventKind, int] | None = None) -> Notification:
        """Return the notification of some events, the most urgent first.

        Args:
            items: The events.
            more: How many more there are of each kind, which were not kept.
        """
        counts = Counter(item.event for item in items)
        counts.update(more or {})
        listed = sorted(items, key=lambda item: EVENTS.index(item.event))[:MAX_ITEMS]
        return cls(tuple(item.cleaned() for item in listed), dict(counts))

    def only(self, events: Collection[EventKind]) -> Notification | None:
        """Return the notification of these kinds of events alone; None if it has none of them."""
        counts = {event: count for event, count in self.counts.items() if event in events}
        if not counts:
            return None
        return replace(self, items=tuple(item for item in self.items if item.event in events), counts=counts)

    @property
    def event(self) -> EventKind:
        """The most urgent kind of event."""
        return min(self.counts, key=EVENTS.index)

    @property
    def is_urgent(self) -> bool:
        """Whether something waits for an operator."""
        return self.event in WAITING_EVENTS

    @property
    def title(self) -> str:
        """What happened, in one line."""
        if self.is_test:
            return "harness: a test notification"
        if sum(self.counts.values()) == 1 and self.items:
            item = self.items[0]
            return f"harness: {_ONE[item.event]}{f' on {item.target}' if item.target else ''}"
        kinds = sorted(self.counts, key=EVENTS.index)
        parts = [_ONE[kind] if self.counts[kind] == 1 else _MANY[kind].format(self.counts[kind]) for kind in kinds]
        return f"harness: {', '.join(parts)}"

    @property
    def text(self) -> str:
        """The events, a line each, and how to get there: only line feeds separate lines."""
        lines, is_one = [], sum(self.counts.values()) == 1  # whose target is in the title
        for item in self.items[:SHOWN_ITEMS]:
            lines.append(item.summary if is_one else item.line)
            lines += [f"  {line}" for line in (item.detail, *item.output.split("\n")) if line]
        if (left := sum(self.counts.values()) - min(len(self.items), SHOWN_ITEMS)) > 0:
            lines.append(f"and {left} more")
        hints = list(dict.fromkeys(item.hint for item in self.items if item.hint))
        if not self.url and hints:
            lines.append(f"{hints[0]} (on {short_line(self.host)})")
        return "\n".join(lines)[:MAX_TEXT_CHARS]

    def to_json(self) -> dict[str, Json]:
        """Return the notification as a JSON object."""
        return {
            "event": self.event,
            "title": self.title,
            "text": self.text,
            "url": self.url,
            "host": short_line(self.host),
            "time": round(self.moment, 3),
            "counts": {str(event): count for event, count in self.counts.items()},
            "items": [item.to_json() for item in self.items],
        }
