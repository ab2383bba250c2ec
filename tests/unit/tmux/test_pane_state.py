"""What each marker makes of a pane and of the job in it: the state machine alone, fed with bytes."""

from __future__ import annotations

import anyio
import pytest

from harness.command import Command
from harness.results import Status
from harness_backends.posix.jobs.termination import CallbackError
from harness_backends.posix.pane_jobs.end_proof import TWICE, proof_of
from harness_backends.posix.pane_jobs.prompt_markers import ANSWERED
from harness_backends.tmux.jobs.output_collector import OutputCollector
from harness_backends.tmux.jobs.pane_job import UNREAD, PaneJob, entered
from harness_backends.tmux.pane.pane_state import MISSED, Pane, PaneShell

OWN, INNER, SECRET = "a" * 20, "b" * 20, "5ec2e7"


def mark(body: str) -> bytes:
    return f"\x1b]133;{body}\x07".encode()


def start(number: int, *, soon: bool = False) -> bytes:
    return mark(f"C;{OWN};{number}{';x' if soon else ''}")


def end(number: int, code: int = 0, secret: str = SECRET) -> bytes:
    return mark(f"D;{code};{OWN};{number};{secret}")


def fact(text: str, nonce: str = OWN) -> bytes:
    return mark(f"W;{nonce};{text}")


PROMPT = mark(f"A;{OWN};0")


def new_pane() -> Pane:
    return Pane("%3", "@1", "main", "uid", "bash", OWN)


def new_job(number: int, nonce: str = OWN, secret: str = SECRET, command: Command | None = None) -> PaneJob:
    collector = OutputCollector(1 << 20)
    return PaneJob(str(number), command or Command("true"), "main", "log", 0, nonce, collector, secret)


def pane_with(*jobs: PaneJob) -> Pane:
    pane = new_pane()
    pane.jobs.extend(jobs)
    return pane


async def test_a_new_pane_has_one_shell_that_reads_files_and_nothing_has_run_in_it() -> None:
    pane = new_pane()
    assert pane.shells == [PaneShell(OWN, "bash", files=True, pid=0, image="")]
    assert PaneShell(INNER, "zsh").files is False, "a nested shell may be another account's"
    assert (pane.phase, pane.running, pane.last_ended, pane.operator_command_count, pane.prompt_time) == (
        "starting",
        0,
        0,
        0,
        0.0,
    )
    assert (pane.gone, pane.in_doubt, pane.paused, pane.held, pane.news, pane.cwd) == (False, False, False, "", "", "")
    assert (pane.log, pane.log_offset, pane.place) == ("panes/uid/log.0", 0, ("-w", "-t", "%3"))
    assert (pane.job, pane.typed) == (None, -60.0), "as if it had been typed into a minute before the clock's zero"


async def test_a_new_job_has_not_started_and_has_no_end() -> None:
    job = new_job(7)
    assert (job.started, job.over, job.prompted, job.announced, job.watched) == (False, False, False, False, True)
    assert (job.status, job.result().exit_code, job.cwd, job.ending, job.entered) == (
        Status.RUNNING,
        None,
        None,
        None,
        None,
    )
    assert (job.unsent, job.unstored, job.doubtful, job.attention) == (False, False, False, False)
    assert (job.seconds, job.ended_at, job.unanswered, job.number) == (0.0, 0.0, 0.0, 7)
    assert not job.done.is_set()
    assert job.proof == proof_of(SECRET)


# -- the ends of a job


@pytest.mark.parametrize("code", [0, 1, 2, 126, 255, -1, 1000])
async def test_a_job_ends_with_the_code_and_the_directory_that_its_end_tells(code: int) -> None:
    job = new_job(7)
    pane = pane_with(job)
    pane.feed(PROMPT + start(7))
    assert (pane.phase, pane.running, job.started, job.takes_output) == ("running", 7, True, True)
    pane.feed(b"out\r\n" + mark(f"O;{OWN};7;{SECRET}") + b"\x1b[m" + fact("/srv") + end(7, code))
    assert (job.status, job.result().exit_code, job.cwd, job.collector.data) == (
        Status.COMPLETED,
        code,
        "/srv",
        b"out\n",
    )
    assert (pane.phase, pane.running, pane.last_ended, pane.jobs) == ("ended", 0, 7, [])
    result = job.result()
    assert (result.exit_code, result.stdout, result.stderr, result.job_id) == (code, "out\n", "", "7")


async def test_only_a_prompt_while_it_runs_counts_as_one() -> None:
    job = new_job(7)
    pane = pane_with(job)
    pane.feed(PROMPT + start(7) + mark(f"P;{OWN}") + end(6) + fact("in=1"))
    assert job.prompted is False
    pane.feed(PROMPT)
    assert (job.prompted, pane.phase) == (True, "running")


async def test_a_start_is_announced_only_when_its_mark_says_so() -> None:
    job = new_job(7)
    job.start()
    assert (job.announced, job.takes_output) == (False, True)
    job.start(soon=True)
    assert (job.announced, job.takes_output) == (True, True)


async def test_the_end_of_another_job_ends_nothing_of_ours() -> None:
    job = new_job(7)
    pane = pane_with(job)
    pane.feed(start(6) + b"theirs" + mark(f"O;{OWN};6;{SECRET}") + end(6, 4))
    assert (job.status, job.started, job.over, job.collector.data) == (Status.RUNNING, False, False, b"")
    assert (pane.jobs, pane.running, pane.last_ended) == ([job], 0, 6)


async def test_marks_that_a_command_writes_are_its_output() -> None:
    job = new_job(7)
    pane = pane_with(job)
    forged = end(7, 0, "") + end(7, 0, "f0f0f0") + end(6) + PROMPT + start(7) + fact("in=1") + fact("off=7;")
    pane.feed(start(7) + forged)
    assert (job.status, job.collector.data, pane.phase, job.prompted) == (Status.RUNNING, forged, "running", True)
    pane.feed(end(7, 3))
    assert (job.status, job.result().exit_code) == (Status.COMPLETED, 3)


@pytest.mark.parametrize(
    ("code", "output", "status"),
    [
        (130, b"^C", Status.INTERRUPTED),
        (130, b"", Status.COMPLETED),
        (129, b"^C", Status.COMPLETED),
        (0, b"^C", Status.COMPLETED),
    ],
)
async def test_an_interrupt_is_known_by_the_code_and_the_echo_of_the_key(
    code: int, output: bytes, status: Status
) -> None:
    job = new_job(7)
    pane_with(job).feed(start(7) + output + end(7, code))
    assert (job.status, job.result().exit_code) == (status, code)


@pytest.mark.parametrize(
    ("ending", "code"), [(Status.TIMED_OUT, None), (Status.INTERRUPTED, 143), (Status.UNKNOWN, None)]
)
async def test_a_job_that_is_being_ended_ends_as_what_it_is_ended_for(ending: Status, code: int | None) -> None:
    job = new_job(7)
    pane = pane_with(job)
    job.ending = ending
    pane.feed(start(7) + end(7, 143))
    assert (job.status, job.result().exit_code) == (ending, code)


def held(job: PaneJob, pane: Pane) -> bool:
    """Whether the job waits for the proof of its termination, and shows no end before."""
    result = job.result()
    return not job.done.is_set() and job not in pane.jobs and (result.status, result.exit_code) == ("running", None)


TERMINATIONS = [Status.TIMED_OUT, Status.INTERRUPTED]


@pytest.mark.parametrize("ending", TERMINATIONS)
async def test_a_shell_that_exits_while_its_job_is_being_ended_proves_nothing(ending: Status) -> None:
    job = new_job(7)
    pane = pane_with(job)
    pane.feed(start(7))
    job.ending = ending
    active = job.active
    pane.feed(mark(f"X;137;{OWN}"))
    assert held(job, pane)
    assert active.is_set(), "what ends it learns of that"
    assert job.notices == ["the shell exited; a new shell was started"]
    job.finish(ending, 137)
    assert (job.status, job.result().exit_code) == (ending, 137 if ending is Status.INTERRUPTED else None)


@pytest.mark.parametrize("ending", TERMINATIONS)
async def test_a_nested_shell_that_exits_while_its_job_is_being_ended_proves_nothing(ending: Status) -> None:
    outer, inner = new_job(1), new_job(2, nonce=INNER, secret="")
    pane = pane_with(outer)
    pane.feed(start(1))
    pane.push_shell(PaneShell(INNER, "bash"))
    pane.jobs.append(inner)
    inner.ending = ending
    pane.feed(mark(f"C;{INNER};2") + end(1, 137))
    assert held(inner, pane)
    assert (outer.status, outer.exit_code) == (Status.COMPLETED, 137), "it was not the one that was ended"


async def test_a_shell_that_exits_after_an_ending_without_proof_leaves_its_job_unknown() -> None:
    job = new_job(7)
    pane = pane_with(job)
    pane.feed(start(7))
    job.ending = Status.UNKNOWN
    pane.feed(mark(f"X;137;{OWN}"))
    assert (job.status, job.result().exit_code) == (Status.UNKNOWN, None)


async def test_an_operator_who_restarts_the_pane_makes_an_ending_job_unknown() -> None:
    job = new_job(7)
    pane = pane_with(job)
    pane.wrapper = "10:/dev/pts/1"
    pane.feed(start(7))
    job.ending = Status.TIMED_OUT
    pane.feed(fact("tty=11:/dev/pts/1"))
    assert (job.status, job.result().exit_code) == (Status.UNKNOWN, None)


@pytest.mark.parametrize(
    ("told", "ending", "status", "code"),
    [
        (Status.COMPLETED, None, Status.COMPLETED, 137),
        (Status.COMPLETED, Status.TIMED_OUT, Status.TIMED_OUT, None),
        (Status.COMPLETED, Status.INTERRUPTED, Status.INTERRUPTED, 137),
        (Status.COMPLETED, Status.UNKNOWN, Status.UNKNOWN, None),
        (Status.SHELL_EXITED, None, Status.SHELL_EXITED, 137),
        (Status.SHELL_EXITED, Status.UNKNOWN, Status.UNKNOWN, None),
    ],
)
async def test_a_reported_end_counts_as_far_as_it_is_a_proof(
    told: Status, ending: Status | None, status: Status, code: int | None
) -> None:
    job = new_job(7)
    job.ending = ending
    job.finish_as_reported(told, 137)
    assert (job.status, job.result().exit_code) == (status, code)


@pytest.mark.parametrize(
    ("told", "code"), [(Status.TIMED_OUT, None), (Status.INTERRUPTED, 130), (Status.UNKNOWN, None)]
)
async def test_a_reported_end_that_is_not_the_commands_own_stays_as_reported(told: Status, code: int | None) -> None:
    for ending in (None, Status.TIMED_OUT, Status.INTERRUPTED):
        job = new_job(7)
        job.ending = ending
        job.finish_as_reported(told, 130)
        assert (job.status, job.result().exit_code) == (told, code)


async def test_a_later_end_changes_nothing_of_an_ended_job() -> None:
    job = new_job(7)
    pane = pane_with(job)
    pane.feed(start(7) + end(7, 3))
    job.finish(Status.UNKNOWN, 9, "/elsewhere")
    assert (job.status, job.result().exit_code, job.cwd) == (Status.COMPLETED, 3, None)


async def test_an_end_that_is_told_twice_is_kept_in_mind_when_it_has_the_secret() -> None:
    job = new_job(7)
    pane = pane_with(job)
    pane.feed(start(7) + end(7, 3) + end(7, 0, "f0f0f0"))
    assert pane.ended_twice == []
    pane.feed(end(6))
    assert pane.ended_twice == []
    pane.feed(end(7, 0))
    assert pane.ended_twice == [job]
    pane.feed(end(7, 0))
    assert pane.ended_twice == [job]


async def test_an_end_is_not_told_twice_when_something_ran_between_or_the_stream_is_read_again() -> None:
    for between in (start(0), None):
        pane = pane_with(new_job(7))
        pane.feed(start(7) + end(7))
        pane.restart_scan() if between is None else pane.feed(between)
        pane.feed(end(7))
        assert pane.ended_twice == []
    nested = pane_with(new_job(7, secret=""))
    nested.feed(start(7) + end(7, 0, "") + end(7, 0, ""))
    assert nested.ended_twice == []


# -- what did not run, or not as it was sent


async def test_an_announced_command_that_ends_without_its_second_start_is_unknown() -> None:
    job = new_job(7)
    pane = pane_with(job)
    pane.feed(start(7, soon=True) + b"noise" + end(7, 0))
    assert (job.status, job.result().exit_code, job.notices) == (Status.UNKNOWN, None, [UNREAD])


async def test_an_announced_command_begins_with_its_second_start() -> None:
    job = new_job(7)
    pane = pane_with(job)
    pane.feed(start(7, soon=True) + b"+ trace\r\n" + start(7) + b"out" + end(7, 5))
    assert (job.status, job.result().exit_code, job.notices, job.collector.data) == (Status.COMPLETED, 5, [], b"out")


@pytest.mark.parametrize(
    ("word", "unsent", "unstored", "notices"),
    [("off", True, False, []), ("full", False, True, []), ("unread", False, False, [UNREAD])],
)
async def test_a_shell_says_with_the_secret_that_a_job_did_not_run(
    word: str, unsent: bool, unstored: bool, notices: list[str]
) -> None:
    job = new_job(7)
    pane = pane_with(job)
    for imitation in (f"{word}=7", f"{word}=7;f0f0f0", f"{word}=6;{SECRET}"):
        pane.feed(fact(imitation))
        assert (job.status, pane.jobs) == (Status.RUNNING, [job]), imitation
    pane.feed(fact(f"{word}=7;{SECRET}"))
    assert (job.status, job.result().exit_code, pane.jobs) == (Status.UNKNOWN, None, [])
    assert (job.unsent, job.unstored, job.notices) == (unsent, unstored, notices)


async def test_a_record_that_was_there_before_the_end_makes_the_code_unsure() -> None:
    job = new_job(7)
    pane = pane_with(job)
    pane.feed(start(7) + fact(f"twice=7;{SECRET}"))
    assert (job.status, pane.jobs) == (Status.RUNNING, [job])
    pane.feed(end(7, 0))
    assert (job.status, job.result().exit_code, job.notices) == (Status.UNKNOWN, None, [TWICE])


async def test_facts_of_a_job_without_a_job_change_nothing() -> None:
    pane = new_pane()
    pane.feed(fact("in=1") + fact(f"off=7;{SECRET}") + fact("pid=x") + fact("other=1"))
    assert (pane.jobs, pane.shell.pid, pane.cwd, pane.kind) == ([], 0, "", None)


@pytest.mark.parametrize(
    ("text", "number"), [("in=0", 0), ("in=2", 2), ("in=13;x", 13), ("in=", None), ("in=x", None), ("7", None)]
)
def test_what_was_told_of_the_directory_is_read(text: str, number: int | None) -> None:
    assert entered(text) == number


async def test_a_job_learns_whether_its_directory_was_entered() -> None:
    job = new_job(7)
    pane = pane_with(job)
    active = job.active
    pane.feed(fact(f"in=2;{SECRET}"))
    assert (job.entered, active.is_set()) == (2, True)


# -- shells


async def test_facts_of_a_shell_are_kept_with_that_shell() -> None:
    pane = new_pane()
    pane.push_shell(PaneShell(INNER, "zsh", pid=5))
    pane.feed(fact("kind=zsh", INNER) + fact("pid=12", INNER) + fact("/tmp", INNER))
    assert ([shell.pid for shell in pane.shells], pane.kind, pane.cwd) == ([0, 12], "zsh", "/tmp")
    pane.feed(fact("pid=11"))
    assert [shell.pid for shell in pane.shells] == [11, 12]


async def test_where_a_prompt_is_shown_is_known() -> None:
    pane = new_pane()
    assert (pane.phase, pane.at_prompt) == ("starting", "")
    pane.feed(PROMPT)
    assert (pane.at_prompt, pane.prompt_time > 0) == ("own", True)
    pane.feed(mark(f"P;{OWN}"))
    assert (pane.phase, pane.at_prompt) == ("continuation", "")
    pane.push_shell(PaneShell(INNER, "zsh"))
    pane.feed(mark(f"A;{INNER};0"))
    assert pane.at_prompt == "inside"
    pane.pause()
    assert pane.at_prompt == ""
    pane.settle(b"", 0)
    assert pane.at_prompt == "inside"
    pane.gone = True
    assert pane.at_prompt == ""


async def test_an_outer_shell_that_speaks_ends_the_inner_ones_and_the_jobs_in_them() -> None:
    outer, inner = new_job(1, secret=SECRET), new_job(2, nonce=INNER, secret="")
    pane = pane_with(outer)
    pane.feed(start(1))
    pane.push_shell(PaneShell(INNER, "bash"))
    pane.jobs.append(inner)
    assert (pane.job, pane.shell.nonce) == (inner, INNER)
    pane.feed(mark(f"C;{INNER};2") + b"in" + mark(f"D;4;{OWN};1;{SECRET}"))
    assert (inner.status, inner.exit_code, len(inner.notices)) == (Status.SHELL_EXITED, 4, 1)
    assert (outer.status, outer.exit_code) == (Status.COMPLETED, 4)
    assert [shell.nonce for shell in pane.shells] == [OWN]


async def test_output_of_an_inner_shell_is_not_that_of_the_job_that_started_it() -> None:
    outer = new_job(1)
    pane = pane_with(outer)
    pane.feed(start(1) + b"before ")
    pane.push_shell(PaneShell(INNER, "bash"))
    pane.feed(b"of nobody")
    pane.pop_shell(OWN)
    assert len(pane.shells) == 2, "not the innermost"
    pane.pop_shell(INNER)
    pane.pop_shell(OWN)
    assert len(pane.shells) == 1, "the pane's own stays"
    pane.feed(b"after" + end(1))
    assert outer.collector.data == b"before after"


async def test_only_the_shells_inside_the_one_that_speaks_are_gone() -> None:
    innermost = "c" * 20
    jobs = [new_job(1), new_job(2, INNER, ""), new_job(3, innermost, "")]
    pane = pane_with(*jobs)
    pane.push_shell(PaneShell(INNER, "bash"))
    pane.push_shell(PaneShell(innermost, "sh"))
    pane.feed(mark(f"A;{INNER};2"))
    assert [shell.nonce for shell in pane.shells] == [OWN, INNER]
    assert [job.status for job in jobs] == [Status.RUNNING, Status.RUNNING, Status.SHELL_EXITED]
    assert (jobs[2].exit_code, pane.jobs, pane.at_prompt) == (None, jobs[:2], "inside")
    pane.feed(mark(f"D;6;{INNER};2"))
    assert (jobs[1].status, jobs[1].exit_code, jobs[0].status) == (Status.COMPLETED, 6, Status.RUNNING)


@pytest.mark.parametrize("code", [0, 1, 129])
async def test_the_end_of_the_shell_ends_what_ran_in_it_and_keeps_what_waits_for_one(code: int) -> None:
    ran, waits = new_job(1), new_job(2)
    pane = pane_with(ran, waits)
    ran.start()
    pane.running = 1
    pane.feed(mark(f"X;{code};{OWN}"))
    assert (ran.status, ran.exit_code) == (Status.SHELL_EXITED, code)
    assert ran.notices == ["the shell exited; a new shell was started"]
    assert waits.notices == [f"the pane's shell had exited (exit code {code}); the command ran in a new shell"]
    assert (waits.status, pane.jobs) == (Status.RUNNING, [waits])
    assert (pane.phase, pane.running, pane.last_ended, pane.news) == ("starting", 0, 1, "")


async def test_the_end_of_an_idle_shell_is_told_to_the_next_caller() -> None:
    pane = new_pane()
    pane.push_shell(PaneShell(INNER, "bash"))
    pane.feed(mark(f"X;3;{OWN}"))
    assert "exit code 3" in pane.news
    assert [shell.nonce for shell in pane.shells] == [OWN]


async def test_another_first_process_makes_what_ran_unknown_and_the_same_one_does_not() -> None:
    job = new_job(7)
    pane = pane_with(job)
    pane.feed(fact("tty=1:/dev/pts/1") + start(7) + fact("tty=1:/dev/pts/1"))
    assert (job.status, pane.phase) == (Status.RUNNING, "running")
    pane.feed(fact("tty=2:/dev/pts/1"))
    assert (job.status, job.result().exit_code, pane.phase) == (Status.UNKNOWN, None, "starting")
    assert "respawn-pane" in job.notices[0]
    assert pane.wrapper == "2:/dev/pts/1"


# -- what operators do, and the stream


async def test_commands_of_an_operator_are_counted_and_ours_are_not() -> None:
    pane = new_pane()
    pane.feed(PROMPT + start(0))
    assert (pane.operator_command_count, pane.phase, pane.running) == (1, "running", 0)
    pane.feed(end(0, 1, ""))
    assert pane.operator_command_count == 1
    pane.feed(PROMPT + end(0, 1, ""))
    assert pane.operator_command_count == 2, "dash tells no beginning"
    pane.feed(mark(f"P;{OWN}") + end(0, 1, ""))
    assert pane.operator_command_count == 3
    pane.jobs.append(new_job(7))
    pane.feed(PROMPT + end(0) + start(0))
    assert pane.operator_command_count == 3, (
        "bash says so of what is typed for a job, and of the line that it was typed on"
    )
    pane.feed(start(7) + end(7))
    assert pane.operator_command_count == 3


async def test_a_hole_in_the_stream_is_filled_from_the_log() -> None:
    job = new_job(7)
    pane = pane_with(job)
    pane.feed(start(7) + b"a" + b"\x1b]133;D;0;")
    offset = pane.log_offset
    pane.pause()
    active = job.active
    pane.feed(end(7, 2) + PROMPT)
    assert (pane.log_offset, job.status, active.is_set()) == (offset, Status.RUNNING, True)
    pane.settle(b"b", 99)
    assert (job.status, job.result().exit_code, job.collector.data) == (Status.COMPLETED, 2, b"ab")
    assert (pane.paused, pane.phase, pane.log_offset, pane.missed) == (False, "prompt", 99, b"")


async def test_what_a_hole_keeps_is_bounded_and_the_latest() -> None:
    pane = new_pane()
    pane.pause()
    pane.feed(b"x" * MISSED)
    assert len(pane.missed) == MISSED
    pane.feed(b"end")
    assert (len(pane.missed), pane.missed[-4:]) == (MISSED, b"xend")
    pane.pause()
    assert pane.missed == b""


async def test_a_lost_pane_ends_all_of_its_jobs_and_wakes_who_waits() -> None:
    first, second = new_job(1), new_job(2)
    pane = pane_with(first, second)
    pane.in_doubt = True
    woken = pane.changed
    pane.lose(Status.UNKNOWN, "it is gone")
    assert (pane.gone, pane.jobs, woken.is_set(), pane.changed.is_set()) == (True, [], True, False)
    for job in (first, second):
        assert (job.status, job.notices, job.done.is_set()) == (Status.UNKNOWN, ["it is gone"], True)
    with anyio.fail_after(5):
        await pane.certain()


async def test_whether_a_pane_is_there_is_waited_for() -> None:
    pane = new_pane()
    pane.in_doubt = True
    known = anyio.Event()

    async def wait() -> None:
        await pane.certain()
        known.set()

    async with anyio.create_task_group() as group:
        group.start_soon(wait)
        await anyio.wait_all_tasks_blocked()
        pane.notify()
        await anyio.wait_all_tasks_blocked()
        assert not known.is_set()
        pane.found_in("@9")
        with anyio.fail_after(5):
            await known.wait()
    assert pane.window_id == "@9"


# -- what a job says of itself


async def test_a_question_that_the_terminal_answered_is_noticed() -> None:
    job = new_job(7)
    pane = pane_with(job)
    pane.feed(start(7) + b"\x1b[6n^[[1;1R" + end(7))
    assert job.notices == [ANSWERED]


async def test_a_withdrawn_job_did_not_run() -> None:
    job = new_job(7)
    job.withdraw()
    assert (job.unsent, job.status, job.result().exit_code) == (True, Status.UNKNOWN, None)


@pytest.mark.parametrize(
    ("command", "reports"),
    [
        (Command("true", tty=False, on_output=lambda _: None), True),
        (Command("true", tty=False, on_stderr=lambda _: None), True),
        (Command("true", tty=False), False),
        (Command("true", on_output=lambda _: None), False),
    ],
)
async def test_only_separate_streams_with_callbacks_are_reported(command: Command, reports: bool) -> None:
    job = new_job(7, command=command)
    assert job.reports_streams is reports
    with anyio.move_on_after(0.01) as scope:
        await job.all_reported()
    assert scope.cancelled_caught is reports
    job.reported.set()
    job.callback_error = ValueError("theirs")
    with pytest.raises(CallbackError) as caught:
        await job.all_reported()
    assert caught.value.error is job.callback_error


async def test_a_job_takes_as_long_as_from_its_dispatch_to_its_end() -> None:
    job = new_job(7)
    assert job.result().duration >= 0
    job.began -= 60
    assert 60 <= job.result().duration < 90
    job.finish(Status.COMPLETED, 0)
    assert 60 <= job.seconds < 90
    job.began -= 600
    assert (job.result().duration, job.result().stdout) == (job.seconds, "")
    assert job.result(b"out").stdout == "out"


def test_a_callback_that_has_raised_before_anybody_waited_stops_the_waiting_at_once() -> None:
    job, stopped = PaneJob("1", Command("true"), "main", "log", 0, "n", OutputCollector(100)), []
    job.fail(ValueError())
    job.when_callback_fails(lambda: stopped.append(1))
    job.fail(ValueError())
    assert stopped == [1]


async def test_the_wait_for_a_missed_end_is_bounded_while_the_background_writes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("harness_backends.tmux.jobs.pane_job.LONGEST_LAG", 0.5)
    job = new_job(7)

    async def write() -> None:
        while True:
            job.touch()
            await anyio.sleep(0.01)

    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(write)
            await job.done_or_quiet(5.0)
            tasks.cancel_scope.cancel()
    assert not job.done.is_set()


async def test_what_is_learned_elsewhere_of_a_job_that_has_left_its_pane_changes_nothing() -> None:
    ended, withdrawn, removed = new_job(1), new_job(2), new_job(3)
    pane = pane_with(ended, withdrawn, removed)
    assert pane.end_job(ended, Status.COMPLETED, 3, notice="from the record", cwd="/tmp")
    pane.withdraw_job(withdrawn, "it did not run")
    assert pane.remove_job(removed)
    for job in (ended, withdrawn, removed):
        assert not pane.remove_job(job)
        assert not pane.end_job(job, Status.UNKNOWN, notice="late")
        pane.withdraw_job(job, "late")
    assert (ended.status, ended.exit_code, ended.cwd, ended.unsent) == (Status.COMPLETED, 3, "/tmp", False)
    assert (withdrawn.status, withdrawn.unsent, removed.done.is_set()) == (Status.UNKNOWN, True, False)
    assert [job.notices for job in (ended, withdrawn, removed)] == [["from the record"], ["it did not run"], []]


async def test_an_end_that_a_termination_must_prove_is_left_to_it() -> None:
    job = new_job(1)
    job.ending = Status.TIMED_OUT
    pane = pane_with(job)
    assert pane.end_job(job, Status.SHELL_EXITED, 9)
    assert (job.done.is_set(), job.exit_code, pane.jobs) == (False, 9, [])


async def test_who_waits_for_a_prompt_learns_of_one_that_no_marker_has_shown() -> None:
    pane = pane_with()
    pane.learn_phase("running", 7)
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(pane.wait_until, lambda: pane.phase == "prompt")
            await anyio.wait_all_tasks_blocked()
            pane.learn_phase("prompt")
