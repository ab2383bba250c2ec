"""The chain of records: one canonical text, one hash, and a check that finds whatever was done to it."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.audits import STARTED, checked, ended_process, entry, tamper, write_as

from harness.errors import HarnessError, ToolError
from harness.toolkit import CallStatus
from harness.toolkit.audit import (
    AuditPaths,
    ChainHead,
    Filters,
    calls,
    open_audit_log,
    open_reader,
    open_store,
    records,
    this_process,
    verify_audit,
)
from harness.toolkit.audit.records import GENESIS, canonical, digest, intent_fields, shortened
from harness.toolkit.audit.store import PendingRecord

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)
OBJECTS = st.dictionaries(st.text(), JSON, max_size=5)


@given(OBJECTS)
def test_the_canonical_text_says_the_same_and_is_the_same_whatever_the_order(value: dict[str, object]) -> None:
    text = canonical(value)  # type: ignore[arg-type]  # JSON
    assert json.loads(text) == value
    assert text == canonical(dict(reversed(value.items())))  # type: ignore[arg-type]  # JSON
    assert text.isascii()
    assert canonical(json.loads(text)) == text


@given(st.recursive(st.none() | st.floats() | st.binary() | st.text(), lambda inner: st.lists(inner, max_size=3)))
def test_what_is_no_json_has_a_canonical_text_all_the_same(value: object) -> None:
    json.loads(canonical({"value": value}), parse_constant=pytest.fail)  # type: ignore[dict-item]  # not JSON


@given(OBJECTS)
def test_short_arguments_are_kept_as_they_are(value: dict[str, object]) -> None:
    assert shortened(value) == value  # type: ignore[arg-type]  # JSON


def test_a_long_text_is_cut_and_says_what_it_was() -> None:
    text = "a" * 20_000
    kept = shortened({"content": text})["content"]
    assert isinstance(kept, str)
    assert kept.startswith("a" * 16_384 + "[... 3616 characters left out")
    assert digest(text) in kept


def test_arguments_nested_without_end_are_kept_to_a_depth() -> None:
    value: list[object] = []
    value.append(value)
    assert "[too deep]" in canonical(shortened({"value": value}))  # type: ignore[dict-item]  # endless


@pytest.fixture
def place(needs_process: None, tmp_path: Path) -> AuditPaths:
    """Five calls of a dead process with outcomes: ten records."""
    made = AuditPaths(tmp_path / "audit")
    write_as(made, ended_process(), *(entry(f"c{number}") for number in range(5)), outcome=CallStatus.OK)
    return made


def test_an_untouched_chain_is_whole(place: AuditPaths) -> None:
    report = verify_audit(place)
    assert (report.records, report.first, report.unsettled, report.problems) == (10, 1, 0, [])
    assert report.head == place.heads()["head"]


def test_each_record_holds_the_hash_of_the_one_before_it(place: AuditPaths) -> None:
    with open_reader(place) as db:
        lines = list(records(db, Filters(), this_process()))
    before = GENESIS
    for number, (body, text) in enumerate(lines, 1):
        record = json.loads(body)
        assert (record["prev"], record["seq"]) == (before, number)
        assert digest(canonical(record)) == text
        before = text


LAST = "SELECT hash FROM records WHERE seq = {}"
ATTACKS = {
    "an edited record": (["UPDATE records SET body = replace(body, 'echo c2', 'rm') WHERE seq = 5"], "5 was changed"),
    "an edited hash": (["UPDATE records SET hash = replace(hash, 'a', 'b') WHERE seq = 5"], "5 was changed"),
    "an edited column": (["UPDATE records SET tool = 'time' WHERE seq = 5"], "5 has index columns that differ"),
    "a hidden call": (["UPDATE records SET kind = 'note' WHERE seq = 5"], "5 has index columns that differ"),
    "a removed record": (["DELETE FROM records WHERE seq = 5"], "missing: 5"),
    "removed records": (["DELETE FROM records WHERE seq IN (5, 6, 7)"], "missing: 5 to 7"),
    "a removed beginning": (["DELETE FROM records WHERE seq < 3"], "missing: 1 to 2"),
    "a removed beginning, renumbered": (
        ["DELETE FROM records WHERE seq < 3", "UPDATE chain SET first = 3"],
        "no record announces that they were dropped",
    ),
    "a removed tail": (["DELETE FROM records WHERE seq > 8"], "the chain should end with 10, but ends with 8"),
    "a removed tail, with the chain's end": (
        ["DELETE FROM records WHERE seq > 8", f"UPDATE chain SET last = 8, hash = ({LAST.format(8)})"],
        "10 records were written according to the file 'head', but there are 8",
    ),
    "a moved record": (
        ["UPDATE records SET seq = 50 WHERE seq = 3", "UPDATE records SET seq = 3 WHERE seq = 5",
         "UPDATE records SET seq = 5 WHERE seq = 50"],
        "record 3 is in the wrong position: it was written as 5",
    ),
    "a forgotten orphan": (
        ["INSERT INTO unsettled (number, state, mutating, backend, process) VALUES (3, 'unknown', 1, 'b', '[]')"],
        "call 3 is listed without a known outcome",
    ),
}  # fmt: skip  # one attack, its statements and its sign together


@pytest.mark.parametrize("attack", ATTACKS)
def test_it_finds(place: AuditPaths, attack: str) -> None:
    statements, sign = ATTACKS[attack]
    tamper(place, *statements)
    problems = verify_audit(place).problems
    assert any(sign in problem for problem in problems), problems


def rewrite(place: AuditPaths, seq: int, old: str, new: str) -> None:
    """What somebody does who knows how the chain is made: change a record, and every hash after it."""
    with closing(sqlite3.connect(place.database)) as db:
        rows = db.execute("SELECT seq, body, hash FROM records WHERE seq >= ? ORDER BY seq", (seq,)).fetchall()
    before, statements = None, []
    for number, body, _ in rows:
        record = json.loads(body.replace(old, new))
        record["prev"] = before or record["prev"]
        text = canonical(record)
        before = digest(text)
        quoted = text.replace("'", "''")
        statements.append(f"UPDATE records SET body = '{quoted}', hash = '{before}' WHERE seq = {number}")
    tamper(place, *statements, f"UPDATE chain SET hash = '{before}'")


def test_it_finds_a_chain_that_was_made_anew_by_the_head_in_the_second_place(place: AuditPaths) -> None:
    rewrite(place, 5, "echo c2", "echo x")
    what = "record 10 differs from the one in the file '{}'"
    assert verify_audit(place).problems == [what.format("head"), what.format("audit.head")]


def test_it_finds_by_a_receipt_what_was_made_anew_everywhere(place: AuditPaths) -> None:
    receipt = verify_audit(place).head
    rewrite(place, 5, "echo c2", "echo x")
    with closing(sqlite3.connect(place.database)) as db:
        (text,) = db.execute("SELECT hash FROM chain").fetchone()
    for path in (place.head_file, place.witness):
        path.write_text(f"{10:20d} {text}\n")
    assert verify_audit(place).is_whole  # the same user can do that: only what is kept elsewhere shows it
    assert "record 10 differs from the one in the receipt" in verify_audit(place, receipt).problems
    assert "99 records were written" in str(verify_audit(place, ChainHead(99, GENESIS)).problems)


def test_it_finds_that_the_database_is_gone(place: AuditPaths) -> None:
    place.database.unlink()
    assert "records were written: the chain head was 10:" in str(verify_audit(place).problems)


def test_it_finds_that_the_second_place_is_gone_or_unreadable(place: AuditPaths) -> None:
    place.head_file.write_text("something\n")
    assert "does not contain a chain head" in str(verify_audit(place).problems)
    place.head_file.unlink()
    assert "the file 'head' next to the database is missing" in str(verify_audit(place).problems)


def test_it_finds_a_damaged_file(place: AuditPaths) -> None:
    with place.database.open("r+b") as file:
        file.write(b"x" * 200)
    assert "damaged" in str(verify_audit(place).problems)


def test_an_audit_that_cannot_be_read_now_is_not_called_changed(
    place: AuditPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: object) -> sqlite3.Connection:
        error = sqlite3.OperationalError("disk I/O error")
        error.sqlite_errorcode = sqlite3.SQLITE_IOERR_WRITE
        raise error

    monkeypatch.setattr("harness.toolkit.audit.reading.connect", full)
    with pytest.raises(HarnessError, match="disk i/o error"):
        verify_audit(place)


def test_no_audit_is_nothing_wrong(tmp_path: Path) -> None:
    report = checked(tmp_path / "none")
    assert (report.records, report.problems) == (0, [])


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE records SET body = '{}' WHERE seq = 1",
        "DELETE FROM records WHERE seq = 1",
        "DELETE FROM records",
        "INSERT OR REPLACE INTO records (seq, kind, at, body, hash) VALUES (1, 'x', 0, '{}', '')",
        "INSERT INTO records (seq, kind, at, body, hash) VALUES (-1, 'x', 0, '{}', '')",
        "UPDATE chain SET last = 3",
        "DELETE FROM chain",
    ],
)
def test_records_are_not_changed_by_mistake(place: AuditPaths, statement: str) -> None:
    with closing(sqlite3.connect(place.database)) as db, pytest.raises(sqlite3.IntegrityError, match="audit"):
        db.execute(statement)


async def test_a_process_that_finds_the_tail_gone_says_so_in_the_chain(
    place: AuditPaths, caplog: pytest.LogCaptureFixture
) -> None:
    tamper(place, "DELETE FROM records WHERE seq > 8", f"UPDATE chain SET last = 8, hash = ({LAST.format(8)})")
    async with open_audit_log(place.directory) as ledger:
        await ledger.begin(entry("next"))
        await ledger.end("next", CallStatus.OK, "")
    assert "is damaged: 10 records were written according to the file 'head', but there are 8" in caplog.text
    assert verify_audit(place).problems == [
        "record 9 reports damage: 10 records were written according to the file 'head', but there are 8"
    ]


async def test_a_database_that_was_removed_does_not_begin_anew_in_silence(place: AuditPaths) -> None:
    place.database.unlink()
    async with open_audit_log(place.directory) as ledger:
        await ledger.begin(entry("next"))
        await ledger.end("next", CallStatus.OK, "")
    assert "10 records were written according to the file 'head', but there are 0" in str(verify_audit(place).problems)


async def test_the_second_place_knows_of_records_from_the_first_on(tmp_path: Path) -> None:
    place = AuditPaths(tmp_path / "audit")
    async with open_audit_log(place.directory) as ledger:
        await ledger.begin(entry("c1", mutating=False))
        await ledger.refused(entry("c2"))  # it is written after what waited before it
        report = verify_audit(place)  # as after a kill -9 at this moment
        assert (report.records, report.problems) == (2, [])
        await ledger.end("c1", CallStatus.OK, "")


async def test_the_second_place_knows_the_end_of_a_ledger_that_was_closed(tmp_path: Path) -> None:
    async with open_audit_log(tmp_path / "audit") as ledger:
        await ledger.begin(entry("c1", mutating=False))
        await ledger.end("c1", CallStatus.OK, "")
    head = AuditPaths(tmp_path / "audit").heads()["head"]
    assert head == checked(tmp_path / "audit").head
    assert head is not None
    assert head.count == 2


async def test_a_second_place_that_cannot_be_written_keeps_no_record_from_being_written(
    place: AuditPaths, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(AuditPaths, "open_head", lambda place: os.open(place.head_file, os.O_RDONLY))
    async with open_audit_log(place.directory) as ledger:
        await ledger.begin(entry("c6"))
        await ledger.end("c6", CallStatus.OK, "")
    assert "the chain head of the audit log cannot be written" in caplog.text
    report = verify_audit(place)
    assert (report.records, report.unsettled, report.problems) == (12, 0, [])


def test_damage_is_recorded_although_the_first_write_fails(place: AuditPaths) -> None:
    place.head_file.write_text(f"{99:20d} {GENESIS}\n")
    with open_store(place, this_process()) as store:
        with pytest.raises(KeyError):
            store.write([PendingRecord({"kind": "nothing"})])
        store.write([PendingRecord(intent_fields(entry("c6"), "o"), durable=True)])
    assert "99 records were written according to the file 'head', but there are 10" in str(verify_audit(place).problems)


def test_an_older_copy_of_the_whole_directory_is_found_by_the_head_beside_it(place: AuditPaths, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(place.directory, copy)
    write_as(place, ended_process(), entry("later"), outcome=CallStatus.OK)
    shutil.rmtree(place.directory)
    copy.rename(place.directory)
    missing = "12 records were written according to the file 'audit.head', but there are 10"
    assert verify_audit(place).problems == [missing]
    write_as(place, this_process(), entry("next"), outcome=CallStatus.OK)
    assert verify_audit(place).problems == [f"record 11 reports damage: {missing}"]
    shutil.copytree(place.directory, copy)  # and with the file beside it: nothing here can tell
    receipt, beside = verify_audit(place).head, place.witness.read_text()
    write_as(place, ended_process(), entry("again"), outcome=CallStatus.OK)
    shutil.rmtree(place.directory)
    copy.rename(place.directory)
    newer, _ = receipt, place.witness.write_text(beside)
    assert len(verify_audit(place, newer).problems) == 1
    assert f"{newer.count + 2} records were written" in str(
        verify_audit(place, ChainHead(newer.count + 2, GENESIS)).problems
    )


async def test_nothing_is_changed_once_the_audit_was_replaced_under_a_ledger_that_is_open(
    place: AuditPaths, tmp_path: Path
) -> None:
    async with open_audit_log(place.directory) as ledger:
        await ledger.begin(entry("c6"))
        await ledger.end("c6", CallStatus.OK, "")
        aside = place.directory.rename(tmp_path / "aside")
        with pytest.raises(ToolError, match="deleted or replaced while it was open"):
            await ledger.begin(entry("c7"))
        shutil.copytree(aside, place.directory)
        with pytest.raises(ToolError, match="deleted or replaced while it was open"):
            await ledger.begin(entry("c7"))
        await ledger.begin(entry("c8", mutating=False))
        shutil.rmtree(place.directory)
        aside.rename(place.directory)
        await ledger.begin(entry("c9"))  # the very files are back
        await ledger.end("c9", CallStatus.OK, "")
        await ledger.end("c8", CallStatus.OK, "")
    report = verify_audit(place)
    assert (report.records, report.problems) == (16, [])


def test_a_process_notices_that_the_chain_went_back_under_it_whatever_the_files_say(place: AuditPaths) -> None:
    before = place.head_file.read_text()
    with open_store(place, this_process()) as store:
        store.write([PendingRecord(intent_fields(entry("c6"), "o"), durable=True)])
        tamper(
            place,
            "DELETE FROM unsettled",
            "DELETE FROM records WHERE seq > 10",
            f"UPDATE chain SET last = 10, hash = ({LAST.format(10)})",
        )
        for path in (place.head_file, place.witness):
            path.write_text(before)
        assert verify_audit(place).is_whole
        store.write([PendingRecord(intent_fields(entry("c7"), "o"), durable=True)])
    assert "11 records were written according to this process, but there are 10" in str(verify_audit(place).problems)


@pytest.mark.parametrize("kind", ["link", "fifo", "directory"])
async def test_a_head_beside_the_directory_that_cannot_be_written_keeps_nothing_from_being_written(
    kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    beside = tmp_path / "audit.head"
    {"link": lambda: beside.symlink_to("/dev/null"), "fifo": lambda: os.mkfifo(beside), "directory": beside.mkdir}[
        kind
    ]()
    async with open_audit_log(tmp_path / "audit") as ledger:
        await ledger.begin(entry("c1"))
        await ledger.end("c1", CallStatus.OK, "")
    assert "audit.head" in caplog.text
    assert checked(tmp_path / "audit").records == 2


async def test_a_clock_that_goes_back_leaves_the_chain_whole_and_the_calls_in_their_order(tmp_path: Path) -> None:
    place = AuditPaths(tmp_path / "audit")
    hours = (0, -20, 5, -9000, 1)
    async with open_audit_log(place.directory) as ledger:
        for number, hour in enumerate(hours):
            await ledger.begin(entry(f"c{number}", started=STARTED + 3600 * hour))
            await ledger.end(f"c{number}", CallStatus.OK, "")
    with open_reader(place) as db:
        found = calls(db, Filters(), this_process(), 10)
        recent = calls(db, Filters(since=STARTED - 3600), this_process(), 10)
    assert [call.call["call_id"] for call in found] == ["c0", "c1", "c2", "c3", "c4"]
    assert [call.call["call_id"] for call in recent] == ["c0", "c2", "c4"]
    assert verify_audit(place).problems == []


@pytest.mark.parametrize("text", ["", "12", "x:" + GENESIS, "1:abc", f"-1:{GENESIS}"])
def test_what_is_no_receipt_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="COUNT:HASH"):
        ChainHead.parse(text)


def test_a_receipt_is_read_as_it_is_printed() -> None:
    assert ChainHead.parse(str(ChainHead(7, "a" * 64))) == ChainHead(7, "a" * 64)
