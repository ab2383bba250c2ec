"""Who is asked about a call, and what a question shows beside its text."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import anyio

from .questions import AccessRequest, ApprovalDecision, ApprovalRequest, ApprovalScope

__all__ = [
    "LASTING",
    "LINES",
    "WIDTH",
    "Approver",
    "EventApprover",
    "places_of",
    "preview_of",
]


# -- What a question shows beside its text: where a command starts, and the first lines of what is written. Pure.


LINES = 20
WIDTH = 160
"""Lines, and characters of each, that are shown."""
LASTING = "an answer for more than once covers any other content there, too"
ONLY_THIS = frozenset({ApprovalScope.ONCE, ApprovalScope.DENY_ONCE})


def preview_of(text: str | None, scopes: Sequence[ApprovalScope], redact: Callable[[str], str]) -> str:
    """The lines to show, printable; empty without a text. Lines of the text begin with ``| ``, others are ours."""
    if text is None:
        return ""
    size = len(text.encode("utf-8", "replace"))  # a byte that is no UTF-8 is one character, and becomes one
    shown_text = redact(text)
    lines = shown_text.removesuffix("\n").split("\n") if text else []
    more, hidden = len(lines) - LINES, text.count("\n") - shown_text.count("\n")
    shown = [
        f"content, {size} {'byte' if size == 1 else 'bytes'}:",
        *(f"| {_line(line)}" for line in lines[:LINES]),
        *([f"\u2026 {more} more {'line' if more == 1 else 'lines'}"] if more > 0 else []),
        *([f"\u2026 {hidden} of its line ends are hidden with what looks like a secret"] if hidden > 0 else []),
        *([LASTING] if not ONLY_THIS.issuperset(scopes) else []),
    ]
    return "\n".join(shown)


def places_of(claims: Sequence[AccessRequest], pane: object, redact: Callable[[str], str]) -> list[str]:
    """Where the commands would start: the same words do something else in another directory, or in another pane."""
    asked = [claim for claim in claims if claim.kind in ("command", "keys") and not claim.secret]
    named = dict.fromkeys(redact(claim.whole.cwd.rstrip("/") or "/") for claim in asked if claim.whole.cwd)
    panes = [f"in the pane {_line(redact(pane))}"] if asked and isinstance(pane, str) and pane else []
    return [*(f"in the directory {_line(cwd)}" for cwd in named), *panes]


def _line(text: str) -> str:
    """What fits of a line, and how much does not; control characters are spelled out."""
    head = "".join(char if char.isprintable() else repr(char)[1:-1] for char in text[:WIDTH])
    left = len(text) - WIDTH
    return f"{head} \u2026 {left} more {'character' if left == 1 else 'characters'}" if left > 0 else head


# -- Who is asked: the seam for prompts, and the approver whose answers come from whoever watches the events.


class Approver(ABC):
    """Asks somebody."""

    @property
    def by_sight(self) -> bool:
        """Whether the answer is that of somebody who decides by what is shown, and not one given in advance."""
        return True

    def expect(self, question: ApprovalRequest) -> None:  # noqa: B027  # most approvers have nothing to do here
        """Called before the question is published, so that an answer to the event cannot come too early."""

    def forget(self, question: ApprovalRequest) -> None:  # noqa: B027  # as above
        """Called when the question is over, however it ended."""

    async def ready(self) -> None:  # noqa: B027  # as above
        """Wait until what was allowed may begin: nothing limits the time. Called after each question."""

    @abstractmethod
    async def ask(self, question: ApprovalRequest) -> ApprovalDecision:
        """Wait for the answer. Out of time, it is cancelled."""


@dataclass(slots=True)
class _Waiting:
    question: ApprovalRequest
    came: anyio.Event = field(default_factory=anyio.Event)
    answer: ApprovalDecision | None = None


class EventApprover(Approver):
    """The question is the ``PermissionAsked`` event; who sees it answers with its ``request_id``."""

    def __init__(self) -> None:
        self._waiting: dict[str, _Waiting] = {}

    def expect(self, question: ApprovalRequest) -> None:
        """Take answers to it from now on."""
        self._waiting[question.request_id] = _Waiting(question)

    def forget(self, question: ApprovalRequest) -> None:
        """Take no more answers to it."""
        self._waiting.pop(question.request_id, None)

    async def ask(self, question: ApprovalRequest) -> ApprovalDecision:
        """Wait until somebody answers."""
        waiting = self._waiting[question.request_id]
        await waiting.came.wait()
        assert waiting.answer is not None
        return waiting.answer

    def answer(self, request_id: str, answer: ApprovalDecision) -> bool:
        """Answer a question. The first answer counts.

        Returns False, and changes nothing, when nobody waits for it (any more), or when an agent would allow: that is
        for people.
        """
        waiting = self._waiting.get(request_id)
        if waiting is None or waiting.answer is not None:
            return False
        if answer.agent_id and answer.scope.allows:
            return False
        waiting.answer = answer
        waiting.came.set()
        return True

    @property
    def pending(self) -> tuple[ApprovalRequest, ...]:
        """The questions that wait."""
        return tuple(waiting.question for waiting in self._waiting.values() if waiting.answer is None)
