"""Which variables may be set for a command that only reads: those that choose a language, a width or no pager."""

from __future__ import annotations

import re

from .shelltypes import Word

__all__ = ["harmless_assignment"]

_LOCALE = re.compile(r"LC_[A-Z]+|LANG|LANGUAGE")
_VALUES = {
    "TZ": re.compile(r"[A-Za-z][A-Za-z0-9_+-]*(?:/[A-Za-z0-9_+-]+)*"),
    "COLUMNS": re.compile(r"[0-9]{1,4}"),
    "LINES": re.compile(r"[0-9]{1,4}"),
    "PAGER": re.compile(r"cat|"),
    "GIT_PAGER": re.compile(r"cat|"),
    "SYSTEMD_PAGER": re.compile(r"cat|"),
    "SYSTEMD_COLORS": re.compile(r"[a-z0-9]*"),
    "NO_COLOR": re.compile(r"[a-z0-9]*"),
    "TERM": re.compile(r"dumb"),
    "GIT_OPTIONAL_LOCKS": re.compile(r"0"),
}


def harmless_assignment(name: str, value: Word) -> str:
    """Why setting the variable may change what a command does; empty when it does not."""
    pattern = re.compile(r"[A-Za-z0-9_.@-]*") if _LOCALE.fullmatch(name) else _VALUES.get(name)
    if pattern is None:
        return f"{name} is set, and something may look at it"
    if not value.known or not pattern.fullmatch(value.text):
        return f"{name} is set to something that is not on the list"
    return ""
