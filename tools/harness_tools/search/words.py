"""Texts of arguments, with a limit each."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from ..texts import Line

__all__ = ["PathText", "Word"]

PathText = Annotated[Line, Field(max_length=4_096)]
"""A path: as long as systems allow."""
Word = Annotated[Line, Field(max_length=1_000)]
"""An ending, a part of a path, a text to leave out."""
