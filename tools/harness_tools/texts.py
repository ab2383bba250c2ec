"""Texts of arguments and reports: checked, quoted, and cut to a size."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Annotated, TypeVar

from pydantic import AfterValidator, Field

from harness.command import check_text, parse_duration
from harness.toolkit import Json, OutputLimit
from harness.toolkit.results import fit_items

__all__ = [
    "REPORT",
    "Content",
    "Duration",
    "Header",
    "Label",
    "Line",
    "Note",
    "PathText",
    "Short",
    "SomeContent",
    "Word",
    "clip",
    "dumps",
    "fit",
    "readable_line",
    "readable_name",
    "seconds_of",
]


# -- Reports that fit: whole items as many as there is room for, and texts that say how much of them is missing.


Item = TypeVar("Item")
REPORT = OutputLimit(24_000, 0)
"""Characters of a report for a model."""
MOST = REPORT.characters // 8
"""Items of a report, at most: shorter than that is none, and more need not be written to see that they do not fit."""
DATA = OutputLimit(48_000, 0)
"""Characters of the same as JSON: some clients are sent all of it."""


def dumps(value: Json, *, indent: int | None = None) -> str:
    """A value as JSON text, characters as they are."""
    return json.dumps(value, ensure_ascii=False, indent=indent)


def clip(text: str, most: int) -> str:
    """The text, or its first ``most`` characters and how many follow. Pure."""
    return text if len(text) <= most else f"{text[:most]}[... {len(text) - most} more characters]"


def fit(
    items: Sequence[Item], text_of: Callable[[Sequence[Item]], str], data_of: Callable[[Sequence[Item]], Json]
) -> tuple[list[Item], int]:
    """The first items that fit, as text and as data, and how many were dropped. Pure."""
    readable, _ = fit_items(items[:MOST], text_of, REPORT)
    kept, _ = fit_items(readable, lambda some: dumps(data_of(some)), DATA)
    return kept, len(items) - len(kept)


# -- Checks of what models write, so that a mistake is told as one of the arguments.


_NOT_TEXT = re.compile("[\udc80-\udcff]")
"""Bytes that are not UTF-8, as ``surrogateescape`` writes them."""


def readable_name(name: str) -> str:
    r"""A name or path of the target on one line, as a shell takes it: ``$'a\nb'`` for what has a line break.

    Control characters, escapes and signs that turn the direction of a line are escaped, and so is a name that would
    look like a part of the listing around it. Bytes that are not text stay as they are where nothing else is odd: tools
    take the name back as it was given.
    """
    note = name.startswith("[") and name.endswith("]") and " " in name
    seen = _NOT_TEXT.sub("", name)
    if seen.isprintable() and name == name.strip() and not (note or name.startswith("$'") or " -> " in name):
        return name
    return "$'" + "".join(_escaped(letter) for letter in name) + "'"


def readable_line(text: str) -> str:
    """A text of the target on one line: what is not printable is escaped."""
    return "".join(letter if letter.isprintable() else _escaped(letter) for letter in text)


def _escaped(letter: str) -> str:
    if letter in "\\'":
        return f"\\{letter}"
    if letter.isprintable():
        return letter
    if "\udc80" <= letter <= "\udcff":
        return f"\\x{ord(letter) - 0xDC00:02x}"
    return f"\\u{ord(letter):04x}" if "\x80" <= letter <= "\xff" else repr(letter)[1:-1]


def encodable(text: str, errors: str = "strict") -> str:
    """The text, which bytes can stand for.

    Raises:
        ValueError: it holds half of a surrogate pair.
    """
    try:
        text.encode("utf-8", errors)
    except UnicodeEncodeError as error:
        raise ValueError(f"it holds {text[error.start]!a}, half of a surrogate pair, which is no text") from None
    return text


def _encodable(text: str) -> str:
    return encodable(text, "surrogateescape")


def _line(text: str) -> str:
    return check_text(_some(text), "it")


def _some(text: str) -> str:
    if not text:
        raise ValueError("it is empty")
    return text


def _duration(value: float | str) -> float | str:
    if seconds_of(value) < 0:
        raise ValueError("it is negative")
    return value


def seconds_of(value: float | str) -> float:
    """Seconds from a number, or from a text such as ``30s``.

    Raises:
        ValueError: it is no duration.
    """
    return parse_duration(value)


NOT_EMPTY = Field(json_schema_extra={"minLength": 1})
"""For the schema alone: pydantic's own check of a length refuses bytes that are no UTF-8."""
Line = Annotated[str, NOT_EMPTY, AfterValidator(_line)]
"""A command or a path: not empty, without NUL."""
SomeContent = Annotated[str, NOT_EMPTY, AfterValidator(_some), AfterValidator(_encodable)]
"""What bytes can stand for, and not empty."""
Content = Annotated[str, AfterValidator(_encodable)]
"""What bytes can stand for."""
Duration = Annotated[float | str, AfterValidator(_duration)]
"""Seconds, or a text such as ``500ms``, ``30s``, ``10m``, ``1h``."""


# -- Checks of what models write for people, so that a mistake is told as one of the arguments.


def _storable(text: str) -> str:
    if "\0" in text:
        raise ValueError("it holds a NUL")
    return encodable(text)


def _said(text: str) -> str:
    if not _storable(text).strip():
        raise ValueError("it is empty")
    return text.strip()


Short = Annotated[str, Field(max_length=1_000), AfterValidator(_storable)]
"""A short text, or none."""
Header = Annotated[str, Field(max_length=60), AfterValidator(_storable)]
"""A word or two, or none."""
Label = Annotated[str, Field(max_length=200), AfterValidator(_said)]
"""A few words."""
Note = Annotated[str, Field(max_length=2_000), AfterValidator(_said)]
"""A paragraph."""


# -- Texts of arguments, with a limit each.


PathText = Annotated[Line, Field(max_length=4_096)]
"""A path: as long as systems allow."""
Word = Annotated[Line, Field(max_length=1_000)]
"""An ending, a part of a path, a text to leave out."""
