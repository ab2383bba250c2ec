"""Checks of what models write for people, so that a mistake is told as one of the arguments."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from ..texts import encodable

__all__ = ["Header", "Label", "Note", "Short"]


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
