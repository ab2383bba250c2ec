"""Marks that are not seen, or turn text around, in a line that is typed: the editor shows them spelled out."""

from __future__ import annotations

from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.formatted_text.utils import fragment_list_to_text
from prompt_toolkit.layout.processors import Processor, Transformation, TransformationInput

from .printable import printable

__all__ = ["SpelledOut", "spelled"]


def spelled(text: str) -> tuple[str, list[int]]:
    """What is shown of the text, and for each of its places, and its end, where that is in what is shown. Pure.

    ASCII stays: the editor itself shows its controls as ``^[``.
    """
    shown, places = "", []
    for char in text:
        places.append(len(shown))
        shown += char if char.isascii() else printable(char)
    return shown, [*places, len(shown)]


class SpelledOut(Processor):
    """Shows them so; the text itself stays as it is. It goes before what adds text to the line."""

    def apply_transformation(self, transformation_input: TransformationInput) -> Transformation:
        """See the library."""
        fragments = transformation_input.fragments
        text = fragment_list_to_text(fragments)
        shown, places = spelled(text)
        if shown == text:
            return Transformation(fragments)
        drawn: StyleAndTextTuples = [(style, spelled(part)[0]) for style, part, *_ in fragments]

        def to_display(at: int) -> int:
            return places[min(at, len(places) - 1)]

        def to_source(at: int) -> int:
            return max(number for number, place in enumerate(places) if place <= at)

        return Transformation(drawn, source_to_display=to_display, display_to_source=to_source)
