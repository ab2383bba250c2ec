"""Questions to the user: who may answer, what fits, and that everybody who watches sees both ends."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import anyio
import pytest
from tests.support.toolbox import toolbox

from harness.toolkit import Arguments, Executor, FunctionTool, ToolCall, ToolContext, ToolResult, Traits
from harness.toolkit.events import Event, EventBus, QuestionAnswered, QuestionAsked
from harness.toolkit.session.questions import (
    EventQuestioner,
    Option,
    PresetAnswers,
    Questioner,
    QuestionReply,
    QuestionResult,
    QuestionSet,
    Replies,
    UserQuestion,
    check_replies,
)
from harness_tools.interaction.questions import ask_user

ONE = UserQuestion("Which database?", (Option("PostgreSQL"), Option("SQLite", "a file")), "Database")
MANY = UserQuestion("Which hosts?", (Option("web1"), Option("web2"), Option("web3")), multi_select=True)


@dataclass
class Asker:
    """A tool that asks, and keeps what came of it."""

    questions: tuple[UserQuestion, ...] = (ONE,)
    limit: float = 60.0
    answered: list[QuestionResult] = field(default_factory=list)

    async def run(self, args: Arguments, ctx: ToolContext) -> ToolResult:
        self.answered.append(await ask_user(ctx, self.questions, limit=self.limit))
        return ToolResult.of("asked")


def asking(asker: Asker, questioner: Questioner | None) -> tuple[Executor, EventBus]:
    box = toolbox([FunctionTool("ask", "asks", Arguments, Traits(), asker.run)])
    return replace(box.executor, questioner=questioner), box.events


def questions_of(events: list[Event]) -> list[QuestionAsked | QuestionAnswered]:
    return [event for event in events if isinstance(event, QuestionAsked | QuestionAnswered)]


# -- what fits


@pytest.mark.parametrize(
    ("question", "reply", "problem"),
    [
        (ONE, QuestionReply((1,)), ""),
        (ONE, QuestionReply(other="MySQL"), ""),
        (MANY, QuestionReply((0, 2), "and web9"), ""),
        (ONE, QuestionReply(), "it is empty"),
        (ONE, QuestionReply(other="  "), "it is empty"),
        (ONE, QuestionReply((2,)), "an unknown option; there are 2"),
        (ONE, QuestionReply((-1,)), "an unknown option; there are 2"),
        (ONE, QuestionReply((0, 1)), "only one answer"),
        (ONE, QuestionReply((0,), "and more"), "only one answer"),
        (MANY, QuestionReply((1, 1)), "twice"),
        (ONE, QuestionReply(other="x" * 10_001), "longer than 10000 characters"),
    ],
)
def test_a_reply_fits_its_question_or_says_why_not(question: UserQuestion, reply: QuestionReply, problem: str) -> None:
    if not problem:
        check_replies([question], [reply])
        return
    with pytest.raises(ValueError, match=problem):
        check_replies([question], [reply])


def test_every_question_needs_its_reply() -> None:
    with pytest.raises(ValueError, match="1 answers to 2 questions"):
        check_replies([ONE, MANY], [QuestionReply((0,))])


# -- asking


async def test_nobody_there_is_said_and_shown() -> None:
    class Gone(EventQuestioner):
        def present(self) -> bool:
            return False

    for questioner in (None, Gone()):
        asker = Asker()
        executor, bus = asking(asker, questioner)
        with bus.subscribe() as events:
            await executor.call(ToolCall("ask"))
            asked, answered = questions_of(events.drain())
        assert asker.answered == [QuestionResult(failure="no_user")]
        assert isinstance(asked, QuestionAsked)
        assert isinstance(answered, QuestionAnswered)
        assert (asked.request_id, answered.answers) == (answered.request_id, None)


async def test_who_answers_the_event_itself_does_not_come_too_early() -> None:
    asker, questioner = Asker((ONE, MANY)), EventQuestioner()
    executor, bus = asking(asker, questioner)
    replies = (QuestionReply((1,)), QuestionReply((0, 1), "web9"))

    def answer(event: Event) -> None:
        if isinstance(event, QuestionAsked):
            assert questioner.answer(event.request_id, replies)

    with bus.listening(answer), bus.subscribe() as events, anyio.fail_after(30):
        await executor.call(ToolCall("ask"))
        _, answered = questions_of(events.drain())
    assert asker.answered == [QuestionResult(replies)]
    assert isinstance(answered, QuestionAnswered)
    assert answered.answers == [
        {"question": "Which database?", "header": "Database", "chosen": ["SQLite"], "other": ""},
        {"question": "Which hosts?", "header": "", "chosen": ["web1", "web2"], "other": "web9"},
    ]
    assert questioner.pending == ()


async def test_the_first_answer_of_a_person_counts_and_no_agent_answers() -> None:
    asker, questioner = Asker(), EventQuestioner()
    executor, bus = asking(asker, questioner)
    seen: list[bool] = []

    def answer(event: Event) -> None:
        if isinstance(event, QuestionAsked):
            assert [asked.request_id for asked in questioner.pending] == [event.request_id]
            seen.append(questioner.answer(event.request_id, (QuestionReply((0,)),), agent_id="agent"))
            with pytest.raises(ValueError, match="unknown option"):
                questioner.answer(event.request_id, (QuestionReply((7,)),))
            seen.append(questioner.answer(event.request_id, (QuestionReply((0,)),)))
            seen.append(questioner.answer(event.request_id, (QuestionReply((1,)),)))
            seen.append(questioner.answer("another", (QuestionReply((1,)),)))

    with bus.listening(answer), anyio.fail_after(30):
        await executor.call(ToolCall("ask"))
    assert seen == [False, True, False, False]
    assert asker.answered == [QuestionResult((QuestionReply((0,)),))]


async def test_to_decline_is_no_answer() -> None:
    asker, questioner = Asker(), EventQuestioner()
    executor, bus = asking(asker, questioner)

    def decline(event: Event) -> None:
        if isinstance(event, QuestionAsked):
            questioner.answer(event.request_id, None)

    with bus.listening(decline), anyio.fail_after(30):
        await executor.call(ToolCall("ask"))
    assert asker.answered == [QuestionResult(failure="cancelled")]


async def test_a_question_that_nobody_answers_ends() -> None:
    asker, questioner = Asker(limit=0.01), EventQuestioner()
    executor, _ = asking(asker, questioner)
    with anyio.fail_after(30):
        await executor.call(ToolCall("ask"))
    assert asker.answered == [QuestionResult(failure="timeout")]
    assert questioner.pending == ()


async def test_a_call_that_is_cancelled_takes_its_question_back() -> None:
    asker, questioner = Asker(), EventQuestioner()
    executor, bus = asking(asker, questioner)

    def give_up(event: Event) -> None:
        if isinstance(event, QuestionAsked):
            executor.cancel()

    with bus.listening(give_up), bus.subscribe() as events, anyio.fail_after(30):
        await executor.call(ToolCall("ask"))
        asked, answered = questions_of(events.drain())
    assert isinstance(answered, QuestionAnswered)
    assert (answered.request_id, answered.answers) == (asked.request_id, None)
    assert questioner.pending == ()


@pytest.mark.parametrize("replies", [(), (QuestionReply((5,)),), (QuestionReply((0,)), QuestionReply((0,)))])
async def test_a_front_end_that_answers_what_was_not_asked_is_not_believed(replies: Replies) -> None:
    class Broken(Questioner):
        async def ask(self, asked: QuestionSet) -> Replies | None:
            return replies

    asker = Asker()
    executor, bus = asking(asker, Broken())
    with bus.subscribe() as events:
        outcome = await executor.call(ToolCall("ask"))
        _, answered = questions_of(events.drain())
    assert outcome.result.is_error
    assert isinstance(answered, QuestionAnswered)
    assert answered.answers is None


async def test_a_front_end_that_fails_is_named_and_the_question_is_over() -> None:
    class Broken(Questioner):
        async def ask(self, asked: QuestionSet) -> Replies | None:
            raise OSError("the terminal is gone")

    executor, bus = asking(Asker(), Broken())
    with bus.subscribe() as events:
        outcome = await executor.call(ToolCall("ask"))
        assert len(questions_of(events.drain())) == 2
    assert outcome.result.error_code == "execution_failed"
    assert "could not be asked: OSError: the terminal is gone (this is a defect of the user interface)" in str(
        outcome.error
    )


async def test_no_secret_is_in_a_question_or_in_what_is_shown_of_its_answer() -> None:
    asker = Asker((UserQuestion("Is hunter2 right?", (Option("hunter2"), Option("no")), "hunter2"),))
    executor, bus = asking(asker, PresetAnswers({"[redacted]": "it is hunter2"}))
    with bus.subscribe() as events:
        await executor.call(ToolCall("ask"))
        seen = repr(events.drain())
    assert "hunter2" not in seen
    assert asker.answered == [QuestionResult((QuestionReply(other="it is hunter2"),))]


# -- answers that are there already


@pytest.mark.parametrize(
    ("answer", "reply"),
    [
        ("SQLite", QuestionReply((1,))),
        (["PostgreSQL"], QuestionReply((0,))),
        ("Other: MySQL", QuestionReply(other="MySQL")),
        ("MySQL", QuestionReply(other="MySQL")),
    ],
)
async def test_answers_that_a_front_end_has_collected_go_by_header(answer: Any, reply: QuestionReply) -> None:
    assert await PresetAnswers({"Database": answer}).ask(QuestionSet("r", (ONE,))) == (reply,)


async def test_collected_answers_go_by_the_question_where_there_is_no_header_and_need_all() -> None:
    given = PresetAnswers({"Which hosts?": ["web3", "web1", "Other: web9"]})
    assert await given.ask(QuestionSet("r", (MANY,))) == (QuestionReply((2, 0), "web9"),)
    assert await given.ask(QuestionSet("r", (MANY, ONE))) is None
