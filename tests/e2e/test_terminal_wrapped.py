"""A target that wraps each program of another one has a tmux server of its own, so that nothing runs outside of it."""

from __future__ import annotations

import secrets
import subprocess
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from harness import Config, ExecutionContext, Target
from harness.discovery import find_backend
from harness.transport import Process, Transport
from harness_backends.composition import open_posix_backend

pytestmark = pytest.mark.usefixtures("needs_tmux")

BASE = "local:"


class Wrapped(Transport):
    """Starts each program with the name of its target in the environment; ``sudo`` and ``nsenter`` do it so."""

    def __init__(self, target: Target, base: Transport) -> None:
        self.target = target
        self._base = base
        self._words = ["env", f"PLACE={target.last.host}"]

    async def open_process(self, argv: Sequence[str]) -> Process:
        return await self._base.open_process([*self._words, *argv])

    def interactive_argv(self, argv: Sequence[str]) -> list[str]:
        return self._base.interactive_argv([*self._words, *argv])

    def describe(self) -> str:
        return f"{self._base.describe()}, wrapped"


@asynccontextmanager
async def opened(target: str, config: Config) -> AsyncIterator[ExecutionContext]:
    """A context with a terminal of ``local:``, or of a target that wraps it."""
    parsed = Target.parse(target)
    async with AsyncExitStack() as stack:
        backend = await stack.enter_async_context(find_backend("local")(Target.parse(BASE), config, None))
        if parsed.base is not None:
            wrapped = Wrapped(parsed, backend.transport)
            backend = await stack.enter_async_context(open_posix_backend(wrapped, config))
        terminal = await stack.enter_async_context(backend.open_terminal("harness"))
        yield ExecutionContext(backend, terminal, config)


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    """Settings whose tmux servers are below a directory of their own, with the state."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("TMUX", raising=False)
    return Config(tmux_socket=f"hx-{secrets.token_hex(4)}", shell="/bin/bash", tmux_host="target")


async def place_of(target: str, config: Config, kill: list[list[str]]) -> str:
    """Where a command of the target's pane runs; the command that ends its server is added to ``kill``."""
    async with opened(target, config) as ctx:
        attach = ctx.attach_command
        kill.append([*attach[: attach.index("attach-session")], "kill-server"])
        return (await ctx.run_shell('echo "${PLACE-outside}"')).stdout.strip()


@pytest.mark.parametrize("order", [(BASE, "local:+in://a", "local:+in://b"), ("local:+in://a", BASE, "local:+in://b")])
async def test_each_wrapped_target_runs_its_commands_inside(order: tuple[str, ...], config: Config) -> None:
    kill: list[list[str]] = []
    try:
        places = {target: await place_of(target, config, kill) for target in order}
    finally:
        for argv in kill:
            subprocess.run(argv, check=False, capture_output=True, timeout=20)
    assert places == {BASE: "outside", "local:+in://a": "a", "local:+in://b": "b"}


async def test_a_wrapped_target_finds_its_own_session_again(config: Config) -> None:
    kill: list[list[str]] = []
    try:
        async with opened("local:+in://a", config) as ctx:
            attach = ctx.attach_command
            kill.append([*attach[: attach.index("attach-session")], "kill-server"])
            await ctx.run_shell("kept=1")
            job = await ctx.run_shell("sleep 60", wait=False)
        async with opened("local:+in://a", config) as ctx:
            assert job.job_id is not None
            await ctx.kill(job.job_id)
            result = await ctx.run_shell('echo "$kept"')
    finally:
        for argv in kill:
            subprocess.run(argv, check=False, capture_output=True, timeout=20)
    assert result.stdout == "1\n"
