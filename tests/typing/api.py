"""The public API as a type checker must see it. Checked, never run."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import assert_type

import harness
from harness import (
    Capabilities,
    Config,
    DirEntry,
    ExecutionContext,
    FileContent,
    FileStat,
    Job,
    PaneInfo,
    SessionInfo,
    ShellResult,
    Status,
    Target,
    WriteResult,
)
from harness.login import LoginQuestion, Prompter, use_prompter
from harness.testing.contract import Check, Gap, Outcome, checks, run_check, run_contract
from harness.testing.delay import DelayProxy, delay_proxy
from harness.testing.memory import MemoryBackend
from harness.testing.ssh_server import EmbeddedSshServer, embedded_ssh_server


async def connecting() -> None:
    manager: AbstractAsyncContextManager[ExecutionContext] = harness.connect("local:")
    async with manager, harness.connect("ssh://deploy@web1", tmux=True) as ctx:
        assert_type(ctx, ExecutionContext)
    async with harness.connect(
        Target.parse("local:"), tmux="ops", pane="main", cwd="/", env={"A": "b"}, config=Config(max_panes=3)
    ):
        pass
    harness.connect("local:", tmux=1)  # type: ignore[arg-type]  # a number is no session name


async def commands(ctx: ExecutionContext) -> None:
    result = await ctx.run_shell("df -h /", timeout=30)
    assert_type(result, ShellResult)
    assert_type(result.status, Status)
    assert_type(result.exit_code, int | None)
    assert_type(result.stdout, str)
    assert_type(result.stdout_bytes, bytes)
    assert_type(result.ok, bool)
    assert_type(result.notices, tuple[str, ...])
    await ctx.run_shell("x", wait="10m", on_timeout="kill", cwd="/", env={"A": "b"}, stdin=b"x", user="root", tty=False)
    await ctx.run_shell("x", wait=False, pane="extra", on_output=lambda data: None, max_output=10)
    await ctx.run_shell("x", on_timeout="stop")  # type: ignore[arg-type]  # not one of the policies
    await ctx.run_shell("x", True)  # type: ignore[call-arg]  # options are given by name
    await ctx.run_shell(["ls"])  # type: ignore[arg-type]  # a command is text


async def jobs(ctx: ExecutionContext) -> None:
    assert_type(await ctx.jobs(), list[Job])
    assert_type(await ctx.job("7"), Job)
    assert_type(await ctx.wait("7", timeout=600), ShellResult)
    assert_type(await ctx.kill("7", signal="TERM", grace=2.0), Job)
    assert_type(ctx.follow("7", offset=3), AsyncIterator[bytes])
    await ctx.wait(7)  # type: ignore[arg-type]  # ids are text


async def files(ctx: ExecutionContext) -> None:
    content = await ctx.read_file("/etc/hosts", offset=1, limit=2)
    assert_type(content, FileContent)
    assert_type(content.text, str)
    assert_type(content.version, str)
    assert_type(await ctx.write_file("/tmp/x", b"bytes", expect=content.version), WriteResult)
    await ctx.write_file("/tmp/x", "text", mode="create", expect=None, parents=False, permissions=0o600)
    await ctx.write_file("/tmp/x", "text", expect=harness.ANY)
    await ctx.write_file("/tmp/x", "text", mode="replace")  # type: ignore[arg-type]  # not one of the modes
    assert_type(await ctx.stat("/", follow=False), FileStat)
    assert_type(await ctx.list_dir("/"), list[DirEntry])
    assert_type(await ctx.walk("/", max_entries=10), list[DirEntry])
    assert_type(await ctx.glob("*.log", root="/var/log"), list[str])
    assert_type(await ctx.upload("here", "there"), WriteResult)
    assert_type(await ctx.download("there", "here"), int)


async def terminal(ctx: ExecutionContext) -> None:
    assert_type(await ctx.capture_pane(delay=2.0, start="-", end=3), str)
    await ctx.capture_pane(start="first")  # type: ignore[arg-type]  # a number or "-"
    await ctx.send_keys("C-c")
    await ctx.send_keys(["Up", "Enter"], literal_text="yes", enter=True)
    assert_type(await ctx.list_panes(), list[PaneInfo])
    assert_type(await ctx.create_pane("build", cwd="/"), PaneInfo)
    assert_type(await ctx.list_sessions(), list[SessionInfo])
    assert_type(ctx.attach_command, list[str])
    assert_type(ctx.has_terminal, bool)
    assert_type(ctx.target, Target)
    assert_type(ctx.capabilities, Capabilities)


class Answering:
    async def answer(self, question: LoginQuestion) -> str | None:
        return None if question.secret else "yes"


async def logins() -> None:
    prompter: Prompter = Answering()
    with use_prompter(prompter):
        pass


async def testing(ctx: ExecutionContext) -> None:
    assert_type(checks(), tuple[Check, ...])
    await run_check(checks()[0], ctx)
    assert_type(await run_contract(harness.connect, gaps=[Gap("mine", "name", "reason")]), list[Outcome])
    async with embedded_ssh_server(delay=0.01) as server:
        assert_type(server, EmbeddedSshServer)
        assert_type(server.config(max_panes=2), Config)
    async with delay_proxy("127.0.0.1", 22, 0.02) as proxy:
        assert_type(proxy, DelayProxy)
    backend = MemoryBackend()
    ExecutionContext(backend, None, Config())
