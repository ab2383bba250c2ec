"""The ledger when harness is killed at any point, and when its disk is full."""

from __future__ import annotations

import os
import random
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from tests.faults.children import killed_after
from tests.faults.rig import until, within
from tests.support.audits import checked, entry
from tests.support.disks import DISKS, file_limit, small_disk

from harness import connect
from harness.errors import HarnessError, ToolError
from harness.toolkit import CallStatus, ToolCall
from harness.toolkit.assembly import ToolkitSettings, open_executor
from harness.toolkit.audit import (
    AuditCall,
    AuditPaths,
    Filters,
    audit_directory,
    calls,
    open_audit_log,
    open_reader,
    records,
    this_process,
)
from harness.toolkit.permissions.rules.settings import Mode, PermissionSettings

pytestmark = pytest.mark.usefixtures("needs_process")

PROGRAM = Path(__file__).with_name("ledger_child.py")
ROOT = Path(__file__).parents[2]
KILLS = 30


def kept(place: AuditPaths, **filters: str) -> dict[str, AuditCall]:
    with open_reader(place) as db:
        found = calls(db, Filters(**filters), this_process(), 1 << 20)  # type: ignore[arg-type]  # texts only
    return {str(call.call["call_id"]): call for call in found}


@contextmanager
def child(place: AuditPaths, effects: Path, first: int) -> Iterator[subprocess.Popen[str]]:
    """A harness that makes calls, ready to."""
    argv = [sys.executable, str(PROGRAM), str(place.directory), str(effects), str(first)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield process
        finally:
            process.kill()


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_a_kill_at_any_point_loses_no_intent_and_the_chain_stays_whole(home: Path) -> None:
    place, effects = AuditPaths(home / "audit"), home / "effects"
    effects.mkdir()
    chance = random.Random(4)
    returned: list[int] = []
    for kill in range(KILLS):
        with child(place, effects, first=1000 * kill) as process:
            returned += killed_after(process, kill % 4, chance.uniform(0.0, 0.03))
        report = checked(place.directory)
        assert report.problems == [], kill
    before = kept(place)
    seen = {f"w{path.name}" for path in effects.iterdir()}
    assert seen <= set(before), "every effect has its intent"
    assert {before[f"w{number}"].status for number in returned} <= {"ok"}, "what came back has its outcome"
    orphans = {name for name, call in before.items() if call.status == "unknown"}
    assert orphans, "no kill fell between an intent and its outcome: the test shows nothing"
    assert len(returned) >= KILLS
    async with connect("local:") as execution, open_audit_log(place.directory) as ledger:
        found = await ledger.reconcile(execution)
        while found.running:
            await execution.wait(found.running[0].job_id, timeout=20)
            found = await ledger.reconcile(execution)
    after = kept(place)
    for name in orphans & seen:
        assert after[name].status in ("ok", "unknown"), after[name]
    assert not [name for name in orphans - seen if after[name].status == "ok" and name.startswith("w")]
    assert any(after[name].status == "ok" for name in orphans), "the jobs on the target said nothing of any call"
    assert checked(place.directory).problems == []


# -- a full disk


@pytest.mark.parametrize("disk", DISKS)
async def test_a_full_disk_stops_what_changes_something_and_loses_nothing(
    disk: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    place = AuditPaths(tmp_path / "audit")
    with DISKS[disk](place.directory) as full:
        async with open_audit_log(place.directory) as ledger:
            await ledger.begin(entry("before"))
            with full():
                await within(20, ledger.end("before", CallStatus.OK, "x" * 16_000))
                for number in range(3):
                    arguments = {"command": f"{number}" * 16_000}
                    with pytest.raises(ToolError, match="could not be written, so nothing was run") as refused:
                        await within(20, ledger.begin(entry(f"refused-{number}", arguments=arguments)))
                    assert refused.value.code == "execution_failed"
                    assert str(place.directory) in refused.value.hint
                await within(20, ledger.begin(entry("look", mutating=False)))
                await within(20, ledger.end("look", CallStatus.OK, ""))
                assert "before" not in kept(place, status="ok")
            await within(20, ledger.begin(entry("after")))
            await within(20, ledger.end("after", CallStatus.OK, ""))
        assert {name: call.status for name, call in kept(place).items()} == {
            "before": "ok",
            "look": "ok",
            "after": "ok",
        }
        report = checked(place.directory)
        assert (report.problems, report.unsettled) == ([], 0)
        with closing(sqlite3.connect(place.database)) as db:
            assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    assert "cannot be written" in caplog.text
    assert "is writable again" in caplog.text


@pytest.mark.parametrize("disk", DISKS)
async def test_a_ledger_that_cannot_be_opened_on_a_full_disk_says_so_and_is_whole_afterwards(
    disk: str, tmp_path: Path
) -> None:
    place = AuditPaths(tmp_path / "audit")
    with DISKS[disk](place.directory) as full:
        async with open_audit_log(place.directory) as ledger:
            await ledger.begin(entry("c1"))
            await ledger.end("c1", CallStatus.OK, "")
        with full(), pytest.raises(HarnessError, match="the audit log cannot be written in") as refused:
            async with open_audit_log(place.directory):
                raise AssertionError
        assert "free some space" in refused.value.hint
        async with open_audit_log(place.directory) as ledger:
            await ledger.begin(entry("c2"))
            await ledger.end("c2", CallStatus.OK, "")
        assert {name: call.status for name, call in kept(place).items()} == {"c1": "ok", "c2": "ok"}
        assert checked(place.directory).problems == []


@pytest.mark.parametrize("disk", DISKS)
async def test_without_room_for_the_ledger_what_changes_nothing_runs_with_a_warning(
    disk: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    place, settings = AuditPaths(audit_directory()), ToolkitSettings(permissions=PermissionSettings(mode=Mode.AUTO))
    (tmp_path / "seen").write_text("seen")
    with DISKS[disk](place.directory) as full:
        await written(place, killed=False)
        async with connect("local:") as execution:
            with full():
                async with open_executor(execution, settings) as executor:
                    read = await executor.call(ToolCall("read_file", {"path": f"{tmp_path}/seen"}))
                    wrote = await executor.call(ToolCall("write_file", {"path": f"{tmp_path}/new", "content": "x"}))
            assert "other calls are not recorded" in caplog.text
            assert (read.status, wrote.status) == (CallStatus.OK, CallStatus.ERROR)
            assert "nothing was run: the audit log cannot be written in" in wrote.result.text
            assert not (tmp_path / "new").exists()
            assert_is_readable(place)
            place.directory.chmod(0o755)
            with pytest.raises(HarnessError, match="other users"):
                async with open_executor(execution, settings):
                    raise AssertionError


@pytest.mark.parametrize("disk", DISKS)
@pytest.mark.parametrize("killed", [False, True])
async def test_what_was_written_can_be_read_on_a_full_disk(disk: str, killed: bool, tmp_path: Path) -> None:
    place = AuditPaths(tmp_path / "audit")
    with DISKS[disk](place.directory) as full:
        await written(place, killed=killed)
        with full():
            assert_is_readable(place)
        assert_is_readable(place)


@pytest.mark.usefixtures("needs_root")
@pytest.mark.parametrize("killed", [False, True])
async def test_what_was_written_can_be_read_on_a_read_only_file_system(
    killed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = AuditPaths(tmp_path / "audit")
    with small_disk(place.directory):
        await written(place, killed=killed)
        subprocess.run(["mount", "-o", "remount,ro", place.directory], check=True)
        assert_is_readable(place)
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
        if killed:
            with pytest.raises(HarnessError, match="a copy cannot be created"):
                kept(place)
        else:
            assert_is_readable(place)


def test_an_audit_that_there_was_no_room_to_make_is_none(tmp_path: Path) -> None:
    place = AuditPaths(tmp_path / "audit")
    place.prepare()
    with pytest.raises(FileNotFoundError), open_reader(place):
        raise AssertionError
    assert checked(place.directory).problems == []


async def written(place: AuditPaths, *, killed: bool) -> None:
    """Two calls; one that was killed left them in the log, without the file that readers share."""
    async with open_audit_log(place.directory) as ledger:
        for name in ("c1", "c2"):
            await ledger.begin(entry(name))
            await ledger.end(name, CallStatus.OK, "")
        files = {path: path.read_bytes() for path in place.directory.iterdir() if not path.name.endswith("-shm")}
    for path, content in files.items() if killed else ():
        path.write_bytes(content)
    assert {path.name for path in files} == {"audit.db", "audit.db-wal", "head"}
    assert {path.name for path in place.directory.iterdir() if path.stat().st_size} >= {"audit.db", "head"}


def assert_is_readable(place: AuditPaths) -> None:
    assert {name: call.status for name, call in kept(place).items()} == {"c1": "ok", "c2": "ok"}
    with open_reader(place) as db:
        assert len(list(records(db, Filters(), this_process()))) == 4
    report = checked(place.directory)
    assert (report.problems, report.records) == ([], 4)


async def test_an_outcome_that_waited_is_written_when_there_is_room_without_another_call(tmp_path: Path) -> None:
    place = AuditPaths(tmp_path / "audit")
    with file_limit(place.directory) as full:
        async with open_audit_log(place.directory) as ledger:
            await ledger.begin(entry("c1"))
            with full():
                await within(20, ledger.end("c1", CallStatus.OK, "x" * 16_000))
                assert kept(place)["c1"].status == "running"
            await until(lambda: kept(place)["c1"].status == "ok", "the outcome is written")


async def test_a_process_that_holds_the_database_makes_a_call_wait_and_then_refuses_it(tmp_path: Path) -> None:
    place = AuditPaths(tmp_path / "audit")
    async with open_audit_log(place.directory) as ledger:
        with closing(sqlite3.connect(place.database, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            began = time.monotonic()
            with pytest.raises(ToolError, match="database is locked"):
                await within(30, ledger.begin(entry("c1")))
            assert 4 < time.monotonic() - began < 16
            other.execute("ROLLBACK")
        await within(20, ledger.begin(entry("c2")))
        await within(20, ledger.end("c2", CallStatus.OK, ""))
    assert list(kept(place)) == ["c2"]
