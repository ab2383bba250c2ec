"""Ops work over a real SSH server, from the prompt to the end: find what fills a disk, mend a service, watch a build.

The model is a server that answers as the test says, and looks at what it was sent: the answers are those of a script,
everything between them is real. A person watches in the session, and approves.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import pytest
from tests.support.agent_desk import profile_for
from tests.support.desk import Desk, OpenDesk, desk, open_desk
from tests.support.model_server import Answer, Asked, Call, ModelServer, Text, call, model_server, say

from harness.agent.agent import Agent
from harness.agent.events import TurnCompleted, TurnStarted
from harness.agent.opening import HumanHandlers, open_agent
from harness.agent.operators import watched_by_operators
from harness.toolkit.assembly import Toolkit, ToolkitSettings, open_toolkit
from harness.toolkit.events import Event, PermissionAsked
from harness.toolkit.permissions.approver import Approver
from harness.toolkit.permissions.questions import ApprovalDecision as Reply
from harness.toolkit.permissions.questions import ApprovalRequest, ApprovalScope

__all__ = ["desk", "open_desk"]

pytestmark = pytest.mark.usefixtures("needs_ssh")

LIMIT = 120.0


class Yes(Approver):
    """A person who reads what is asked, and says yes once."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def ask(self, question: ApprovalRequest) -> Reply:
        self.asked.append(question.what)
        return Reply(ApprovalScope.ONCE)


@dataclass
class Scene:
    """A host, an agent on it, and who answers for it."""

    agent: Agent
    server: ModelServer
    desk: Desk
    toolkit: Toolkit
    person: Yes
    seen: list[Event] = field(default_factory=list)
    more: anyio.Event = field(default_factory=anyio.Event)

    def heard(self, event: Event) -> None:
        self.seen.append(event)
        self.more.set()
        self.more = anyio.Event()

    async def turns(self, number: int) -> list[TurnCompleted]:
        while len(found := [event for event in self.seen if isinstance(event, TurnCompleted)]) < number:
            await self.more.wait()
        return found


@pytest.fixture
async def host(open_desk: OpenDesk) -> Desk:
    return await open_desk("ssh")


@asynccontextmanager
async def scene(host: Desk, monkeypatch: pytest.MonkeyPatch, script: list[object]) -> AsyncIterator[Scene]:
    monkeypatch.setenv("HARNESS_TEST_KEY", "key-of-the-test")
    monkeypatch.setenv("XDG_CONFIG_HOME", os.environ["HOME"])
    person = Yes()
    with model_server(script) as server:  # type: ignore[arg-type]  # functions and answers, as the server takes them
        async with (
            open_toolkit(ToolkitSettings()) as toolkit,
            open_agent(host.ctx, toolkit, profile_for(server, "anthropic"), handlers=HumanHandlers(person)) as agent,
            watched_by_operators(agent),
        ):
            made = Scene(agent, server, host, toolkit, person)
            with agent.events.listening(made.heard):
                yield made
        assert server.refused == []


def shell(command: str, *, mutation: bool = False, wait: bool = True) -> Call:
    why = "the operator asked for it"
    details = {"risk": "low", "mutation": mutation, "privesc": False, "why": why}
    return Call("run_shell", {"command": command, "wait": wait, **details})


def calls(*wanted: Call) -> Answer:
    return Answer(wanted)


async def test_what_fills_a_disk_is_found_and_what_may_go_goes(host: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    data = host.home / "data"
    for name, size in (("app/app.log.1", 3_000_000), ("app/app.log", 40_000), ("db/table", 200_000)):
        (data / name).parent.mkdir(parents=True, exist_ok=True)
        (data / name).write_bytes(b"x" * size)

    def largest(asked: Asked) -> Answer:
        assert "app.log.1" in asked.text
        return calls(shell(f"rm {data}/app/app.log.1 && du -sk {data}", mutation=True))

    script = [
        calls(shell(f"df -P {data}"), shell(f"du -ak {data} | sort -rn | head -5")),
        largest,
        say("app.log.1 took 3 MB. It is gone."),
    ]
    with anyio.fail_after(LIMIT):
        async with scene(host, monkeypatch, script) as there:
            result = await there.agent.turn("What fills the disk? Remove it when it is a rotated log.")
    assert (result.status, result.text) == ("completed", "app.log.1 took 3 MB. It is gone.")
    assert not (data / "app/app.log.1").exists()
    assert (data / "app/app.log").exists()
    assert there.person.asked == [f"rm {data}/app/app.log.1 && du -sk {data}"]
    assert len([event for event in there.seen if isinstance(event, PermissionAsked)]) == 1


async def test_a_broken_service_is_mended(host: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    root = host.home / "service"
    root.mkdir()
    config, check = root / "app.conf", root / "check"
    config.write_text("port = 80a80\nworkers = 2\n")
    check.write_text('#!/bin/sh\ngrep -Eq "^port = [0-9]+$" "$1" || { echo "bad port" >&2; exit 78; }\necho "is up"\n')
    check.chmod(0o755)
    start = f"{check} {config}"

    def mends(asked: Asked) -> Answer:
        assert "bad port" in asked.text
        assert "78" in asked.text
        return calls(Call("read_file", {"path": str(config)}))

    def edits(asked: Asked) -> Answer:
        assert "port = 80a80" in asked.text
        change = {"old_string": "port = 80a80", "new_string": "port = 8080"}
        details = {"risk": "low", "mutation": True, "privesc": False, "why": "the port is no number"}
        return calls(Call("edit", {"path": str(config), **change, **details}))

    def starts(asked: Asked) -> Answer:
        assert "port = 8080" in asked.text
        return calls(shell(start))

    def tells(asked: Asked) -> Answer:
        assert "is up" in asked.text
        return say("The port was no number; the service is up.")

    with anyio.fail_after(LIMIT):
        async with scene(host, monkeypatch, [calls(shell(start)), mends, edits, starts, tells]) as there:
            result = await there.agent.turn("the service does not start")
    assert result.text == "The port was no number; the service is up.", result.failure
    assert config.read_text() == "port = 8080\nworkers = 2\n"


async def test_a_long_build_is_watched_in_the_background(host: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = host.home / "gate"
    os.mkfifo(gate)
    build = f"echo compiling; cat {gate}; echo 'error: missing ;' >&2; exit 2"

    def reads(asked: Asked) -> Answer:
        assert "has ended, with exit code 2" in asked.text
        job = next(event.job_id for event in there.seen if type(event).__name__ == "JobStarted")  # type: ignore[attr-defined]  # it is one
        return calls(Call("bash_output", {"job_id": job}))

    def tells(asked: Asked) -> Answer:
        assert "missing ;" in asked.text
        return say("The build failed: a semicolon is missing.")

    script = [calls(shell(build, wait=False)), say("It builds."), call("time"), say("It is late."), reads, tells]
    with anyio.fail_after(LIMIT):
        async with scene(host, monkeypatch, script) as there, anyio.create_task_group() as tasks:
            tasks.start_soon(there.agent.serve)
            there.agent.submit("build it in the background, and tell me how it went")
            await there.turns(1)
            there.agent.submit("meanwhile: what time is it?")
            await there.turns(2)
            await host.open_gate()
            ended = await there.turns(3)
            tasks.cancel_scope.cancel()
    assert [turn.text for turn in ended] == ["It builds.", "It is late.", "The build failed: a semicolon is missing."]
    assert [event.origin for event in there.seen if isinstance(event, TurnStarted)][-1] == "jobs"
    assert Path(gate).exists()


async def test_a_person_sees_each_command_in_the_session(host: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    with anyio.fail_after(LIMIT):
        operator = await host.operator(150, 42)
        script = [Answer((Text("I look."), shell("echo seen by both"))), say("fine")]
        async with scene(host, monkeypatch, script) as there:
            await there.agent.turn("look")
            await operator.sees("\nseen by both")
            await operator.sees("agent: waits for a prompt")
