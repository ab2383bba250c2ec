"""``ask_user_question``: what models may write, what comes back, and what each front end shows and understands."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import mcp_types as types
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.mcp_session import connected
from tests.support.toolbox import toolbox

from harness.cli.asking import TerminalQuestioner, parse_reply, question_text
from harness.login import LoginQuestion, TerminalPrompter
from harness.mcp.server.elicitation import ClientApprover, ClientQuestioner, question_form, question_message, replies_of
from harness.toolkit import CallOutcome, CallStatus, Executor, ToolCall
from harness.toolkit.session.questions import (
    Option,
    PresetAnswers,
    Questioner,
    QuestionReply,
    QuestionSet,
    Replies,
    UserQuestion,
)
from harness_tools.interaction.questions import AskUserQuestion

FULL = {
    "question": "Which database?",
    "header": "Database",
    "options": [{"label": "PostgreSQL", "description": "a server"}, {"label": "SQLite"}],
    "multi_select": False,
}
ONE = UserQuestion("Which\ndatabase?", (Option("PostgreSQL", "a server"), Option("SQLite")), "Database")
MANY = UserQuestion("Which hosts?", (Option("web1"), Option("web2"), Option("web3")), multi_select=True)


def executor(questioner: Questioner | None) -> Executor:
    return replace(toolbox([AskUserQuestion()]).executor, questioner=questioner)


async def ask(questioner: Questioner | None = None, /, **arguments: Any) -> CallOutcome:
    return await executor(questioner).call(ToolCall("ask_user_question", arguments))


# -- the tool


@pytest.mark.parametrize(
    "arguments",
    [
        {"questions": [FULL]},
        {"questions": FULL},
        {"questions": [{**FULL, "options": ["PostgreSQL", "SQLite"]}]},
        {"question": "Which database?", "header": "Database", "options": ["PostgreSQL", {"label": "SQLite"}]},
        {**FULL, "multi_select": True},
        {
            "questions": [
                {"question": "Which?", "header": "Database", "options": ["a", "SQLite"], "multiSelect": "true"}
            ]
        },
    ],
)
async def test_every_way_to_write_a_question_is_understood(arguments: dict[str, Any]) -> None:
    outcome = await ask(PresetAnswers({"Database": "SQLite"}), **arguments)
    assert (outcome.status, outcome.result.text) == (CallStatus.OK, "Database: SQLite")
    assert outcome.result.data is not None


async def test_several_answers_and_own_words_come_back_in_order() -> None:
    second = {"question": "Which hosts?", "options": ["web1", "web2", "web3"], "multi_select": True}
    given_ = PresetAnswers({"Database": "Other: MySQL", "Which hosts?": ["web1", "web3", "and web9"]})
    outcome = await ask(given_, questions=[FULL, second])
    assert outcome.result.text.splitlines() == [
        "Database: in the user's own words: MySQL",
        "Which hosts?: web1; web3; in the user's own words: and web9",
    ]
    assert outcome.result.data == {
        "answers": [
            {"question": "Which database?", "header": "Database", "chosen": [], "other": "MySQL"},
            {"question": "Which hosts?", "header": "", "chosen": ["web1", "web3"], "other": "and web9"},
        ]
    }


async def test_two_questions_of_one_name_have_their_own_answers() -> None:
    class Both(Questioner):
        async def ask(self, asked: QuestionSet) -> Replies | None:
            return QuestionReply((0,)), QuestionReply((1,))

    outcome = await ask(Both(), questions=[FULL, FULL])
    assert outcome.result.text == "Database: PostgreSQL\nDatabase: SQLite"


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({}, "questions: required"),
        ({"questions": []}, "at least 1 item"),
        ({"questions": [FULL] * 5}, "at most 4 items"),
        ({"questions": "what?"}, "questions.0"),
        ({"questions": [{**FULL, "options": ["one"]}]}, "at least 2 items"),
        ({"questions": [{**FULL, "options": [f"{n}" for n in range(10)]}]}, "at most 9 items"),
        ({"questions": [{**FULL, "options": ["a", "a"]}]}, "the same label"),
        ({"questions": [{**FULL, "options": ["a", " "]}]}, "it is empty"),
        ({"questions": [{**FULL, "options": ["a", "b\0"]}]}, "NUL"),
        ({"questions": [{**FULL, "options": ["a", "\ud800"]}]}, "options.1.label"),
        ({"questions": [{**FULL, "question": "x" * 2_001}]}, "at most 2000 characters"),
        ({"questions": [{**FULL, "header": "x" * 61}]}, "at most 60 characters"),
        (
            {"questions": [{**FULL, "zz": "a"}]},
            "questions.0.zz: no such argument; known: question, header, options, multi_select",
        ),
        ({"questions": [FULL], "question": "and this?"}, "not both"),
        ({"questions": [FULL], "answers": {"Database": "SQLite"}}, "answers: no such argument"),
        ({**FULL, "answers": {"Database": "SQLite"}}, "answers: no such argument"),
    ],
)
async def test_a_mistake_is_told_and_nobody_is_asked(arguments: dict[str, Any], problem: str) -> None:
    class Never(Questioner):
        async def ask(self, asked: QuestionSet) -> Replies | None:
            raise AssertionError

    outcome = await ask(Never(), **arguments)
    assert outcome.result.error_code == "invalid_args"
    assert problem in outcome.result.text


async def test_without_a_user_the_model_is_told_what_to_do() -> None:
    outcome = await ask(None, questions=[FULL])
    assert (outcome.status, outcome.result.error_code, outcome.error) == (CallStatus.ERROR, "no_user", None)
    assert "no user is available" in outcome.result.text


async def test_a_user_who_does_not_answer_is_an_error_result() -> None:
    outcome = await ask(PresetAnswers({}), questions=[FULL])
    assert (outcome.status, outcome.result.error_code, outcome.error) == (CallStatus.CANCELLED, "cancelled", None)


def test_the_answers_are_no_argument_that_a_model_sees() -> None:
    tool = AskUserQuestion()
    assert "'answers'" not in str(tool.schema)
    assert tool.schema["required"] == ["questions"]
    assert tool.traits.aliases == ("question", "AskUserQuestion")
    assert not tool.traits.mutating
    assert not tool.traits.parallelizable


# -- at the terminal


def test_the_terminal_shows_the_question_and_obeys_none_of_it() -> None:
    nasty = UserQuestion("a\nb\x1b[2J", (Option("one\r", "\u202etwo"), Option("2")), "\x07")
    assert question_text(nasty, 1, 2).splitlines() == [
        "harness: the agent asks 1 of 2 (\\x07):",
        "  | a",
        "  | b\\x1b[2J",
        "  1. one: \\u202etwo",
        "  2. 2",
        "a number from 1 to 2, or your own words (Ctrl-C to cancel): ",
    ]
    assert question_text(MANY, 1, 1).startswith("harness: the agent asks:\n")
    assert "numbers from 1 to 3, with commas, or your own words" in question_text(MANY, 1, 1)


@pytest.mark.parametrize(
    ("line", "question", "meaning"),
    [
        ("1", ONE, QuestionReply((0,))),
        (" 2 ", ONE, QuestionReply((1,))),
        ("MySQL", ONE, QuestionReply(other="MySQL")),
        ("version 3", ONE, QuestionReply(other="version 3")),
        ("= 2", ONE, QuestionReply(other="2")),
        ("1, 3", MANY, QuestionReply((0, 2))),
        ("3 1 3", MANY, QuestionReply((2, 0))),
        ("0", ONE, "an unknown option; there are 2"),
        ("3", ONE, "an unknown option; there are 2"),
        ("99999999999999999999", ONE, QuestionReply(other="99999999999999999999")),
        ("1 2", ONE, "only one answer is possible"),
        ("", ONE, "it is empty"),
        (" , ", ONE, QuestionReply(other=",")),
        ("=", ONE, "it is empty"),
        ("\u0661", ONE, QuestionReply(other="\u0661")),
    ],
)
def test_a_line_means_numbers_or_own_words(line: str, question: UserQuestion, meaning: QuestionReply | str) -> None:
    found = parse_reply(line, question)
    assert found == meaning if isinstance(meaning, QuestionReply) else meaning in str(found)


class Typed(TerminalPrompter):
    """A terminal at which these lines are typed."""

    def __init__(self, *lines: str | None) -> None:
        super().__init__("/dev/null")
        self.lines = list(lines)
        self.shown: list[str] = []

    def usable(self) -> bool:
        return True

    async def answer(self, question: LoginQuestion) -> str | None:
        self.shown.append(question.text)
        return self.lines.pop(0)


async def test_the_operator_answers_one_question_after_the_other_and_may_mistype() -> None:
    terminal = Typed("5", "2", "caf\udce9")
    assert await TerminalQuestioner(terminal).ask(QuestionSet("r", (ONE, MANY))) == (
        QuestionReply((1,)),
        QuestionReply(other="caf\ufffd"),
    )
    assert "there are 2" in terminal.shown[1]
    assert terminal.lines == []


@pytest.mark.parametrize("lines", [(None,), ("1", None), ("", "", "")])
async def test_an_end_of_file_and_nothing_three_times_decline(lines: tuple[str | None, ...]) -> None:
    assert await TerminalQuestioner(Typed(*lines)).ask(QuestionSet("r", (ONE, MANY))) is None


# -- at the client of a server


@given(st.text(), st.text(), st.text())
def test_no_text_of_the_agent_looks_like_one_of_ours_in_a_form(question: str, label: str, description: str) -> None:
    asked = UserQuestion(question, (Option(label, description), Option("b")), label)
    lines = question_message([asked]).split("\n")
    assert all(line.isprintable() for line in lines)
    assert [line for line in lines if not line.startswith("  | ")] == ["The agent asks:", "", "Question 1:"]


def test_a_form_has_plain_fields_only() -> None:
    form = question_form([ONE, MANY])
    kinds = {name: field["type"] for name, field in form["properties"].items()}
    assert kinds == {
        "answer_1": "string",
        "other_1": "string",
        "answer_2_1": "boolean",
        "answer_2_2": "boolean",
        "answer_2_3": "boolean",
        "other_2": "string",
    }
    assert form["properties"]["answer_1"]["enum"] == ["1. PostgreSQL", "2. SQLite"]


@pytest.mark.parametrize(
    ("content", "replies"),
    [
        ({"answer_1": "2. SQLite", "answer_2_1": True}, (QuestionReply((1,)), QuestionReply((0,)))),
        (
            {"answer_1": "2. SQLite", "other_1": " ", "other_2": "all"},
            (QuestionReply((1,)), QuestionReply(other="all")),
        ),
        (
            {"answer_1": "2. SQLite", "other_1": "MySQL", "answer_2_3": True},
            (QuestionReply(other="MySQL"), QuestionReply((2,))),
        ),
        ({"answer_1": "2. SQLite"}, None),
        ({"answer_1": "SQLite", "answer_2_1": True}, None),
        ({"answer_1": "2. SQLite", "answer_2_1": "true"}, None),
        ({"answer_1": 2, "answer_2_1": True}, None),
        ({}, None),
        (None, None),
    ],
)
def test_a_form_that_does_not_answer_everything_answers_nothing(
    content: dict[str, object] | None, replies: Replies | None
) -> None:
    assert replies_of([ONE, MANY], content) == replies


async def test_a_client_that_can_ask_and_fails_has_not_answered() -> None:
    async def fail(context: Any, params: types.ElicitRequestParams) -> types.ErrorData:
        return types.ErrorData(code=-32603, message="no window")

    def made(approver: ClientApprover) -> Executor:
        return executor(ClientQuestioner())

    async with connected(made, elicitation_callback=fail) as client:
        result = await client.call_tool("ask_user_question", {"questions": [FULL]})
    assert result.is_error
    assert "the user did not answer" in result.model_dump_json()


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")
async def test_an_answer_that_the_protocol_does_not_know_is_none_and_is_not_repeated() -> None:
    async def reply(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        return types.ElicitResult.model_construct(action="accept", content={"answer_1": {"typed": "by a person"}})

    def made(approver: ClientApprover) -> Executor:
        return executor(ClientQuestioner())

    async with connected(made, elicitation_callback=reply) as client:
        result = await client.call_tool("ask_user_question", {"questions": [FULL]})
    text = result.model_dump_json()
    assert "the user did not answer" in text
    assert "by a person" not in text


@pytest.mark.parametrize(
    ("action", "code"), [("accept", ""), ("decline", "cancelled"), ("cancel", "cancelled"), (None, "no_user")]
)
async def test_the_user_of_a_client_is_asked_where_the_client_can(action: str | None, code: str) -> None:
    seen: list[str] = []

    async def reply(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        seen.append(params.message)
        content = {"answer_1": "2. SQLite"} if action == "accept" else None
        return types.ElicitResult.model_validate({"action": action, "content": content})

    def made(approver: ClientApprover) -> Executor:
        return executor(ClientQuestioner())

    options = {"elicitation_callback": reply} if action else {}
    async with connected(made, **options) as client:
        result = await client.call_tool("ask_user_question", {"questions": [FULL]})
    assert result.is_error is bool(code)
    if action:
        assert "  | Which database?" in seen[0].split("\n")
    text = result.model_dump_json()
    assert ("Database: SQLite" in text) is (action == "accept")
    assert ("no user is available" in text) is (action is None)
