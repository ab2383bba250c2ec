"""Which jobs of panes are over although nobody wrote their exit code, by what the target keeps."""

from __future__ import annotations

import os
from pathlib import Path

import anyio
import pytest
from tests.support.job_targets import open_job_target

from harness import JobNotFound, Status
from harness.config import Config
from harness_backends.posix.state_directory import JobRecord, render_record

pytestmark = pytest.mark.usefixtures("needs_process")

OWN, INNER, OTHER = "0" * 20, "1" * 20, "2" * 20
SHELLS = pytest.mark.parametrize("shell", ["dash", "bash", "busybox"])
RUNNING = (Status.RUNNING, None)
UNKNOWN = (Status.UNKNOWN, None)


def mark(text: str) -> str:
    return f"\x1b]133;{text}\x07"


class Pane:
    """A pane's directory, whose shell is this program unless told otherwise."""

    def __init__(self, root: Path, uid: str = "aa") -> None:
        self.root, self.uid, self.folder = root, uid, root / "panes" / uid
        self.folder.mkdir()
        (self.folder / "nonce").write_text(f"{OWN}\n")
        (self.folder / "pid").write_text(f"{os.getpid()}\n")
        (self.folder / "log.0").write_text("before")
        os.mkfifo(self.folder / "alive")

    def slot(self, text: str) -> None:
        (self.folder / "next").write_text(f"{text}\n")

    def job(self, number: int, nonce: str = OWN) -> None:
        log = f"panes/{self.uid}/log.0"
        record = JobRecord(str(number), "true", "pane", 1.0, pane="%1", log=log, offset=6, nonce=nonce)
        (self.root / "jobs" / f"{number}.cmd").write_text(render_record(record, "true #% nonce: none #%"))

    def log(self, *parts: str) -> None:
        with (self.folder / "log.0").open("a") as log:
            log.write("".join(parts))


OWN_CASES = {
    "taken, and its shell lives": ("- 101", RUNNING),
    "not taken yet": ("101", RUNNING),
    "not taken yet, with a file of its own": ("101 run", RUNNING),
    "another was taken": ("- 102", UNKNOWN),
    "another one's turn": ("102", UNKNOWN),
    "called off": ("", UNKNOWN),
    "a longer number": ("- 1011", UNKNOWN),
}


@SHELLS
async def test_a_job_of_the_panes_own_shell_is_over_when_that_took_another(tmp_path: Path, shell: str) -> None:
    with anyio.fail_after(90):
        async with open_job_target(shell, tmp_path, Config()) as target:
            pane = Pane(target.state)
            for slot, expected in OWN_CASES.values():
                pane.job(101)
                pane.slot(slot)
                (target.state / "jobs/101.exit").unlink(missing_ok=True)
                (found,) = [job for job in await target.jobs.list() if job.job_id == "101"]
                assert (found.status, found.exit_code) == expected, slot
                told = await target.jobs.wait("101", 8 if expected == UNKNOWN else 0.3, 1000)
                assert (told.status, told.exit_code) == expected, slot


@SHELLS
async def test_a_job_is_over_when_the_shell_that_took_it_is_gone(tmp_path: Path, shell: str) -> None:
    with anyio.fail_after(60):
        async with open_job_target(shell, tmp_path, Config()) as target:
            pane = Pane(target.state)
            pane.job(101)
            pane.slot("- 101")
            process = await anyio.open_process(["true"])
            await process.wait()
            (pane.folder / "pid").write_text(f"{process.pid}\n")
            assert (await target.jobs.get("101")).status is Status.UNKNOWN
            assert (target.state / "jobs/101.exit").read_text() == "128 unknown\n"


START, END = mark(f"C;{INNER};101"), mark(f"D;3;{INNER};101")
INNER_CASES = {
    "nothing yet": ([], RUNNING),
    "it runs": ([START, "text"], RUNNING),
    "it ended": ([START, "text", END], (Status.COMPLETED, 3)),
    "it ended, and others ran": ([START, END, mark(f"C;{INNER};102"), "x"], (Status.COMPLETED, 3)),
    "its start comes twice": ([START, "+ trace\n", START], RUNNING),
    "another shell inside it": ([START, mark(f"C;{OTHER};102"), mark(f"D;0;{OTHER};102")], RUNNING),
    "its shell ran another": ([START, mark(f"C;{INNER};102")], UNKNOWN),
    "its shell ran another, and it never began": ([mark(f"C;{INNER};102")], UNKNOWN),
    "the prompt before it": ([mark(f"D;0;{INNER};100"), mark(f"A;{INNER};100"), START], RUNNING),
    "its shell is back at its prompt": ([START, mark(f"A;{INNER};100")], UNKNOWN),
    "the outer shell is active again": ([START, mark(f"D;137;{OWN};100"), mark(f"A;{OWN};100")], UNKNOWN),
    "the pane's shell ended": ([START, mark(f"X;1;{OWN}")], UNKNOWN),
    "marks that are torn": ([START, f"\x1b]133;D;3;{INNER};10"], RUNNING),
    "bytes": ([START, "\x00\n" * 9, "\x1b]133;D;3", END], (Status.COMPLETED, 3)),
}


@SHELLS
async def test_a_job_of_a_shell_inside_is_over_by_the_marks_in_the_log(tmp_path: Path, shell: str) -> None:
    with anyio.fail_after(90):
        async with open_job_target(shell, tmp_path, Config()) as target:
            pane = Pane(target.state)
            pane.slot("- 90")
            for name, (parts, expected) in INNER_CASES.items():
                pane.job(101, INNER)
                (pane.folder / "log.0").write_text("before")
                pane.log(*parts)
                (target.state / "jobs/101.exit").unlink(missing_ok=True)
                found = await target.jobs.get("101")
                assert (found.status, found.exit_code) == expected, name


async def test_a_long_log_is_not_read_from_its_beginning(tmp_path: Path) -> None:
    with anyio.fail_after(60):
        async with open_job_target("dash", tmp_path, Config()) as target:
            pane = Pane(target.state)
            pane.job(101, INNER)
            pane.log(START, "x" * (3 << 20))
            assert (await target.jobs.get("101")).status is Status.RUNNING
            pane.log(END)
            assert (await target.jobs.get("101")).exit_code == 3


async def test_what_is_over_keeps_its_age_and_is_cleaned(tmp_path: Path) -> None:
    with anyio.fail_after(60):
        async with open_job_target("dash", tmp_path, Config()) as target:
            pane = Pane(target.state)
            pane.job(101)
            os.utime(target.state / "jobs/101.cmd", (1, 1))
            pane.slot("- 102")
            assert await target.jobs.clean() == 1
            with pytest.raises(JobNotFound):
                await target.jobs.get("101")
