"""The names of keys. Pure. tmux types a name that it does not know as text; here it is an error."""

from __future__ import annotations

import re
from collections.abc import Iterable

from harness.errors import TerminalError

__all__ = ["check_keys"]

_NAMES = frozenset(
    [
        *("up", "down", "left", "right", "home", "end", "npage", "pagedown", "pgdn", "ppage", "pageup", "pgup"),
        *("bspace", "btab", "dc", "delete", "ic", "insert", "enter", "escape", "space", "tab"),
        *("kp/", "kp*", "kp-", "kp+", "kp.", "kpenter", *(f"kp{number}" for number in range(10))),
        *(f"f{number}" for number in range(1, 13)),
    ]
)
_MODIFIERS = re.compile(r"^(?:[CMScms]-(?=.)|\^(?=.))*", re.DOTALL)


def check_keys(keys: Iterable[str], target: object) -> None:
    """Check every name before any is typed.

    Raises:
        TerminalError: one is no key of tmux's.
    """
    for key in keys:
        base = _MODIFIERS.sub("", key, count=1)
        if len(base) != 1 and base.lower() not in _NAMES:
            raise TerminalError(
                f"{key!r} is not the name of a key; nothing was typed",
                target=target,
                hint="names are as in tmux: Enter, Escape, C-c, M-x, Up, F1; give text as literal_text",
            )
