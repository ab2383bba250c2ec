"""What is played or exported draws, and does nothing else to the terminal."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from harness.recordings.inert_output import InertOutput, plain_lines

ACTS = {
    "title": "\x1b]0;title\x07",
    "title, ended by ST": "\x1b]2;title\x1b\\",
    "clipboard": "\x1b]52;c;aGVsbG8=\x07",
    "clipboard, asked for": "\x1b]52;c;?\x07",
    "link": "\x1b]8;;https://example.com\x1b\\",
    "colors, asked for": "\x1b]11;?\x07",
    "working directory": "\x1b]7;file:///etc\x07",
    "notification": "\x1b]9;text\x07",
    "device attributes": "\x1b[c\x1b[>c\x1b[0c\x1b[=c",
    "status": "\x1b[5n\x1b[6n\x1b[?6n",
    "window": "\x1b[8;10;10t\x1b[21t\x1b[3;0;0t",
    "mouse": "\x1b[?1000h\x1b[?1002;1006h\x1b[?1003h",
    "paste": "\x1b[?2004h",
    "focus": "\x1b[?1004h",
    "printing": "\x1b[5i\x1b[?5i",
    "columns": "\x1b[?3h",
    "keyboard": "\x1b[>1u\x1b[>4;2m\x1b[?u",
    "settings, asked for": "\x1bP$qm\x1b\\\x1b[?25$p",
    "cursor style": "\x1b[5 q",
    "sixel": "\x1bPq#0;2;0;0;0~-\x1b\\",
    "application": "\x1b_Gf=32;AAAA\x1b\\\x1b^text\x1b\\\x1bXtext\x1b\\",
    "answer back": "\x05",
    "bell": "\x07",
    "identify": "\x1bZ",
    "eight bits": "\x9b5n\x9d0;title\x9c",
    "memory lock": "\x1bl",
    "margins": "\x1b[1;2s",
    "repetition": "\x1b[99999999b",
}
DRAWS = [
    "plain text\r\n\ttab\b",
    "\x1b[31;1mred\x1b[0m\x1b[38:2::1:2:3m",
    "\x1b[2J\x1b[H\x1b[10;20H\x1b[K\x1b[3A\x1b[5X\x1b[2L\x1b[M\x1b[3P\x1b[4@",
    "\x1b[?1049h\x1b[?25l\x1b[?1;7h\x1b[4h\x1b[3;9r",
    "\x1b7\x1b8\x1bM\x1bD\x1bE\x1b(0\x1b)B\x0e\x0f\x1b=\x1b>",
    "漢字 é",
]
ALLOWED = re.compile(
    r"[^\x00-\x1f\x7f-\x9f]|[\x08-\x0f]|\x1b\[[0-9;:]*[@A-HIJKLMPSTXZ`abdefmrsu]|\x1b\[\??[0-9;]+[hl]"
    r"|\x1b[()*+][0-9A-Za-z]|\x1b[78DEM=>]"
)


@pytest.mark.parametrize("sequence", ACTS.values(), ids=ACTS)
def test_what_acts_is_not_played(sequence: str) -> None:
    left = InertOutput().feed(f"before{sequence}after")
    assert re.fullmatch(r"before[ -~]*after", left), left
    assert left in ("beforeafter", "before5n0;titleafter")


@pytest.mark.parametrize("text", DRAWS)
def test_what_draws_is_played(text: str) -> None:
    assert InertOutput().feed(text) == text


def test_a_reset_clears_and_resets_nothing_else() -> None:
    assert InertOutput().feed("\x1bcx").endswith("\x1b[2J\x1b[Hx")


SEQUENCES = st.one_of(
    st.sampled_from([*ACTS.values(), *DRAWS]), st.text(max_size=8), st.text("\x1b[]?;0123hlmP\\\x07", max_size=8)
)


@example("\x1b]0;title\x07\x1b]0\x1b]0;title\x07", [15])
@given(st.lists(SEQUENCES, max_size=8).map("".join), st.lists(st.integers(0, 400), max_size=8))
def test_wherever_it_is_cut_only_what_draws_is_played(text: str, cuts: list[int]) -> None:
    output = InertOutput()
    places = sorted({0, len(text), *(cut % (len(text) + 1) for cut in cuts)})
    left = "".join(output.feed(text[one:other]) for one, other in pairwise(places))
    assert ALLOWED.sub("", left) == ""
    whole = InertOutput()
    assert left == whole.feed(text)


def test_text_is_what_a_reader_of_the_screen_read() -> None:
    assert plain_lines("10%\r20%\r100%\r\nabc\bX\r\n\x1b[31mred\x1b[0m\x1b[5;1Hbelow   \n") == "100%\nabX\nred\nbelow\n"
