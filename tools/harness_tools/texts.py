"""Argument types and report texts: validation, quoting and truncation."""

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


# -- Reports with a size limit: whole items, and a count of the omitted ones.


Item = TypeVar("Item")
REPORT = OutputLimit(24_000, 0)
"""Maximum characters of a report for a model."""
MOST = REPORT.characters // 8
"""Maximum number of items of a report: an item has at least 8 characters, so no more can fit."""
DATA = OutputLimit(48_000, 0)
"""Maximum characters of the same report as JSON, because some clients receive all of it."""


def dumps(value: Json, *, indent: int | None = None) -> str:
    """Return a value as JSON text, with non-ASCII characters unescaped."""
    return json.dumps(value, ensure_ascii=False, indent=indent)


def clip(text: str, most: int) -> str:
    """Return the text, or its first ``most`` characters and the number of omitted ones. Pure."""
    return text if len(text) <= most else f"{text[:most]}[... {len(text) - most} more characters]"


def fit(
    items: Sequence[Item], text_of: Callable[[Sequence[Item]], str], data_of: Callable[[Sequence[Item]], Json]
) -> tuple[list[Item], int]:
    """Return the first items that fit, as text and as data, and the number of omitted items. Pure."""
    readable, _ = fit_items(items[:MOST], text_of, REPORT)
    kept, _ = fit_items(readable, lambda some: dumps(data_of(some)), DATA)
    return kept, len(items) - len(kept)


# -- Validation of arguments, so that an error names the argument.


_NOT_TEXT = re.compile("[\udc80-\udcff]")
"""Bytes that are not UTF-8, as ``surrogateescape`` decodes them."""


def readable_name(name: str) -> str:
    r"""Return a name or path of the target on one line, quoted as for a shell (``$'a\nb'``) if necessary.

    Names with control characters, escapes or bidirectional control characters are quoted, and names that would look
    like a part of the listing. Bytes that are not UTF-8 stay unchanged if nothing else needs quoting: tools accept the
    name as printed.
    """
    note = name.startswith("[") and name.endswith("]") and " " in name
    seen = _NOT_TEXT.sub("", name)
    if seen.isprintable() and name == name.strip() and not (note or name.startswith("$'") or " -> " in name):
        return name
    return "$'" + "".join(_escaped(letter) for letter in name) + "'"


def readable_line(text: str) -> str:
    """Return a text of the target on one line, with non-printable characters escaped."""
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
    """Return the text if it can be encoded.

    Raises:
        ValueError: The text contains half of a surrogate pair.
    """
    try:
        text.encode("utf-8", errors)
    except UnicodeEncodeError as error:
        raise ValueError(f"it contains {text[error.start]!a}, half of a surrogate pair") from None
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
    """Return seconds from a number, or from a text such as ``30s``.

    Raises:
        ValueError: The value is not a duration.
    """
    return parse_duration(value)


NOT_EMPTY = Field(json_schema_extra={"minLength": 1})
"""For the schema only: pydantic's own length check rejects bytes that are not UTF-8."""
Line = Annotated[str, NOT_EMPTY, AfterValidator(_line)]
"""A command or a path: not empty, without NUL."""
SomeContent = Annotated[str, NOT_EMPTY, AfterValidator(_some), AfterValidator(_encodable)]
"""A non-empty text that can be encoded."""
Content = Annotated[str, AfterValidator(_encodable)]
"""A text that can be encoded."""
Duration = Annotated[float | str, AfterValidator(_duration)]
"""Seconds, or a text such as ``500ms``, ``30s``, ``10m``, ``1h``."""


# -- Validation of texts that a model writes for the operator.


def _storable(text: str) -> str:
    if "\0" in text:
        raise ValueError("it contains a NUL")
    return encodable(text)


def _said(text: str) -> str:
    if not _storable(text).strip():
        raise ValueError("it is empty")
    return text.strip()


Short = Annotated[str, Field(max_length=1_000), AfterValidator(_storable)]
"""A short text, possibly empty."""
Header = Annotated[str, Field(max_length=60), AfterValidator(_storable)]
"""One or two words, possibly empty."""
Label = Annotated[str, Field(max_length=200), AfterValidator(_said)]
"""A few words."""
Note = Annotated[str, Field(max_length=2_000), AfterValidator(_said)]
"""A paragraph."""


# -- Texts of arguments, with a limit each.


PathText = Annotated[Line, Field(max_length=4_096)]
"""A path, limited to the usual ``PATH_MAX``."""
Word = Annotated[Line, Field(max_length=1_000)]
"""A file name ending, a part of a path, or a text to exclude."""
