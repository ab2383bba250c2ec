"""Checks of what models write, so that a mistake is told as one of the arguments."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from harness.command import check_text, parse_duration

__all__ = ["Content", "Duration", "Line", "SomeContent", "encodable", "seconds_of"]


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
