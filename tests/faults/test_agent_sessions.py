"""Stored conversations when their harness is killed at any point, on a full disk, and on one that is read-only."""

from __future__ import annotations

import json
import os
import random
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import anyio
import pytest
from tests.faults.children import killed_after
from tests.faults.rig import until
from tests.support.disks import DISKS, small_disk

from harness import connect
from harness.agent.storage import ConversationStore, JobNotes, NewConversation
from harness.agent.storage.recovery import InterruptedWork, in_flight, resume_messages
from harness.agent.storage.store import sessions_directory
from harness.errors import HarnessError
from harness.toolkit.assembly import ToolkitSettings, open_toolkit
from harness.toolkit.events import JobExited, Subscription
from harness.toolkit.permissions.rules.settings import Mode, PermissionSettings

pytestmark = pytest.mark.usefixtures("needs_process")

PROGRAM = Path(__file__).with_name("sessions_child.py")
ROOT = Path(__file__).parents[2]
KILLS = 8
START = NewConversation(target="local:", identity="local:")
AUTO = ToolkitSettings(permissions=PermissionSettings(mode=Mode.AUTO))


@contextmanager
def child(directory: Path, session_id: str, first: int) -> Iterator[subprocess.Popen[str]]:
    argv = [sys.executable, str(PROGRAM), str(directory), session_id, str(first)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield process
        finally:
            process.kill()


def steps(messages: tuple[str, ...]) -> list[int]:
    """Which steps the messages stand for: those that were put together stand for all before."""
    found: list[int] = []
    for message in map(json.loads, messages):
        found = list(range(message["to"] + 1)) if "to" in message else [*found, message["n"]]
    return found


@pytest.mark.timeout(240)
async def test_a_kill_at_any_point_loses_no_message_and_leaves_no_lock(tmp_path: Path) -> None:
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")  # noqa: T201  # to have the same again
    chance = random.Random(seed)
    store, first = ConversationStore(tmp_path / "sessions"), 0
    session_id = (await store.create(START)).session_id
    for _ in range(KILLS):
        with child(tmp_path / "sessions", session_id, first) as process:
            last = max(killed_after(process, chance.randrange(5), chance.uniform(0, 0.02)), default=first - 1)
        stored = await store.load(session_id)
        found = steps(stored.messages)
        assert found == list(range(len(found))), found
        assert len(found) - 1 in (last, last + 1)
        begun = [int(turn.turn_id[1:]) for turn in stored.turns]
        assert sorted(set(begun)) == list(range(0, max([last, *begun]) + 1, 7))[: len(set(begun))]
        assert len([number for number in begun if number <= last]) >= len(range(0, last + 1, 7))
        first = len(found)
    async with store.writing(session_id) as log:
        await log.append(['{"n": 0}'])
    with closing(sqlite3.connect(tmp_path / "sessions/sessions.db")) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)


STEPS = [
    [],
    [[[], [], []]],
    [[[], [None], []]],
    [[["1", "2"], [None], []]],
    [[["1", "2", "3"], [None], []]],
    [[["4"], [None], ["compacted"]]],
    [[["4", "5"], [None], ["compacted"]]],
    [[["4", "5"], ["completed"], ["compacted"]]],
    [[["4", "5"], ["completed"], ["compacted", "kind"]]],
]
"""What is there after each step of ``sessions_steps.py``."""


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_kill_before_each_statement_leaves_what_had_returned_and_nothing_by_half(tmp_path: Path) -> None:
    argv = [sys.executable, str(PROGRAM.with_name("sessions_steps.py")), str(tmp_path)]
    done = subprocess.run(argv, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(lines) > 40
    for statement, returned, found in lines:
        assert found in STEPS[returned : returned + 2], (statement, returned, found)
    assert lines[-1][1:] == [8, STEPS[8]]
    assert {returned for _, returned, _ in lines} == set(range(9))


@pytest.mark.parametrize("disk", DISKS)
async def test_on_a_full_disk_nothing_is_lost_that_can_be_written_later(disk: str, tmp_path: Path) -> None:
    directory = tmp_path / "sessions"
    with DISKS[disk](directory) as full:
        store = ConversationStore(directory)
        session_id = (await store.create(START)).session_id
        async with store.writing(session_id) as log:
            await log.append(['{"n": 0}'])
            with full():
                for number in (1, 2):
                    with pytest.raises(HarnessError, match="cannot be used") as refused:
                        await log.append([json.dumps({"n": number, "much": "x" * 400_000})])
                    assert "free some space" in refused.value.hint
                with pytest.raises(HarnessError):
                    await log.replaced(["x" * 400_000], "summary")
                assert steps((await store.load(session_id)).messages) == [0]
            await log.append(['{"n": 3}'])
            stored = await store.load(session_id)
            assert steps(stored.messages) == [0, 1, 2, 3]
            assert stored.notes == ()


@pytest.mark.parametrize("disk", DISKS)
async def test_what_waited_for_room_is_written_when_the_log_is_closed(disk: str, tmp_path: Path) -> None:
    directory = tmp_path / "sessions"
    with DISKS[disk](directory) as full:
        store = ConversationStore(directory)
        session_id = (await store.create(START)).session_id
        async with store.writing(session_id) as log:
            with full(), pytest.raises(HarnessError):
                await log.append([json.dumps({"n": 0, "much": "x" * 400_000})])
        assert steps((await store.load(session_id)).messages) == [0]


@pytest.mark.parametrize("disk", DISKS)
async def test_on_a_full_disk_conversations_can_be_read_and_none_is_begun(disk: str, tmp_path: Path) -> None:
    directory = tmp_path / "sessions"
    with DISKS[disk](directory) as full:
        store = ConversationStore(directory)
        session_id = (await store.create(START)).session_id
        async with store.writing(session_id) as log:
            await log.append(['{"n": 0}'])
        with full():
            assert [one.session_id for one in await store.list()] == [session_id]
            assert steps((await store.load(session_id)).messages) == [0]
            with pytest.raises(HarnessError, match="cannot be used"):
                await store.create(NewConversation(target="local:" + "x" * 400_000, identity="local:"))
        assert (await store.create(START)).session_id


@pytest.mark.usefixtures("needs_root")
@pytest.mark.parametrize("killed", [False, True])
async def test_on_a_read_only_disk_conversations_can_be_read(killed: bool, tmp_path: Path) -> None:
    directory = tmp_path / "sessions"
    with small_disk(directory):
        store = ConversationStore(directory)
        session_id = (await store.create(START)).session_id
        with child(directory, session_id, 0) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "0\n"
        if not killed:
            async with store.writing(session_id):
                pass
        subprocess.run(["mount", "-o", "remount,ro", directory], check=True)
        assert (await store.list())[0].session_id == session_id
        assert steps((await store.load(session_id)).messages)[:1] == [0]
        for attempt in (lambda: store.create(START), lambda: store.rename(session_id, "x")):
            with pytest.raises(HarnessError, match="cannot be used: Read-only file system"):
                await attempt()
        with pytest.raises(HarnessError, match="cannot be used"):
            async with store.writing(session_id):
                raise AssertionError


# -- what was going on


def waiting_for(path: Path, code: int) -> str:
    """A command that says that it runs, and ends when it is told to."""
    return f"touch {path}.begun; until [ -e {path} ]; do sleep 0.1; done; exit {code}"


@pytest.mark.timeout(120)
async def test_after_a_kill_it_is_said_what_was_running_and_what_became_of_it(home: Path) -> None:
    store = ConversationStore()
    session_id = (await store.create(START)).session_id
    left, ended, running = home / "left", home / "ended", home / "running"
    commands = [waiting_for(left, 0), waiting_for(ended, 3), waiting_for(running, 4)]
    argv = [sys.executable, str(ROOT / "tests/faults/sessions_calls_child.py"), str(sessions_directory()), session_id]
    with subprocess.Popen([*argv, *commands], env=os.environ | {"PYTHONPATH": str(ROOT)}) as process:  # noqa: ASYNC220  # it is started, not waited for
        try:
            await until(
                lambda: all(Path(f"{path}.begun").exists() for path in (left, ended, running)), "the commands run", 60
            )
        finally:
            process.kill()
    async with connect("local:") as execution, open_toolkit(AUTO) as toolkit:
        jobs = {job.command: job.job_id for job in await execution.jobs()}
        for path, command in ((left, commands[0]), (ended, commands[1])):
            path.touch()
            assert (await execution.wait(jobs[command], timeout=60)).exit_code is not None
        async with toolkit.executor(execution, session_id=session_id) as executor, store.writing(session_id) as log:
            found = await in_flight(await store.load(session_id), toolkit.ledger, execution, redact=str)
            with executor.events.subscribe() as events, executor.events.listening(JobNotes(log).heard):
                resume_messages(found, log, executor.events)
                running.touch()
                with anyio.fail_after(60):
                    heard = [event async for event in until_exited(events)]
        lines = found.operator.splitlines()
        assert "('restart the web server') was interrupted when harness exited. Its calls:" in lines[0]
        assert [job.job_id for job in found.running] == [jobs[commands[2]]]
        said = {command: [line for line in lines if f"job {jobs[command]}" in line] for command in commands}
        assert [line.rpartition(": ")[2] for line in said[commands[2]]] == [
            f"its command is still running, job {jobs[commands[2]]}"
        ]
        [about_ended] = said[commands[1]]
        assert f"it ended: error, job {jobs[commands[1]]}; its job ended with exit code 3" in about_ended
        [about_left] = said[commands[0]]
        assert f"- job {jobs[commands[0]]} has ended with exit code 0: touch" in about_left
        assert found.operator in found.model
        assert "Do not rerun completed calls." in found.model
        assert heard == [JobExited(number=2, session_id=session_id, job_id=jobs[commands[2]], exit_code=4)]
        again = await in_flight(await store.load(session_id), toolkit.ledger, execution, redact=str)
        assert (again.running, again.ended) == ((), ())


async def until_exited(events: Subscription) -> AsyncIterator[JobExited]:
    async for event in events:
        if isinstance(event, JobExited):
            yield event
            return


async def test_of_a_conversation_that_ended_in_order_nothing_is_said(home: Path) -> None:
    store = ConversationStore()
    session_id = (await store.create(START)).session_id
    async with store.writing(session_id) as log:
        await log.turn_started("t1", "do it")
        await log.turn_ended("t1", "completed")
    async with connect("local:") as execution, open_toolkit() as toolkit:
        assert await in_flight(await store.load(session_id), toolkit.ledger, execution, redact=str) == InterruptedWork()
        async with store.writing(session_id) as log:
            await log.turn_started("t2", "and more")
        found = await in_flight(await store.load(session_id), toolkit.ledger, execution, redact=str)
        assert found.operator.splitlines()[1:] == ["No call was running."]
