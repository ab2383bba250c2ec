"""The tools for files on real targets: behind SSH, beside a terminal, and in a container with nothing but busybox."""

from __future__ import annotations

import shlex
from typing import Any

import anyio
import pytest
from tests.support.contained import MakeWay, make_way
from tests.support.engines import container
from tests.support.shells_everywhere import open_place
from tests.support.toolbox import Toolbox, toolbox

from harness import ExecutionContext
from harness.toolkit import CallOutcome, CallStatus, Executor, ToolCall
from harness.toolkit.session.file_versions import ReadTracker
from harness_tools import core
from harness_tools.dev import tools

__all__ = ["make_way"]

pytestmark = pytest.mark.usefixtures("needs_process")

PATIENCE = 120
LINES = 50_000


def box_of(ctx: ExecutionContext, cwd: str) -> Toolbox:
    made = toolbox([*core.tools(), *tools()], execution=ctx)
    old = made.executor
    reads = ReadTracker().of("s1", ctx)
    made.executor = Executor(ctx, old.registry, old.services, old.events, reads, "s1", cwd=cwd)
    return made


async def call(box: Toolbox, name: str, **arguments: Any) -> CallOutcome:
    with anyio.fail_after(PATIENCE):
        return await box.executor.call(ToolCall(name, arguments))


async def facts(box: Toolbox, name: str, **arguments: Any) -> dict[str, Any]:
    outcome = await call(box, name, **arguments)
    assert outcome.status is CallStatus.OK, outcome.result.text
    assert isinstance(outcome.result.data, dict)
    return outcome.result.data


async def prepare(ctx: ExecutionContext, home: str) -> str:
    """A directory on the target, with a space in its name."""
    work = f"{home}/my work"
    made = await ctx.run_helper(
        f"mkdir -p {shlex.quote(work)}/sub && cd {shlex.quote(work)} && "
        f"awk 'BEGIN {{ for (i = 1; i <= {LINES}; i++) print \"line \" i }}' >log && "
        "printf 'one\\r\\ntwo caf\\351\\r\\n' >latin && printf 'old\\n' >'a b' && printf 'old\\told' >sub/b"
    )
    assert made.ok, made.stderr
    return work


async def use_every_tool(ctx: ExecutionContext, home: str) -> None:
    """One session, as an agent would have it."""
    work = await prepare(ctx, home)
    box = box_of(ctx, work)
    far = await call(box, "read_file", path="log", offset=LINES - 1)
    assert far.result.text == f"line {LINES - 1}\nline {LINES}\n[lines {LINES - 1} to {LINES} of {LINES} lines]"
    await read_edit_and_convert(box, ctx, work)
    await replace_split_and_splice(box, ctx, work)
    await delete_and_restore(box, ctx, work)


async def read_edit_and_convert(box: Toolbox, ctx: ExecutionContext, work: str) -> None:
    await facts(box, "read_file", path="latin")
    edited = await facts(box, "edit", path="latin", old_string="one\ntwo", new_string="eins\nzwei\ndrei")
    assert (edited["replacements"], edited["lines_added"]) == (1, 3)
    assert (await ctx.read_file(f"{work}/latin")).data == b"eins\r\nzwei\r\ndrei caf\xe9\r\n"
    assert (await facts(box, "utf8", file="latin", from_encoding="latin-1"))["backup"] == f"{work}/latin.bak"
    assert (await ctx.read_file(f"{work}/latin")).text == "eins\r\nzwei\r\ndrei café\r\n"
    made = await facts(box, "write_file", path="new/script", content="#!/bin/sh\n", permissions="0750")
    assert (made["created"], (await ctx.stat(f"{work}/new/script")).mode & 0o777) == (True, 0o750)


async def replace_split_and_splice(box: Toolbox, ctx: ExecutionContext, work: str) -> None:
    unseen = await call(box, "repfor", search="old", replace="new", dir=".", recursive=True)
    assert unseen.result.error_code == "not_read"
    shown = await facts(box, "repfor", search="old", replace="new", dir=".", recursive=True, dry_run=True)
    done = await facts(box, "repfor", search="old", replace="new", dir=".", recursive=True)
    assert shown["total_replacements"] == done["total_replacements"] == 3
    assert (await facts(box, "notab", file="sub/b"))["replacements"] == 1
    assert (await ctx.read_file(f"{work}/sub/b")).data == b"new    new"
    parts = await facts(box, "split", file="latin", lines=[1, 2])
    assert [part["file"] for part in parts["parts"]] == [f"{work}/latin_00{number}" for number in (1, 2, 3)]
    await facts(box, "splice", source="latin_001", target="a b", mode="insert", line=1)
    assert (await ctx.read_file(f"{work}/a b")).data == b"new\neins\r\n"
    assert (await facts(box, "tabcount", file="a b"))["total_lines"] == 2


async def delete_and_restore(box: Toolbox, ctx: ExecutionContext, work: str) -> None:
    gone = await facts(box, "delete", path="a b")
    assert [entry.name for entry in await ctx.list_dir(work) if entry.name == "a b"] == []
    assert (await ctx.run_helper(gone["restore"])).ok
    assert (await ctx.read_file(f"{work}/a b")).data == b"new\neins\r\n"
    whole = await facts(box, "delete", path="sub")
    assert (await ctx.read_file(f"{whole['trash_path']}/b")).data == b"new    new"
    for protected in ("/", "/etc/passwd", "~"):
        assert (await call(box, "delete", path=protected)).result.error_code == "protected"


@pytest.mark.usefixtures("needs_tmux")
@pytest.mark.parametrize("where", ["local+bash", "ssh", "ssh+dash"])
async def test_every_tool_works_the_same_wherever_the_files_are(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_place(where, monkeypatch) as place:
        await use_every_tool(place.ctx, str(place.home))


async def test_every_tool_works_where_there_is_only_busybox(make_way: MakeWay) -> None:
    way = make_way("podman")
    with container(way.engine, "busybox") as one:
        async with way.connect(one) as ctx:
            await use_every_tool(ctx, ctx.capabilities.home)
