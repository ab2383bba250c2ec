"""Whatever a model sends, and whatever a target answers, every tool gives a result that says what to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.examples import few_examples
from tests.support.schema_values import junk, values_of
from tests.support.toolbox import toolbox

from harness.command import Command
from harness.testing.memory import MemoryBackend, ScriptedReply
from harness.toolkit import Tool
from harness.toolkit.catalog import load_catalogue
from harness.toolkit.events import ToolCallCompleted
from harness.toolkit.values import CallOutcome, Json, ToolCall

TOOLS = {tool.name: tool for tool in load_catalogue().known.list()}
LIMIT = 20.0


async def call(tool: Tool[Any], arguments: Json, answer: Callable[[Command], ScriptedReply]) -> CallOutcome:
    box = toolbox([tool], backend=MemoryBackend(answer))
    with anyio.fail_after(LIMIT), box.events.subscribe() as events:
        outcome = await box.executor.call(ToolCall(tool.name, arguments))  # type: ignore[arg-type]  # what a model sends
        ends = [event for event in events.drain() if isinstance(event, ToolCallCompleted)]
    assert [end.outcome.result for end in ends] == [outcome.result]
    return outcome


def check(outcome: CallOutcome) -> None:
    assert outcome.result.content
    assert "defect of" not in outcome.result.text, outcome
    assert not outcome.result.is_error or outcome.result.error_code


@pytest.mark.parametrize("name", sorted(TOOLS))
def test_any_arguments_and_any_answer_of_the_target_give_a_result(name: str) -> None:
    tool = TOOLS[name]

    @few_examples()
    @given(st.data())
    def attempt(data: st.DataObject) -> None:
        arguments = data.draw(values_of(tool.schema))
        for key, short in (("delay", 0.001), ("delay_ms", 1)):
            if arguments.get(key):
                arguments[key] = short  # a drawn one is a real wait, of up to ten minutes
        said = data.draw(
            st.builds(ScriptedReply, st.binary(max_size=200), st.binary(max_size=50), st.sampled_from((0, 1, 2, 127)))
        )
        check(anyio.run(call, tool, arguments, lambda command: said))

    attempt()


@pytest.mark.parametrize("name", sorted(TOOLS))
def test_arguments_of_wrong_kinds_are_mistakes_of_the_caller(name: str) -> None:
    tool = TOOLS[name]

    @few_examples()
    @given(junk(tool.schema))
    def attempt(arguments: Json) -> None:
        check(anyio.run(call, tool, arguments, lambda command: ScriptedReply()))

    attempt()


@pytest.mark.parametrize("name", sorted(TOOLS))
async def test_an_unknown_argument_is_refused_and_nothing_runs(name: str) -> None:
    outcome = await call(TOOLS[name], {"no_such_argument": 1}, lambda command: pytest.fail("it ran"))
    assert outcome.result.error_code == "invalid_args"
    assert "no_such_argument" in outcome.result.text
