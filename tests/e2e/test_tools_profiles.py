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
from tests.support.profile_steps import Step, differences, open_unasking, step

from harness import ExecutionContext
from harness.toolkit.assembly import Toolkit

BACKENDS = [
    *("local", "local+tmux", "ssh-openssh", "ssh-openssh+tmux"),
    pytest.param("docker-busybox+tmux", marks=pytest.mark.containers),
]


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
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


# With a terminal: start a program, look until it asks, answer, and look at what came of it.
ASKING = "cd {dir}; clear; printf 'your name: '; read name; echo \"$name\" >name"
DISPATCH = [
    Step("run_shell", {"command": ASKING, "wait": False}, r"^command dispatched to tmux pane (\S+);", like=True)
]
LOOK = [step("capture-pane", "your name: ?$", like=True, delay="100ms", target="bg-1")]
ANSWER = [step("send-keys", "^Keys sent", like=True, literal_text="Ada", enter=True, delay_ms=10, target="bg-1")]
AFTERWARDS = [
    step("run_shell", "exit code: 0\nstdout:\nAda\nstderr:\n", command="cat name"),
    step("send-keys", "^Tool error: send-keys: .*nothing to type", like=True, error=True),
    step("capture-pane", "^Tool error: capture-pane: start", like=True, error=True, start="top"),
]


async def answer_what_asks(toolkit: Toolkit, ctx: ExecutionContext) -> list[str]:
    directory = await make_directory(ctx)
    wrong = await differences(toolkit, ctx, "buddy", DISPATCH, directory)
    job = max(await ctx.jobs(), key=lambda job: int(job.job_id)).job_id
    with anyio.fail_after(60):
        while await differences(toolkit, ctx, "buddy", LOOK, directory):
            pass
        wrong += await differences(toolkit, ctx, "buddy", ANSWER, directory)
        await ctx.wait(job)
    return wrong + await differences(toolkit, ctx, "buddy", AFTERWARDS, directory)


async def make_directory(ctx: ExecutionContext) -> str:
    name = f"p-{secrets.token_hex(4)}"
    found = (await ctx.run_shell(f"mkdir -p ~/{name} && cd ~/{name} && pwd", tty=False)).stdout
    assert re.fullmatch(r"/\S+\n", found), found
    directory = found.strip()
    made = await ctx.run_shell(SETUP, cwd=directory, tty=False)
    assert made.exit_code == 0, made.stderr
    return directory


@pytest.mark.parametrize("backend", BACKENDS)
async def test_each_profile_answers_as_its_document_says(ctx: ExecutionContext, backend: str) -> None:
    wrong: list[str] = []
    async with open_unasking() as toolkit:
        for profile, steps in STEPS.items():
            wrong += await differences(toolkit, ctx, profile, steps, await make_directory(ctx))
        if ctx.has_terminal:
            wrong += await answer_what_asks(toolkit, ctx)
    assert "\n".join(wrong) == ""
