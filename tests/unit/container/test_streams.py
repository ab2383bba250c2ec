"""What arrives from a container is taken apart exactly, however it is cut into pieces."""

from __future__ import annotations

import os
import signal
import subprocess
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import ConnectionLost
from harness_backends.container.exec_stream import Demultiplexer
from harness_backends.posix.supervised_process import (
    LOCATED_ARGV,
    GroupLeader,
    StderrFilter,
    kill_argv,
    located_order,
    new_nonce,
    wrapped_argv,
)

NONCE = "0123456789abcdef01234567"
START = b"\x1e" + NONCE.encode() + b" 42 777\n"
END = b"\x1e" + NONCE.encode() + b" 3\n"

FRAMES = st.lists(st.tuples(st.sampled_from([1, 2]), st.binary(min_size=0, max_size=40)), max_size=20)


def encoded(frames: list[tuple[int, bytes]]) -> bytes:
    return b"".join(bytes((number, 0, 0, 0)) + len(data).to_bytes(4, "big") + data for number, data in frames)


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [data[start:end] for start, end in pairwise(places)]


def joined(parts: list[tuple[int, bytes]], number: int) -> bytes:
    return b"".join(data for stream, data in parts if stream == number)


@given(FRAMES, st.lists(st.integers(0, 2000), max_size=30))
def test_frames_come_out_as_they_went_in_however_they_were_cut(
    frames: list[tuple[int, bytes]], cuts: list[int]
) -> None:
    demultiplexer = Demultiplexer()
    parts = [part for piece in pieces(encoded(frames), cuts) for part in demultiplexer.feed(piece)]
    for number in (1, 2):
        assert joined(parts, number) == joined(frames, number)
    assert all(data for _, data in parts)
    assert not demultiplexer.inside


def test_what_has_arrived_of_a_frame_is_passed_on_at_once() -> None:
    demultiplexer = Demultiplexer()
    assert demultiplexer.feed(encoded([(1, b"hello")])[:10]) == [(1, b"he")]
    assert demultiplexer.inside
    assert demultiplexer.feed(b"llo") == [(1, b"llo")]
    assert not demultiplexer.inside


@pytest.mark.parametrize("data", [b"HTTP/1.1", b"\x07\0\0\0\0\0\0\1x", b"\1\0\1\0\0\0\0\1x"])
def test_something_else_than_frames_is_refused(data: bytes) -> None:
    with pytest.raises(ConnectionLost):
        Demultiplexer().feed(data)


@given(st.binary(max_size=60), st.binary(max_size=60), st.lists(st.integers(0, 300), max_size=30))
def test_the_lines_of_ours_are_taken_out_and_nothing_else(before: bytes, after: bytes, cuts: list[int]) -> None:
    found = StderrFilter(NONCE)
    data = b"warning: x\n" + START + before + END + after
    assert b"".join(map(found.feed, pieces(data, cuts))) + found.finish() == before + after
    assert found.leader == GroupLeader(42, "777")
    assert found.status == 3


@given(st.binary(max_size=60), st.lists(st.integers(0, 300), max_size=30))
def test_a_stream_that_ends_early_loses_nothing_and_gives_no_status(before: bytes, cuts: list[int]) -> None:
    found = StderrFilter(NONCE)
    cut_off = START + before + END[:-1]
    assert b"".join(map(found.feed, pieces(cut_off, cuts))) + found.finish() == before + END[:-1]
    assert found.status is None


@pytest.mark.parametrize("data", [b"$ ", b"Password: ", b"a 0", b"\x1e0123 ", b"\x1ex", END.replace(b"0", b"1")])
def test_nothing_is_held_back_that_cannot_be_a_line_of_ours(data: bytes) -> None:
    found = StderrFilter(NONCE)
    found.feed(START)
    assert found.feed(data) == data


def test_a_line_with_another_nonce_is_data() -> None:
    found = StderrFilter(NONCE)
    found.feed(START)
    other = b"\x1e" + new_nonce().encode() + b" 0\n"
    assert found.feed(other) == other
    assert found.status is None


def test_what_was_said_instead_of_a_start_is_kept_for_the_message() -> None:
    found = StderrFilter(NONCE)
    assert found.feed(b"OCI runtime\r\n failed") == b""
    assert found.finish() == b""
    assert found.noise == "OCI runtime failed"


@pytest.mark.parametrize("argv", [[], [""], ["echo", "a\0b"]])
def test_words_that_cannot_be_executed_are_refused(argv: list[str]) -> None:
    with pytest.raises(ValueError, match=r"argument|program"):
        wrapped_argv(argv, NONCE)


def shells() -> list[list[str]]:
    return [["dash"], ["busybox", "sh"], ["bash", "--posix"], ["mksh"]]


@pytest.mark.usefixtures("needs_process")
@pytest.mark.parametrize("shell", shells(), ids=lambda words: words[0])
@pytest.mark.parametrize(
    "words", [["printf", "%s|", "a b", "", "it's", "-n"], ["printf", "%s|", "\udcff\udc80\n", "é\n"]]
)
def test_the_shell_beside_a_program_reports_it_in_every_shell(shell: list[str], words: list[str]) -> None:
    wrapped = wrapped_argv(["sh", "-c", '"$@"; echo oops >&2; exit 7', "sh", *words], NONCE)
    done = subprocess.run([*shell, *wrapped[1:]], capture_output=True, start_new_session=True)
    found = StderrFilter(NONCE)
    expected = b"".join(word.encode("utf-8", "surrogateescape") + b"|" for word in words[2:])
    assert (done.returncode, done.stdout) == (7, expected)
    assert found.feed(done.stderr) + found.finish() == b"oops\n"
    assert found.status == 7
    assert found.leader is not None


@pytest.mark.usefixtures("needs_process")
@pytest.mark.parametrize("shell", shells(), ids=lambda words: words[0])
def test_a_group_is_ended_and_a_recycled_id_is_left_alone(shell: list[str]) -> None:
    wrapped = wrapped_argv(["sh", "-c", "trap '' TERM; sleep 1000 & echo up; wait"], NONCE)
    child = subprocess.Popen(
        [*shell, *wrapped[1:]], stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    )
    assert child.stdout is not None
    assert child.stderr is not None
    with child, child.stdout, child.stderr:
        found = StderrFilter(NONCE)
        found.feed(child.stderr.readline())
        assert child.stdout.readline() == b"up\n"
        assert found.leader is not None
        assert found.leader.pid == child.pid
        other = GroupLeader(child.pid, str(int(found.leader.started) + 1))
        assert subprocess.run([*shell, *kill_argv(other, (("KILL", 0.1),), tree=True)[1:]]).returncode == 0
        assert child.poll() is None
        ladder = (("TERM", 0.2), ("KILL", 2.0))
        assert subprocess.run([*shell, *kill_argv(found.leader, ladder, tree=False)[1:]]).returncode == 0
        assert child.stdout.read() == b""


@pytest.mark.usefixtures("needs_process")
@pytest.mark.parametrize("shell", shells(), ids=lambda words: words[0])
@pytest.mark.parametrize("tree", [True, False])
def test_what_is_in_a_session_of_its_own_ends_with_the_tree_alone(shell: list[str], tree: bool) -> None:
    script = "setsid sh -c 'trap \"\" TERM; echo $$; while :; do sleep 1; done' & wait"
    child = subprocess.Popen(
        [*shell, *wrapped_argv(["sh", "-c", script], NONCE)[1:]],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    assert child.stdout is not None
    assert child.stderr is not None
    with child, child.stdout, child.stderr:
        found = StderrFilter(NONCE)
        found.feed(child.stderr.readline())
        away = int(child.stdout.readline())
        assert found.leader is not None
        ladder = (("TERM", 0.2), ("KILL", 2.0))
        assert subprocess.run([*shell, *kill_argv(found.leader, ladder, tree=tree)[1:]]).returncode == 0
        if not tree:
            os.kill(away, signal.SIGKILL)
        assert child.stdout.read() == b""


def test_the_nonce_is_not_in_a_list_of_processes() -> None:
    assert not any(NONCE in word for word in wrapped_argv(["true"], NONCE))


EVERY_BYTE = bytes(range(1, 256)).decode("ascii", "surrogateescape")


@pytest.mark.usefixtures("needs_process")
@pytest.mark.parametrize("shell", ["sh", "bash", "busybox sh"])
def test_an_order_starts_a_program_with_exact_arguments_and_leaves_its_input(shell: str) -> None:
    words = ["printf", "<%s>", EVERY_BYTE, "", "it's\n", "$hx_nl", "\n"]
    order = located_order(["sh", "-c", 'cat; "$@"; exit 5', "sh", *words], NONCE)
    argv = [*shell.split(), *LOCATED_ARGV[1:]]
    done = subprocess.run(argv, input=order + b"in\0put\n", capture_output=True)
    found = StderrFilter(NONCE)
    assert found.feed(done.stderr) + found.finish() == b""
    text = "".join(f"<{word}>" for word in words[2:]).encode("utf-8", "surrogateescape")
    assert done.stdout == NONCE.encode() + b"o\nin\0put\n" + text
    assert (found.status, done.returncode) == (5, 0)
    assert found.report.verdict == "started"
    assert found.report.instance.count("/") == 4


@pytest.mark.usefixtures("needs_process")
def test_an_order_for_another_place_starts_nothing() -> None:
    order = located_order(["echo", "ran"], NONCE, "other/1/8:1/")
    done = subprocess.run(LOCATED_ARGV, input=order, capture_output=True)
    found = StderrFilter(NONCE)
    assert found.feed(done.stderr) + found.finish() == b""
    assert (done.stdout, found.report.verdict, found.status) == (b"", "moved", None)


@pytest.mark.parametrize("words", [b"", b"42", b"x 777", b"-1 777", b"\xc2\xb2 777", b"9" * 5000 + b" 777"])
def test_a_start_that_no_shell_reports_is_none(words: bytes) -> None:
    found = StderrFilter(NONCE)
    assert found.feed(b"\x1e" + NONCE.encode() + b" " + words + b"\n") == b""
    assert found.leader is None


@pytest.mark.parametrize("words", [b"", b"x", b"-1", b"1 2", b"9" * 5000])
def test_an_end_that_no_shell_reports_is_none(words: bytes) -> None:
    found = StderrFilter(NONCE)
    found.feed(START)
    found.feed(b"\x1e" + NONCE.encode() + b" " + words + b"\n")
    assert found.status is None


def test_a_line_without_end_is_not_kept() -> None:
    found = StderrFilter(NONCE)
    found.feed(START + END[:-1])
    passed = sum(len(found.feed(b"7" * 1000)) for _ in range(100))
    assert passed > 90_000
