"""What results look like from outside: exit codes and JSON."""

from __future__ import annotations

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.cli.commands.jobs import JsonLines, whole_characters
from harness.cli.commands.run import brief, command_text, outcome_sentence
from harness.cli.exits import exit_code_of, failure_code
from harness.cli.options import NO_LIMIT
from harness.cli.output import as_json, readable, result_json
from harness.errors import ConnectError, FileNotFound, HarnessError, JobNotFound, PaneBusy
from harness.results import Job, ShellResult, Status


@pytest.mark.parametrize(
    ("status", "duration", "limit", "said"),
    [
        (Status.RUNNING, 1.99, 2.0, "still running as job 7 after its 2 s (harness jobs wait 7)"),
        (Status.RUNNING, 1.3, 2.0, "still running as job 7 after 1.3 of its 2 s, waiting for input (harness"),
        (Status.RUNNING, 4.2, NO_LIMIT, "still running as job 7 after 4.2 s, waiting for input (harness"),
        (Status.RUNNING, 61.0, None, "still running as job 7 after 61 s (harness jobs wait 7)"),
        (Status.TIMED_OUT, 1.2, 0.5, "stopped at its timeout of 0.5 s"),
        (Status.TIMED_OUT, 1.2, None, "stopped at its timeout, after 1 s"),
        (Status.INTERRUPTED, 1.2, 2.0, "the command was interrupted"),
        (Status.UNKNOWN, 1.2, 2.0, "the outcome of job 7 is unknown (harness jobs wait 7)"),
        (Status.COMPLETED, 1.2, 2.0, ""),
        (Status.SHELL_EXITED, 1.2, 2.0, ""),
    ],
)
def test_each_outcome_without_a_code_is_said_with_its_time_limit(
    status: Status, duration: float, limit: float | None, said: str
) -> None:
    sentence = outcome_sentence(ShellResult("x", status, None, duration=duration, job_id="7"), limit)
    assert sentence.startswith(said)
    assert bool(sentence) == bool(said)


@pytest.mark.parametrize(
    ("status", "code", "waited", "expected"),
    [
        (Status.COMPLETED, 0, True, 0),
        (Status.COMPLETED, 42, True, 42),
        (Status.COMPLETED, 137, True, 137),
        (Status.RUNNING, None, True, 124),
        (Status.RUNNING, None, False, 0),
        (Status.COMPLETED, 3, False, 3),
        (Status.TIMED_OUT, None, True, 124),
        (Status.INTERRUPTED, None, True, 130),
        (Status.INTERRUPTED, 3, True, 3),
        (Status.SHELL_EXITED, 3, True, 3),
        (Status.SHELL_EXITED, None, True, 125),
        (Status.UNKNOWN, None, True, 125),
        (Status.UNKNOWN, None, False, 125),
    ],
)
def test_each_outcome_has_its_exit_code(status: Status, code: int | None, waited: bool, expected: int) -> None:
    assert exit_code_of(ShellResult("x", status, code), waited=waited) == expected


@pytest.mark.parametrize(
    ("error", "passes_codes", "expected"),
    [
        (FileNotFound("x"), False, 1),
        (JobNotFound("x"), False, 125),
        (PaneBusy("x"), False, 1),
        (ConnectError("x"), False, 125),
        (HarnessError("x"), False, 125),
        (FileNotFound("x"), True, 125),
        (PaneBusy("x"), True, 125),
    ],
)
def test_failures_of_harness_never_look_like_the_commands_own(
    error: HarnessError, passes_codes: bool, expected: int
) -> None:
    assert failure_code(error, passes_codes=passes_codes) == expected


def test_one_word_is_shell_text_and_several_are_arguments() -> None:
    assert command_text(("cd /tmp && ls",)) == "cd /tmp && ls"
    assert command_text(("rm", "--", "my file")) == "rm -- 'my file'"
    assert command_text(("echo", "$HOME", ";", "")) == "echo '$HOME' ';' ''"


@given(st.binary())
def test_json_of_a_result_holds_the_exact_output(data: bytes) -> None:
    document = json.loads(as_json(result_json(ShellResult("x", Status.COMPLETED, 0, stdout_bytes=data))))
    exact = base64.b64decode(document["stdout_base64"]) if "stdout_base64" in document else document["stdout"].encode()
    assert exact == data
    assert document["status"] == "completed"


@given(st.text(), st.text())
def test_json_is_unicode_whatever_the_names_are(command: str, cwd: str) -> None:
    as_json([Job("1", command + "\udcff", Status.RUNNING, cwd=cwd)]).encode("utf-8")


@given(st.text())
def test_a_note_is_one_printable_line(text: str) -> None:
    line = readable(text + "\x1b[2J\udc80")
    assert len(line.splitlines()) <= 1
    assert "\x1b" not in line
    line.encode("utf-8")


@pytest.mark.parametrize(
    ("notice", "lines"),
    [
        ("one", ["one"]),
        ("", [""]),
        (
            "the screen shows:\n$ make\n\n  1\n2\n3\n\nName? \n\n",
            ["the screen shows:", "    1", "  2", "  3", "  Name?"],
        ),
    ],
)
def test_a_notice_of_many_lines_shows_the_last_that_say_something(notice: str, lines: list[str]) -> None:
    assert brief(notice) == lines


@given(st.text(), st.data())
def test_text_that_is_cut_anywhere_comes_out_as_whole_characters(text: str, data: st.DataObject) -> None:
    raw = text.encode("utf-8", "ignore")
    written: list[bytes] = []
    lines = JsonLines(written.append, 7)
    at = 0
    while at < len(raw):
        size = data.draw(st.integers(1, 5))
        lines.write(raw[at : at + size])
        at += size
    lines.finish(Job("1", "x", Status.COMPLETED, 0))
    *pieces, end = map(json.loads, written)
    assert "".join(piece["text"] for piece in pieces) == raw.decode()
    assert not any("text_base64" in piece for piece in pieces)
    assert end["offset"] == 7 + len(raw)


@given(st.binary(max_size=12))
def test_what_is_held_back_is_at_most_three_bytes_of_one_character(data: bytes) -> None:
    cut = whole_characters(data)
    assert 0 <= len(data) - cut <= 3
