"""What the ledger costs a call, empty and with a million records, and how long it takes to read and to verify them."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from anyio import to_thread

from harness.toolkit import CallStatus, ToolCall
from harness.toolkit.audit import (
    AuditPaths,
    Filters,
    SqliteAuditLog,
    calls,
    open_audit_log,
    open_reader,
    open_store,
    this_process,
    verify_audit,
)
from harness.toolkit.audit.records import intent_fields, outcome_fields
from harness.toolkit.audit.store import PendingRecord
from harness.toolkit.interfaces import CallEntry, Verdict

from .model import Line, Row, at_most, median_of
from .timing import Action, take_turns
from .world import Size, World

__all__ = ["toolkit_ledger_row"]

MUTATING = "begin + end of a call that changes something"
LOOKING = "begin + end of a call that changes nothing"
SYNC = "2 x fsync of 4 KiB"
OPEN = "open, first call that changes something, close"
SHOW = "the last 20 calls"
BATCH = 2_500
VERDICT = Verdict(True, "no rule is against it", "mode auto")


def _entry(number: int, *, mutating: bool) -> CallEntry:
    arguments = {"command": f"systemctl status unit-{number}", "why": "look at what the unit says"}
    call = ToolCall("run_shell", arguments, f"c{number}")
    return CallEntry(call, "s1", f"ssh://web{number % 20}", mutating, time.time(), VERDICT)


async def toolkit_ledger_row(world: World, size: Size) -> Row:
    """The ledger, on a disk and in memory."""
    rows, rounds = size.pick(1_000_000, 2_000), size.pick(500, 20)
    with _memory(world.directory) as memory:
        lines = [
            *await _costs(memory / "empty", rounds, "in memory, empty"),
            *await _costs(world.directory / "empty", rounds, "on the disk, empty"),
            *await _sync_alone(world.directory, rounds),
        ]
    full = world.directory / "full"
    seconds = await to_thread.run_sync(_fill, AuditPaths(full), rows)
    group = f"on the disk, {rows:,} records"
    reading = await _reading(AuditPaths(full), size, group)
    await to_thread.run_sync(os.sync)  # what the machine still has to write of them is no call's cost
    lines += [*await _opening(full, size, group), *await _costs(full, rounds, group), *reading]
    own = {what: median_of(lines, what, "in memory, empty") for what in (MUTATING, LOOKING)}
    growth = median_of(lines, MUTATING, group) / median_of(lines, MUTATING, "on the disk, empty")
    checks = (
        at_most("ledger of a call that changes nothing: at most 1 ms", own[LOOKING], 1),
        at_most("ledger of a call that changes something, without fsync: at most 3 ms", own[MUTATING], 3),
        at_most(
            "open, first call and close, with all records there: at most 100 ms", median_of(lines, OPEN, group), 100
        ),
        at_most("a call that changes something, with all records there: at most 1.5 x as with none", growth, 1.5, "x"),
    )
    notes = (
        f"{rows:,} records were written at {seconds / rows * 1e6:,.0f} us each, {BATCH * 2:,} in a transaction.",
        "In memory fsync costs nothing: that is the ledger's own cost, most of it the way to its thread and back.",
    )
    return Row("toolkit-ledger", "Ledger and audit", tuple(lines), checks, notes)


@contextmanager
def _memory(fallback: Path) -> Iterator[Path]:
    """A directory in memory, where there is one."""
    shared = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=shared if shared.is_dir() else fallback) as path:
        yield Path(path)


async def _opening(directory: Path, size: Size, group: str) -> list[Line]:
    async def action() -> None:
        async with open_audit_log(directory) as ledger:
            await _call(ledger, mutating=True)()

    return await take_turns({OPEN: action}, size.pick(20, 3), group=group)


async def _costs(directory: Path, rounds: int, group: str) -> list[Line]:
    async with open_audit_log(directory) as ledger:
        sides = {what: _call(ledger, mutating=what == MUTATING) for what in (MUTATING, LOOKING)}
        return await take_turns(sides, rounds, group=group)


def _call(ledger: SqliteAuditLog, *, mutating: bool) -> Action:
    async def action() -> None:
        entry = _entry(0, mutating=mutating)
        await ledger.begin(entry)
        await ledger.end(entry.call.call_id, CallStatus.OK, "active (running)", "7")

    return action


async def _sync_alone(directory: Path, rounds: int) -> list[Line]:
    descriptor = os.open(directory / "sync", os.O_WRONLY | os.O_CREAT, 0o600)

    async def sync() -> None:
        for _ in range(2):
            os.write(descriptor, b"x" * 4096)
            os.fsync(descriptor)

    try:
        return await take_turns({SYNC: sync}, rounds, group="on the disk, empty")
    finally:
        os.close(descriptor)


def _fill(place: AuditPaths, rows: int) -> float:
    """Seconds to write that many records."""
    began = time.perf_counter()
    process = this_process()
    with open_store(place, process) as store:
        for start in range(0, rows // 2, BATCH):
            items = []
            for number in range(start, min(start + BATCH, rows // 2)):
                call = PendingRecord(intent_fields(_entry(number, mutating=bool(number % 3)), process.owner))
                end = outcome_fields(time.time(), CallStatus.OK, "active (running) since Monday\n" * 8, str(number))
                items += [call, PendingRecord(end, about=call)]
            store.write(items)
    return time.perf_counter() - began


async def _reading(place: AuditPaths, size: Size, group: str) -> list[Line]:
    async def show() -> None:
        with open_reader(place) as db:
            assert len(calls(db, Filters(), this_process(), 20)) == 20

    lines = await take_turns({SHOW: show}, size.pick(20, 3), group=group)
    began = time.perf_counter()
    report = await to_thread.run_sync(verify_audit, place)
    assert report.is_whole, report.problems
    seconds = time.perf_counter() - began
    return [*lines, Line("verify all records", (seconds,), "s", group)]
