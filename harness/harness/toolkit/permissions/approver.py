"""Approvers, which decide approval requests, and the preview that a request shows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import anyio

from ...wording import counted, escape_invisible
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


# -- The preview of a request: where a command starts, and the first lines of the content to write. Pure.


LINES = 20
WIDTH = 160
"""Maximum number of lines shown, and of characters in each."""
LASTING = "an approval for more than once also covers any other content there"
ONLY_THIS = frozenset({ApprovalScope.ONCE, ApprovalScope.DENY_ONCE})


def preview_of(text: str | None, scopes: Sequence[ApprovalScope], redact: Callable[[str], str]) -> str:
    """Return the printable lines of a preview; lines of the text begin with ``| ``, others are from harness.

    Args:
        text: the content to write; None if the call writes none.
        scopes: the scopes that the request offers.
        redact: replaces secrets in a text.

    Returns:
        The lines; empty without a text.
    """
    if text is None:
        return ""
    size = len(text.encode("utf-8", "replace"))  # a byte that is not UTF-8 is one character and counts as one byte
    shown_text = redact(text)
    lines = shown_text.removesuffix("\n").split("\n") if text else []
    more, hidden = len(lines) - LINES, text.count("\n") - shown_text.count("\n")
    shown = [
        f"content, {counted(size, 'byte')}:",
        *(f"| {_line(line)}" for line in lines[:LINES]),
        *([f"\u2026 {more} more {'line' if more == 1 else 'lines'}"] if more > 0 else []),
        *([f"\u2026 {hidden} of its line breaks are redacted with what looks like a secret"] if hidden > 0 else []),
        *([LASTING] if not ONLY_THIS.issuperset(scopes) else []),
    ]
    return "\n".join(shown)


def places_of(claims: Sequence[AccessRequest], pane: object, redact: Callable[[str], str]) -> list[str]:
    """Return the lines with the directories and the pane in which the commands would start.

    The same words have another effect in another directory or pane.
    """
    asked = [claim for claim in claims if claim.kind in ("command", "keys") and not claim.secret]
    named = dict.fromkeys(redact(claim.whole.cwd.rstrip("/") or "/") for claim in asked if claim.whole.cwd)
    panes = [f"in the pane {_line(redact(pane))}"] if asked and isinstance(pane, str) and pane else []
    return [*(f"in the directory {_line(cwd)}" for cwd in named), *panes]


def _line(text: str) -> str:
    """Return a line cut to the width, with the number of characters omitted; control characters are escaped."""
    head = escape_invisible(text[:WIDTH])
    left = len(text) - WIDTH
    return f"{head} \u2026 {left} more {'character' if left == 1 else 'characters'}" if left > 0 else head


# -- The interface of approvers, and the approver that is answered by watchers of the events.


class Approver(ABC):
    """Decides approval requests, for example by asking the operator."""

    @property
    def by_sight(self) -> bool:
        """Whether decisions are made by reviewing what the request shows, and not in advance."""
        return True

    def can_ask(self) -> bool:
        """Return whether an operator may answer; if not, :meth:`ask` denies at once."""
        return True

    def answered_elsewhere(self, question: ApprovalRequest, answer: ApprovalDecision) -> None:  # noqa: B027  # as below
        """Show that a request was answered elsewhere, such as in a dashboard; :meth:`ask` was cancelled before."""

    def expect(self, question: ApprovalRequest) -> None:  # noqa: B027  # most approvers need no preparation
        """Prepare for a request before it is published, so that an answer to the event cannot come too early."""

    def forget(self, question: ApprovalRequest) -> None:  # noqa: B027  # as above
        """Release a request that is over, however it ended."""

    async def ready(self) -> None:  # noqa: B027  # as above
        """Wait, without a time limit, until an approved call may start. Called after each decision."""

    @abstractmethod
    async def ask(self, question: ApprovalRequest) -> ApprovalDecision:
        """Wait for the decision; cancelled on timeout."""


@dataclass(slots=True)
class _Waiting:
    question: ApprovalRequest
    came: anyio.Event = field(default_factory=anyio.Event)
    answer: ApprovalDecision | None = None


class EventApprover(Approver):
    """Approver whose request is the ``PermissionAsked`` event, answered by its ``request_id``."""

    def __init__(self) -> None:
        self._waiting: dict[str, _Waiting] = {}

    def expect(self, question: ApprovalRequest) -> None:
        """Accept answers to the request from now on."""
        self._waiting[question.request_id] = _Waiting(question)

    def forget(self, question: ApprovalRequest) -> None:
        """Accept no more answers to the request."""
        self._waiting.pop(question.request_id, None)

    async def ask(self, question: ApprovalRequest) -> ApprovalDecision:
        """Wait for the answer."""
        waiting = self._waiting[question.request_id]
        await waiting.came.wait()
        assert waiting.answer is not None
        return waiting.answer

    def answer_of(self, question: ApprovalRequest) -> ApprovalDecision | None:
        """Return the answer to an expected request so far."""
        waiting = self._waiting.get(question.request_id)
        return None if waiting is None else waiting.answer

    def answer(self, request_id: str, answer: ApprovalDecision) -> bool:
        """Answer a request; the first answer counts.

        Args:
            request_id: that of the ``PermissionAsked`` event.
            answer: the decision.

        Returns:
            False, without effect, if the request is not (or no longer) pending, or if an agent would allow it.
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
        """The pending requests."""
        return tuple(waiting.question for waiting in self._waiting.values() if waiting.answer is None)
