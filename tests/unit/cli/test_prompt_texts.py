"""What the prompt shows: nothing of a text is obeyed, nothing of it is lost."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.cli.asking import claims_of, columns_of
from harness.cli.prompt.early_ui import StatusLine, status_line
from harness.cli.prompt.markdown import MarkdownBlock, MarkdownSplitter, drawn
from harness.cli.prompt.surface import (
    DEFAULT,
    NONE,
    THEMES,
    Span,
    Theme,
    folded,
    line,
    one_line,
    output_lines,
    painted,
    printable,
    text_of,
    theme_for,
)
from harness.cli.prompt.view import SHOWN_LINE, Output, RunningCall, StatusGlyphs, completed
from harness.toolkit.values import CallOutcome, CallStatus, JsonObject, ToolCall, ToolResult, subject_of

STYLES = re.compile(r"\x1b\[[0-9;]+m")
texts = st.text(st.characters(codec=None) | st.sampled_from("\x1b\x07\x9b\r\n\t\u202e\udc80[];m"), max_size=80)


def harmless(text: str) -> bool:
    """Nothing in it moves a cursor, sets a title or turns a line around."""
    return all(char.isprintable() or char in "\n\t\u200c\u200d" for char in STYLES.sub("", text))


@given(texts)
def test_nothing_that_a_terminal_obeys_is_printable(text: str) -> None:
    assert harmless(printable(text))
    assert "\n" not in one_line(text)
    assert all(harmless(one) and "\n" not in one for one in output_lines(text))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("tab\tand\nline", "tab\tand\nline"),
        ("\x1b[31mred", "\\x1b[31mred"),
        ("\u202eabc", "\\u202eabc"),
        ("\x9b2J", "\\x9b2J"),
        ("a\r\nb\rc", "a\nb\\rc"),
        ("日本語 é ́", "日本語 é ́"),
        ("\udcff\udc80\ud800", "\\xff\\x80\\ud800"),
    ],
)
def test_controls_are_spelled_out(text: str, shown: str) -> None:
    assert printable(text) == shown


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("\x1b[01;31mred\x1b[0m", ["red"]),
        ("10%\r50%\r100%\ndone", ["100%", "done"]),
        ("\x1b]0;title\x07text", ["text"]),
        ("\x1b[2J\x1b[Hclear", ["clear"]),
        ("a\tb", ["a       b"]),
        ("\x1b[8mhidden", ["hidden"]),
        ("lone \x1b", ["lone \\x1b"]),
    ],
)
def test_output_is_what_stands_there_in_the_end(text: str, lines: list[str]) -> None:
    assert output_lines(text) == lines


@given(texts)
def test_a_painted_line_is_one_line_of_styles_and_characters(text: str) -> None:
    for theme in THEMES.values():
        written = painted([line(Span(text, "error"), text)], theme)
        assert written.count("\n") == 1
        assert harmless(written)


def test_without_colours_none_is_written() -> None:
    assert not theme_for("default", color=False, environ={}).coloured
    assert not theme_for("light", color=True, environ={"NO_COLOR": "1"}).coloured
    assert theme_for("", color=True, environ={}) is DEFAULT
    assert theme_for("none", color=True, environ={}) is NONE
    assert painted([line(Span("a", "title"))], NONE) == "a\n"


# -- Markdown


@given(st.lists(st.text("ab `~#-*1.\n\t", max_size=12), max_size=12))
def test_an_answer_is_cut_into_the_same_pieces_however_it_comes(parts: list[str]) -> None:
    bit_by_bit, at_once = MarkdownSplitter(), MarkdownSplitter()
    pieces = [piece for part in parts for piece in bit_by_bit.feed(part)] + bit_by_bit.end()
    assert pieces == at_once.feed("".join(parts)) + at_once.end()
    assert bit_by_bit.rest == ""


@given(texts)
def test_nothing_in_an_answer_is_obeyed(text: str) -> None:
    blocks = MarkdownSplitter()
    for piece in blocks.feed(text) + blocks.end():
        assert harmless(drawn(piece, DEFAULT, 40))


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("kill <pid> & </b>", "kill <pid> & </b>"),
        ("&#x202e; &lt; &amp;", "&#x202e; &lt; &amp;"),
        ("one\ntwo", "one\ntwo"),
        ("[name](http://h/p)", "http://h/p"),
        (":smile: [red]x[/red]", ":smile: [red]x[/red]"),
    ],
)
def test_markdown_leaves_nothing_out(text: str, kept: str) -> None:
    shown = STYLES.sub("", drawn(MarkdownBlock("text", text), DEFAULT, 80))
    assert kept in shown


def test_code_is_shown_line_by_line_as_it_is() -> None:
    blocks = MarkdownSplitter()
    assert blocks.feed("```sh\nls  -l\n") == [MarkdownBlock("code", "ls  -l")]
    assert blocks.feed("  **x**\n```\nafter\n\n") == [MarkdownBlock("code", "  **x**"), MarkdownBlock("text", "after")]
    assert STYLES.sub("", drawn(MarkdownBlock("code", "  **x**"), DEFAULT, 80)) == "    **x**\n"


def test_a_long_paragraph_is_not_waited_for() -> None:
    blocks = MarkdownSplitter()
    assert blocks.feed("word " * 1500 + "\n") == []
    assert blocks.feed("more " * 500 + "\n") != []


# -- calls


def run(command: str, **more: object) -> ToolCall:
    return ToolCall("run_shell", {"command": command, **more}, "1")  # type: ignore[dict-item]  # JSON values only


@pytest.mark.parametrize(
    ("call", "subject"),
    [
        (run("df -h"), "df -h"),
        (run("a\nb\nc"), "a … (2 more lines)"),
        (ToolCall("read_file", {"path": "/etc/hosts", "why": "w"}), "/etc/hosts"),
        (ToolCall("clock", {"zone": "UTC", "why": "w"}), '{"zone": "UTC"}'),
        (ToolCall("clock", {}), ""),
        (ToolCall("run_shell", '{"broken'), '{"broken'),
    ],
)
def test_a_call_is_named_by_what_it_is_about(call: ToolCall, subject: str) -> None:
    assert subject_of(call) == subject


def ended(status: CallStatus, result: ToolResult) -> str:
    return "\n".join(
        text_of(one) for one in completed(CallOutcome(run("x"), result, status, 1.0), None, StatusGlyphs())
    )


def test_a_call_that_ended_says_how() -> None:
    assert "exit code 0" in ended(CallStatus.OK, ToolResult.of("t", data={"exit_code": 0}))
    failed = ended(
        CallStatus.ERROR, ToolResult.failure("exit_code", "exit code: 2\nstderr:\nno", data={"exit_code": 2})
    )
    assert failed.startswith("✗")
    assert "exit code 2" in failed
    assert "no" in failed
    assert "job 7" in ended(CallStatus.OK, ToolResult.of("t", data={"status": "running", "job_id": "7"}))
    assert "denied" in ended(CallStatus.DENIED, ToolResult.failure("denied", "by a rule"))
    assert "by a rule" in ended(CallStatus.DENIED, ToolResult.failure("denied", "by a rule"))
    assert "unknown" in ended(CallStatus.UNKNOWN, ToolResult.failure("unknown", "link lost"))


@pytest.mark.parametrize(
    ("seconds", "waited", "shown"),
    [
        (1.24, 0.0, "exit code 0 · 1.2 s"),
        (61.24, 60.0, "exit code 0 · 1.2 s · waited 60 s for approval"),
        (1.5, 0.3, "exit code 0 · 1.2 s"),
        (60.0, 60.0, "exit code 0 · waited 60 s for approval"),
        (0.01, 0.0, "exit code 0"),
    ],
)
def test_the_time_of_a_call_is_not_that_of_its_approval(seconds: float, waited: float, shown: str) -> None:
    result = ToolResult.of("t", data={"exit_code": 0})
    outcome = CallOutcome(run("x"), result, CallStatus.OK, seconds, waited=waited)
    assert text_of(completed(outcome, None, StatusGlyphs())[0]).endswith(shown)


@pytest.mark.parametrize(
    ("details", "claims"),
    [
        ({"risk": "low", "mutation": True, "privesc": False, "why": "w"}, ("risk: low", "changes something")),
        (
            {"risk": "high", "mutation": False, "privesc": True},
            ("risk: high", "changes nothing", "with the rights of another user"),
        ),
        ({"urgent": True, "note": "x"}, ("urgent: yes", "note: x")),
        ({}, ()),
    ],
)
def test_what_a_model_says_of_its_call_is_told_in_words(details: JsonObject, claims: tuple[str, ...]) -> None:
    assert claims_of(details) == claims


def test_the_last_lines_of_output_are_shown_with_the_number_of_those_before() -> None:
    output = Output()
    assert output.add("1\n2\n3") == ["1", "2"]
    output.add("\n4\n5\n6\n7\n")
    shown = completed(CallOutcome(run("x"), ToolResult.of(""), CallStatus.OK), output, StatusGlyphs())
    assert [text_of(one).strip() for one in shown[1:]] == ["│ … 3 earlier lines", "│ 4", "│ 5", "│ 6", "│ 7"]


def test_of_a_very_long_line_of_output_the_beginning_is_shown() -> None:
    result = ToolResult.of("", data={"exit_code": 0, "stdout": "x" * 300_000})
    output = Output()
    output.add("x" * 3_000)
    (_, shown) = completed(CallOutcome(run("x"), result, CallStatus.OK), output, StatusGlyphs())
    assert text_of(shown) == f"  │ {'x' * SHOWN_LINE}…"


@given(st.lists(st.text("ab\r\n\x1b[m", max_size=8), max_size=8))
def test_output_is_the_same_lines_however_it_comes(parts: list[str]) -> None:
    parted, whole = Output(), Output()
    lines = [one for part in parts for one in parted.add(part)]
    assert len(lines) == "".join(parts).count("\n")
    assert len(whole.add("".join(parts))) == len(lines)


def test_a_running_call_says_what_it_waits_for() -> None:
    running = RunningCall(run("sleep 9", pane="build"), 10.0)
    assert text_of(running.lines(13.4, StatusGlyphs(), 3)[0]) == "▸ run_shell sleep 9 (pane build) · 3 s"
    running.asks = True
    assert "waits for your answer" in text_of(running.lines(13.4, StatusGlyphs(), 3)[0])


# -- lines


@given(st.lists(st.text("ab 漢\x1b", max_size=9), min_size=1, max_size=9), st.integers(1, 40))
def test_a_line_is_folded_at_spaces_and_loses_nothing(texts: list[str], width: int) -> None:
    shown = tuple(Span(text, "dim") for text in texts)
    whole = "".join(printable(text) for text in texts)
    rows = [text_of(one) for one in folded(shown, width, indent="")]
    assert "".join(rows).replace(" ", "") == whole.replace(" ", "")
    assert max(map(columns_of, rows)) <= max(width, 2)
    if max(map(columns_of, whole.split(" "))) <= width and not whole.startswith(" "):
        assert all(row == "" or f" {row} " in f" {whole} " for row in rows)


def test_the_rows_of_a_folded_line_keep_what_they_are_drawn_with() -> None:
    rows = folded(line(Span("one two ", "tool"), Span("three", "ok")), 9)
    assert rows == [(Span("one two", "tool"),), (Span("  "), Span("three", "ok"))]


# -- the status line


@given(st.integers(1, 300), texts, texts)
def test_the_status_line_is_as_wide_as_the_terminal(width: int, target: str, pane: str) -> None:
    standing = StatusLine(target, pane, "model", "thinking", 100, 200, 1.5, "all", 30.0, 2, 3)
    shown = text_of(status_line(standing, width))
    assert len(shown) == width
    assert "\n" not in shown


def test_the_status_line_drops_what_matters_least() -> None:
    standing = StatusLine(
        "ssh://web1", "tmux 'harness' pane %0", "m", "thinking", 12_345, 200_000, 0.123, "all", 840.0, 1
    )
    assert "12.3k/200k" in text_of(status_line(standing, 120))
    assert "$0.12" in text_of(status_line(standing, 120))
    narrow = text_of(status_line(standing, 60))
    assert "ssh://web1" in narrow
    assert "APPROVES ALL 14 min" in narrow
    assert "pane" not in narrow


@pytest.mark.parametrize("theme", [DEFAULT, NONE], ids=lambda theme: theme.name)
@pytest.mark.parametrize("width", [5, 12, 19, 40, 119])
def test_words_of_an_answer_are_never_broken_while_they_fit(theme: Theme, width: int) -> None:
    words = ["the", "disk", "is", "full", "of", "old", "logs", "that", "may", "all", "go"]
    shown = STYLES.sub("", drawn(MarkdownBlock("text", " ".join(words)), theme, width)).split("\n")
    assert " ".join(shown).split() == words
    assert max(map(len, shown)) <= width
