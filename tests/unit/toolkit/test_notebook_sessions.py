"""What an executor of the whole toolkit gives its tools: somebody to ask, the notebook of this machine, a compactor."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from harness import ExecutionContext, connect
from harness.toolkit import CallStatus, ToolCall
from harness.toolkit.assembly import ToolkitSettings, open_executor, open_toolkit
from harness.toolkit.interfaces import Compaction, Compactor
from harness.toolkit.session.notebook import MemoryLocation, MemoryScope, Todo, TodoStatus
from harness.toolkit.session.questions import PresetAnswers

pytestmark = pytest.mark.usefixtures("needs_process")

QUESTION = {"question": "Which?", "options": ["a", "b"]}
TODOS = {"todos": [{"content": "look", "status": "in_progress"}]}


class Shorter(Compactor):
    async def compact(self, session_id: str) -> Compaction | None:
        return Compaction(10, 2)


@pytest.fixture
async def execution(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ExecutionContext]:
    for name in ("HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.chdir(tmp_path)
    async with connect("local:") as opened:
        yield opened


async def test_a_session_that_goes_on_after_a_restart_has_its_list_and_its_memories(
    execution: ExecutionContext, tmp_path: Path
) -> None:
    async with open_executor(execution, session_id="s1") as executor:
        assert (await executor.call(ToolCall("todo_write", TODOS))).status is CallStatus.OK
        assert (await executor.call(ToolCall("remember", {"content": "a fact"}))).status is CallStatus.OK
    assert (tmp_path / "harness" / "notebook" / "notebook.db").stat().st_mode & 0o777 == 0o600
    async with open_toolkit() as toolkit:
        assert toolkit.notebook is not None
        assert await toolkit.notebook.todos("s1") == (Todo("look", TodoStatus.IN_PROGRESS),)
        assert [
            one.content for one in await toolkit.notebook.memories([MemoryLocation(MemoryScope.SESSION, "s1")])
        ] == ["a fact"]
        async with toolkit.executor(execution, session_id="s1") as same, toolkit.executor(execution) as other:
            assert (await same.call(ToolCall("recall"))).result.text == "m1 (session): a fact"
            assert (await other.call(ToolCall("recall"))).result.text == "No memories"


async def test_there_is_somebody_to_ask_where_the_program_says_so(execution: ExecutionContext) -> None:
    async with open_executor(execution) as alone:
        assert (await alone.call(ToolCall("ask_user_question", QUESTION))).result.error_code == "no_user"
    async with open_executor(execution, questioner=PresetAnswers({"Which?": "b"})) as asking:
        assert (await asking.call(ToolCall("question", QUESTION))).result.text == "Which?: b"


async def test_compact_is_offered_to_those_whose_conversation_somebody_keeps(execution: ExecutionContext) -> None:
    settings = ToolkitSettings()
    hygge = replace(settings, tools=replace(settings.tools, tool_profile="hygge"))
    for chosen in (settings, hygge):
        async with open_executor(execution, chosen) as without:
            assert without.registry.get("compact") is None
        async with open_executor(execution, chosen, compactor=Shorter()) as keeping:
            assert (await keeping.call(ToolCall("compact"))).result.text == "10 messages became 2"


async def test_a_damaged_notebook_keeps_nothing_else_from_running(execution: ExecutionContext, tmp_path: Path) -> None:
    async with open_executor(execution) as executor:
        await executor.call(ToolCall("remember", {"content": "a fact"}))
    database = tmp_path / "harness" / "notebook" / "notebook.db"
    database.write_bytes(b"this is no database, and it is long enough to be taken for one that is damaged")
    async with open_executor(execution) as executor:
        broken = await executor.call(ToolCall("todo_write", TODOS))
        assert (broken.result.is_error, "is damaged" in broken.result.text) == (True, True)
        assert (await executor.call(ToolCall("time"))).status is CallStatus.OK
