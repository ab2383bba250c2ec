"""The notebook: what was written is there after a restart or a kill, and beside another process."""

from __future__ import annotations

import os
import resource
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import HarnessError
from harness.toolkit.session.notebook import (
    MEMORY_LIMIT,
    MemoryLocation,
    MemoryScope,
    NotebookFull,
    Todo,
    TodoStatus,
    memory_number,
    memory_text,
    place_at,
    todos_json,
)
from harness.toolkit.session.notebook_stores import PLACE_LIMIT, SqliteNotebook, notebook_directory

GLOBAL = MemoryLocation(MemoryScope.GLOBAL)
WEB1 = MemoryLocation(MemoryScope.HOST, target="ssh://web1")
SRV = MemoryLocation(MemoryScope.PROJECT, target="ssh://web1", cwd="/srv")
MINE = MemoryLocation(MemoryScope.SESSION, session_id="s1")
TODOS = (
    Todo("look", TodoStatus.COMPLETED),
    Todo("repair", TodoStatus.IN_PROGRESS, "Repairing", "high"),
    Todo("give up", TodoStatus.CANCELLED),
)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "state" / "notebook"


# -- things to do


async def test_a_list_is_replaced_whole_and_survives_a_restart(place: Path) -> None:
    await SqliteNotebook(place).set_todos("s1", TODOS)
    await SqliteNotebook(place).set_todos("s2", TODOS[:1])
    assert await SqliteNotebook(place).todos("s1") == TODOS
    await SqliteNotebook(place).set_todos("s1", TODOS[1:])
    assert await SqliteNotebook(place).todos("s1") == TODOS[1:]
    await SqliteNotebook(place).set_todos("s1", [])
    assert await SqliteNotebook(place).todos("s1") == ()
    assert await SqliteNotebook(place).todos("s2") == TODOS[:1]


async def test_lists_of_old_sessions_go_and_the_one_that_is_written_stays(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harness.toolkit.session.notebook_stores.SESSIONS_KEPT", 2)
    book = SqliteNotebook(place)
    for session in ("s1", "s2", "s1", "s3"):
        await book.set_todos(session, TODOS)
    assert [bool(await book.todos(session)) for session in ("s1", "s2", "s3")] == [True, False, True]


@given(st.lists(st.builds(Todo, st.text(st.characters(codec="utf-8")), st.sampled_from(TodoStatus)), max_size=5))
async def test_what_is_written_is_what_is_read(place: Path, todos: list[Todo]) -> None:
    book = SqliteNotebook(place)
    await book.set_todos("s1", todos)
    assert await book.todos("s1") == tuple(todos)


def test_what_is_empty_is_not_shown() -> None:
    assert todos_json([Todo("a")]) == [{"content": "a", "status": "pending"}]


# -- memories


async def test_a_memory_is_found_in_its_place_and_nowhere_else(place: Path) -> None:
    book = SqliteNotebook(place)
    kept = [await book.remember(one, f"in {one.scope}", author="s1") for one in (GLOBAL, WEB1, SRV, MINE)]
    assert [memory.memory_id for memory in kept] == ["m1", "m2", "m3", "m4"]
    assert await book.memories() == tuple(kept)
    for memory in kept:
        assert await book.memories([memory.place]) == (memory,)
    elsewhere = (
        MemoryLocation(MemoryScope.HOST, target="ssh://web2"),
        MemoryLocation(MemoryScope.PROJECT, target="ssh://web1", cwd="/srv/app"),
        MemoryLocation(MemoryScope.PROJECT, target="ssh://web2", cwd="/srv"),
        MemoryLocation(MemoryScope.SESSION, session_id="s2"),
    )
    assert await book.memories(elsewhere) == ()
    assert await book.memories([]) == ()


async def test_the_same_again_is_the_same_memory(place: Path) -> None:
    book = SqliteNotebook(place)
    first = await book.remember(WEB1, "nginx is in /opt")
    assert await book.remember(WEB1, "nginx is in /opt") == first
    assert (await book.remember(GLOBAL, "nginx is in /opt")).number != first.number


async def test_what_is_forgotten_is_gone_and_its_number_is_not_used_again(place: Path) -> None:
    book = SqliteNotebook(place)
    assert await book.forget(1) is None
    assert not place.exists()  # nothing is made to forget
    memory = await book.remember(WEB1, "a")
    assert await book.forget(memory.number, GLOBAL) is None
    assert await book.forget(memory.number, WEB1) == memory
    assert await book.forget(memory.number, WEB1) is None
    assert (await book.remember(WEB1, "a")).number == memory.number + 1


async def test_a_place_holds_so_many_and_another_one_still_has_room(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert PLACE_LIMIT >= 100
    monkeypatch.setattr("harness.toolkit.session.notebook_stores.PLACE_LIMIT", 2)
    book = SqliteNotebook(place)
    for text in ("a", "b", "a"):
        await book.remember(WEB1, text)
    with pytest.raises(NotebookFull, match="forget one first"):
        await book.remember(WEB1, "c")
    assert [memory.content for memory in await book.memories()] == ["a", "b"]
    await book.remember(GLOBAL, "c")


async def test_memories_of_old_sessions_go_and_no_others(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.toolkit.session.notebook_stores.SESSION_MEMORIES_KEPT", 2)
    book = SqliteNotebook(place)
    await book.remember(WEB1, "stays")
    for number in range(4):
        await book.remember(MemoryLocation(MemoryScope.SESSION, session_id=f"s{number}"), "x")
    assert [memory.place.session_id for memory in await book.memories()] == ["", "s2", "s3"]


@pytest.mark.parametrize(
    ("cwd", "found"),
    [
        (None, "/home/u"),
        ("", "/home/u"),
        ("~", "/home/u"),
        ("~/app", "/home/u/app"),
        ("app/", "/home/u/app"),
        ("/srv/../srv/a/", "/srv/a"),
    ],
)
def test_a_project_is_a_directory_of_a_target_however_it_is_written(cwd: str | None, found: str) -> None:
    assert place_at(MemoryScope.PROJECT, "ssh://web1", "/home/u", cwd) == MemoryLocation(
        MemoryScope.PROJECT, target="ssh://web1", cwd=found
    )
    assert place_at(MemoryScope.HOST, "ssh://web1", "/home/u", cwd) == WEB1
    assert place_at(MemoryScope.GLOBAL, "ssh://web1", "/home/u", cwd) == GLOBAL


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "empty"),
        (" \n", "empty"),
        ("a\0b", "NUL"),
        ("\ud800", "a single surrogate"),
        ("x" * (MEMORY_LIMIT + 1), "longer"),
    ],
)
def test_what_is_no_text_is_not_kept(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        memory_text(text)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("m12", 12),
        (" 12 ", 12),
        ("m0", None),
        ("", None),
        ("m", None),
        ("-1", None),
        ("m\u0661", None),
        ("9" * 19, None),
    ],
)
def test_ids_are_read_as_they_are_shown(text: str, number: int | None) -> None:
    assert memory_number(text) == number


# -- the file


async def test_nobody_else_can_look_into_it_and_reading_makes_none(place: Path) -> None:
    book = SqliteNotebook(place)
    assert (await book.todos("s1"), await book.memories()) == ((), ())
    assert not place.exists()
    old = os.umask(0)
    try:
        await book.remember(GLOBAL, "x")
    finally:
        os.umask(old)
    assert place.stat().st_mode & 0o777 == 0o700
    assert {path.name: path.stat().st_mode & 0o777 for path in place.iterdir()} == {"notebook.db": 0o600}


def test_it_is_in_the_state_directory(tmp_path: Path) -> None:
    assert notebook_directory({"XDG_STATE_HOME": "/var/x"}) == Path("/var/x/harness/notebook")
    assert notebook_directory({"XDG_STATE_HOME": "x", "HOME": "/h"}) == Path("/h/.local/state/harness/notebook")


async def test_a_directory_that_others_can_enter_is_refused(place: Path) -> None:
    place.mkdir(parents=True, mode=0o755)
    place.chmod(0o755)
    with pytest.raises(HarnessError, match=r"other users may look into it.*chmod 700"):
        await SqliteNotebook(place).remember(GLOBAL, "x")
    assert list(place.iterdir()) == []


async def test_a_link_in_its_place_is_not_followed(place: Path, tmp_path: Path) -> None:
    place.mkdir(parents=True, mode=0o700)
    (tmp_path / "other").write_bytes(b"")
    (place / "notebook.db").symlink_to(tmp_path / "other")
    with pytest.raises(HarnessError, match="cannot be used"):
        await SqliteNotebook(place).remember(GLOBAL, "x")
    assert (tmp_path / "other").read_bytes() == b""


def damaged_head(data: bytes) -> bytes:
    return b"not a database at all" + data[21:]


def damaged_page(data: bytes) -> bytes:
    return data[:4096] + b"\xff" * 4096 + data[8192:]


@pytest.mark.parametrize("damage", [damaged_head, damaged_page, lambda data: data[:5000]])
async def test_a_damaged_file_is_said_and_left_as_it_is(place: Path, damage: object) -> None:
    book = SqliteNotebook(place)
    await book.remember(GLOBAL, "x" * 2_000)
    await book.set_todos("s1", TODOS)
    path = place / "notebook.db"
    assert callable(damage)
    broken = damage(path.read_bytes())
    path.write_bytes(broken)
    with pytest.raises(HarnessError, match=r"is damaged .*move .*notebook\.db away"):
        await book.remember(WEB1, "y")
    with pytest.raises(HarnessError, match="is damaged"):
        await book.set_todos("s2", TODOS)
    assert path.read_bytes() == broken
    assert [file.name for file in place.iterdir() if file.stat().st_size and file != path] == []


async def test_a_list_that_is_none_is_damage(place: Path) -> None:
    book = SqliteNotebook(place)
    await book.set_todos("s1", TODOS)
    with sqlite3.connect(place / "notebook.db") as db:
        db.execute("UPDATE todos SET items = '[{}]'")
    db.close()
    with pytest.raises(HarnessError, match="is damaged"):
        await book.todos("s1")


async def test_a_newer_file_is_left_to_the_newer_harness(place: Path) -> None:
    await SqliteNotebook(place).remember(GLOBAL, "x")
    with sqlite3.connect(place / "notebook.db") as db:
        db.execute("PRAGMA user_version = 9")
    db.close()
    with pytest.raises(HarnessError, match="a newer harness made it"):
        await SqliteNotebook(place).memories()


async def test_another_process_that_holds_it_is_waited_for_and_then_named(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harness.system.private_database.BUSY_LIMIT", 0.05)
    book = SqliteNotebook(place)
    await book.remember(GLOBAL, "x")
    holder = sqlite3.connect(place / "notebook.db", isolation_level=None)
    try:
        holder.execute("BEGIN IMMEDIATE")
        with pytest.raises(HarnessError, match="another process has held the file"):
            await book.remember(GLOBAL, "y")
        assert [memory.content for memory in await book.memories()] == ["x"]  # who only reads waits for nobody
    finally:
        holder.close()
    assert (await book.remember(GLOBAL, "y")).number == 2


async def fill(book: SqliteNotebook) -> None:
    for number in range(100):
        await book.remember(WEB1, f"{number} {'x' * 1_900}")


async def test_a_full_disk_is_said_and_what_was_there_stays(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    book = SqliteNotebook(place)
    await book.remember(GLOBAL, "before")
    real = sqlite3.connect

    def full(*args: object, **options: object) -> sqlite3.Connection:
        found = real(*args, **options)  # type: ignore[call-overload]  # passed through as they came
        assert isinstance(found, sqlite3.Connection)
        found.execute("PRAGMA max_page_count = 1")  # SQLite sets it to the size that the file has
        return found

    monkeypatch.setattr(sqlite3, "connect", full)
    with pytest.raises(HarnessError, match=r"database or disk is full.*free some space"):
        await fill(book)
    monkeypatch.setattr(sqlite3, "connect", real)
    kept = [memory.content for memory in await book.memories()]
    assert kept[0] == "before"
    assert len(await book.memories([WEB1])) == len(kept) - 1
    await book.remember(WEB1, "after")


@contextmanager
def no_growth() -> Iterator[None]:
    """No file may grow: the same for SQLite as a disk that has no room."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


async def test_where_nothing_can_grow_what_is_there_is_read_and_nothing_is_lost(place: Path) -> None:
    book = SqliteNotebook(place)
    with no_growth():
        with pytest.raises(HarnessError, match=r"cannot be used.*free some space") as first:
            await book.remember(GLOBAL, "x")
        unmade = await book.memories()
    await book.remember(GLOBAL, "before")
    await book.set_todos("s1", TODOS)
    with no_growth():
        with pytest.raises(HarnessError, match=r"cannot be used.*free some space") as second:
            await book.set_todos("s1", [])
        kept, todos = await book.memories(), await book.todos("s1")
    assert (unmade, first.type, second.type) == ((), HarnessError, HarnessError)
    assert ([memory.content for memory in kept], todos) == (["before"], TODOS)
    assert (await book.remember(GLOBAL, "after")).number == 2


# -- killed, and beside another process

WRITER = """
import sys
from pathlib import Path
import anyio
from harness.system import private_database
from harness.toolkit.session.notebook import MemoryScope, MemoryLocation, Todo
from harness.toolkit.session.notebook_stores import SqliteNotebook

private_database.BUSY_LIMIT = 60.0  # on a machine that has other things to do

async def main(place, name, count):
    book = SqliteNotebook(place)
    for number in range(count):
        kept = await book.remember(MemoryLocation(MemoryScope.HOST, target=name), f"{name} {number}")
        await book.set_todos(name, [Todo(str(number))])
        print(kept.number, flush=True)

anyio.run(main, Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
"""


def writer(place: Path, name: str, count: int) -> subprocess.Popen[str]:
    argv = [sys.executable, "-c", WRITER, str(place), name, str(count)]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)


@pytest.mark.usefixtures("needs_process")
async def test_nothing_that_was_acknowledged_is_lost_when_the_writer_is_killed(place: Path) -> None:
    for round_ in range(3):
        with writer(place, f"host{round_}", 150) as process:
            assert process.stdout is not None
            acknowledged = [int(process.stdout.readline()) for _ in range(3 + round_)]
            process.kill()
            acknowledged += [int(line) for line in process.stdout if line.endswith("\n")]
        book = SqliteNotebook(place)
        kept = await book.memories([MemoryLocation(MemoryScope.HOST, target=f"host{round_}")])
        assert {memory.number for memory in kept} >= set(acknowledged)
        assert [memory.content for memory in kept] == [f"host{round_} {number}" for number in range(len(kept))]
        (todo,) = await book.todos(f"host{round_}")
        assert int(todo.content) >= len(acknowledged) - 1


@pytest.mark.usefixtures("needs_process")
async def test_two_processes_write_at_once_and_both_keep_everything(place: Path) -> None:
    processes = [writer(place, name, 25) for name in ("a", "b")]
    numbers = [[int(line) for line in process.communicate(timeout=100)[0].split()] for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    assert len({*numbers[0], *numbers[1]}) == 50
    book = SqliteNotebook(place)
    for name, own in zip(("a", "b"), numbers, strict=True):
        kept = await book.memories([MemoryLocation(MemoryScope.HOST, target=name)])
        assert [memory.number for memory in kept] == own
        assert await book.todos(name) == (Todo("24"),)
