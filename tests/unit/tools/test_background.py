"""Reading on in a job's output: once, in whole characters, no secret in two halves, and no pattern that takes long."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.desk import until
from tests.support.toolbox import Toolbox, toolbox

from harness import ExecutionContext, connect
from harness.errors import JobNotFound
from harness.extras import install_extra
from harness.results import Job, Status
from harness.testing.memory import MemoryBackend, ScriptedReply
from harness.toolkit import CallOutcome, CallStatus, Executor, Services, ToolCall
from harness.toolkit.permissions.policy import RulePolicy
from harness.toolkit.permissions.rules.settings import PermissionSettings
from harness.toolkit.redaction.redactor import PatternRedactor
from harness_tools.background import MAX_LISTED_JOBS, _listed, _not_found, tools
from harness_tools.job_output import (
    PAGE,
    SCAN,
    BadPattern,
    Position,
    choose,
    continued,
    line_before,
    line_matcher,
    parse_position,
    shown_length,
    whole_characters,
)
from harness_tools.shell import RunShell

TOKEN = "ghp_" + "a1B2" * 9


# -- pieces of output


@pytest.mark.parametrize(
    ("text", "position"),
    [("0", Position()), ("120", Position(120)), ("120+45", Position(120, 45)), (" 7+0 ", Position(7))],
)
def test_a_position_is_read_as_it_is_written(text: str, position: Position) -> None:
    assert parse_position(text) == position
    assert parse_position(str(position)) == position


@pytest.mark.parametrize("text", ["", "-1", "1+", "+1", "1.5", "1+2+3", "9" * 16, "x", "1 2", "٣"])
def test_what_is_no_position_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="position"):
        parse_position(text)


@given(st.text(max_size=30), st.integers(0, 120))
def test_a_piece_ends_with_a_whole_character(text: str, length: int) -> None:
    data = text.encode("utf-8", "surrogatepass" if re.search("[\ud800-\udfff]", text) else "strict")
    part = data[:length]
    kept = whole_characters(part)
    assert len(part) - 3 <= kept <= len(part)
    if not re.search("[\ud800-\udfff]", text):
        part[:kept].decode()


@given(st.lists(st.text(alphabet="abc é\n=:?", max_size=12), max_size=8))
def test_pieces_that_are_shown_one_after_the_other_are_the_whole(pieces: list[str]) -> None:
    redactor = PatternRedactor()
    whole, shown, waiting = "".join(pieces).encode(), b"", b""
    for piece in pieces:
        waiting += piece.encode()
        length = shown_length(waiting, redactor.complete, ended=False)
        shown, waiting = shown + waiting[:length], waiting[length:]
    assert shown + waiting[: shown_length(waiting, redactor.complete, ended=True)] == whole


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Continue? [y/N] ", "Continue? [y/N] "),
        ("Remove it?", "Remove it?"),
        ("login: ", "login: "),
        (">>> ", ">>> "),
        ("a line\nhalf a wor", "a line\nhalf a "),
        ("a token=abc", "a "),
        ("a line\n", "a line\n"),
    ],
)
def test_a_prompt_is_shown_and_half_a_word_waits_for_its_rest(text: str, shown: str) -> None:
    assert text[: shown_length(text.encode(), PatternRedactor().complete, ended=False)] == shown


@pytest.mark.parametrize("secret", [f"x {TOKEN} y", f"password={TOKEN} y", "Authorization: Bearer abcdef0123456789 y"])
def test_a_secret_that_was_begun_is_not_shown_with_its_rest(secret: str) -> None:
    redact = PatternRedactor().text
    for cut in range(len(secret)):
        before, data = secret[:cut].encode(), secret[cut:].encode()
        shown = redact(before.decode()) + continued(line_before(before), data, redact)
        assert "B2a1" not in shown[cut:], cut
        assert "456789" not in shown[cut:], cut
        assert shown.endswith(" y")


# -- filters


@given(
    st.lists(st.sampled_from(["yes\n", "no\n", "maybe yes\n", "\n"]), max_size=20), st.integers(1, 12), st.booleans()
)
def test_a_filter_gives_the_same_lines_in_whatever_pieces_they_come(lines: list[str], size: int, ended: bool) -> None:
    data, matches = "".join(lines).encode(), line_matcher("yes")
    shown, start, end = b"", 0, 0
    for end in [*range(0, len(data), size), len(data)]:
        chosen = choose(data[start:end], matches, PAGE, ended=ended and end == len(data))
        shown, start = shown + chosen.data, start + chosen.used
    assert shown == b"".join(line.encode() for line in lines if "yes" in line)
    assert start == len(data)


def test_lines_beyond_the_room_are_left_for_the_next_time() -> None:
    chosen = choose(b"aa\nbb\naaa\nab\n", line_matcher("a"), 5, ended=True)
    assert (chosen.data, chosen.used, chosen.lines, chosen.matched) == (b"aa\n", 6, 2, 1)
    long = b"a" * 50
    assert choose(long, line_matcher("a"), 5, ended=False).used == 0
    assert choose(long, line_matcher("a"), 5, ended=False, full=True).data == long


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("(", "missing"),
        ("a{2000}", "repetition"),
        ("((a{900}){900}){900}", "repetition|size|large"),
        ("(?<=a)b", "lookaround"),
        (r"(a)\1", "backreferences"),
        ("x" * 1001, "longer than 1000"),
        ("\ud800.", "not valid text"),
    ],
)
def test_what_is_no_pattern_is_told(pattern: str, reason: str) -> None:
    with pytest.raises(BadPattern, match=reason):
        line_matcher(pattern)


def test_a_pattern_takes_time_that_grows_with_the_text() -> None:
    line = b"a" * 2_000_000 + b"b"
    for pattern in ("(a+)+$", "(a|aa)+$", "(.*a){20}x$", "^(([a-z])+.)+[A-Z]([a-z])+$"):
        assert not line_matcher(pattern)(line)


def test_without_the_engine_a_plain_text_is_found_as_it_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "re2", None)
    assert line_matcher("é, no")(b"a \xc3\xa9, no")
    with pytest.raises(BadPattern, match=re.escape(install_extra("tools"))):
        line_matcher("a.b")


# -- the list


def jobs(count: int, running: int) -> list[Job]:
    def job(number: int) -> Job:
        status = Status.RUNNING if number < running else Status.COMPLETED
        code = None if status is Status.RUNNING else 0
        ended = None if code is None else 1e4
        return Job(str(number), f"echo {'x' * 300}\n{number}", status, code, 1000.0 + number, ended)

    return [job(number) for number in range(count)]


@pytest.mark.parametrize("count", [0, 1, 150, 5000])
def test_a_long_list_has_what_runs_and_counts_what_it_leaves_out(count: int) -> None:
    result = _listed(jobs(count, 3), count, min(3, count), 2000.0)
    assert isinstance(result.data, dict)
    shown: Any = result.data["shells"]
    assert len(result.text) <= 15_000
    assert len(shown) <= MAX_LISTED_JOBS
    assert len(shown) + int(str(result.data["left_out"])) == count
    assert [row["bash_id"] for row in shown][: min(3, count)] == ["0", "1", "2"][: min(3, count)]
    assert [int(row["bash_id"]) for row in shown] == sorted(int(row["bash_id"]) for row in shown)
    assert (f"[{result.data['left_out']} more finished jobs" in result.text) == bool(result.data["left_out"])
    assert result.text == "(no jobs)" or count


# -- on this machine


@pytest.fixture
async def here(needs_process: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ExecutionContext]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("HOME", str(tmp_path))
    async with connect("local:", cwd=str(tmp_path)) as opened:
        yield opened


def box_of(execution: ExecutionContext) -> Toolbox:
    """The tools with a redactor that knows secrets by their form."""
    made = toolbox([RunShell(), *tools()], execution=execution)
    services = Services(made.policy, made.ledger, PatternRedactor(), made.outputs)
    made.executor = replace(made.executor, services=services)
    return made


async def call(executor: Executor, name: str, **arguments: Any) -> CallOutcome:
    with anyio.fail_after(100):
        return await executor.call(ToolCall(name, arguments))


async def read(box: Toolbox, job: str, **arguments: Any) -> dict[str, Any]:
    outcome = await call(box.executor, "bash_output", bash_id=job, **arguments)
    assert outcome.status is CallStatus.OK, outcome
    assert isinstance(outcome.result.data, dict)
    return outcome.result.data


async def start(box: Toolbox, command: str) -> str:
    outcome = await call(box.executor, "run_shell", command=command, run_in_background=True)
    assert isinstance(outcome.result.data, dict), outcome
    return str(outcome.result.data["job_id"])


async def opened(path: Path) -> None:
    """Let a program go that reads the named pipe."""

    def could() -> bool:
        try:
            os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))
        except OSError:
            return False
        return True

    await until(could, 60)


async def test_a_bad_filter_reads_nothing(here: ExecutionContext) -> None:
    box = box_of(here)
    job = await start(box, "echo one")
    await here.wait(job)
    bad = await call(box.executor, "bash_output", bash_id=job, filter="(")
    assert (bad.result.error_code, "Nothing was read" in bad.result.text) == ("bad_pattern", True)
    assert (await read(box, job))["stdout"] == "one\n"


async def test_a_filtered_line_is_counted_and_can_be_read_again(here: ExecutionContext) -> None:
    box = box_of(here)
    job = await start(box, "printf 'one\\ntwo\\nthree'; echo bad >&2; echo other >&2")
    await here.wait(job)
    outcome = await call(box.executor, "bash_output", bash_id=job, filter="^t|ba")
    assert outcome.result.text == (
        f"job {job} has ended, exit code: 0\nstdout:\ntwo\nthree\nstderr:\nbad\n"
        "[3 of 5 new lines match; since=0 reads all of them]"
    )
    assert (await read(box, job))["stdout"] == ""
    assert (await read(box, job, since=0))["stdout"] == "one\ntwo\nthree"
    assert (await read(box, job, since="4+4"))["stderr"] == "other\n"
    nothing = await call(box.executor, "bash_output", bash_id=job, since=0, filter="no such")
    assert (nothing.status, nothing.result.metadata["matches"]) == (CallStatus.OK, 0)
    assert "(no new output)" in nothing.result.text


async def test_a_wrong_id_names_the_jobs_that_there_are(here: ExecutionContext) -> None:
    box = box_of(here)
    for tool, argument in (("bash_output", "bash_id"), ("kill_shell", "shell_id")):
        none = await call(box.executor, tool, **{argument: "nothing"})
        assert (none.status, none.result.error_code) == (CallStatus.ERROR, "job_not_found")
        assert none.result.text.endswith("; known jobs: none")
    ended = await start(box, "exit 3")
    await here.wait(ended)
    running = await start(box, "sleep 4000")
    for tool, argument in (("bash_output", "bash_id"), ("kill_shell", "shell_id")):
        named = await call(box.executor, tool, **{argument: "4711"})
        assert named.result.text.endswith(f"; known jobs: {running} (running), {ended} (completed, exit code 3)")
        assert named.result.data == {"bash_ids": [running, ended], "count": 2}
    await call(box.executor, "kill_shell", shell_id=running, signal="KILL")


def test_a_wrong_id_names_no_helper_and_not_all_of_many_jobs() -> None:
    jobs = [Job(str(number), "secret", Status.COMPLETED, 0, started=number) for number in range(300)]
    jobs += [Job("h", "find", Status.RUNNING, helper=True), Job("r", "secret", Status.RUNNING, started=0)]
    result = _not_found(JobNotFound("no job '7x'"), jobs)
    assert result.text.startswith("no job '7x'; known jobs: r (running), 299 (completed, exit code 0), 298 ")
    assert result.text.endswith(" and 281 more")
    assert "secret" not in result.text
    assert isinstance(result.data, dict)
    assert (result.data["count"], len(result.data["bash_ids"])) == (301, MAX_LISTED_JOBS)  # type: ignore[arg-type]  # a list


async def test_with_a_filter_it_waits_for_a_line_that_matches(here: ExecutionContext, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "gate")
    box = box_of(here)
    job = await start(box, "echo noise; read x <gate; printf 'more noise\\nrea'; printf 'dy\\n'; sleep 4000")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(opened, tmp_path / "gate")
        found = await read(box, job, filter="^ready$", wait=60)
    assert (found["stdout"], found["matches"], found["lines"], found["done"]) == ("ready\n", 1, 3, False)
    await call(box.executor, "kill_shell", shell_id=job, signal="KILL")


async def test_half_a_secret_is_not_shown_and_nothing_is_shown_twice(here: ExecutionContext, tmp_path: Path) -> None:
    for gate in ("one", "two"):
        os.mkfifo(tmp_path / gate)
    box, half = box_of(here), len(TOKEN) // 2
    command = f"printf 'key {TOKEN[:half]}'; read x <one; printf '{TOKEN[half:]} end\\nhal'; read x <two; echo f"
    job = await start(box, command)
    shown = (await read(box, job, wait=60))["stdout"]
    assert shown in ("", "key ")
    await opened(tmp_path / "one")
    with anyio.fail_after(60):
        while "end" not in shown:
            shown += (await read(box, job, wait=60))["stdout"]
    assert shown == "key [redacted] end\n"
    assert (await read(box, job))["stdout"] == "hal"  # the second time, nothing has followed it
    await opened(tmp_path / "two")
    await here.wait(job)
    assert (await read(box, job))["stdout"] == "f\n"
    whole = await read(box, job, since=0)
    assert (whole["stdout"], TOKEN[-8:] in str(whole)) == ("key [redacted] end\nhalf\n", False)


async def test_what_is_longer_than_a_page_comes_page_by_page(here: ExecutionContext) -> None:
    box = box_of(here)
    job = await start(box, "seq 1 9000; printf '\\303\\251%.0s' $(seq 20000); seq 1 9000 >&2; printf '\\377end' >&2")
    await here.wait(job)
    out = err = ""
    while True:
        part = await read(box, job)
        assert len((part["stdout"] + part["stderr"]).encode("utf-8", "surrogateescape")) <= PAGE
        out, err = out + part["stdout"], err + part["stderr"]
        if not part["unread"]:
            break
    numbers = "".join(f"{number}\n" for number in range(1, 9001))
    assert out == numbers + "é" * 20000
    assert err == numbers + "\udcffend"
    tail = await read(box, job, since=0, tail=3)
    assert (tail["stdout"], tail["stderr"]) == ("", "8999\n9000\n\udcffend") or tail["stderr"].endswith("\udcffend")


async def test_a_line_that_never_ends_is_shown_all_the_same(here: ExecutionContext) -> None:
    box = box_of(here)
    job = await start(box, f"head -c {SCAN} /dev/zero | tr '\\0' a; printf b; head -c {SCAN} /dev/zero | tr '\\0' c")
    await here.wait(job)
    sizes = [len((await read(box, job))["stdout"]) for _ in range(3)]
    assert sizes == [PAGE] * 3
    found = [await read(box, job, filter="ab") for _ in range(2)]
    assert [(part["matches"], part["unread"] > 0) for part in found] == [(1, True), (0, False)]
    assert len(found[0]["stdout"]) < 2 * PAGE + 200
    assert "characters left out" in found[0]["stdout"]


async def test_the_last_lines_are_shown_also_when_the_last_one_has_no_end_yet(here: ExecutionContext) -> None:
    box = box_of(here)
    job = await start(box, "echo one; printf half; sleep 4000")
    assert (await read(box, job, filter="one", wait=60))["stdout"] == "one\n"
    with anyio.fail_after(60):
        while "half" not in (await read(box, job, tail=1, wait=1))["stdout"]:
            pass
    assert (await read(box, job, tail=1))["stdout"] == ""
    await call(box.executor, "kill_shell", shell_id=job, signal="KILL")
    long = await start(box, f"head -c {3 * PAGE} /dev/zero | tr '\\0' x; sleep 4000")
    with anyio.fail_after(60):
        while (await here.read_job(long)).stdout.size < 3 * PAGE:
            pass
    assert (await read(box, long, tail=1))["stdout"].startswith("xxx")
    await call(box.executor, "kill_shell", shell_id=long, signal="KILL")


async def test_a_log_that_was_removed_while_it_is_read_is_told(here: ExecutionContext, tmp_path: Path) -> None:
    box = box_of(here)
    job = await start(box, "echo one; sleep 4000")
    assert (await read(box, job, wait=60))["stdout"] == "one\n"
    (tmp_path / "state" / "harness" / "jobs" / f"{job}.out").unlink()
    told = [(await read(box, job))["gone"] for _ in range(2)]
    assert told == [True, False]
    await call(box.executor, "kill_shell", shell_id=job, signal="KILL")
    assert (await read(box, job))["gone"]


async def test_calls_at_once_and_sessions_of_their_own_share_nothing(here: ExecutionContext) -> None:
    box = box_of(here)
    job = await start(box, "seq 1 4000")
    await here.wait(job)
    parts: list[str] = []

    async def one() -> None:
        parts.append((await read(box, job))["stdout"])

    async with anyio.create_task_group() as tasks:
        for _ in range(4):
            tasks.start_soon(one)
    whole = "".join(f"{number}\n" for number in range(1, 4001))
    assert sorted("".join(parts).split()) == sorted(whole.split())
    for other in (replace(box.executor, session_id="s2"), replace(box.executor, agent_id="second")):
        again = await call(other, "bash_output", bash_id=job)
        assert isinstance(again.result.data, dict)
        assert str(again.result.data["stdout"]).startswith("1\n2\n")


def test_a_filter_shows_no_line_of_a_private_key() -> None:
    body = b"".join(b"%064d\n" % number for number in range(4))
    data = b"1111\n-----BEGIN PRIVATE KEY-----\n" + body + b"-----END PRIVATE KEY-----\n2222\npassword=hunter2hunter2\n"
    redact = PatternRedactor().text
    for pattern in ("^[0-9]+$", "."):
        chosen = choose(data, line_matcher(pattern), PAGE, ended=True, redact=redact)
        assert b"0000" not in chosen.data
        assert chosen.data.startswith(b"1111\n")
        assert b"\n2222\n" in chosen.data
    chosen = choose(data, line_matcher("password"), PAGE, ended=True, redact=redact)
    assert chosen.data == b"password=[redacted]\n"


async def test_the_list_shows_no_half_of_a_secret() -> None:
    box = toolbox([RunShell(), *tools()], backend=MemoryBackend(lambda command: ScriptedReply()))
    services = replace(box.executor.services, redactor=PatternRedactor())
    executor = replace(box.executor, services=services)
    await call(executor, "run_shell", command=f"{'x' * 100} {TOKEN}", wait=False)
    listed = (await call(executor, "list_shells")).result
    assert TOKEN[:12] not in listed.text + str(listed.data)
    assert "x [redacted]" in listed.text


async def test_the_work_of_tools_is_listed_only_on_demand(here: ExecutionContext) -> None:
    box = box_of(here)
    job = await start(box, "grep -c x /dev/null")
    await here.wait(job)
    await here.run_helper("grep -c x /dev/null")
    listed = (await call(box.executor, "list_shells")).result
    assert isinstance(listed.data, dict)
    shown: Any = listed.data["shells"]
    assert ([row["bash_id"] for row in shown], listed.data["count"]) == ([job], 1)
    everything = (await call(box.executor, "list_shells", include_helpers=True)).result
    assert isinstance(everything.data, dict)
    assert everything.data["count"] == 2


@pytest.mark.parametrize(
    ("name", "arguments", "code"),
    [
        ("bash_output", {"bash_id": "99999"}, "job_not_found"),
        ("bash_output", {"bash_id": "../../etc/passwd"}, "job_not_found"),
        ("bash_output", {"bash_id": "x; rm -r /"}, "job_not_found"),
        ("bash_output", {"bash_id": "9" * 60}, "job_not_found"),
        ("bash_output", {"bash_id": "9" * 65}, "invalid_args"),
        ("bash_output", {"bash_id": ""}, "invalid_args"),
        ("bash_output", {"bash_id": "1\0"}, "invalid_args"),
        ("bash_output", {"bash_id": True}, "invalid_args"),
        ("bash_output", {"bash_id": "1", "since": "-1"}, "invalid_args"),
        ("bash_output", {"bash_id": "1", "tail": 0}, "invalid_args"),
        ("bash_output", {"bash_id": "1", "filter": ""}, "invalid_args"),
        ("bash_output", {"bash_id": "1", "wait": "soon"}, "invalid_args"),
        ("bash_output", {"bash_id": "1", "job_id": "2"}, "invalid_args"),
        ("kill_shell", {"shell_id": "99999"}, "job_not_found"),
        ("kill_shell", {"shell_id": "1", "signal": "CONT"}, "invalid_args"),
        ("kill_shell", {"shell_id": "1", "signal": "TERM; x"}, "invalid_args"),
        ("kill_shell", {"shell_id": "1", "grace": "-1"}, "invalid_args"),
        ("list_shells", {"include_finished": "perhaps"}, "invalid_args"),
    ],
)
async def test_a_mistake_is_told_and_changes_nothing(
    here: ExecutionContext, name: str, arguments: dict[str, Any], code: str
) -> None:
    outcome = await call(box_of(here).executor, name, **arguments)
    assert outcome.result.error_code == code, outcome.result.text


async def test_a_position_beyond_the_end_gives_what_comes_after_it(here: ExecutionContext) -> None:
    box = box_of(here)
    job = await start(box, "echo one")
    await here.wait(job)
    far = await read(box, job, since=10**14)
    assert (far["stdout"], far["unread"]) == ("", 0)
    assert (await read(box, job, since=0))["stdout"] == "one\n"


async def test_reading_needs_no_question_and_ending_a_job_does(here: ExecutionContext) -> None:
    box = box_of(here)
    job = await start(box, "sleep 4000")
    services = Services(RulePolicy(PermissionSettings()), box.ledger, PatternRedactor())
    careful = replace(box.executor, services=services)
    assert (await call(careful, "bash_output", bash_id=job)).status is CallStatus.OK
    assert (await call(careful, "list_shells")).status is CallStatus.OK
    denied = await call(careful, "kill_shell", shell_id=job)
    assert (denied.status, (await here.job(job)).status) == (CallStatus.DENIED, Status.RUNNING)
    assert (await call(box.executor, "kill_shell", shell_id=job)).status is CallStatus.OK


async def test_a_backend_without_logs_of_its_own_is_read_by_what_it_has() -> None:
    made = toolbox([RunShell(), *tools()], backend=MemoryBackend({"x": ScriptedReply("one\ntwo\n", "bad\n", 2)}))
    await call(made.executor, "run_shell", command="x", wait=False)
    first = await read(made, "1")
    assert (first["stdout"], first["stderr"], first["exit_code"], first["done"]) == ("one\ntwo\n", "bad\n", 2, True)
    assert (await read(made, "1"))["stdout"] == ""
    assert (await read(made, "1", since="4+1"))["stdout"] == "two\n"
