"""Texts with bytes that were no UTF-8, in a form that JSON can hold, and the way back."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar

__all__ = ["MARK", "escaped", "unescaped"]

MARK = "\ufdd0"
"""No character, and never will be: it begins the four hexadecimal digits of what it stands for."""
UNFIT = re.compile(rf"[\ud800-\udfff{MARK}]")
MARKED = re.compile(rf"{MARK}([0-9a-f]{{4}})")
T = TypeVar("T")


def escaped(value: T) -> T:
    """A copy of a dataclass in which every text can be written as UTF-8."""
    found: T = _mapped(value, lambda text: UNFIT.sub(lambda one: f"{MARK}{ord(one[0]):04x}", text))
    return found


def unescaped(value: T) -> T:
    """What :func:`escaped` made a copy of."""
    found: T = _mapped(value, lambda text: MARKED.sub(lambda one: chr(int(one[1], 16)), text))
    return found


def _mapped(value: Any, change: Callable[[str], str]) -> Any:
    """The value with each text in it changed, at any depth."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list | tuple):
        return [_mapped(one, change) for one in value]
    if isinstance(value, dict):
        return {_mapped(name, change): _mapped(one, change) for name, one in value.items()}
    if not is_dataclass(value):
        return value
    found = copy.copy(value)
    for one in fields(value):
        object.__setattr__(found, one.name, _mapped(getattr(value, one.name), change))  # some are frozen
    return found
