"""Calls whose outcome was never written: what the jobs of the target say about them, and what a person decides."""

from __future__ import annotations

import os
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import anyio
import pytest
from tests.support.audits import STARTED, checked, ended_process, entry, write_as

from harness import connect
from harness.context import ExecutionContext
from harness.errors import HarnessError
from harness.results import Job, Status
from harness.system.process_identity import ProcessId, process_state
from harness.testing.memory import MemoryBackend, memory_context
from harness.toolkit import CallStatus
from harness.toolkit.audit import (
    AuditPaths,
    Filters,
    ProcessState,
    UnresolvedRow,
    calls,
    open_audit_log,
    open_reader,
    open_store,
    this_process,
)
from harness.toolkit.audit.records import intent_fields, outcome_fields
from harness.toolkit.audit.settlement import JobVerdict, find, verdict_of
from harness.toolkit.audit.store import PendingRecord

DEAD = replace(this_process(), user="ann", host="desk", pid=4711)
OWNER = "ann@desk:4711"


def call(call_id: str = "c1", job_id: str = "", **more: object) -> UnresolvedRow:
    record = intent_fields(entry(call_id, **more), DEAD.owner)  # type: ignore[arg-type]  # of the test
    return UnresolvedRow(1, "running", True, DEAD, job_id, record)


def job(job_id: str = "7", command: str = "echo c1", **more: object) -> Job:
    made = Job(job_id, command, Status.COMPLETED, 0, started=STARTED + 1, owner=OWNER)
    return replace(made, **more)  # type: ignore[arg-type]  # of the test


def same(text: str) -> str:
    return text


@pytest.mark.parametrize(
    ("changes", "status", "summary"),
    [
        ({}, CallStatus.OK, "its job ended with exit code 0"),
        ({"exit_code": 3}, CallStatus.ERROR, "its job ended with exit code 3"),
        ({"status": Status.SHELL_EXITED, "exit_code": 1}, CallStatus.ERROR, "its job ended with exit code 1"),
        ({"status": Status.RUNNING, "exit_code": None}, None, "its job still runs"),
        ({"status": Status.TIMED_OUT, "exit_code": None}, CallStatus.TIMEOUT, "its job is timed out"),
        ({"status": Status.INTERRUPTED, "exit_code": None}, CallStatus.CANCELLED, "its job is interrupted"),
        ({"status": Status.UNKNOWN, "exit_code": None}, CallStatus.UNKNOWN, "its job is unknown"),
        ({"exit_code": None}, CallStatus.UNKNOWN, "its job is completed"),
    ],
)
def test_a_jobs_end_is_the_calls(changes: dict[str, object], status: CallStatus | None, summary: str) -> None:
    assert verdict_of(job(**changes)) == JobVerdict(status, summary, "7")


def test_a_call_is_found_by_the_job_that_it_noted() -> None:
    jobs = [job("6"), job("7", "something else", exit_code=4)]
    assert find(call(job_id="7"), jobs, [], same).status is CallStatus.ERROR
    assert find(call(job_id="8"), jobs, [], same) == JobVerdict(
        CallStatus.UNKNOWN, "the target keeps no job 8 of it any more"
    )


def test_a_number_that_another_process_has_since_used_is_not_the_calls_job() -> None:
    assert find(call(job_id="7"), [job("7", owner="ann@desk:4712")], [], same).status is CallStatus.UNKNOWN


@pytest.mark.parametrize("owner", [OWNER, "0@desk:4711"])
def test_a_call_is_found_by_its_command_and_its_process(owner: str) -> None:
    jobs = [job("6", "echo other"), job("7", owner=owner), job("8", owner="ann@desk:47110"), job("9", owner=None)]
    assert find(call(), jobs, [], same).job_id == "7"


@pytest.mark.parametrize(
    "other",
    [
        {"owner": "ann@desk:4712"},
        {"owner": "ann@hisdesk:4711"},
        {"owner": None},
        {"command": "echo c1 "},
        {"started": None},
        {"started": STARTED - 7200},
        {"started": STARTED + 100_000},
    ],
)
def test_what_is_not_certainly_its_job_says_nothing(other: dict[str, object]) -> None:
    assert find(call(), [job(**other)], [], same) == JobVerdict(CallStatus.UNKNOWN, "the target keeps no job of it")


def test_two_jobs_that_fit_say_nothing() -> None:
    found = find(call(), [job("7"), job("8")], [], same)
    assert found == JobVerdict(CallStatus.UNKNOWN, "it cannot be told which job is this call's: 7, 8")


def test_another_call_that_could_be_meant_keeps_it_unknown_unless_its_job_is_known() -> None:
    twin = intent_fields(entry("c0", arguments={"command": "echo c1"}), DEAD.owner)
    assert find(call(), [job("7")], [(twin, "")], same).status is CallStatus.UNKNOWN
    assert find(call(), [job("6"), job("7")], [(twin, "6")], same) == verdict_of(job("7"))
    assert find(call(), [job("6")], [(twin, "6")], same).status is CallStatus.UNKNOWN
    other = intent_fields(entry("c2"), DEAD.owner)
    assert find(call(), [job("7")], [(other, "")], same).status is CallStatus.OK


def test_commands_are_compared_as_they_were_kept_redacted_and_cut() -> None:
    def redact(text: str) -> str:
        return text.replace("hunter2", "***")

    kept = call(arguments={"command": redact("login hunter2 " + "x" * 50_000)})
    assert find(kept, [job(command="login hunter2 " + "x" * 50_000)], [], redact).status is CallStatus.OK
    assert find(kept, [job(command="login hunter2 " + "x" * 50_001)], [], redact).status is CallStatus.UNKNOWN


@pytest.mark.parametrize(
    ("changes", "life"),
    [
        ({}, ProcessState.ALIVE),
        ({"started": "1"}, ProcessState.DEAD),
        ({"pid": 2**22 + 1}, ProcessState.DEAD),
        ({"boot": "another"}, ProcessState.DEAD),
        ({"host": "another"}, ProcessState.ELSEWHERE),
        ({"space": "pid:[1]"}, ProcessState.ELSEWHERE),
    ],
)
def test_a_process_lives_when_the_same_one_runs_here(changes: dict[str, object], life: ProcessState) -> None:
    here = this_process()
    assert process_state(replace(here, **changes), here) is life  # type: ignore[arg-type]  # of the test
    assert ProcessId.from_text(here.to_text()) == here


@pytest.mark.usefixtures("needs_process")
def test_a_killed_process_that_nobody_waited_for_is_dead() -> None:
    here = this_process()
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:
        started = Path(f"/proc/{process.pid}/stat").read_text().rpartition(") ")[2].split()[19]
        one = replace(here, pid=process.pid, started=started)
        assert process_state(one, here) is ProcessState.ALIVE
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert process_state(one, here) is ProcessState.DEAD


@pytest.fixture
def place(tmp_path: Path) -> AuditPaths:
    return AuditPaths(tmp_path / "audit")


def status_of(place: AuditPaths, call_id: str) -> str:
    with open_reader(place) as db:
        return next(one.status for one in calls(db, Filters(), this_process(), 100) if one.call["call_id"] == call_id)


def memory() -> ExecutionContext:
    return memory_context(MemoryBackend())


@pytest.mark.usefixtures("needs_process")
async def test_orphans_that_change_nothing_may_be_run_again_and_others_wait_for_a_person(place: Path) -> None:
    dead = ended_process()
    write_as(place, dead, entry("look", mutating=False), entry("change"))
    assert status_of(place, "change") == "unknown"
    async with open_audit_log(place.directory) as ledger:
        found = await ledger.reconcile(memory())
        assert [one.record["call_id"] for one in found.retryable] == ["look"]
        assert [one.record["call_id"] for one in found.unclear] == ["change"]
        assert [one.call.number for one in await ledger.orphans()] == [2]
        again = await ledger.reconcile(memory())
        assert ([one.number for one in again.unclear], again.retryable) == ([2], ())
    assert (status_of(place, "look"), status_of(place, "change")) == ("unknown", "unknown")
    assert checked(place.directory).records == 4  # two intents and, once, two outcomes
    assert checked(place.directory).is_whole


@pytest.mark.usefixtures("needs_process")
@pytest.mark.parametrize(
    ("status", "exit_code", "group"), [(Status.RUNNING, None, "running"), (Status.COMPLETED, 3, "settled")]
)
async def test_a_call_that_only_reads_is_settled_from_its_jobs_record_too(
    place: AuditPaths, status: Status, exit_code: int | None, group: str
) -> None:
    dead = ended_process()
    write_as(place, dead, entry("look", mutating=False, arguments={"command": "sleep 60; uptime"}))
    backend = MemoryBackend()
    execution = memory_context(backend)
    kept = job(command="sleep 60; uptime", owner=dead.owner, status=status, exit_code=exit_code, started=time.time())

    async def jobs() -> list[Job]:
        return [kept]

    execution.jobs = jobs  # type: ignore[method-assign]  # what another harness left on the target
    async with open_audit_log(place.directory) as ledger:
        found = await ledger.reconcile(execution)
        assert {name: len(getattr(found, name)) for name in ("settled", "running", "unclear", "retryable")} == {
            **dict.fromkeys(("settled", "running", "unclear", "retryable"), 0),
            group: 1,
        }
    with open_reader(place) as db:
        (one,) = calls(db, Filters(), this_process(), 100)
    assert [record["job_id"] for record in one.later if record.get("job_id")] == ["7"]
    assert one.status == ("unknown" if group == "running" else "error")


@pytest.mark.usefixtures("needs_process")
async def test_calls_of_a_living_process_and_of_another_machine_are_not_touched(place: AuditPaths) -> None:
    write_as(place, this_process(), entry("mine"))
    write_as(place, replace(ended_process(), host="elsewhere"), entry("theirs"))
    async with open_audit_log(place.directory) as ledger:
        found = await ledger.reconcile(memory())
        assert (found.settled, found.unclear, found.running, found.retryable) == ((), (), (), ())
        lives = {one.call.record["call_id"]: one.life for one in await ledger.orphans()}
    assert lives == {"mine": ProcessState.ALIVE, "theirs": ProcessState.ELSEWHERE}


@pytest.mark.usefixtures("needs_process")
async def test_orphans_on_other_targets_are_left_for_those(place: AuditPaths) -> None:
    write_as(place, ended_process(), entry("c1", backend="ssh://web1"))
    async with open_audit_log(place.directory) as ledger:
        assert (await ledger.reconcile(memory())).unclear == ()
        assert await ledger.orphans("memory://here") == []
        assert len(await ledger.orphans("ssh://web1")) == 1


async def test_a_call_whose_link_was_lost_is_asked_for_at_the_next_start(place: AuditPaths) -> None:
    async with open_audit_log(place.directory) as ledger:
        await ledger.begin(entry("c1"))
        await ledger.end("c1", CallStatus.UNKNOWN, "the link was lost", "9")
        (orphan,) = await ledger.orphans()
        assert (orphan.call.state, orphan.call.job_id, orphan.is_over) == ("unknown", "9", True)
        await ledger.begin(entry("c2", mutating=False))
        await ledger.end("c2", CallStatus.UNKNOWN, "the link was lost")
        assert len(await ledger.orphans()) == 1


@pytest.mark.usefixtures("needs_process")
async def test_a_call_of_a_dead_process_gets_its_outcome_from_the_job_on_the_target(
    place: AuditPaths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    gate, commands = tmp_path / "gate", ["true #1", "exit 3 #2", f"until [ -e {tmp_path}/gate ]; do sleep 0.02; done"]
    async with connect("local:") as ctx:
        dead = replace(ended_process(), pid=this_process().pid, started="1")  # the jobs name this process
        entries = [
            entry(f"c{number}", arguments={"command": text}, backend=ctx.identity)
            for number, text in enumerate(commands)
        ]
        write_as(place, dead, *entries, entry("c9", backend=ctx.identity))
        for text in commands:
            await ctx.run_shell(text, wait=text is not commands[2])
        async with open_audit_log(place.directory) as ledger:
            found = await ledger.reconcile(ctx)
            names = [
                [one.record["call_id"] for one in group] for group in (found.settled, found.running, found.unclear)
            ]
            assert names == [["c0", "c1"], ["c2"], ["c9"]]
            gate.touch()
            (running,) = [one for one in await ledger.orphans() if one.call.record["call_id"] == "c2"]
            await ctx.wait(running.call.job_id, timeout=20)
            assert [one.record["call_id"] for one in (await ledger.reconcile(ctx)).settled] == ["c2"]
    assert [status_of(place, f"c{number}") for number in (0, 1, 2, 9)] == ["ok", "error", "ok", "unknown"]
    assert checked(place.directory).is_whole


@pytest.mark.usefixtures("needs_process")
async def test_the_job_of_another_tools_call_with_the_same_text_is_not_taken_for_the_calls(
    place: AuditPaths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    async with connect("local:") as ctx:
        done = await ctx.run_shell("true")
        dead = replace(ended_process(), pid=this_process().pid, started="1")
        ran = intent_fields(entry("c1", arguments={"command": "true"}, backend=ctx.identity), dead.owner)
        with open_store(place, dead) as store:
            item = PendingRecord(ran, durable=True)
            store.write(
                [item, PendingRecord(outcome_fields(STARTED, CallStatus.OK, "", done.job_id or ""), about=item)]
            )
        write_as(place, dead, entry("c2", tool="send_keys", arguments={"literal_text": "true"}, backend=ctx.identity))
        async with open_audit_log(place.directory) as ledger:
            found = await ledger.reconcile(ctx)
    assert ([one.record["call_id"] for one in found.unclear], found.settled) == (["c2"], ())


@pytest.mark.usefixtures("needs_process")
async def test_a_person_decides_what_came_of_a_call(place: AuditPaths) -> None:
    write_as(place, ended_process(), entry("c1"), entry("c2"), entry("c3"))
    async with open_audit_log(place.directory) as ledger:
        await ledger.resolve(1, "failed", "", "ann")
        with pytest.raises(ValueError, match="note"):
            await ledger.resolve(2, "succeeded", " ", "ann")
        await ledger.resolve(2, "succeeded", "the file is there", "ann")
        await ledger.resolve(3, "abort", "", "ann")
        assert await ledger.orphans() == []
        with pytest.raises(HarnessError, match="call 1 does not wait"):
            await ledger.resolve(1, "failed", "", "ann")
    assert [status_of(place, name) for name in ("c1", "c2", "c3")] == ["error", "ok", "cancelled"]
    with open_reader(place) as db:
        outcome = calls(db, Filters(), this_process(), 100)[1].outcome
    assert (outcome["summary"], outcome["by"], outcome["decision"]) == ("the file is there", "ann", "succeeded")
    assert checked(place.directory).is_whole


async def test_nobody_decides_about_a_call_that_runs(place: AuditPaths) -> None:
    async with open_audit_log(place.directory) as ledger:
        await ledger.begin(entry("c1"))
        with pytest.raises(HarnessError, match="is still running"):
            await ledger.resolve(1, "failed", "", "ann")
        await ledger.end("c1", CallStatus.OK, "")


@pytest.mark.usefixtures("needs_process")
async def test_two_that_settle_one_call_leave_one_outcome(place: AuditPaths) -> None:
    write_as(place, ended_process(), entry("c1"))
    both = open_audit_log(place.directory), open_audit_log(place.directory)
    async with both[0] as one, both[1] as other, anyio.create_task_group() as tasks:
        tasks.start_soon(one.reconcile, memory())
        tasks.start_soon(other.reconcile, memory())
    assert checked(place.directory).records == 2
