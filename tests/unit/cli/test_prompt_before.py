"""What is typed, asked and logged before the prompt is drawn."""

from __future__ import annotations

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.cli.prompt.screen import Typeahead, parse_typeahead
from harness.cli.runtime import logs_shown


@pytest.mark.parametrize(
    ("data", "entered", "keys"),
    [
        ("", "", ""),
        ("half a line", "", "half a line"),
        ("why is / full?\n", "why is / full?", ""),
        ("one\ntwo\nthr", "one\ntwo", "thr"),
        ("a \\\nb\n", "a \nb", ""),
        ("\n\n", "", ""),
        ("\nhalf", "", "half"),
        ("!rm -r x\n", "", "!rm -r x"),
        ("/quit\n", "", "/quit"),
        (" !reboot\nnow", "", " !reboot\nnow"),
        ("look\n/quit\n", "", "look\n/quit"),
        ("with \x1b[A\n", "", "with \x1b[A"),
        ("fix it\r", "", "fix it\r"),
        ("one\ntwo\r", "one", "two\r"),
        ("日本\n", "日本", ""),
    ],
)
def test_a_line_that_was_entered_blind_is_a_prompt_and_never_a_command(data: str, entered: str, keys: str) -> None:
    assert parse_typeahead(data.encode()) == Typeahead(entered, keys)


@given(st.text(st.sampled_from("ab \t\n\r!/\\\x1b\x03"), max_size=20))
def test_what_was_typed_blind_is_kept_and_runs_nothing(text: str) -> None:
    before = parse_typeahead(text.encode())
    assert [one for one in before.entered + before.keys if one in "ab"] == [one for one in text if one in "ab"]
    assert not any(one.lstrip().startswith(("!", "/")) for one in before.entered.split("\n"))
    assert not set(before.entered) & set("\r\x1b\x03")


def test_bytes_that_are_no_text_are_no_prompt() -> None:
    assert parse_typeahead(b"\xff\n") == Typeahead(keys="\udcff")


def test_warnings_go_where_the_innermost_reader_shows_them() -> None:
    early: list[str] = []
    late: list[str] = []
    log = logging.getLogger("of.a.test")
    with logs_shown(early.append):
        log.warning("one")
        with logs_shown(late.append):
            log.warning("two")
        log.warning("three")
    assert (early, late) == (["of.a.test: one", "of.a.test: three"], ["of.a.test: two"])
