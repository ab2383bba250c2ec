"""The profiles on every backend, by the examples of the documents that they come from."""

from __future__ import annotations

import re
import secrets
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import anyio
import pytest
from tests.support.berths import BERTHS, Berths
from tests.support.engines import Engines
from tests.support.places import Place, a_place, open_context
from tests.support.profile_examples import SETUP, STEPS
from tests.support.profile_steps import Agreeing, differences, open_unasking

from harness import ExecutionContext
from harness.toolkit import Executor, ToolCall
from harness.toolkit.assembly import Toolkit
from harness.toolkit.values import Json

BACKENDS = [
    *("local", "local+tmux", "ssh-openssh", "ssh-openssh+tmux"),
    "docker-busybox+tmux",
]


@pytest.fixture(scope="module")
def place(needs_process: None) -> Iterator[Place]:
    with a_place() as found:
        yield found


@pytest.fixture(scope="module")
def berths(engines: Engines) -> Iterator[Berths]:
    found = Berths(engines)
    with found.stack:
        yield found


@pytest.fixture
async def ctx(
    request: pytest.FixtureRequest, place: Place, backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[ExecutionContext]:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    if backend.partition("+")[0] not in BERTHS:
        async with open_context(place, backend) as opened:
            yield opened
        return
    berths: Berths = request.getfixturevalue("berths")
    async with berths.context(backend) as opened:
        yield opened


ASKING = "clear; printf 'your name: '; read name; echo \"$name\" >name"


async def said(executor: Executor, tool: str, **arguments: Json) -> str:
    """What the model sees of a call that must go well."""
    done = await executor.call(ToolCall(tool, arguments))
    assert not done.result.is_error, done.result.text
    return done.result.text


async def answer_what_asks(toolkit: Toolkit, ctx: ExecutionContext) -> None:
    """As Buddy's document describes it: start a program, look until it asks, type, and look at what came of it."""
    directory = await make_directory(ctx)
    async with toolkit.executor(ctx, approver=Agreeing(), profile="buddy", cwd=directory) as executor:
        started = await said(executor, "run_shell", command=ASKING, wait=False)
        match = re.match(r"command dispatched to tmux pane (\S+);", started)
        assert match, started
        job = max(await ctx.jobs(), key=lambda job: int(job.job_id)).job_id
        with anyio.fail_after(60):
            while not re.search(
                r"your name: ?\n*$", await said(executor, "capture-pane", target=match[1], delay="100ms")
            ):
                pass
            await said(executor, "send-keys", literal_text="Ada", enter=True, delay_ms=10, target=match[1])
            await ctx.wait(job)
        assert await said(executor, "run_shell", command="cat name") == "exit code: 0\nstdout:\nAda\nstderr:\n"
        for tool, arguments, problem in (
            ("send-keys", {}, "nothing to type"),
            ("capture-pane", {"start": "top"}, "start"),
        ):
            wrong = (await executor.call(ToolCall(tool, arguments))).result
            assert wrong.is_error
            assert re.match(f"Tool error: {tool}: .*{problem}", wrong.text), wrong.text


async def make_directory(ctx: ExecutionContext) -> str:
    name = f"p-{secrets.token_hex(4)}"
    found = (await ctx.run_shell(f"mkdir -p ~/{name} && cd ~/{name} && pwd", tty=False)).stdout
    assert re.fullmatch(r"/\S+\n", found), found
    directory = found.strip()
    made = await ctx.run_shell(SETUP, cwd=directory, tty=False)
    assert made.exit_code == 0, made.stderr
    return directory


@pytest.mark.timeout(400)  # a hundred calls, each of them a second when the machine is busy
@pytest.mark.parametrize("backend", BACKENDS)
async def test_each_profile_answers_as_its_document_says(ctx: ExecutionContext, backend: str) -> None:
    wrong: list[str] = []
    async with open_unasking() as toolkit:
        for profile, steps in STEPS.items():
            wrong += await differences(toolkit, ctx, profile, steps, await make_directory(ctx))
        if ctx.has_terminal:
            await answer_what_asks(toolkit, ctx)
    assert "\n".join(wrong) == ""
