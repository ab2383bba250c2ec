"""tmux control mode on the wire: parsed alike in any pieces; what is sent is read as it was meant."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.support.examples import few_examples

from harness_backends.tmux.channel.control_protocol import (
    Block,
    ControlParser,
    Notification,
    Output,
    control_line,
    quote,
    unescape,
)

Events = list[Block | Output | Notification]


def parse(*chunks: bytes) -> Events:
    parser = ControlParser()
    return [event for chunk in chunks for event in parser.feed(chunk)]


def escape(data: bytes) -> bytes:
    """As tmux does it: control bytes and the backslash."""
    return b"".join(b"\\%03o" % byte if byte < 0x20 or byte == 0x5C else bytes([byte]) for byte in data)


def block(*lines: bytes, number: int = 7, flags: int = 1, end: bytes = b"end") -> bytes:
    guard = b"1700000000 %d %d" % (number, flags)
    return b"".join(line + b"\n" for line in (b"%begin " + guard, *lines, b"%" + end + b" " + guard))


@pytest.mark.parametrize(
    ("wire", "expected"),
    [
        (b"", []),
        (b"%output %1 abc\n", [Output("%1", b"abc")]),
        (b"%output %1 \n", [Output("%1", b"")]),
        (b"%output %1  a b \n", [Output("%1", b" a b ")]),
        (b"%output %1 a\\015\\012\\033[m\\134\xff\xc3\xa4\n", [Output("%1", b"a\r\n\x1b[m\\\xff\xc3\xa4")]),
        (b"%output %1 %end 1700000000 7 1\n", [Output("%1", b"%end 1700000000 7 1")]),
        (b"%extended-output %1 12 : a : b\n", [Output("%1", b"a : b")]),
        (b"%extended-output %1 12 future field : x\n", [Output("%1", b"x")]),
        (b"%window-close @3\n", [Notification("window-close", ("@3",))]),
        (b"%exit\n", [Notification("exit", ())]),
        (b"%exit server exited\n", [Notification("exit", ("server", "exited"))]),
        (b"\x1bP1000p\n%sessions-changed\n", [Notification("sessions-changed", ())]),
        (b"noise\n\n", []),
        (block(b"a", b"", b"b"), [Block((b"a", b"", b"b"))]),
        (block(), [Block(())]),
        (block(b"no such pane", end=b"error"), [Block((b"no such pane",), error=True)]),
        (block(b"not ours", flags=0), []),
        (block(b"%output %1 x", b"%window-close @1"), [Block((b"%output %1 x", b"%window-close @1"))]),
        (block(b"%end 1700000000 8 1"), [Block((b"%end 1700000000 8 1",))]),
        (block(b"%end 1700000000 7 10", b"%end"), [Block((b"%end 1700000000 7 10", b"%end"))]),
        (block(b"%begin 1 1 1", b"%error 1 1 1"), [Block((b"%begin 1 1 1", b"%error 1 1 1"))]),
        (block(b"a") + block(b"b", number=8), [Block((b"a",)), Block((b"b",))]),
        (b"%output %1 half", []),
        (b"%begin 1 1 1\nhalf\n", []),
    ],
)
def test_each_line_becomes_its_event(wire: bytes, expected: Events) -> None:
    assert parse(wire) == expected
    assert parse(*(wire[index : index + 1] for index in range(len(wire)))) == expected


ITEM = st.one_of(
    st.tuples(st.sampled_from(["%0", "%17"]), st.binary(max_size=40)).map(
        lambda item: (b"%%output %s %s\n" % (item[0].encode(), escape(item[1])), Output(*item))
    ),
    st.lists(st.binary(max_size=20).map(lambda line: line.replace(b"\n", b" ")), max_size=4).map(
        lambda lines: (block(*lines), Block(tuple(lines)))
    ),
    st.sampled_from([(b"%window-close @3\n", Notification("window-close", ("@3",)))]),
)


@given(st.lists(ITEM, max_size=8), st.lists(st.integers(min_value=0, max_value=1000), max_size=10))
def test_any_chunking_gives_the_same_events(items: list[tuple[bytes, Block]], at: list[int]) -> None:
    wire = b"".join(raw for raw, _ in items)
    edges = sorted({0, len(wire), *(index % (len(wire) + 1) for index in at)})
    expected = [event for _, event in items]
    assert parse(*(wire[start:end] for start, end in pairwise(edges))) == expected


@given(st.binary(max_size=200))
def test_no_bytes_at_all_break_the_parser_and_it_goes_on_after_them(junk: bytes) -> None:
    parser = ControlParser()
    parser.feed(junk + b"\n")
    assert parser.feed(block(b"%end 0 0 0", number=9)) != [None]
    if b"%begin " not in junk:
        assert parser.feed(b"%output %1 x\n") == [Output("%1", b"x")]


@given(st.binary(max_size=300))
def test_an_escaped_text_is_unescaped_exactly(data: bytes) -> None:
    assert unescape(escape(data)) == data


@pytest.mark.parametrize("data", [b"\\777", b"\\400", b"\\", b"\\1", b"\\08", b"a\\"])
def test_what_is_no_escape_stays(data: bytes) -> None:
    assert unescape(data) == data


def test_ten_megabytes_in_one_line_take_linear_time() -> None:
    line = b"%output %1 " + b"x\\033[m" * 1_500_000 + b"\n"
    began = time.process_time()
    (event,) = parse(*(line[index : index + 65536] for index in range(0, len(line), 65536)))
    assert time.process_time() - began < 10
    assert isinstance(event, Output)
    assert len(event.data) == 7 * 1_500_000 - 3 * 1_500_000


def test_many_short_lines_in_small_pieces_take_linear_time() -> None:
    wire = b"%output %1 x\n" * 200_000
    began = time.process_time()
    assert len(parse(*(wire[index : index + 100] for index in range(0, len(wire), 100)))) == 200_000
    assert time.process_time() - began < 15


def test_a_nul_byte_cannot_be_quoted() -> None:
    with pytest.raises(ValueError, match="NUL"):
        quote("a\0b")


@pytest.mark.parametrize(
    ("legacy", "argument", "word"),
    [
        (False, "a;", '"a;"'),
        (True, "a;", '"a\\\\;"'),
        (True, ";", '"\\\\;"'),
        (True, "a;b", '"a;b"'),
        (False, "plain-1", "plain-1"),
    ],
)
def test_a_final_semicolon_is_guarded_where_old_versions_need_it(legacy: bool, argument: str, word: str) -> None:
    assert control_line(("send-keys", argument), legacy=legacy) == f"send-keys {word}\n".encode()


@pytest.fixture(scope="module")
def tmux(needs_tmux: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """A real server; the fixture's value runs one command in it."""
    folder = tmp_path_factory.mktemp("tmux")
    argv = ["tmux", "-u", "-S", str(folder / "socket"), "-f", "/dev/null"]
    subprocess.run([*argv, "new-session", "-d", "sleep 1000"], check=True, timeout=20, cwd=folder)
    yield argv
    subprocess.run([*argv, "kill-server"], capture_output=True, timeout=20)


def through(tmux: list[str], commands: bytes) -> Events:
    """What a control client is answered."""
    client = subprocess.run([*tmux, "-C", "attach"], input=commands, capture_output=True, timeout=20)
    return parse(client.stdout)


AWKWARD = "".join(("'\"`$~#;\\{}[]()<>|&!*?%@,=+-:. \t\n\r\x1b\x7f", "aZ09", "äß€😀\u0301\u2028"))


@given(
    st.lists(
        st.one_of(
            st.text(AWKWARD, min_size=1, max_size=30),
            st.sampled_from(
                [
                    "#{pane_id}",
                    "#(id)",
                    "~/x",
                    "$HOME",
                    "-t",
                    ";",
                    "a;",
                    "\\;",
                    "#,",
                    "%1",
                    "%if",
                    "%abc",
                    "%",
                    "A=b",
                    "@1",
                ]
            ),
        ),
        min_size=1,
        max_size=12,
    )
)
@example(
    [
        ";",
        "a;",
        "-x",
        "--",
        "$HOME",
        "${HOME}",
        "~",
        "~root",
        "%",
        "%if",
        "%x",
        "%12",
        "A=b",
        "{",
        "}",
        "#{session_name}",
        "#(id)",
        "\\",
        "\\\\;",
        "'",
        '"',
        "\t",
        "a\nb",
        "\r",
        "ä",
        "😀",
    ]
)
@few_examples()
def test_a_real_tmux_reads_each_quoted_text_as_it_is(tmux: list[str], tmp_path: Path, texts: list[str]) -> None:
    lines = []
    for index, text in enumerate(texts):
        buffer, path = f"b{index}", str(tmp_path / str(index))
        lines.append(control_line(("set-buffer", "-b", buffer, "--", text), ("save-buffer", "-b", buffer, path)))
    events = through(tmux, b"".join(lines))
    assert [event for event in events if isinstance(event, Block) and event.error] == []
    assert [(tmp_path / str(index)).read_bytes() for index in range(len(texts))] == [text.encode() for text in texts]


def test_a_long_text_passes_a_real_tmux(tmux: list[str], tmp_path: Path) -> None:
    text = "'\"$x\n" * 40_000
    through(tmux, control_line(("set-buffer", "-b", "long", text), ("save-buffer", "-b", "long", str(tmp_path / "x"))))
    assert (tmp_path / "x").read_text() == text
