#!/usr/bin/env python3
"""Shapes and what they cost."""

from __future__ import annotations

import os.path
import sys as system, json
from collections.abc import Iterable
from typing import TYPE_CHECKING

from . import prices
from ..shared.money import Money as Cash

try:
    import tomllib
except ImportError:
    import tomli as tomllib

if TYPE_CHECKING:
    from decimal import Decimal

LIMIT: int = 10
_HIDDEN = 3
first, second = 1, 2
type Pair[T] = tuple[T, T]


@decorated(
    "with arguments"
)
class Shape(Base, metaclass=Meta):
    """A shape."""

    SIDES = 0
    name: str = "shape"

    def __init__(self, name: str, *, size: float = 1.0) -> None:  # the beginning
        self.name = name

    @property
    def area(self) -> float:
        def inner() -> None: ...
        return 0.0

    def _secret(self): return 1

    class Corner:
        def angle(self) -> int:
            return 90


async def load(
    path: str,  # where
    *names: str,
) -> dict[str, Shape]:
    import asyncio
    return {}


def _private() -> None:
    pass
