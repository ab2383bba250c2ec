"""Approval requests and questions of tools, sent to the client's user through the client."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import anyio
import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from pydantic import ValidationError

from ...system.background_tasks import open_background_tasks
from ...toolkit.permissions.approver import Approver
from ...toolkit.permissions.asking import no_approver
from ...toolkit.permissions.questions import ApprovalDecision, ApprovalRequest, ApprovalScope
from ...toolkit.permissions.request_text import MEANINGS, cut_text, message_of, offered, one_line
from ...toolkit.session.questions import Questioner, QuestionReply, QuestionSet, Replies, UserQuestion, check_replies
from .requests import unheard_of

__all__ = [
    "CURRENT",
    "ClientApprover",
    "ClientQuestioner",
    "answer_of",
    "can_ask",
    "elicited",
    "form_of",
    "question_form",
    "question_message",
    "replies_of",
]


# -- Approval requests to the client's user: only clients that declare the capability are asked.
#
# The request goes to the client and not to its model, and a model has no call that could answer it. Whether a human
# really answered is up to the client, which is trusted in this.


CURRENT: ContextVar[ServerRequestContext[Any, Any] | None] = ContextVar("harness_mcp_request", default=None)
"""The current request; questions go to its sender."""


class ClientApprover(Approver):
    """Sends approval requests to the user of the client that made the call."""

    @contextmanager
    def asks(self, ctx: ServerRequestContext[Any, Any]) -> Iterator[None]:
        """Send questions inside the block to the sender of this request."""
        token = CURRENT.set(ctx)
        try:
            yield
        finally:
            CURRENT.reset(token)

    def can_ask(self) -> bool:
        """Return whether the client that made the current call can ask its user."""
        ctx = CURRENT.get()
        return ctx is not None and can_ask(ctx.session.client_capabilities)

    async def ask(self, question: ApprovalRequest) -> ApprovalDecision:
        """Return the user's decision; a denial if the client cannot ask its user."""
        ctx = CURRENT.get()
        if ctx is None or not self.can_ask():
            reason = f"this client cannot ask its user, and {no_approver(question.scopes, broken=question.broken)}"
            return ApprovalDecision(ApprovalScope.DENY_ONCE, "policy", reason)
        scopes = offered(question)
        message, form = message_of(question), form_of(scopes)
        try:
            result = await elicited(ctx, message, form)
        except MCPError as error:  # it declared the capability, but cannot show this form
            why = cut_text(one_line(str(error)))
            return ApprovalDecision(ApprovalScope.DENY_ONCE, "approver", f"the client could not ask its user: {why}")
        except ValidationError:  # its message may contain the user's input
            return ApprovalDecision(
                ApprovalScope.DENY_ONCE, "approver", "the client's answer is not valid in the protocol"
            )
        if result is None:
            return ApprovalDecision(
                ApprovalScope.DENY_ONCE, "nobody", "the client disconnected before its user answered"
            )
        return answer_of(result.action, result.content, scopes, _name(ctx.session.client_params))


async def elicited(
    ctx: ServerRequestContext[Any, Any], message: str, form: dict[str, Any]
) -> types.ElicitResult | None:
    """Return the client's reply; None if the connection on which it was asked has ended.

    Raises:
        MCPError: the client cannot show the form.
        ValidationError: its reply is invalid.
    """
    result, unheard = None, unheard_of(ctx.request)
    async with open_background_tasks() as tasks:
        with anyio.CancelScope() as waiting:
            if unheard is not None:
                tasks.start_soon(_cancel_when, unheard, waiting)
            result = await ctx.session.elicit_form(message, form, related_request_id=ctx.request_id)
    return result


async def _cancel_when(event: anyio.Event, scope: anyio.CancelScope) -> None:
    await event.wait()
    scope.cancel()


def can_ask(capabilities: types.ClientCapabilities | None) -> bool:
    """Return whether a client declares that it can show forms to its user. Pure."""
    can = capabilities.elicitation if capabilities is not None else None
    return can is not None and (can.form is not None or can.url is None)


def form_of(scopes: Sequence[ApprovalScope]) -> dict[str, Any]:
    """Return the form for the user. Pure."""
    decision = {
        "type": "string",
        "title": "Decision",
        "description": "; ".join(f"{scope}: {MEANINGS[scope]}" for scope in scopes),
        "enum": [str(scope) for scope in scopes],
        "enumNames": [MEANINGS[scope] for scope in scopes],
        "default": str(ApprovalScope.DENY_ONCE),
    }
    reason = {"type": "string", "title": "Reason", "description": "for the agent, if you deny", "maxLength": 500}
    return {"type": "object", "properties": {"decision": decision, "reason": reason}, "required": ["decision"]}


def answer_of(
    action: str, content: Mapping[str, object] | None, scopes: Sequence[ApprovalScope], client: str
) -> ApprovalDecision:
    """Return the decision in the client's reply; an unclear reply is a denial. Pure."""
    by = f"the user of {client}"
    if action != "accept":
        return ApprovalDecision(
            ApprovalScope.DENY_ONCE, by, "declined" if action == "decline" else "dismissed without an answer"
        )
    filled = content or {}
    scope = next((scope for scope in scopes if filled.get("decision") == str(scope)), None)
    if scope is None:
        return ApprovalDecision(ApprovalScope.DENY_ONCE, by, "the form was returned without a decision")
    reason = filled.get("reason")
    return ApprovalDecision(scope, by, reason[:500] if isinstance(reason, str) and not scope.allows else "")


def _name(client: types.InitializeRequestParams | None) -> str:
    return one_line(client.client_info.name)[:64] if client is not None else "an unnamed client"


# -- Questions of tools to the client's user, as forms of the client
#
# A form has plain fields only, so that clients of every protocol revision with forms can show it: a choice for one
# answer, a checkbox per option where several are possible, and a text field for other answers.


log = logging.getLogger("harness.mcp")

OWN_WORDS = "Your own words"
OTHER_LIMIT = 10_000
TITLE = 200
"""Maximum characters of a field's title."""


class ClientQuestioner(Questioner):
    """Sends questions to the user of the client that made the call."""

    def present(self) -> bool:
        """Return whether this client declares that it can ask its user."""
        ctx = CURRENT.get()
        return ctx is not None and can_ask(ctx.session.client_capabilities)

    async def ask(self, asked: QuestionSet) -> Replies | None:
        """Return the user's answers; None if the form was declined, dismissed or returned without them."""
        ctx = CURRENT.get()
        if ctx is None:
            return None
        message, form = question_message(asked.questions), question_form(asked.questions)
        try:
            result = await elicited(ctx, message, form)
        except MCPError as error:  # it declared the capability, but cannot show this form
            log.warning("the client could not ask its user: %s", error)
            return None
        except ValidationError as error:  # its message may contain the user's input
            log.warning("the client's answer is not valid in the protocol: %d errors", error.error_count())
            return None
        if result is None or result.action != "accept":
            return None
        return replies_of(asked.questions, result.content)


def question_message(questions: Sequence[UserQuestion]) -> str:
    """Return the questions as text, with each line of the agent's marked so that it cannot imitate harness's. Pure."""
    lines = ["The agent asks:"]
    for number, question in enumerate(questions, 1):
        lines += ["", f"Question {number}:", *(f"  | {one_line(text)}" for text in question.question.split("\n"))]
        lines += [f"  | {_named(place, question)}" for place in range(len(question.options))]
    return "\n".join(lines)


def _named(place: int, question: UserQuestion) -> str:
    option = question.options[place]
    return _choice(place, question) + (f": {one_line(option.description)}" if option.description.strip() else "")


def _choice(place: int, question: UserQuestion) -> str:
    return f"{place + 1}. {one_line(question.options[place].label)}"


def question_form(questions: Sequence[UserQuestion]) -> dict[str, Any]:
    """Return the form for the user; all fields are optional, because the text field is an answer, too. Pure."""
    fields: dict[str, Any] = {}
    for number, question in enumerate(questions, 1):
        fields |= _boxes(number, question) if question.multi_select else _choices(number, question)
        fields[f"other_{number}"] = {
            "type": "string",
            "title": f"{OWN_WORDS} ({number})",
            "description": "in addition to the chosen options, or instead of them"
            if question.multi_select
            else "instead of a choice",
            "maxLength": OTHER_LIMIT,
        }
    return {"type": "object", "properties": fields, "required": []}


def _choices(number: int, question: UserQuestion) -> dict[str, Any]:
    names = [_choice(place, question) for place in range(len(question.options))]
    title = one_line(question.header or question.question)[:TITLE]
    return {f"answer_{number}": {"type": "string", "title": title, "enum": names, "enumNames": names}}


def _boxes(number: int, question: UserQuestion) -> dict[str, Any]:
    return {
        f"answer_{number}_{place + 1}": {"type": "boolean", "title": _choice(place, question), "default": False}
        for place in range(len(question.options))
    }


def replies_of(questions: Sequence[UserQuestion], content: Mapping[str, object] | None) -> Replies | None:
    """Return the answers in a form; None if a question has no valid answer. Pure."""
    filled = content or {}
    replies = tuple(_reply(number, question, filled) for number, question in enumerate(questions, 1))
    try:
        check_replies(questions, replies)
    except ValueError:
        return None
    return replies


def _reply(number: int, question: UserQuestion, filled: Mapping[str, object]) -> QuestionReply:
    own = filled.get(f"other_{number}")
    other = own.strip() if isinstance(own, str) else ""
    places = range(len(question.options))
    if question.multi_select:
        return QuestionReply(
            tuple(place for place in places if filled.get(f"answer_{number}_{place + 1}") is True), other
        )
    if other:
        return QuestionReply(other=other)  # text was typed on purpose; a choice may be the client's default
    chosen = filled.get(f"answer_{number}")
    return QuestionReply(tuple(place for place in places if chosen == _choice(place, question)))
