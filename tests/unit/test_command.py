"""Requests and durations."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.command import Command, check_text, parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        (1, 1.0),
        (0.5, 0.5),
        ("2", 2.0),
        ("1.5", 1.5),
        ("500ms", 0.5),
        ("30s", 30.0),
        ("10m", 600.0),
        ("1h", 3600.0),
        ("1d", 86400.0),
        (" 2 H ", 7200.0),
    ],
)
def test_durations_are_numbers_with_units(text: str | float, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "x", "1y", "-1", "1 2", "s", "1s2s", "1e3", "nan", "inf", "٣"[:0] + "1,5"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a duration"):
        parse_duration(text)


@given(st.floats(min_value=0.001, max_value=1e6))
def test_seconds_pass_unchanged(seconds: float) -> None:
    if "e" not in str(seconds):
        assert parse_duration(seconds) == seconds


def test_callbacks_do_not_make_requests_differ() -> None:
    assert Command("x", on_output=print) == Command("x")


@pytest.mark.parametrize("text", ["", "a", "é漢😀", "\udcff\udc80", "\n\t\x1b"])
def test_text_that_bytes_stand_for_passes(text: str) -> None:
    assert check_text(text, "it") == text


@pytest.mark.parametrize(("text", "why"), [("a\0b", "NUL"), ("x\ud800", r"\\ud800"), ("\udfff", "surrogate")])
def test_text_that_no_bytes_stand_for_is_refused(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why) as caught:
        check_text(text, "it")
    assert type(caught.value) is ValueError
