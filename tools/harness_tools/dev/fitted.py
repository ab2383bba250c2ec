"""Reports that fit: whole items as many as there is room for, and texts that say how much of them is missing."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TypeVar

from harness.toolkit import Json, OutputLimit
from harness.toolkit.limits import fit_items

__all__ = ["REPORT", "clip", "dumps", "fit"]

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
