"""A conversation that is killed before its n-th statement of SQL, for every n: ``sessions_steps.py DIRECTORY``.

Prints for each n how many steps had returned, and what can be read afterwards; ends when nothing was killed any more.
"""

from __future__ import annotations

import functools
import json
import os
import signal
import sqlite3
import sys
from itertools import count
from pathlib import Path
from typing import Any

import anyio

from harness.agent.storage import ConversationStore, NewConversation
from harness.agent.storage.values import new_session_id

new_session_id()  # what it imports is imported now: every child is a copy of this process


class Killed(sqlite3.Connection):
    """Counts the statements of this process, and kills it."""

    left = 0

    def _count(self) -> None:
        Killed.left -= 1
        if Killed.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def execute(self, *args: Any) -> sqlite3.Cursor:
        self._count()
        return super().execute(*args)

    def executemany(self, *args: Any) -> sqlite3.Cursor:
        self._count()
        return super().executemany(*args)


async def converse(directory: str, said: int) -> None:
    store = ConversationStore(Path(directory))
    start = NewConversation(target="local:", identity="local:")
    session_id = (await store.create(start)).session_id
    os.write(said, b".")
    async with store.writing(session_id) as log:
        for step in (
            lambda: log.turn_started("t1", "do it"),
            lambda: log.append(["1", "2"]),
            lambda: log.append(["3"]),
            lambda: log.replaced(["4"], "short"),
            lambda: log.append(["5"]),
            lambda: log.turn_ended("t1", "completed"),
            lambda: log.noted("kind", "text"),
        ):
            await step()
            os.write(said, b".")


async def found(directory: str) -> list[object]:
    store = ConversationStore(Path(directory))
    stored = [await store.load(one.session_id) for one in await store.list()]
    for one in stored:
        async with store.writing(one.session.session_id):
            pass
    return [
        [list(one.messages), [turn.status for turn in one.turns], [note.kind for note in one.notes]] for one in stored
    ]


def one(directory: str, statement: int) -> bool:
    """Whether the conversation came to its end."""
    ear, said = os.pipe()
    child = os.fork()
    if child == 0:
        Killed.left = statement
        sqlite3.connect = functools.partial(sqlite3.connect, factory=Killed)  # type: ignore[assignment]  # the same
        anyio.run(converse, directory, said)
        os._exit(0)
    os.close(said)
    with os.fdopen(ear, "rb") as file:
        returned = len(file.read())
    _, status = os.waitpid(child, 0)
    reader = os.fork()  # this process stays without threads, so that it can go on forking
    if reader == 0:
        print(json.dumps([statement, returned, anyio.run(found, directory)]), flush=True)  # noqa: T201  # how it talks
        os._exit(0)
    assert os.waitpid(reader, 0)[1] == 0
    return os.waitstatus_to_exitcode(status) == 0


for number in count(1):
    if one(f"{sys.argv[1]}/{number}", number):
        break
