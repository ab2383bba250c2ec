"""What the editor shows of marks that are not seen: they are spelled out, and the cursor finds its place."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.document import Document
from prompt_toolkit.layout import BufferControl
from prompt_toolkit.layout.processors import TransformationInput

from harness.cli.prompt.editor import InvisibleCharacterProcessor, spelled


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("rm -f x", "rm -f x"),
        ("", ""),
        ("a\tb\x1b", "a\tb\x1b"),
        ("日本é👩\u200d🚀", "日本é👩\u200d🚀"),
        ("\u202egnp.exe", "\\u202egnp.exe"),
        ("a\u2066b\u200bc\x9b\u2028", "a\\u2066b\\u200bc\\x9b\\u2028"),
    ],
)
def test_marks_that_are_not_seen_are_spelled_out(text: str, shown: str) -> None:
    assert spelled(text)[0] == shown


@given(st.text(max_size=40))
def test_nothing_that_turns_text_around_is_left_and_every_place_is_found_again(text: str) -> None:
    control = BufferControl(Buffer())
    halves = [("", text[: len(text) // 2]), ("class:x", text[len(text) // 2 :])]
    given_to_it = TransformationInput(control, Document(text), 0, lambda at: at, list(halves), 80, 24)
    made = InvisibleCharacterProcessor().apply_transformation(given_to_it)
    drawn = "".join(part for _, part, *_ in made.fragments)
    assert drawn == spelled(text)[0]
    assert not set(drawn) & set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200b\u200e\u200f\u2028\x9b")
    places = [made.source_to_display(at) for at in range(len(text) + 1)]
    assert places == sorted(set(places))
    assert places[-1] == len(drawn)
    assert [made.display_to_source(place) for place in places] == list(range(len(text) + 1))
