"""An agent with the tools of the profile ``hex``: what is in the background is found again, and the user answers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.support.agent_desk import agent_desk
from tests.support.model_server import Answer, Asked, call, say

from harness.agent.opening import HumanHandlers
from harness.toolkit.session.questions import Questioner, QuestionReply, Replies
from harness.toolkit.session.questions import QuestionSet as AskedUser


class First(Questioner):
    """Chooses the first answer."""

    async def ask(self, asked: AskedUser) -> Replies | None:
        return tuple(QuestionReply((0,)) for _ in asked.questions)


def last_result(asked: Asked) -> str:
    """The newest result of a tool that a model was sent."""
    return str([one["content"] for one in asked.body["messages"] if one["role"] == "tool"][-1])


@pytest.mark.usefixtures("needs_process")
async def test_a_model_that_has_lost_an_id_finds_its_job_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    def read_named(asked: Asked) -> Answer:
        seen.append(last_result(asked))
        return call("bash_output", {"bash_id": named(seen[0])})

    def kill_named(asked: Asked) -> Answer:
        seen.append(last_result(asked))
        return call("kill_shell", {"shell_id": named(seen[0])})

    def named(text: str) -> str:
        found = re.search(r"known jobs: (\S+) \(running\)", text)
        assert found is not None, text
        return found[1]

    script: list[Any] = [
        call("bash", {"command": "echo from below; touch made; sleep 4000", "run_in_background": True}),
        call("bash", {"command": "until [ -e made ]; do sleep 0.05; done"}),
        call("bash_output", {"bash_id": "the-lost-one"}),
        read_named,
        kill_named,
        call("bash_output", {"bash_id": "the-lost-one"}),
        lambda asked: seen.append(last_result(asked)) or say("done"),
    ]
    async with agent_desk(tmp_path, monkeypatch, script, tool_profile="hex") as desk:
        with anyio.fail_after(60):
            result = await desk.agent.turn("go")
        assert (result.status, result.text) == ("completed", "done")
    assert "status: running" in seen[1]
    assert "from below" in seen[1]
    assert f"{named(seen[0])} (interrupted" in seen[2]
    assert "(running)" not in seen[2]


@pytest.mark.usefixtures("needs_process")
async def test_answers_come_from_the_user_and_not_from_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = [{"label": "red", "description": "warm"}, {"label": "blue", "description": "cold"}]
    question = {"question": "Which?", "header": "Colour", "options": options}
    script = [
        call("ask_user_question", {"questions": [question], "answers": {"Colour": "blue"}}),
        say("done"),
    ]
    people = HumanHandlers(questioner=First())
    async with agent_desk(tmp_path, monkeypatch, script, tool_profile="hex", handlers=people) as desk:
        with anyio.fail_after(60):
            await desk.agent.turn("go")
        text = last_result(desk.server.asked[1])
    assert "User responses:\n\nWhich?: red" in text
    assert "Which?: blue" not in text
