"""What the ledger keeps of calls, in which order, and what it does when it cannot."""

from __future__ import annotations

import json
import stat
import subprocess
import sys
from pathlib import Path

import anyio
import pytest
from tests.support.audits import checked, entry
from tests.support.toolbox import toolbox

from harness.errors import HarnessError, ToolError
from harness.toolkit import Arguments, CallStatus, Executor, Services, Tool, ToolCall, ToolContext, ToolResult, Traits
from harness.toolkit.audit import (
    AuditCall,
    AuditPaths,
    Filters,
    NullAuditLog,
    SqliteAuditLog,
    audit_directory,
    calls,
    open_audit_log,
    open_reader,
    this_process,
)
from harness.toolkit.audit.writer import WAITING_LIMIT
from harness.toolkit.interfaces import AuditLog, Verdict

SECRET = "correct-horse-battery"


def kept(directory: Path, limit: int = 100, **filters: str) -> list[AuditCall]:
    with open_reader(AuditPaths(directory)) as db:
        return calls(db, Filters(**filters), this_process(), limit)  # type: ignore[arg-type]  # texts only


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "state" / "audit"


async def test_a_call_is_kept_with_who_allowed_it_and_what_came_of_it(place: Path) -> None:
    async with open_audit_log(place) as ledger:
        await ledger.begin(entry("c1"))
        assert [call.status for call in kept(place)] == ["running"]
        await ledger.end("c1", CallStatus.ERROR, "exit code 3", "17")
    (call,) = kept(place)
    assert (call.status, call.outcome["summary"], call.outcome["job_id"]) == ("error", "exit code 3", "17")
    wanted = {"call_id": "c1", "tool": "run_shell", "decided_by": "rule 3", "reason": "it is harmless"}
    assert {name: call.call[name] for name in wanted} == wanted
    assert call.call["arguments"] == {"command": "echo c1"}
    assert call.call["owner"] == this_process().owner
    assert checked(place).is_whole


async def test_the_intent_of_a_mutating_call_is_in_the_file_before_it_may_run(place: Path) -> None:
    async with open_audit_log(place) as ledger:
        await ledger.begin(entry("c1"))
        assert [call.call["call_id"] for call in kept(place)] == ["c1"]
        await ledger.end("c1", CallStatus.OK, "")
        assert [call.status for call in kept(place)] == ["ok"]


async def test_calls_that_change_nothing_wait_for_no_disk_and_are_kept_in_their_order(place: Path) -> None:
    async with open_audit_log(place) as ledger:
        for number in range(1000):
            await ledger.begin(entry(f"c{number}", mutating=False))
            await ledger.end(f"c{number}", CallStatus.OK, str(number))
        await ledger.begin(entry("last"))
        found = kept(place, limit=2000)
        assert [call.call["call_id"] for call in found] == [*(f"c{number}" for number in range(1000)), "last"]
        assert [call.outcome["summary"] for call in found[:-1]] == [str(number) for number in range(1000)]
        await ledger.end("last", CallStatus.OK, "")
    assert checked(place).records == 2002


async def test_a_refusal_is_kept_and_is_no_intent(place: Path) -> None:
    async with open_audit_log(place) as ledger:
        await ledger.refused(entry("c1"))
        (call,) = kept(place)
    assert (call.status, call.later, call.call["kind"]) == ("denied", (), "refused")
    assert checked(place).unsettled == 0


async def test_calls_with_one_id_in_several_tasks_get_their_own_outcomes(place: Path) -> None:
    async def run(ledger: SqliteAuditLog, name: str, begun: anyio.Event, go_on: anyio.Event) -> None:
        await ledger.begin(entry("call_1", arguments={"command": name}))
        begun.set()
        await go_on.wait()
        await ledger.end("call_1", CallStatus.OK, name)

    first, second = (anyio.Event(), anyio.Event()), (anyio.Event(), anyio.Event())
    with anyio.fail_after(20):
        async with open_audit_log(place) as ledger, anyio.create_task_group() as tasks:
            tasks.start_soon(run, ledger, "first", *first)
            await first[0].wait()
            tasks.start_soon(run, ledger, "second", *second)
            await second[0].wait()
            first[1].set()
            second[1].set()
    assert [call.outcome["summary"] for call in kept(place)] == ["first", "second"]


async def test_a_call_inside_a_call_with_the_same_id_ends_first(place: Path) -> None:
    async with open_audit_log(place) as ledger:
        await ledger.begin(entry("1", tool="task"))
        await ledger.begin(entry("1", tool="read"))
        await ledger.end("1", CallStatus.ERROR, "inner")
        await ledger.end("1", CallStatus.OK, "outer")
    assert [(call.call["tool"], call.outcome["summary"]) for call in kept(place)] == [
        ("task", "outer"),
        ("read", "inner"),
    ]


async def test_a_call_that_was_cancelled_before_it_ran_is_not_left_without_an_outcome(place: Path) -> None:
    async with open_audit_log(place) as ledger:
        with anyio.CancelScope() as scope:
            scope.cancel()
            await ledger.begin(entry("c1"))
        await ledger.begin(entry("c2"))
        await ledger.end("c2", CallStatus.OK, "")
    assert [call.status for call in kept(place) if call.call["call_id"] == "c1"] in ([], ["cancelled"])
    assert checked(place).unsettled == 0


async def test_an_outcome_is_kept_although_everything_around_the_ledger_is_cancelled(place: Path) -> None:
    with anyio.CancelScope() as scope:
        async with open_audit_log(place) as ledger:
            await ledger.begin(entry("c1"))
            scope.cancel()
            with anyio.CancelScope(shield=True):
                await ledger.end("c1", CallStatus.CANCELLED, "cancelled")
    assert [call.status for call in kept(place)] == ["cancelled"]


async def test_the_end_of_an_unknown_call_raises_nothing(place: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with open_audit_log(place) as ledger:
        await ledger.end("none", CallStatus.OK, "")
    assert "no running call 'none'" in caplog.text


@pytest.mark.parametrize(
    "arguments",
    [
        {"text": "\ud800 half a pair"},
        {"number": float("nan"), "big": 10**400},
        {"nested": [[[{"a": None}]]], "flag": True},
        {"long": "x" * 1_000_000},
        {"many": ["y" * 1000] * 500},
    ],
)
async def test_whatever_a_model_wrote_can_be_kept(place: Path, arguments: dict[str, object]) -> None:
    async with open_audit_log(place) as ledger:
        await ledger.begin(entry("c\ud800", arguments=arguments, session="\udfff"))  # type: ignore[arg-type]  # any
        await ledger.end("c\ud800", CallStatus.OK, "\ud83d")
    (call,) = kept(place)
    assert call.status == "ok"
    assert len(json.dumps(call.call)) < 120_000
    assert checked(place).is_whole


class Say(Arguments):
    """Say something."""

    text: str = ""


class SayTool(Tool[Say]):
    def __init__(self) -> None:
        super().__init__("say", "Say something.", Say, Traits(mutating=True))

    async def run(self, args: Say, ctx: ToolContext) -> ToolResult:
        ctx.started_job("12")
        ctx.progress(args.text)
        raise ValueError(f"no {args.text}")


def executor_with(ledger: AuditLog) -> Executor:
    made = toolbox([SayTool()])
    made.ledger.trace("unused")
    object.__setattr__(made.executor.services.redactor, "secret", SECRET)
    old = made.executor.services
    services = Services(old.policy, ledger, old.redactor)
    return Executor(made.executor.execution, made.executor.registry, services, made.events, made.executor.reads)


async def test_no_secret_of_a_call_reaches_the_files(place: Path) -> None:
    async with open_audit_log(place) as ledger:
        executor = executor_with(ledger)
        outcome = await executor.call(ToolCall("say", {"text": f"password={SECRET}"}))
        for start in range(1_940, 2_000, 5):  # the kept part of a result ends in the middle of it
            await executor.call(ToolCall("say", {"text": "x" * start + SECRET}))
        denied = Verdict(False, f"rule 3 forbids {SECRET}", "rule 3")
        executor.services.policy.answer = lambda request: denied  # type: ignore[attr-defined]  # the test's policy
        await executor.call(ToolCall("say", {"text": SECRET}))
        assert outcome.status is CallStatus.ERROR
        files = {path.name: path.read_bytes() for path in place.iterdir()}
        assert b"password=[redacted]" in files["audit.db"] + files["audit.db-wal"]
        assert not [name for name, data in files.items() if SECRET[:9].encode() in data]
    assert not [path for path in place.iterdir() if SECRET[:9].encode() in path.read_bytes()]
    assert len(kept(place)) == 14


async def test_the_job_of_a_call_is_kept_as_soon_as_it_is_known(place: Path) -> None:
    async with open_audit_log(place) as ledger:
        await ledger.begin(entry("c1"))
        ledger.started("c1", "12")
        (orphan,) = await ledger.orphans()
        while not orphan.call.job_id:
            (orphan,) = await ledger.orphans()
        assert (orphan.call.job_id, orphan.is_running) == ("12", True)
        await ledger.end("c1", CallStatus.OK, "")


async def test_the_pipeline_tells_the_job_of_a_mutating_call_at_once(place: Path) -> None:
    async with open_audit_log(place) as ledger:
        await executor_with(ledger).call(ToolCall("say", {"text": "a"}))
    (call,) = kept(place)
    assert [record["kind"] for record in call.later] == ["job", "outcome"]
    assert {record["job_id"] for record in call.later} == {"12"}


async def test_files_and_directory_are_private(place: Path) -> None:
    async with open_audit_log(place) as ledger:
        await ledger.begin(entry("c1"))
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in place.iterdir()}
        assert set(modes) == {"audit.db", "audit.db-wal", "audit.db-shm", "head"}
        assert set(modes.values()) == {0o600}
        assert stat.S_IMODE(place.stat().st_mode) == stat.S_IMODE(place.parent.stat().st_mode) == 0o700
        await ledger.end("c1", CallStatus.OK, "")


async def test_a_directory_that_others_may_read_is_refused(place: Path) -> None:
    place.mkdir(parents=True)
    place.chmod(0o755)
    with pytest.raises(HarnessError, match="other users may look into it") as refused:
        async with open_audit_log(place):
            raise AssertionError
    assert "chmod 700" in refused.value.hint


async def test_a_link_in_the_place_of_the_directory_is_refused(place: Path, tmp_path: Path) -> None:
    place.parent.mkdir()
    (tmp_path / "other").mkdir(mode=0o700)
    place.symlink_to(tmp_path / "other")
    with pytest.raises(HarnessError, match="not a directory"):
        async with open_audit_log(place):
            raise AssertionError


async def test_a_file_that_is_no_audit_is_refused_and_left_as_it_is(place: Path) -> None:
    place.mkdir(parents=True, mode=0o700)
    (place / "audit.db").write_bytes(b"something else " * 100)
    with pytest.raises(HarnessError, match="damaged"):
        async with open_audit_log(place):
            raise AssertionError
    assert (place / "audit.db").read_bytes() == b"something else " * 100


async def test_an_audit_of_a_newer_harness_is_refused(place: Path) -> None:
    async with open_audit_log(place):
        pass
    import sqlite3
    from contextlib import closing

    with closing(sqlite3.connect(place / "audit.db")) as db:
        db.execute("PRAGMA user_version = 99")
    with pytest.raises(HarnessError, match="newer harness"):
        async with open_audit_log(place):
            raise AssertionError


@pytest.mark.parametrize(
    ("environ", "directory"),
    [
        ({"XDG_STATE_HOME": "/s", "HOME": "/h"}, "/s/harness/audit"),
        ({"XDG_STATE_HOME": "relative", "HOME": "/h"}, "/h/.local/state/harness/audit"),
        ({"HOME": "/h"}, "/h/.local/state/harness/audit"),
    ],
)
def test_the_audit_is_in_the_state_directory_of_this_machine(environ: dict[str, str], directory: str) -> None:
    assert audit_directory(environ) == Path(directory)


async def test_too_many_waiting_records_refuse_also_what_changes_nothing(place: Path) -> None:
    async with open_audit_log(place) as ledger:
        waiting = ledger._writer._waiting
        ledger._writer._waiting = waiting * 1 + [None] * WAITING_LIMIT  # type: ignore[list-item]  # only counted
        with pytest.raises(ToolError, match="10000 records are waiting"):
            await ledger.begin(entry("c1", mutating=False))
        ledger._writer._waiting = waiting


PROGRAM = """
import sys, anyio
from pathlib import Path
from tests.support.audits import entry
from harness.toolkit import CallStatus
from harness.toolkit.audit import open_audit_log

async def main(name):
    async with open_audit_log(Path(sys.argv[1])) as ledger:
        for number in range(100):
            call = entry(f"{name}-{number}", mutating=bool(number % 2))
            await ledger.begin(call)
            await ledger.end(call.call.call_id, CallStatus.OK, "done")

anyio.run(main, sys.argv[2])
"""


@pytest.mark.usefixtures("needs_process")
def test_several_processes_write_one_chain(place: Path) -> None:
    argv = [sys.executable, "-c", PROGRAM, str(place)]
    running = [subprocess.Popen([*argv, name], stderr=subprocess.PIPE) for name in "abcd"]
    said = [process.communicate(timeout=60)[1].decode() for process in running]
    assert said == [""] * 4
    found = [str(call.call["call_id"]) for call in kept(place, limit=1000)]
    for name in "abcd":
        assert [one for one in found if one.startswith(name)] == [f"{name}-{number}" for number in range(100)]
    report = checked(place)
    assert (report.records, report.unsettled, report.problems) == (800, 0, [])


async def test_a_ledger_that_keeps_nothing_takes_every_call() -> None:
    ledger = NullAuditLog()
    await ledger.begin(entry("c1"))
    ledger.started("c1", "1")
    await ledger.end("c1", CallStatus.OK, "")
    await ledger.refused(entry("c2"))
