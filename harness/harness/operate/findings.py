"""What a check has to say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Finding", "Level", "fail", "ok", "warn"]

Level = Literal["ok", "warn", "fail"]


@dataclass(frozen=True, slots=True)
class Finding:
    """The outcome of one check. ``fix`` says what to do; it is empty when nothing is to be done."""

    check: str
    level: Level
    message: str
    fix: str = ""


def ok(check: str, message: str) -> Finding:
    """All is well."""
    return Finding(check, "ok", message)


def warn(check: str, message: str, fix: str) -> Finding:
    """It works, with something to know or to put right."""
    return Finding(check, "warn", message, fix)


def fail(check: str, message: str, fix: str) -> Finding:
    """It does not work."""
    return Finding(check, "fail", message, fix)
