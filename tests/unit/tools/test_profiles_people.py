"""The profiles with somebody to ask, sub-agents, a conversation to shorten, skills, and pages of the web."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest
from tests.support.profile_steps import Agreeing
from tests.support.web_servers import Reply as Page
from tests.support.web_servers import WebServer, web_server

from harness import ExecutionContext, connect
from harness.toolkit import CallOutcome, CallStatus, Executor, ToolCall
from harness.toolkit.assembly import Toolkit, ToolkitSettings, open_toolkit
from harness.toolkit.delegation import SpawnRequest, SpawnResult
from harness.toolkit.executor import Spawner
from harness.toolkit.interfaces import Compaction, Compactor
from harness.toolkit.permissions.approver import Approver
from harness.toolkit.permissions.questions import ApprovalDecision, ApprovalRequest, ApprovalScope
from harness.toolkit.permissions.rules.settings import Mode, PermissionSettings
from harness.toolkit.session.questions import Questioner, QuestionReply, QuestionSet, Replies
from harness.toolkit.values import Json
from harness.toolkit.web_settings import SearchSettings, WebSettings, place_of

pytestmark = pytest.mark.usefixtures("needs_process")

HITS = [
    {"title": "Tokio", "url": "https://tokio.rs", "content": "An asynchronous Rust runtime"},
    {"title": "Tutorial", "url": "https://tokio.rs/tokio/tutorial", "content": "Learn it"},
]
PAGES = {
    "/long": Page(b"line of text\n" * 6_000, headers={"Content-Type": "text/plain"}),
    "/html": Page(b"<title>T</title><h1>Hello</h1>", headers={"Content-Type": "text/html"}),
    "/gone": Page(b"not here", 404, {"Content-Type": "text/plain"}),
    "/search": Page(json.dumps({"results": HITS}).encode(), headers={"Content-Type": "application/json"}),
}


class First(Questioner):
    """Chooses the first answer, and the last one where several may be chosen."""

    async def ask(self, asked: QuestionSet) -> Replies | None:
        return tuple(
            QuestionReply((0, len(question.options) - 1) if question.multi_select else (0,))
            for question in asked.questions
        )


class OwnWords(Questioner):
    """Answers in words of their own, and chooses the last answer too where several may be chosen."""

    async def ask(self, asked: QuestionSet) -> Replies | None:
        return tuple(
            QuestionReply((len(question.options) - 1,) if question.multi_select else (), " green ")
            for question in asked.questions
        )


class Working(Spawner):
    """An agent that makes one call, and repeats what came of it."""

    def __init__(self, call: ToolCall) -> None:
        self.call = call
        self.requests: list[SpawnRequest] = []

    async def spawn(self, request: SpawnRequest, executor: Executor) -> SpawnResult:
        self.requests.append(request)
        names = " ".join(tool.name for tool in executor.registry.list())
        return SpawnResult(f"{(await executor.call(self.call)).result.text}\n{names}")


class Short(Compactor):
    """Has ten messages."""

    async def compact(self, session_id: str) -> Compaction | None:
        return Compaction(10, 2, "summary")


class Refusing(Approver):
    """Somebody who says no."""

    async def ask(self, question: ApprovalRequest) -> ApprovalDecision:
        return ApprovalDecision(ApprovalScope.DENY_ONCE)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("STATE", "DATA", "CONFIG", "RUNTIME"):
        (tmp_path / name.lower()).mkdir(mode=0o700)
        monkeypatch.setenv(f"XDG_{name}_{'DIR' if name == 'RUNTIME' else 'HOME'}", str(tmp_path / name.lower()))
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
async def here(home: Path) -> AsyncIterator[ExecutionContext]:
    async with connect("local:") as opened:
        yield opened


@pytest.fixture
def server() -> Iterator[WebServer]:
    with web_server(PAGES) as running:
        yield running


def toolkit(server: WebServer | None = None, mode: Mode = Mode.AUTO) -> AbstractAsyncContextManager[Toolkit]:
    web = WebSettings()
    if server is not None:
        search = SearchSettings("searxng", server.url("/search"))
        web = WebSettings(allowed_hosts=(place_of(f"127.0.0.1:{server.port}"),), search=search)
    return open_toolkit(ToolkitSettings(permissions=PermissionSettings(mode), web=web))


async def call(executor: Executor, tool: str, /, **arguments: Json) -> CallOutcome:
    return await executor.call(ToolCall(tool, arguments))


OPTIONS: list[Json] = [{"label": "red", "description": "warm"}, {"label": "blue", "description": "cold"}]


async def test_questions_reach_the_person_in_each_form(here: ExecutionContext) -> None:
    async with toolkit() as kit:
        async with kit.executor(here, profile="hygge", questioner=First()) as executor:
            done = await call(executor, "question", question="Which?", options=["red", "blue"])
            assert (done.status, done.result.text) == (CallStatus.OK, "red")
        async with kit.executor(here, profile="hex", questioner=First()) as executor:
            one: Json = {"question": "Which?", "header": "Colour", "options": OPTIONS}
            two: Json = {"question": "Which ones?", "header": "More", "options": OPTIONS, "multiSelect": True}
            done = await call(executor, "ask_user_question", questions=[one, two], answers={"Colour": "blue"})
            assert (done.status, done.result.text) == (
                CallStatus.OK,
                "User responses:\n\nWhich?: red\nWhich ones?: red, blue",
            )
            same: Json = {"question": "And here?", "header": "Colour", "options": OPTIONS}
            done = await call(executor, "ask_user_question", questions=[one, same])
            assert done.result.text == "User responses:\n\nWhich?: red\nAnd here?: red"
            twice = await call(executor, "ask_user_question", questions=[{**one, "options": OPTIONS * 3}])  # type: ignore[dict-item]  # any JSON
            assert twice.result.text.startswith("Error: ask_user_question: questions.0.options: ")
        async with kit.executor(here, profile="hex", questioner=OwnWords()) as executor:
            done = await call(executor, "ask_user_question", questions=[one, two], answers={"Colour": "blue"})
            assert done.result.text == "User responses:\n\nWhich?: Other: green\nWhich ones?: blue, Other: green"
        async with kit.executor(here, profile="hex") as executor:
            done = await call(executor, "ask_user_question", questions=[one], answers={"Colour": "blue"})
            assert (done.result.is_error, done.result.error_code) == (True, "no_user")


@pytest.mark.parametrize(
    ("profile", "tool", "arguments", "inner", "mine"),
    [
        ("hygge", "subagent", {"subagent_type": "general", "description": "d", "prompt": "p"}, "bash", "read"),
        ("hex", "task", {"subagent_type": "general-purpose", "description": "d", "prompt": "p"}, "bash", "glob"),
        ("gofastr", "Agent", {"prompt": "p", "system": "s"}, "Bash", "Read"),
    ],
)
async def test_a_sub_agent_has_the_tools_of_its_parents_profile(
    here: ExecutionContext, profile: str, tool: str, arguments: dict[str, Json], inner: str, mine: str
) -> None:
    spawner = Working(ToolCall(inner, {"cmd" if inner == "Bash" else "command": "echo hi"}))
    async with toolkit() as kit, kit.executor(here, profile=profile, spawner=spawner) as executor:
        done = await call(executor, tool, **arguments)
    assert done.status is CallStatus.OK, done.result.text
    said, names = done.result.text.removeprefix("STDOUT:\n").split("\n")
    assert said == "hi"
    assert mine in names.split()
    assert not {"run_shell", "write_file" if profile != "hex" else "run_shell"} & set(names.split())
    assert spawner.requests[0].prompt == "p"


async def test_what_the_session_lacks_is_not_offered(here: ExecutionContext) -> None:
    async with toolkit() as kit:
        async with kit.executor(here, profile="hygge") as executor:
            assert not {"subagent", "compact"} & {tool.name for tool in executor.registry.list()}
        async with kit.executor(here, profile="hygge", compactor=Short()) as executor:
            assert (await call(executor, "compact")).result.text == "10 messages became 2"


async def test_pages_keep_their_marks_whatever_is_cut(here: ExecutionContext, server: WebServer) -> None:
    async with toolkit(server) as kit:
        for profile, tool, more in (
            ("buddy", "fetch_url", {}),
            ("hex", "web_fetch", {"prompt": "what?"}),
            ("hygge", "webfetch", {"max_bytes": 70_000}),
            ("gofastr", "WebFetch", {"headers": {"X-Mine": "1"}}),
        ):
            async with kit.executor(here, profile=profile, approver=Agreeing()) as executor:
                given: dict[str, Any] = {"url": server.url("/long"), **more}
                text = (await call(executor, tool, **given)).result.text
                assert text.endswith("</untrusted-web>"), (profile, text[-200:])
                assert "[truncated]" in text or "characters left out" in text
                assert len(text) < (9_000 if profile == "buddy" else 34_000)
                gone = await call(executor, tool, **{**given, "url": server.url("/gone")})
                assert (gone.result.is_error, "404" in gone.result.text) == (True, True)


async def test_results_of_a_search_are_a_numbered_list_between_marks(here: ExecutionContext, server: WebServer) -> None:
    async with toolkit(server) as kit:
        for profile in ("buddy", "hex"):
            async with kit.executor(here, profile=profile, approver=Agreeing()) as executor:
                done = await call(executor, "web_search", query="rust tokio tutorial")
            lines = done.result.text.splitlines()
            first = lines.index("1. Tokio")
            assert lines[first : first + 3] == ["1. Tokio", "   https://tokio.rs/", "   An asynchronous Rust runtime"]
            assert lines[-1] == "</untrusted-web>"


async def test_who_says_no_is_told_in_the_words_of_the_profile(here: ExecutionContext, home: Path) -> None:
    async with toolkit(mode=Mode.ASK) as kit:
        for profile, words in (
            ("buddy", "Command execution denied by user."),
            ("hex", "Error: user denied permission"),
        ):
            async with kit.executor(here, profile=profile, approver=Refusing()) as executor:
                tool = "run_shell" if profile == "buddy" else "bash"
                done = await call(executor, tool, command="touch made")
            assert (done.status, done.result.text) == (CallStatus.DENIED, words)
        async with kit.executor(here, profile="buddy") as executor:
            done = await call(executor, "run_shell", command="touch made")
        assert done.result.text.startswith("Tool error: not allowed: ")
    assert not (home / "made").exists()


async def test_an_answer_for_ever_holds_in_every_profile(here: ExecutionContext, home: Path) -> None:
    class Always(Approver):
        async def ask(self, question: ApprovalRequest) -> ApprovalDecision:
            assert question.call.name == "run_shell"
            return ApprovalDecision(ApprovalScope.ALWAYS)

    async with toolkit(mode=Mode.ASK) as kit:
        async with kit.executor(here, profile="hex", approver=Always()) as executor:
            assert (await call(executor, "bash", command=f"touch {home}/made")).status is CallStatus.OK
        for profile, tool, word in (("terse", "bash", "command"), ("gofastr", "Bash", "cmd")):
            async with kit.executor(here, profile=profile) as executor:
                done = await call(executor, tool, **{word: f"touch {home}/made"})
                assert done.status is CallStatus.OK, done.result.text
                assert (await call(executor, tool, **{word: f"touch {home}/other"})).status is CallStatus.DENIED
    assert not (home / "other").exists()


async def test_a_long_file_is_shown_as_far_as_the_answer_says(here: ExecutionContext, home: Path) -> None:
    lines = [f'{number} "quoted" \\ back' for number in range(1, 6_001)]
    (home / "big").write_text("\n".join(lines))
    async with toolkit() as kit:
        for profile, word in (("terse", "file_path"), ("hygge", "path")):
            seen: list[str] = []
            async with kit.executor(here, profile=profile, cwd=str(home)) as executor:
                while len(seen) < len(lines):
                    given: dict[str, Json] = {word: "big", "offset": len(seen) + 1, "limit": 5_000}
                    text = (await call(executor, "read", **given)).result.text
                    if profile == "terse":
                        found = json.loads(text)
                        shown = [line.partition("\t")[2] for line in found["content"].splitlines()]
                        assert (found["from_line"], found["to_line"]) == (len(seen) + 1, len(seen) + len(shown))
                    else:
                        shown = [line.partition(": ")[2] for line in text.splitlines() if not line.startswith("[")]
                    assert shown == lines[len(seen) : len(seen) + len(shown)]
                    assert shown
                    seen += shown
                    assert len(seen) == len(lines) or f"continue with offset={len(seen) + 1}" in text


async def test_a_skill_is_loaded_by_the_name_that_the_profile_has_for_it(here: ExecutionContext, home: Path) -> None:
    folder = home / "config" / "harness" / "skills" / "deploy"
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text("---\nname: deploy\ndescription: How to deploy.\n---\nFirst, test.\n")
    async with toolkit() as kit:
        async with kit.executor(here, profile="hex") as executor:
            text = (await call(executor, "Skill", command="deploy")).result.text
            assert text.startswith('<skill name="deploy" from="user">\n')
            assert text.count("<skill") == text.count("</skill>") == text.count("First, test.") == 1
        async with kit.executor(here, profile="hygge") as executor:
            assert "First, test." in (await call(executor, "skill", name="deploy")).result.text


async def test_a_model_reads_which_skills_there_are(here: ExecutionContext, home: Path) -> None:
    folder = home / "config" / "harness" / "skills" / "deploy"
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text("---\nname: deploy\ndescription: How to deploy.\n---\nFirst, test.\n")
    async with toolkit() as kit:
        for profile, tool in (("hex", "Skill"), ("hygge", "skill")):
            async with kit.executor(here, profile=profile) as executor:
                assert executor.registry.lookup(tool).description.endswith("There are:\n- deploy: How to deploy.")


async def test_what_a_model_of_hygge_has_written_down_is_there_in_its_next_session(
    here: ExecutionContext, home: Path
) -> None:
    async with toolkit() as kit:
        for profile, tool, given in (
            ("hygge", "remember", {"content": "It is slow.", "scope": "project", "confirmed_by_user": True}),
            ("hygge", "recall", {}),
        ):
            async with kit.executor(here, profile=profile, approver=Agreeing()) as executor:
                done = await call(executor, tool, **given)
                assert "m1" in done.result.text
                if tool == "recall":
                    assert done.result.text == "m1 (project): It is slow."
                    gone = await call(executor, "forget", memory_id="m2")
                    assert gone.result.text.endswith("; recall lists the memories")
