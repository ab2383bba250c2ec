"""Questions of tools to the client's user, as forms of the client.

A form has plain fields only, so that every revision of the protocol that knows forms can show it: a choice for one
answer, a box for each option where several are possible, and a line for the user's own words.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from mcp.shared.exceptions import MCPError
from pydantic import ValidationError

from ..toolkit.questions import Asked, Questioner, Replies, Reply, UserQuestion, check_replies
from .elicitation import CURRENT, can_ask, elicited, one_line

__all__ = ["ClientQuestioner", "question_form", "question_message", "replies_of"]

log = logging.getLogger("harness.mcp")

OWN_WORDS = "Your own words"
OTHER_LIMIT = 10_000
TITLE = 200
"""Characters of a field's title."""


class ClientQuestioner(Questioner):
    """Asks the user of the client whose call it is."""

    def present(self) -> bool:
        """Whether this client says that it can ask its user."""
        ctx = CURRENT.get()
        return ctx is not None and can_ask(ctx.session.client_capabilities)

    async def ask(self, asked: Asked) -> Replies | None:
        """The user's answers; None when the form was declined, dismissed, or came back without them."""
        ctx = CURRENT.get()
        if ctx is None:
            return None
        message, form = question_message(asked.questions), question_form(asked.questions)
        try:
            result = await elicited(ctx, message, form)
        except MCPError as error:  # it said that it can, and cannot show this one
            log.warning("the client could not ask its user: %s", error)
            return None
        except ValidationError as error:  # whose words may hold what the user has typed
            log.warning("the client's answer is none that the protocol knows: %d mistakes", error.error_count())
            return None
        if result is None or result.action != "accept":
            return None
        return replies_of(asked.questions, result.content)


def question_message(questions: Sequence[UserQuestion]) -> str:
    """The questions in words. Every line that the agent wrote is marked, so that none passes for one of ours. Pure."""
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
    """The form that the user fills in; nothing in it has to be, because own words are an answer, too. Pure."""
    fields: dict[str, Any] = {}
    for number, question in enumerate(questions, 1):
        fields |= _boxes(number, question) if question.multi_select else _choices(number, question)
        fields[f"other_{number}"] = {
            "type": "string",
            "title": f"{OWN_WORDS} ({number})",
            "description": "beside what is chosen, or instead of it"
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
    """What a filled-in form says; None when it does not answer every question. Pure."""
    filled = content or {}
    replies = tuple(_reply(number, question, filled) for number, question in enumerate(questions, 1))
    try:
        check_replies(questions, replies)
    except ValueError:
        return None
    return replies


def _reply(number: int, question: UserQuestion, filled: Mapping[str, object]) -> Reply:
    own = filled.get(f"other_{number}")
    other = own.strip() if isinstance(own, str) else ""
    places = range(len(question.options))
    if question.multi_select:
        return Reply(tuple(place for place in places if filled.get(f"answer_{number}_{place + 1}") is True), other)
    if other:
        return Reply(other=other)  # own words were typed on purpose; a choice may be the client's default
    chosen = filled.get(f"answer_{number}")
    return Reply(tuple(place for place in places if chosen == _choice(place, question)))
