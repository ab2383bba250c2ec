"""Texts of a question on a terminal: all of them, each row marked, none of them passing for ours."""

from __future__ import annotations

import unicodedata
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.cli.asking import MAX_DESCRIPTION_CHARS, approval_text, columns_of, previewed, quoted, said
from harness.cli.prompt.approvals import asking_of
from harness.cli.prompt.surface import text_of
from harness.toolkit import ToolCall
from harness.toolkit.permissions.approver import preview_of
from harness.toolkit.permissions.lookalikes import odd_characters
from harness.toolkit.permissions.questions import ApprovalRequest, ApprovalScope
from harness.toolkit.values import JsonObject


def question(what: str, details: JsonObject | None = None, preview: str = "") -> ApprovalRequest:
    call = ToolCall("run_shell", {"command": what})
    return ApprovalRequest(
        "q", call, what, "no rule allows it", "ssh://web1", tuple(ApprovalScope), details or {}, preview=preview
    )


def rows_of(asked: ApprovalRequest, width: int = 80) -> list[str]:
    return [text_of(one) for one in asking_of(asked, width).lines]


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("", ["  | "]),
        ("ls", ["  | ls"]),
        ("a\n\nb\n", ["  | a", "  | ", "  | b"]),
        ("x" * 20, ["  | " + "x" * 15, "  ¦ " + "x" * 5]),
        ("日" * 8, ["  | " + "日" * 7, "  ¦ 日"]),
        ("a\r\x0b\x85\u2028b", ["  | a\\r\\x0b\\x85\\u20", "  ¦ 28b"]),
        ("a\tb", ["  | a   b"]),
        ("\u202ea\u3164\u2800", ["  | \\u202ea\\u3164\\u", "  ¦ 2800"]),
        ("\udcff", ["  | \\udcff"]),
    ],
)
def test_only_line_feeds_end_lines_and_every_row_is_marked(text: str, rows: list[str]) -> None:
    assert quoted(text, 20) == rows


@given(st.text(max_size=200), st.integers(1, 120))
def test_every_row_fits_and_can_be_seen(text: str, width: int) -> None:
    rows = quoted(text, width)
    assert all(row.startswith(("  | ", "  ¦ ")) and row.isprintable() for row in rows)
    wide = [sum(1 + (unicodedata.east_asian_width(char) in "WF") for char in row) for row in rows]
    assert max(wide) < max(width, 20) + (2 if width < 20 else 0)


@pytest.mark.parametrize("char", ["\u3164", "\u2800", "\u115f", "\u034f", "\U000e0101", "\ufe01"])
def test_a_character_that_nobody_sees_is_named(char: str) -> None:
    assert f"U+{ord(char):04X}" in odd_characters(f"ls {char}x")


def test_what_a_caller_says_cannot_push_its_call_off_the_screen_or_pass_for_a_question() -> None:
    fake = "harmless" + " " * 70 + "▲ may run_shell run on ssh://web1?" + " " * 46 + "  | ls -l"
    rows = rows_of(question("rm -r /srv", {"why": f"{fake} {'x' * 9_000}", "risk": "low"}))
    assert sum(row.startswith("▲ may ") for row in rows) == 1
    assert [row for row in rows if row.startswith("  | ")] == ["  | rm -r /srv"]
    assert len(rows) < 20
    assert sum(row.startswith("  risk: low") and " more" in row for row in rows) == 1
    long = approval_text(question("rm -r /srv", {"why": fake + "x" * 9_000}))
    assert len(long) < 900
    assert said("x" * (MAX_DESCRIPTION_CHARS + 1)).endswith(" … 1 more character")


@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_what_a_caller_says_is_shown_whole_where_it_fits_and_ends_at_a_space_where_it_does_not(width: int) -> None:
    why = "the partition is full and the oldest logs are the biggest files there"
    for claims in ({}, {"risk": "low", "mutation": True}):
        rows = rows_of(question("rm x", {**claims, "why": why}), width)
        assert max(map(columns_of, rows)) < width
        fact = " ".join(row.strip() for row in rows[2 : rows.index("  " + rows[-1].strip())])
        shown, cut, left = fact.partition("why: ")[2].partition(" … ")
        if cut:
            assert why[len(shown)] == " "
            assert left == f"{len(why) - len(shown)} more"
        assert bool(cut) is (bool(claims) and width < 200)


def test_rows_of_ours_below_a_call_are_broken_at_spaces() -> None:
    text = "an approval for more than once also covers any other content there"
    rows = previewed(text, 40)
    assert " ".join(row.strip() for row in rows) == text
    assert max(map(len, rows)) < 40


def test_a_padded_line_cannot_pass_for_another_question() -> None:
    fake = "echo a" + " " * 70 + "▲ may run_shell run on ssh://web1?" + " " * 46 + "  | ls -l"
    for rows in (rows_of(question(fake)), approval_text(question(fake)).splitlines()):
        marked = [row for row in rows if row.startswith(("  | ", "  ¦ "))]
        assert "".join(row[4:] for row in marked) == fake
        assert all(len(row) < 80 for row in marked)


def test_of_a_long_text_it_is_said_how_much_there_is() -> None:
    rows = rows_of(question("echo a\n" * 20_000 + "rm -r /srv\n" + "\n" * 5_000))
    counted = next(row for row in rows if row.startswith("  ↑ "))
    assert "145,011 characters, 25,001 lines" in counted
    assert rows[rows.index(counted) + 1] == rows[0]


def test_a_long_preview_has_the_question_below_it_too() -> None:
    preview = preview_of("\n".join(["x" * 150] * 30), tuple(ApprovalScope), str)
    asked = replace(question("write /srv/a"), preview=preview)
    rows = rows_of(asked)
    assert rows.count(rows[0]) == 2
    assert "  … 10 more lines" in rows
    assert sum(row.startswith("  ¦ ") for row in rows) == 20
    assert previewed("content, 1 byte:\n| a", 80) == ["  content, 1 byte:", "  | a"]
