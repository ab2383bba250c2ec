"""Old records go, as the settings say, and the rest is still proved."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path

import anyio
import pytest
from tests.support.audits import checked, ended_process, entry, tamper, write_as

from harness.system.private_database import connect
from harness.toolkit import CallStatus
from harness.toolkit.audit import AuditPaths, Retention, open_audit_log, open_store, this_process
from harness.toolkit.audit import retention as subject

pytestmark = pytest.mark.usefixtures("needs_process")

DAY = 86400.0
NOW = float(int(time.time()))


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AuditPaths:
    """Ten calls, one a day, the newest of today; dropped three records at a time."""
    monkeypatch.setattr(subject, "STEP", 3)
    made = AuditPaths(tmp_path / "audit")
    entries = [entry(f"c{number}", started=NOW - (9 - number) * DAY) for number in range(10)]
    write_as(made, ended_process(), *entries, outcome=CallStatus.OK)
    return made


def retain(place: AuditPaths, limits: Retention, steps: int = 1000, now: float = NOW) -> None:
    with open_store(place, this_process()) as store:
        through = subject.plan(store, limits, now)
        while through and steps and subject.apply_step(store, through):
            steps -= 1


def kept(place: AuditPaths) -> list[str]:
    with closing(connect(place.database, "ro")) as db:
        rows = db.execute("SELECT json_extract(body, '$.call_id') FROM records WHERE kind = 'intent' ORDER BY seq")
        return [name for (name,) in rows]


def test_calls_that_are_too_old_go_and_the_rest_is_proved(place: AuditPaths) -> None:
    retain(place, Retention(max_age=4.5 * DAY))
    assert kept(place) == ["c5", "c6", "c7", "c8", "c9"]
    report = checked(place.directory)
    assert (report.first, report.records, report.head.count, report.problems) == (11, 11, 21, [])
    retain(place, Retention(max_age=4.5 * DAY))
    assert checked(place.directory).head.count == 21  # nothing to do, nothing to say


def test_what_is_young_stays(place: AuditPaths) -> None:
    retain(place, Retention())
    assert (len(kept(place)), checked(place.directory).head.count) == (10, 20)


def test_the_last_record_stays_however_old_it_is(place: AuditPaths) -> None:
    retain(place, Retention(max_age=0.0), now=NOW + DAY)
    report = checked(place.directory)
    assert (kept(place), report.records, report.problems) == ([], 2, [])


def test_a_clock_that_is_years_ahead_drops_nothing_at_its_first_start(place: AuditPaths) -> None:
    retain(place, Retention(), now=NOW + 3000 * DAY)
    assert len(kept(place)) == 10
    retain(place, Retention(), now=NOW - 3000 * DAY)
    assert len(kept(place)) == 10
    retain(place, Retention(max_age=4.5 * DAY), now=NOW + 70 * DAY)  # ages count from the last record
    assert kept(place) == ["c5", "c6", "c7", "c8", "c9"]


def test_a_step_that_was_not_the_last_is_gone_on_with(place: AuditPaths) -> None:
    retain(place, Retention(max_age=4.5 * DAY), steps=1)
    assert checked(place.directory).problems == []
    assert checked(place.directory).first == 4
    retain(place, Retention())
    assert (checked(place.directory).first, checked(place.directory).problems) == (11, [])


def test_an_orphan_stays_with_all_that_follows_until_it_is_too_old(tmp_path: Path) -> None:
    other = AuditPaths(tmp_path / "other")
    write_as(other, ended_process(), entry("old", started=NOW - 9 * DAY), outcome=CallStatus.OK)
    write_as(other, ended_process(), entry("orphan", started=NOW - 5 * DAY))
    write_as(other, ended_process(), entry("new"), outcome=CallStatus.OK)
    retain(other, Retention(max_age=6 * DAY, max_bytes=1))
    assert kept(other) == ["orphan", "new"]
    assert checked(other.directory).unsettled == 1
    retain(other, Retention(max_age=4 * DAY))
    assert kept(other) == ["new"]
    assert (checked(other.directory).unsettled, checked(other.directory).problems) == (0, [])


def test_an_audit_that_is_too_large_loses_its_oldest_records_and_gives_the_disk_back(tmp_path: Path) -> None:
    place = AuditPaths(tmp_path / "audit")
    entries = [entry(f"c{number}", arguments={"command": "x" * 4000}) for number in range(400)]
    write_as(place, ended_process(), *entries, outcome=CallStatus.OK)
    before = place.database.stat().st_size
    retain(place, Retention(max_bytes=before // 2))
    assert before * 0.35 < place.database.stat().st_size <= before // 2
    assert kept(place)[-1] == "c399"
    assert len(kept(place)) < 220
    assert checked(place.directory).problems == []


def test_records_that_go_without_being_announced_are_noticed(place: AuditPaths) -> None:
    retain(place, Retention(max_age=4.5 * DAY))
    tamper(place, "DELETE FROM records WHERE seq < 13", "UPDATE chain SET first = 13")
    assert "no record announces that they were dropped" in str(checked(place.directory).problems)


def test_a_false_announcement_is_noticed(place: AuditPaths) -> None:
    retain(place, Retention(max_age=4.5 * DAY))
    tamper(place, "UPDATE records SET body = replace(body, '\"through\":10', '\"through\":12') WHERE seq = 21",
           "DELETE FROM records WHERE seq < 13", "UPDATE chain SET first = 13")  # fmt: skip  # one attack
    problems = str(checked(place.directory).problems)
    assert "record 21 was changed" in problems
    assert "are not those that it follows" in problems


async def test_a_ledger_that_is_opened_drops_what_is_too_old(place: AuditPaths) -> None:
    async with open_audit_log(place.directory, retention=Retention(max_age=4.5 * DAY)) as ledger:
        await ledger.begin(entry("c10"))
        await ledger.end("c10", CallStatus.OK, "")
        with anyio.fail_after(20):
            while len(kept(place)) > 6:
                await ledger.orphans()
    assert kept(place) == ["c5", "c6", "c7", "c8", "c9", "c10"]
    assert checked(place.directory).problems == []
