"""Counts with their nouns, and texts of others on one line."""

from __future__ import annotations

import pytest

from harness.wording import counted, escape_invisible, single_line


@pytest.mark.parametrize(
    ("number", "one", "text"),
    [
        (1, "host", "1 host"),
        (0, "host", "0 hosts"),
        (2, "entry", "2 entries"),
        (2, "key", "2 keys"),
        (3, "match", "3 matches"),
        (1.0, "second", "1 second"),
        (2.5, "second", "2.5 seconds"),
        (1_500_000, "line", "1500000 lines"),
    ],
)
def test_a_count_has_its_noun(number: float, one: str, text: str) -> None:
    assert counted(number, one) == text
    assert counted(2, "more file", "files more") == "2 files more"


def test_a_text_of_others_changes_no_line() -> None:
    assert single_line(" a\r\nb\x1b[31m\u202e\t c\udcff ") == "a b [31m c"
    assert escape_invisible("a\nb\x1b\u202e\t") == "a\\nb\\x1b\\u202e\\t"
    assert escape_invisible("a\nb\x1b", keep="\n") == "a\nb\\x1b"
