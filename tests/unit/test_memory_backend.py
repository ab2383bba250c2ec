"""The scripted backend keeps the contract as far as a script can."""

from __future__ import annotations

import pytest

from harness import ExecutionContext, Status, UnsupportedOperation
from harness.command import Command
from harness.testing.contract import Check, checks, run_check
from harness.testing.memory import MemoryBackend, ScriptedReply, memory_context

# Checks about files that make links, queues or /proc entries with shell commands.
NEED_A_SHELL = {"links_are_followed", "special_files_do_not_hang", "files_without_a_size", "permissions_are_honoured"}
ABOUT_FILES = [item for item in checks() if item.run.__module__.endswith("_files") and item.name not in NEED_A_SHELL]
OTHERS = [item for item in checks() if item.name in ("no_terminal_no_pretending", "unknown_jobs_are_refused")]


@pytest.fixture
def ctx() -> ExecutionContext:
    return memory_context(MemoryBackend())


@pytest.mark.parametrize("item", [*ABOUT_FILES, *OTHERS], ids=lambda item: item.name)
async def test_the_contract_holds(ctx: ExecutionContext, item: Check) -> None:
    await run_check(item, ctx)


async def test_commands_do_what_the_script_says_and_are_recorded() -> None:
    backend = MemoryBackend(
        {
            "uptime": ScriptedReply("up\n"),
            "bad": ScriptedReply(b"\xff", "why\n", 3),
            "slow": ScriptedReply(status=Status.RUNNING),
        }
    )
    ctx = memory_context(backend)
    assert (await ctx.run_shell("uptime")).stdout == "up\n"
    bad = await ctx.run_shell("bad", env={"A": "b"})
    assert (bad.exit_code, bad.stdout_bytes, bad.stderr, bad.ok) == (3, b"\xff", "why\n", False)
    slow = await ctx.run_shell("slow")
    assert (slow.status, slow.exit_code) == (Status.RUNNING, None)
    assert (await ctx.run_shell("unknown")).exit_code == 127
    assert [command.command for command in backend.received] == ["uptime", "bad", "slow", "unknown"]
    assert backend.received[1].env == (("A", "b"),)


async def test_a_script_can_be_a_function() -> None:
    def script(command: Command) -> ScriptedReply:
        return ScriptedReply(command.command.upper())

    assert (await memory_context(MemoryBackend(script)).run_shell("abc")).stdout == "ABC"


async def test_background_jobs_and_long_output_look_as_on_a_target() -> None:
    ctx = memory_context(MemoryBackend({"x": ScriptedReply("0123456789")}))
    started = await ctx.run_shell("x", wait=False)
    assert (started.status, started.stdout) == (Status.RUNNING, "")
    assert (await ctx.wait(started.job_id or "")).stdout == "0123456789"
    cut = await ctx.run_shell("x", max_output=4)
    assert (cut.stdout, cut.truncated) == ("0189", 6)
    assert b"".join([chunk async for chunk in ctx.follow(started.job_id or "", offset=8)]) == b"89"


async def test_it_says_what_it_cannot_do() -> None:
    backend = MemoryBackend()
    with pytest.raises(UnsupportedOperation):
        backend.open_terminal("x")
    with pytest.raises(UnsupportedOperation):
        await backend.transport.open_process(["true"])


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("*", ["a", "a.b", "d"]),
        ("?", ["a", "d"]),
        ("a?b", ["a.b"]),
        ("[!a]", ["d"]),
        (".*", [".h"]),
        ("d/*", ["d/x"]),
        ("**/x", ["d/x"]),
        ("**", ["a", "a.b", "d", "d/x"]),
        ("d/.g/x", ["d/.g/x"]),
        ("a[.]b", ["a.b"]),
        ("a+b", []),
        ("a**b", ["a.b"]),
        ("[!]a-c]", ["d"]),
    ],
)
async def test_patterns_match_as_in_a_shell(ctx: ExecutionContext, pattern: str, found: list[str]) -> None:
    for path in ("/g/a", "/g/a.b", "/g/d/x", "/g/d/.g/x", "/g/.h"):
        await ctx.write_file(path, b"")
    assert await ctx.glob(pattern, root="/g") == found


async def test_a_policy_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="'keep' or 'kill', not 'stop'"):
        await memory_context(MemoryBackend()).run_shell("true", on_timeout="stop")  # type: ignore[arg-type]  # as a typo
