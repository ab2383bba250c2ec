"""Where one command's output begins and ends: the marker scanner, on any stream in any pieces."""

from __future__ import annotations

import time
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from harness_backends.posix.pane_jobs.end_proof import proof_of
from harness_backends.posix.pane_jobs.pane_log_output import PaneLog
from harness_backends.posix.pane_jobs.prompt_markers import (
    NewlineUnmapper,
    PromptMarker,
    PromptMarkerScanner,
    answered,
    from_keyboard,
)
from harness_backends.posix.state_directory import JobRecord

N = "a1b2"
SECRET = "5ec2e7"
OTHER = "c3d4"
BEL, ST = b"\x07", b"\x1b\\"


def mark(body: str, end: bytes = BEL) -> bytes:
    return b"\x1b]133;" + body.encode() + end


MARKS = [
    (mark(f"C;{N};7"), PromptMarker("start", 7, nonce=N)),
    (mark(f"A;{N};7"), PromptMarker("prompt", 7, nonce=N)),
    (mark(f"D;42;{N};7"), PromptMarker("end", 7, 42, nonce=N)),
    (mark(f"D;42;{N};7;{SECRET}"), PromptMarker("end", 7, 42, nonce=N, secret=SECRET)),
    (mark(f"O;{N};7;{SECRET}"), PromptMarker("over", 7, nonce=N, secret=SECRET)),
    (mark(f"C;{N};7;x"), PromptMarker("start", 7, nonce=N, soon=True)),
    (mark(f"D;-1;{N};7"), PromptMarker("end", 7, -1, nonce=N)),
    (mark(f"D;1000;{N};7"), PromptMarker("end", 7, 1000, nonce=N)),
    (mark(f"P;{N}"), PromptMarker("continue", nonce=N)),
    (mark(f"W;{N};/tmp/ä;b c"), PromptMarker("cwd", text="/tmp/ä;b c", nonce=N)),
    (mark(f"W;{N};"), PromptMarker("cwd", nonce=N)),
    (mark(f"X;129;{N}"), PromptMarker("exit", code=129, nonce=N)),
    (mark(f"C;{N};7", ST), PromptMarker("start", 7, nonce=N)),
    (mark(f"W;{N};/tmp", ST), PromptMarker("cwd", text="/tmp", nonce=N)),
    (mark(f"D;0;{OTHER};9"), PromptMarker("end", 9, 0, nonce=OTHER)),
]
LOOKALIKES = [
    mark("D;0;forged;7"),
    mark(f"D;0;{N}x;7"),
    mark(f"D;0;{N};7x"),
    mark(f"D;0;{N};7;UPPER"),
    mark(f"D;0;{N};7;{SECRET};"),
    mark(f"D;;{N};7"),
    mark("D;0;.{4};7"),  # a nonce is no pattern
    mark(f"Z;{N};7"),
    mark(f"D;0;{N};7", b"\n"),
    b"\x1b]133;",
    b"\x1b]133;D;0;" + N.encode(),
    b"\x1b]133;W;" + N.encode() + b";/tmp\n\x07",
    b"\x1b]0;title\x07",
    b"\x1b",
    b"\x1b\x1b",
    b"\x1b[31m",
    b"]133;D;0;a1b2;7\x07",
    b"\x07",
    b"\x1b\\",
    b"\r\n",
    b"text",
]


def scan(pieces: list[bytes], *nonces: str) -> tuple[list[bytes | PromptMarker], bytes]:
    """Everything found, with neighbouring data joined, and the rest."""
    scanner = PromptMarkerScanner(*nonces or (N, OTHER))
    found: list[bytes | PromptMarker] = []
    for chunk in pieces:
        for item in scanner.feed(chunk):
            assert item != b""
            if isinstance(item, bytes) and found and isinstance(last := found[-1], bytes):
                found[-1] = last + item
            else:
                found.append(item)
    if rest := scanner.flush():
        if found and isinstance(last := found[-1], bytes):
            found[-1] = last + rest
        else:
            found.append(rest)
    return found, scanner.flush()


def cut(data: bytes, at: list[int]) -> list[bytes]:
    edges = sorted({0, len(data), *(index % (len(data) + 1) for index in at)})
    return [data[start:end] for start, end in pairwise(edges)]


@pytest.mark.parametrize(("raw", "expected"), MARKS)
def test_each_kind_of_mark_is_found_whatever_surrounds_it(raw: bytes, expected: PromptMarker) -> None:
    assert scan([raw]) == ([expected], b"")
    assert scan([b"before\x1b" + raw + b"after"]) == ([b"before\x1b", expected, b"after"], b"")


@pytest.mark.parametrize("data", LOOKALIKES)
def test_what_only_looks_like_a_mark_is_data_and_is_kept_whole(data: bytes) -> None:
    assert scan([data]) == ([data], b"")
    assert scan([data[index : index + 1] for index in range(len(data))]) == ([data], b"")


def test_a_mark_after_a_look_alike_is_found_at_every_split() -> None:
    for raw, expected in MARKS[::3]:
        for before in LOOKALIKES:
            data = before + raw
            for index in range(len(data) + 1):
                assert scan([data[:index], data[index:]])[0] == [before, expected], (index, data)


@given(
    st.lists(st.one_of(st.sampled_from([raw for raw, _ in MARKS]), st.sampled_from(LOOKALIKES), st.binary(max_size=9))),
    st.lists(st.integers(min_value=0, max_value=4000), max_size=12),
)
def test_any_chunking_gives_the_same_data_and_marks(parts: list[bytes], at: list[int]) -> None:
    data = b"".join(parts)
    whole = scan([data])
    assert scan(cut(data, at)) == whole
    assert scan([data[index : index + 1] for index in range(len(data))]) == whole


@given(st.lists(st.one_of(st.sampled_from(LOOKALIKES), st.binary(max_size=20)), max_size=12))
def test_a_stream_without_our_nonce_comes_back_byte_for_byte(parts: list[bytes]) -> None:
    data = b"".join(parts)
    found, _ = scan([data[index : index + 3] for index in range(0, len(data), 3)], "0123456789abcdef")
    assert found == ([data] if data else [])


@pytest.mark.parametrize("nonce", ["a.b", "a|b", "(", "a+", "[x]", "\\d"])
def test_a_nonce_with_the_characters_of_patterns_means_itself(nonce: str) -> None:
    assert scan([mark(f"C;{nonce};1")], nonce)[0] == [PromptMarker("start", 1, nonce=nonce)]
    assert scan([mark("C;axb;1")], nonce)[0] == [mark("C;axb;1")]


def test_data_that_cannot_begin_a_mark_is_given_out_at_once() -> None:
    scanner = PromptMarkerScanner(N)
    assert scanner.feed(b"progress 50%\r") == [b"progress 50%\r"]
    assert scanner.feed(b"\x1b[31mred") == [b"\x1b[31mred"]
    assert scanner.feed(b"\x1b]0;title") == [b"\x1b]0;title"]
    assert scanner.feed(b"x\x1b") == [b"x"]
    assert scanner.feed(b"[0m") == [b"\x1b[0m"]


def test_what_is_held_back_is_bounded() -> None:
    scanner = PromptMarkerScanner(N)
    out = b"".join(
        item for _ in range(3000) for item in scanner.feed(b"\x1b]133;W;" + b"x" * 5) if isinstance(item, bytes)
    )
    assert 3000 * 13 - len(out) <= 4200
    assert out + scanner.flush() == (b"\x1b]133;W;" + b"x" * 5) * 3000


@pytest.mark.parametrize(
    "unit", [b"\x1b", b"\x1b]133;", mark("D;0;forged;7"), b"\x1b]133;W;" + N.encode() + b";", b"plain"]
)
def test_the_time_to_scan_grows_with_the_length(unit: bytes) -> None:
    data = unit * (4_000_000 // len(unit))
    began = time.process_time()
    scan([data[index : index + 65536] for index in range(0, len(data), 65536)])
    assert time.process_time() - began < 10


@given(st.binary(max_size=60), st.lists(st.integers(min_value=0, max_value=60), max_size=6))
def test_newlines_are_unmapped_alike_in_any_pieces(data: bytes, at: list[int]) -> None:
    mapped = data.replace(b"\n", b"\r\n")
    unmapper = NewlineUnmapper()
    out = b"".join(unmapper.feed(piece) for piece in cut(mapped, at)) + unmapper.flush()
    assert out == data


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"a\rb", b"a\rb"),
        (b"a\r", b"a\r"),
        (b"a\r\r\n", b"a\r\n"),
        (b"\r\n\r\n", b"\n\n"),
        (b"50%\r100%\r\n", b"50%\r100%\n"),
    ],
)
def test_carriage_returns_of_the_program_stay(raw: bytes, expected: bytes) -> None:
    unmapper = NewlineUnmapper()
    pieces = [unmapper.feed(raw[index : index + 1]) for index in range(len(raw))]
    assert b"".join(pieces) + unmapper.flush() == expected


C7, D7 = mark(f"C;{N};7"), mark(f"D;3;{N};7;{SECRET}")
SOON = mark(f"C;{N};7;x")
PROVED = JobRecord("7", "true", kind="pane", nonce=N, proof=proof_of(SECRET))
FORGED = [
    mark(f"D;0;{N};7"),
    mark(f"D;0;{N};7;"),
    mark(f"D;0;{N};7;{proof_of(SECRET)}"),
    mark(f"D;0;{N};6;{SECRET}"),
    mark(f"O;{N};7"),
    mark(f"C;{N};7"),
    mark(f"C;{N};7;x"),
    mark(f"C;{N};0"),
    mark(f"A;{N};7"),
    mark(f"P;{N}"),
    mark(f"W;{N};off=7"),
    mark(f"W;{N};full=7;"),
    mark(f"W;{N};in=1"),
    mark(f"W;{N};in=1;{N}"),
    mark(f"W;{N};pid=1"),
]


def read_job(chunks: list[bytes], record: JobRecord = PROVED) -> tuple[bytes, bool]:
    """The output of the job in a log, and whether its end is there."""
    log = PaneLog(record)
    out = b"".join(map(log.feed, chunks))
    return out + log.flush(), log.ended


JOB_IS_FOUND_IN = [
    (b"", (b"", False)),
    (b"$ " + C7 + b"out\r\n" + D7 + b"prompt", (b"out\n", True)),
    (SOON + b"noise of a trace\r\n" + C7 + b"out" + D7, (b"out", True)),
    (SOON + b"noise of a trace\r\n", (b"", False)),
    (C7 + mark("D;0;forged;7") + D7, (mark("D;0;forged;7"), True)),
    (C7 + b"out" + mark(f"O;{N};7;{SECRET}") + b"\x1b[m" + D7, (b"out", True)),
    (C7 + b"so far", (b"so far", False)),
    (C7 + b"so far\x1b]133;D;0", (b"so far\x1b]133;D;0", False)),
    (b"the end only" + D7, (b"", True)),
    (mark(f"C;{N};77") + b"x" + mark(f"D;0;{N};77"), (b"", False)),
    *((C7 + b"a" + forged + b"b" + D7, (b"a" + forged + b"b", True)) for forged in FORGED),
]


def test_a_job_is_found_in_a_log() -> None:
    for log, expected in JOB_IS_FOUND_IN:
        assert read_job([log]) == expected
        assert read_job([log[index : index + 1] for index in range(len(log))]) == expected


def test_half_a_newline_at_the_end_of_a_log_that_was_full_is_no_output() -> None:
    for data, expected in ((b"out\r", b"out"), (b"out\r\n", b"out\n"), (b"50%\r" + D7, b"50%\r")):
        log = PaneLog(PROVED)
        assert log.feed(C7 + data) + log.flush(cut=True) == expected
    assert read_job([C7 + b"50%\r"]) == (b"50%\r", False), "a running command may have written it"


def test_a_job_of_a_nested_shell_ends_without_a_secret() -> None:
    nested = JobRecord("7", "true", kind="pane", nonce=N)
    assert read_job([C7 + b"out" + mark(f"D;3;{N};7") + b"more"], nested) == (b"out", True)
    assert read_job([C7 + b"out" + mark(f"D;3;{N};6") + b"more"], nested) == (
        b"out" + mark(f"D;3;{N};6") + b"more",
        False,
    )


@given(st.binary(max_size=200), st.lists(st.integers(min_value=0, max_value=400), max_size=8))
def test_any_output_between_two_marks_comes_back_exactly(data: bytes, at: list[int]) -> None:
    log = C7 + data.replace(b"\n", b"\r\n") + D7
    assert read_job(cut(log, at)) == (data, True)


@pytest.mark.parametrize(
    ("code", "output", "keyboard"),
    [
        (130, b"^C", True),
        (130, b"text ^C\n" + b"x" * 60_000, True),
        (130, b"", False),
        (130, b"^C" + b"x" * 70_000, False),
        (2, b"^C", False),
        (129, b"^C", False),
        (131, b"^C", False),
        (0, b"^C", False),
        (None, b"^C", False),
    ],
)
def test_an_interrupt_from_the_keyboard_is_known_by_the_code_and_the_echo(
    code: int | None, output: bytes, keyboard: bool
) -> None:
    assert from_keyboard(code, output) is keyboard


@pytest.mark.parametrize(
    ("output", "found"),
    [
        (b"\x1b[6n^[[1;1R", True),
        (b"\x1b[c text ^[[?62c", True),
        (b"\x1b]11;?\x07^[]11;rgb:0/0/0", True),
        (b"\x1bP+q544e\x1b\\^[P1+r", True),
        (b"\x1b[?2026$p^[[?2026;2$y", True),
        (b"^[[1;1R\x1b[6n", False),
        (b"\x1b[6n", False),
        (b"^[[1;1R", False),
        (b"\x1b[31mred ^[[1;1R", False),
        (b"\x1b[6n^[", False),
        (b"", False),
    ],
)
def test_an_answer_of_the_terminal_in_the_output_is_noticed_after_its_question(output: bytes, found: bool) -> None:
    assert answered(output) is found


@pytest.mark.parametrize("terminator", [b"\x07", b"\x1b\\"])
def test_a_mark_at_the_beginning_is_held_back_until_its_last_byte(terminator: bytes) -> None:
    raw = mark(f"D;42;{N};7;{SECRET}", terminator)
    for before in (b"", b"x"):
        scanner = PromptMarkerScanner(N)
        first = scanner.feed(before + raw[:-1])
        assert first == ([before] if before else [])
        assert scanner.feed(raw[-1:]) == [PromptMarker("end", 7, 42, nonce=N, secret=SECRET)]
        assert scanner.flush() == b""


def test_a_mark_of_the_longest_text_is_found_in_any_two_pieces() -> None:
    text = "/" + "d" * 4095
    raw = mark(f"W;{N};{text}", b"\x1b\\")
    for at in (1, 6, 7, 4000, len(raw) - 2, len(raw) - 1):
        assert scan([raw[:at], raw[at:]]) == ([PromptMarker("cwd", text=text, nonce=N)], b"")
    assert scan([mark(f"W;{N};{text}x")])[0] == [mark(f"W;{N};{text}x")]


@example(before=1, length=4192)
@example(before=0, length=4193)
@given(st.integers(min_value=0, max_value=9000), st.integers(min_value=0, max_value=4300))
def test_what_is_held_back_of_an_unfinished_mark_is_bounded_at_every_length(before: int, length: int) -> None:
    scanner = PromptMarkerScanner(N)
    data = b"x" * before + b"\x1b]133;W;" + b"y" * length
    out = b"".join(piece for piece in scanner.feed(data) if isinstance(piece, bytes))
    held = 8 + length
    assert len(data) - len(out) == (held if held <= 4200 else 0)
    assert out + scanner.flush() == data


def test_the_raw_bytes_of_a_mark_are_kept_and_do_not_count_when_marks_are_compared() -> None:
    raw = mark(f"D;3;{N};7")
    (found,) = PromptMarkerScanner(N).feed(raw)
    assert isinstance(found, PromptMarker)
    assert found.raw == raw
    assert found == PromptMarker("end", 7, 3, nonce=N)
