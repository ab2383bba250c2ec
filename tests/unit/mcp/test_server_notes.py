"""Things to do and memories as resources of the server: listed, read, and told of when they change."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp import ClientSession, MCPError
from tests.support.mcp_session import connected, subscribe, unsubscribe
from tests.support.toolbox import toolbox

from harness.toolkit.session.notebook import MemoryLocation, MemoryScope, Notebook, Todo
from harness.toolkit.session.notebook_stores import SqliteNotebook
from harness_tools.interaction.notebook import Forget, Remember, TodoWrite

LIMIT = 60
TODOS, MEMORIES = "harness://todos", "harness://memories"


class Heard:
    """The resources of which the client was told that they have changed."""

    def __init__(self) -> None:
        self._events: dict[str, anyio.Event] = {}

    async def __call__(self, message: object) -> None:
        if isinstance(message, types.ResourceUpdatedNotification):
            self._of(str(message.params.uri)).set()

    def _of(self, uri: str) -> anyio.Event:
        return self._events.setdefault(uri, anyio.Event())

    async def of(self, uri: str) -> None:
        with anyio.fail_after(LIMIT):
            await self._of(uri).wait()
        del self._events[uri]


@asynccontextmanager
async def client_of(notebook: Notebook | None, heard: Heard) -> AsyncIterator[ClientSession]:
    box = toolbox([TodoWrite(), Remember(), Forget()])
    box.executor = replace(box.executor, notebook=notebook, session_id="s1")
    async with connected(lambda approver: box.executor, message_handler=heard) as client:
        yield client


async def read(client: ClientSession, uri: str) -> Any:
    (content,) = (await client.read_resource(uri)).contents
    assert isinstance(content, types.TextResourceContents)
    return json.loads(content.text)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "notebook"


async def test_things_to_do_and_memories_are_read_and_their_changes_are_told(place: Path) -> None:
    heard, notebook = Heard(), SqliteNotebook(place)
    await notebook.set_todos("other", [Todo("of another session")])
    async with client_of(notebook, heard) as client:
        listed = {str(item.uri) for item in (await client.list_resources()).resources}
        assert {TODOS, MEMORIES} <= listed
        assert await read(client, TODOS) == {"todos": []}
        await subscribe(client, TODOS)
        await subscribe(client, MEMORIES)
        todo = {"content": "Test it", "status": "in_progress", "active_form": "Testing it"}
        await client.call_tool("todo_write", {"todos": [todo]})
        await heard.of(TODOS)
        assert await read(client, TODOS) == {"todos": [todo]}
        await client.call_tool("remember", {"content": "the password is hunter2"})
        await client.call_tool("remember", {"content": "the port is 80"})
        await heard.of(MEMORIES)
        found = await read(client, MEMORIES)
        assert ([one["content"] for one in found["memories"]], found["left_out"]) == (["the port is 80"], 0)
        await unsubscribe(client, TODOS)


async def test_what_another_program_writes_down_is_told_of(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.mcp.server.resources.NOTES_EVERY", 0.1)
    heard = Heard()
    async with client_of(SqliteNotebook(place), heard) as client:
        await subscribe(client, MEMORIES)
        await SqliteNotebook(place).remember(MemoryLocation(MemoryScope.GLOBAL), "written elsewhere")
        await heard.of(MEMORIES)
        assert [one["content"] for one in (await read(client, MEMORIES))["memories"]] == ["written elsewhere"]


async def test_a_session_that_writes_nothing_down_has_neither() -> None:
    async with client_of(None, Heard()) as client:
        listed = {str(item.uri) for item in (await client.list_resources()).resources}
        assert not listed & {TODOS, MEMORIES}
        for uri in (TODOS, MEMORIES):
            with pytest.raises(MCPError, match="has no notebook"):
                await client.read_resource(uri)
            with pytest.raises(MCPError, match="has no notebook"):
                await subscribe(client, uri)
