"""``ask_user_question``."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

import anyio
from pydantic import AliasChoices, Field, field_validator, model_validator

from harness.errors import HarnessError, ToolError
from harness.toolkit import Arguments, Json, Tool, ToolContext, ToolResult, Traits
from harness.toolkit.events import QuestionAnswered, QuestionAsked
from harness.toolkit.session.questions import (
    ANSWER_LIMIT,
    Option,
    Questioner,
    QuestionReply,
    QuestionResult,
    QuestionSet,
    Replies,
    UserQuestion,
    check_replies,
    questions_json,
    replies_json,
)

from ..texts import Header, Label, Note, Short

__all__ = ["AskUserQuestion", "ask_user"]

DESCRIPTION = """\
Ask the user one to four questions, each with answers to choose from, and wait. The user can always answer in free \
text instead. Use it if only the user can decide. Permission to run something is requested automatically."""
FLAT = ("question", "header", "options", "multi_select", "multiSelect")
"""Arguments of a single question without the list."""
FAILURES = {
    "no_user": "no user is available; do what is safe without the answer, or stop and report what you need to know",
    "cancelled": "the user did not answer; do not ask the same again, and change nothing that depends on it",
    "timeout": "the user did not answer in time; change nothing that depends on it",
}


class _Option(Arguments):
    label: Label = Field(description="the answer, in a few words")
    description: Short = Field("", description="what choosing it means")


class _Question(Arguments):
    question: Note = Field(description="the whole question")
    header: Header = Field("", description="a title of one or two words")
    options: list[_Option] = Field(min_length=2, max_length=9, description="the answers to choose from")
    multi_select: bool = Field(
        False, description="several may be chosen", validation_alias=AliasChoices("multi_select", "multiSelect")
    )

    @field_validator("options", mode="before")
    @classmethod
    def _labelled(cls, options: object) -> object:
        if not isinstance(options, list):
            return options
        return [{"label": option} if isinstance(option, str) else option for option in options]

    @field_validator("options")
    @classmethod
    def _different(cls, options: list[_Option]) -> list[_Option]:
        if len({option.label for option in options}) < len(options):
            raise ValueError("two options have the same label")
        return options

    def asked(self) -> UserQuestion:
        options = tuple(Option(option.label, option.description) for option in self.options)
        return UserQuestion(self.question, options, self.header, self.multi_select)


class _Arguments(Arguments):
    questions: list[_Question] = Field(min_length=1, max_length=4, description="what to ask")

    @model_validator(mode="before")
    @classmethod
    def _listed(cls, value: object) -> object:
        """Accept one question without the list."""
        if not isinstance(value, dict) or "question" not in value:
            return value
        if "questions" in value:
            raise ValueError("give questions, or one question with its options, not both")
        rest = {name: item for name, item in value.items() if name not in FLAT}
        return {**rest, "questions": [{name: value[name] for name in FLAT if name in value}]}


class AskUserQuestion(Tool[_Arguments]):
    """``ask_user_question``; answers come only from the session's questioner, never from arguments."""

    def __init__(self) -> None:
        traits = Traits(aliases=("question", "AskUserQuestion"), packs=("interaction",))
        super().__init__("ask_user_question", DESCRIPTION, _Arguments, traits)

    async def run(self, args: _Arguments, ctx: ToolContext) -> ToolResult:
        questions = tuple(question.asked() for question in args.questions)
        return _result(questions, await ask_user(ctx, questions))


def _result(questions: Sequence[UserQuestion], answered: QuestionResult) -> ToolResult:
    if answered.failure:
        return ToolResult.failure(answered.failure, FAILURES[answered.failure])
    text = "\n".join(
        f"{question.header or question.question}: {_answer(question, reply)}"
        for question, reply in zip(questions, answered.replies, strict=True)
    )
    return ToolResult.of(text, data={"answers": replies_json(questions, answered.replies)})


def _answer(question: UserQuestion, reply: QuestionReply) -> str:
    own = [f"in the user's own words: {reply.other.strip()}"] if reply.other.strip() else []
    return "; ".join([*(question.options[number].label for number in reply.chosen), *own])


# -- Asking the user of the session


async def ask_user(
    ctx: ToolContext, questions: Sequence[UserQuestion], *, limit: float = ANSWER_LIMIT
) -> QuestionResult:
    """Ask the session's user and publish the events. Texts are redacted before they are shown.

    Args:
        ctx: the call's context.
        questions: the questions to ask together.
        limit: timeout in seconds.

    Raises:
        ToolError: the questioner failed, or returned replies that do not match.
    """
    redacted = tuple(_redacted(one, ctx) for one in questions)
    asked = QuestionSet(uuid.uuid4().hex, redacted, ctx.session_id, ctx.agent_id, ctx.execution.identity)
    answered = QuestionResult(failure="cancelled")
    if ctx.questioner is not None:
        ctx.questioner.expect(asked)  # before subscribers can see the question
    try:
        ctx.publish(QuestionAsked(request_id=asked.request_id, questions=questions_json(redacted)))
        answered = await _answered(ctx.questioner, asked, limit)
        return answered
    finally:
        if ctx.questioner is not None:
            ctx.questioner.forget(asked)
        answers = None if answered.failure else _shown(replies_json(redacted, answered.replies), ctx)
        ctx.publish(QuestionAnswered(request_id=asked.request_id, answers=answers))


def _redacted(question: UserQuestion, ctx: ToolContext) -> UserQuestion:
    text = ctx.redactor.text
    options = tuple(Option(text(option.label), text(option.description)) for option in question.options)
    return UserQuestion(text(question.question), options, text(question.header), question.multi_select)


def _shown(answers: Json, ctx: ToolContext) -> Json:
    return ctx.redactor.json({"answers": answers})["answers"]


async def _answered(questioner: Questioner | None, asked: QuestionSet, limit: float) -> QuestionResult:
    if questioner is None or not questioner.present():
        return QuestionResult(failure="no_user")
    with anyio.move_on_after(limit):
        replies = await _replies(questioner, asked)
        return QuestionResult(failure="cancelled") if replies is None else QuestionResult(replies)
    return QuestionResult(failure="timeout")


async def _replies(questioner: Questioner, asked: QuestionSet) -> Replies | None:
    try:
        replies = await questioner.ask(asked)
        if replies is not None:
            check_replies(asked.questions, replies)
    except HarnessError:
        raise
    except Exception as error:  # a defect of the questioner, not of the tool
        problem = f"the question could not be asked: {type(error).__name__}: {error}"
        raise ToolError(problem, hint="this is a defect of the user interface") from error
    return None if replies is None else tuple(replies)
