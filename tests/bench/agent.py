"""What the agent adds: from a prompt to its request, in long conversations, and until its prompt is there."""

from __future__ import annotations

import os
import re
import shutil
import statistics
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pexpect
from openai import AsyncOpenAI
from tests.support.agent_desk import profile_for
from tests.support.model_server import Answer, Asked, ModelServer, ReportedUsage, Text, model_server

from harness.agent.agent import Agent
from harness.agent.opening import open_agent
from harness.agent.storage import ConversationStore, NewConversation
from harness.toolkit.assembly import ToolkitSettings, open_toolkit
from harness.toolkit.permissions.rules.settings import Mode, PermissionSettings

from .model import Line, Row, at_most, median_of
from .timing import run_program
from .world import Size, World

__all__ = ["agent_row"]

OURS, CLIENT = "Agent.turn, until the server has the request", "the provider's own client, same request"
EARLY, LATE = "a turn, the 50th to the 150th", "a turn, the last 100"
PROMPT = "harness --ssh host --tmux, until the prompt is there"
TO_THE_WIRE, TO_THE_PROMPT = "the wire", "the prompt"
LONG = "a long conversation"
CONTEXT = 32_000
KEY = "HARNESS_BENCH_KEY"
PROMPT_LIMIT = 30.0


class Clock:
    """A model whose answers are short, and that notes when each request is whole."""

    def __init__(self) -> None:
        self.came = 0.0
        self.body: dict[str, Any] = {}

    def __call__(self, asked: Asked) -> Answer:
        self.came = time.perf_counter()
        self.body = dict(asked.body)
        tokens = len(asked.text) // 4
        return Answer((Text("It is as it should be. " * 10),), usage=ReportedUsage(tokens, 60))


async def agent_row(world: World, size: Size) -> Row:
    """The agent beside the client of its provider, over a thousand turns, and the prompt of the command line."""
    lines = [*await _to_the_wire(world, size), *await _thousand_turns(world, size), _prompt(world, size)]
    own = median_of(lines, OURS, TO_THE_WIRE) - median_of(lines, CLIENT, TO_THE_WIRE)
    grown = next(line for line in lines if line.group == "memory").values
    early, late = median_of(lines, EARLY, LONG), median_of(lines, LATE, LONG)
    checks = (
        at_most("from the prompt to the request: at most 20 ms beyond the provider's client", own, 20),
        at_most("a thousand turns: the last cost no more than 1.5 x the first", late, 1.5 * early),
        at_most("a thousand turns: memory grown by at most 40 MB", grown[-1], 40, "MB"),
        at_most("harness to its prompt on a live master: at most 400 ms", median_of(lines, PROMPT, TO_THE_PROMPT), 400),
    )
    notes = (
        "The model is a server in this process, which answers at once; both sides share the time of one core with it.",
        f"The long conversation has a model of {CONTEXT} tokens, so that older messages are put together over and over;"
        " it is stored as it happens.",
    )
    return Row("agent", "The agent", tuple(lines), checks, notes)


@asynccontextmanager
async def _an_agent(world: World, clock: Clock, context: int = 200_000) -> AsyncIterator[tuple[Agent, ModelServer]]:
    os.environ[KEY] = "key-of-the-bench"
    settings = ToolkitSettings(permissions=PermissionSettings(Mode.AUTO))
    store = ConversationStore(world.directory / "conversations")
    with model_server(clock) as server:
        async with world.ssh() as ctx, open_toolkit(settings) as toolkit:
            stored = await store.create(NewConversation(target=str(ctx.target), identity=ctx.identity, model="bench"))
            async with (
                store.writing(stored.session_id) as log,
                open_agent(
                    ctx,
                    toolkit,
                    profile_for(server, context_window=context, key=KEY),
                    log=log,
                    session_id=stored.session_id,
                ) as agent,
            ):
                yield agent, server


async def _to_the_wire(world: World, size: Size) -> list[Line]:
    clock, ours, theirs = Clock(), [], []
    async with _an_agent(world, clock) as (agent, server):
        client = AsyncOpenAI(base_url=server.openai_url, api_key="x", max_retries=0)
        for number in range(size.pick(60, 4) + 3):
            began = time.perf_counter()
            result = await agent.turn(f"how is it going, for the {number}th time?")
            assert result.status == "completed", result
            took = (clock.came - began) * 1e3
            body = {name: value for name, value in clock.body.items() if name not in ("stream", "stream_options")}
            began = time.perf_counter()
            async for _ in await client.chat.completions.create(**body, stream=True):
                pass
            if number >= 3:
                ours.append(took)
                theirs.append((clock.came - began) * 1e3)
        await client.close()
    return [Line(OURS, tuple(ours), group=TO_THE_WIRE), Line(CLIENT, tuple(theirs), group=TO_THE_WIRE)]


async def _thousand_turns(world: World, size: Size) -> list[Line]:
    clock, taken, turns = Clock(), [], size.pick(1000, 160)
    async with _an_agent(world, clock, CONTEXT) as (agent, server):
        before = _own_memory()
        for number in range(turns):
            began = time.perf_counter()
            result = await agent.turn(f"{number}: and now? " + "It has to be looked at with care. " * 5)
            assert result.status == "completed", result
            taken.append((time.perf_counter() - began) * 1e3)
            server.asked.clear()
        grown = (_own_memory() - before) / 1024
        assert not server.refused, server.refused
    early, late = taken[50:150], taken[-100:]
    return [
        Line(EARLY, tuple(early), group=LONG),
        Line(LATE, tuple(late), group=LONG),
        Line("all of them", (sum(taken) / 1e3,), unit="s", group="in all", note=f"{turns} turns"),
        Line("memory of the process, more after the turns", (grown,), unit="MB", group="memory"),
    ]


def _own_memory() -> int:
    """Kilobytes of this process alone."""
    text = Path("/proc/self/smaps_rollup").read_text()
    return sum(int(kb) for kb in re.findall(r"^Private_(?:Clean|Dirty):\s+(\d+) kB", text, re.M))


def _prompt(world: World, size: Size) -> Line:
    """The program in a terminal, from its start to the prompt."""
    path = shutil.which("harness", path=os.path.dirname(sys.executable)) or "harness"
    options = [word for option in world.sshd.client_options for word in ("-o", option)]
    config = ["-F", str(world.sshd.ssh_config), "-i", str(world.sshd.identity), *options]
    target = ["--ssh", f"{world.user}@127.0.0.1:{world.sshd.port}", *config]
    env = {**os.environ, "HARNESS_TMUX_SOCKET": world.new_socket(), "TERM": "xterm-256color"}
    run_program([path, *target, "--tmux", "run", "--", "true"], env=env)
    taken = []
    for number in range(size.pick(15, 2) + 1):
        began = time.perf_counter()
        child = pexpect.spawn(path, [*target, "--tmux"], env=env, dimensions=(40, 120), timeout=PROMPT_LIMIT)
        try:
            child.expect("»".encode())
            elapsed = (time.perf_counter() - began) * 1e3
            child.sendeof()
            child.expect(pexpect.EOF)
        finally:
            child.close(force=True)
        if number:
            taken.append(elapsed)
    run_program([path, *target, "disconnect"], env=env)
    assert statistics.median(taken) > 0
    return Line(PROMPT, tuple(taken), group=TO_THE_PROMPT)
