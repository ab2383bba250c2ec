"""Approval requests and tools' questions at the prompt."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from ...toolkit.permissions.approver import Approver
from ...toolkit.permissions.changed_calls import changed_call, editable
from ...toolkit.permissions.questions import ApprovalDecision, ApprovalRequest, ApprovalScope
from ...toolkit.session.questions import Questioner, QuestionReply, QuestionSet, Replies, UserQuestion
from ...toolkit.values import ToolCall, subject_of
from ..asking import MIN_WIDTH, claims_of, fitted, parse_reply, previewed, question_text, quoted, wrapped
from ..output import readable
from .commands.base import duration
from .surface import Choice, Line, QuestionSurface, Span, SurfaceQuestion, folded, line

__all__ = [
    "EditRequested",
    "InvalidAnswer",
    "PromptApprover",
    "PromptQuestioner",
    "asking_of",
    "change_notice",
    "parse_approval",
]


# -- Questions of a tool to the operator, at the prompt.


class PromptQuestioner(Questioner):
    """Questioner that asks the operator at the prompt; ``catch_up`` shows pending events before a question."""

    def __init__(self, surface: QuestionSurface, catch_up: Callable[[], None]) -> None:
        self._surface = surface
        self._catch_up = catch_up

    async def ask(self, asked: QuestionSet) -> Replies | None:
        """Ask each question in turn; Ctrl-C or Ctrl-D declines all of them."""
        self._catch_up()
        replies = []
        for number, question in enumerate(asked.questions, 1):
            lines = _lines(question, number, len(asked.questions))
            reply = await self._reply(question, lines, follows=number > 1)
            if reply is None:
                return None
            replies.append(reply)
        return tuple(replies)

    async def _reply(self, question: UserQuestion, lines: tuple[Line, ...], *, follows: bool) -> QuestionReply | None:
        def complaint(text: str) -> str:
            reply = parse_reply(text, question)
            return "" if isinstance(reply, QuestionReply) else reply

        text = await self._surface.ask(SurfaceQuestion(lines, "answer:", check=complaint, follows=follows))
        reply = parse_reply(text, question) if text is not None else None
        return reply if isinstance(reply, QuestionReply) else None


def _lines(question: UserQuestion, number: int, count: int) -> tuple[Line, ...]:
    first, *rest = question_text(question, number, count).split("\n")
    return (line(Span(first.removeprefix("harness: "), "warn")), *(line(one.removesuffix(": ")) for one in rest))


# -- Approval requests: what runs, where, why, which rule asks, and the possible answers.


LETTERS: Final = {
    "y": ApprovalScope.ONCE,
    "e": ApprovalScope.EXACT,
    "d": ApprovalScope.DIRECTORY,
    "t": ApprovalScope.TOOL,
    "s": ApprovalScope.SESSION,
    "a": ApprovalScope.ALWAYS,
    "n": ApprovalScope.DENY_ONCE,
    "x": ApprovalScope.DENY_SESSION,
}
WORDS: Final = {"yes": ApprovalScope.ONCE, "no": ApprovalScope.DENY_ONCE, "never": ApprovalScope.DENY_SESSION}
MEANINGS: Final = {
    ApprovalScope.ONCE: "yes, once",
    ApprovalScope.EXACT: "exactly this, for the session",
    ApprovalScope.DIRECTORY: "all files of this directory, for the session",
    ApprovalScope.TOOL: "everything with this tool, for the session",
    ApprovalScope.SESSION: "EVERYTHING, for the session",
    ApprovalScope.ALWAYS: "exactly this, always",
    ApprovalScope.DENY_ONCE: "no",
    ApprovalScope.DENY_SESSION: "never this, for the session",
}
ONCE: Final = {ApprovalScope.ONCE: "yes, once", ApprovalScope.DENY_ONCE: "no"}
"""Answers that one key gives without Enter; none of them is lasting, because of typing errors."""
LASTING: Final = {
    ApprovalScope.EXACT: "just this",
    ApprovalScope.DIRECTORY: "its directory",
    ApprovalScope.TOOL: "this tool",
    ApprovalScope.SESSION: "EVERYTHING",
    ApprovalScope.DENY_SESSION: "never",
}
SESSION: Final = "session:"
REASON: Final = "r"
CHANGE = "c"
NO_ANSWER: Final = ApprovalDecision(ApprovalScope.DENY_ONCE, reason="the operator left the question without an answer")
FACTS = 77
"""Maximum total width of the caller's claims in columns."""
LINES = 15
"""Rows of a text from which the question is repeated below it."""


@dataclass(frozen=True, slots=True)
class EditRequested:
    """The operator wants to change the call first."""


@dataclass(frozen=True, slots=True)
class Reason:
    """The operator denies the call and wants to give a reason."""


@dataclass(frozen=True, slots=True)
class InvalidAnswer:
    """The typed answer is invalid."""

    message: str


def parse_approval(text: str, question: ApprovalRequest) -> ApprovalDecision | EditRequested | Reason | InvalidAnswer:
    """Parse an operator's answer; an empty line is invalid, so that an extra Enter decides nothing. Pure."""
    word, _, rest = text.strip().partition(" ")
    word, rest = word.lower(), rest.strip()
    if word in (CHANGE, "change", "edit") and not rest:
        return (
            EditRequested()
            if editable(question) is not None
            else InvalidAnswer("this call cannot be changed; answer y or n")
        )
    if word == REASON and not rest:
        return Reason()
    scope = LETTERS.get(word) or WORDS.get(word) or next((one for one in ApprovalScope if one == word), None)
    if scope is None:
        return InvalidAnswer("answer with one of the letters")
    if scope.allows and rest:
        return InvalidAnswer("a reason is allowed only after n or x")
    if scope not in question.scopes:
        return InvalidAnswer("this answer is not available for this call")
    return ApprovalDecision(scope, reason=rest)


def asking_of(question: ApprovalRequest, width: int = 80) -> SurfaceQuestion:
    """Return the approval request as shown: control characters escaped, no row wider than ``width``. Pure."""
    rows = quoted(question.what, width)
    below = previewed(question.preview, width)
    lines: list[Line] = [
        *_headline(question, width),
        *(line(Span(row[:4], "dim"), Span(row[4:], "code")) for row in rows),
        *(line(row) for row in below),
        *(_again(question, len(rows) + len(below), width) if len(rows) + len(below) > LINES else []),
        *_facts(question, width),
        *(line(Span(f"  {row}", "dim")) for row in wrapped(readable(question.reason), width - 3)),
    ]
    limit = f" (denied after {duration(question.timeout)})" if question.timeout else ""
    return SurfaceQuestion(tuple(lines), f"answer{limit}:", kind="approval", choices=tuple(_choices(question)))


def _again(question: ApprovalRequest, rows: int, width: int) -> list[Line]:
    """Return lines that repeat the question below a long text, with its size."""
    size = f"{len(question.what):,} characters, {rows:,} lines in total"
    hint = line(Span(f"  ↑ {size}: scroll up, and read all of it", "warn"))
    return [*folded(hint, width - 1, "    "), *_headline(question, width)]


def _headline(question: ApprovalRequest, width: int) -> list[Line]:
    call = question.call
    who = f" (requested by agent {readable(call.agent_id)})" if call.agent_id not in ("", "agent") else ""
    asked = line(
        Span("▲ may ", "warn"),
        Span(readable(call.name), "title"),
        Span(" run on ", "warn"),
        Span(readable(question.target).removesuffix(":"), "title"),
        Span(f"?{who}", "warn"),
    )
    return folded(asked, width - 1)


def _facts(question: ApprovalRequest, width: int) -> list[Line]:
    """Return the caller's claims, shortened so that they do not push the call off the screen."""
    why = str(question.details.get("why") or "")
    text = " · ".join([*claims_of(question.details), *([f"why: {why}"] if why else [])])
    room = max(MIN_WIDTH, width) - 3
    return [line(f"  {row}") for row in wrapped(fitted(text, max(FACTS, room)), room)] if text else []


def _choices(question: ApprovalRequest) -> Iterator[Choice]:
    letters = {scope: letter for letter, scope in LETTERS.items()}
    offered = [scope for scope in LETTERS.values() if scope in question.scopes]
    yield from (Choice(letters[scope], ONCE[scope], at_once=True) for scope in offered if scope in ONCE)
    yield Choice(REASON, "no, and say why", at_once=True)
    if (change := editable(question)) is not None:
        yield Choice(CHANGE, f"change the {change[0].replace('_', ' ')}", at_once=True)
    if ApprovalScope.ALWAYS in offered:
        yield Choice(letters[ApprovalScope.ALWAYS], "always this")
    yield from (Choice(letters[scope], LASTING[scope], group=SESSION) for scope in offered if scope in LASTING)


def change_notice(call: ToolCall, redact: Callable[[str], str]) -> str:
    """What the model reads of a call that the operator changed before they approved it."""
    return (
        f"[harness: before the operator approved the call of {call.name} they changed it. "
        f"What they approved instead: {redact(subject_of(call))}]"
    )


def _complaint(text: str, question: ApprovalRequest) -> str:
    answer = parse_approval(text, question)
    return answer.message if isinstance(answer, InvalidAnswer) else ""


class PromptApprover(Approver):
    """Approver that asks the operator at the prompt.

    Args:
        surface: Where to ask.
        changed: Called with each call as the operator changed it.
        catch_up: Shows pending events before a question.
    """

    def __init__(
        self, surface: QuestionSurface, changed: Callable[[ToolCall], None], catch_up: Callable[[], None]
    ) -> None:
        self._surface = surface
        self._changed = changed
        self._catch_up = catch_up

    async def ask(self, question: ApprovalRequest) -> ApprovalDecision:
        """Show the request and wait for a valid answer; no answer denies the call."""
        self._catch_up()
        asking = replace(asking_of(question, self._surface.width), check=lambda text: _complaint(text, question))
        while True:
            text = await self._surface.ask(asking)
            answer = parse_approval(text, question) if text is not None else NO_ANSWER
            if isinstance(answer, EditRequested):
                answer = await self._edited(question)
            elif isinstance(answer, Reason):
                answer = await self._denied_with_reason()
            if isinstance(answer, ApprovalDecision):
                self._said(answer)
                return answer
            asking = replace(asking, lines=(line(Span(f"  {answer.message}", "warn")),), follows=True)

    async def _denied_with_reason(self) -> ApprovalDecision:
        hint = line(Span("  enter the reason; the model reads it", "accent"))
        text = await self._surface.ask(SurfaceQuestion((hint,), "why not:", kind="approval", follows=True))
        return ApprovalDecision(ApprovalScope.DENY_ONCE, reason=(text or "").strip())

    async def _edited(self, question: ApprovalRequest) -> ApprovalDecision | InvalidAnswer:
        found = editable(question)
        assert found is not None
        name, value = found
        hint = line(Span(f"  change the {name} and press Enter; Ctrl-D keeps it unchanged", "accent"))
        text = await self._surface.ask(SurfaceQuestion((hint,), ">", prefill=value, kind="approval", follows=True))
        if text is None or not text.strip():
            return InvalidAnswer("the call was not changed")
        if text == value:
            return InvalidAnswer("the call was not changed; y runs it")
        changed = changed_call(question, text)
        self._changed(changed)
        return ApprovalDecision(ApprovalScope.ONCE, reason="changed by the operator", call=changed)

    def answered_elsewhere(self, question: ApprovalRequest, answer: ApprovalDecision) -> None:
        """Show the decision of a dashboard below the request."""
        self._said(answer, f", by {readable(answer.by)}")
        if answer.call is not None:
            self._changed(answer.call)

    def _said(self, answer: ApprovalDecision, by: str = "") -> None:
        what = MEANINGS[answer.scope]
        if answer.call is not None:
            what = "yes, once, changed" if by else "yes, once, as you changed it"
        reason = f": {answer.reason}" if answer.reason and answer.call is None else ""
        self._surface.show(line(Span(f"  → {what}{by}{reason}", "ok" if answer.scope.allows else "warn")))
