"""The names of keys, and the bytes that a terminal sends for them. Pure.

Bytes, not names, go to a pane: see :mod:`.keyboard`. They are those of tmux's own table (``input-keys.c``); arrows
depend on the terminal's cursor mode, keys of the number pad on its keypad mode.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from harness.errors import TerminalError

__all__ = ["KeyBytes", "encode_keys"]

_ESCAPE = "\033"
_TYPED = {"enter": "\r", "escape": _ESCAPE, "space": " ", "tab": "\t", "bspace": "\x7f", "btab": "\033[Z"}
_ARROWS = {"up": "A", "down": "B", "right": "C", "left": "D"}
_LETTERED = (
    {name: ("", final) for name, final in _ARROWS.items()}
    | {"home": ("\033[1~", "H"), "end": ("\033[4~", "F")}
    | {name: (f"\033O{final}", final) for name, final in zip(("f1", "f2", "f3", "f4"), "PQRS", strict=True)}
)
"""What a key sends without modifiers, and the final letter of its sequence with modifiers."""
_NUMBERED = (
    dict(zip(("f5", "f6", "f7", "f8", "f9", "f10", "f11", "f12"), (15, 17, 18, 19, 20, 21, 23, 24), strict=True))
    | dict.fromkeys(("ic", "insert"), 2)
    | dict.fromkeys(("dc", "delete"), 3)
    | dict.fromkeys(("ppage", "pageup", "pgup"), 5)
    | dict.fromkeys(("npage", "pagedown", "pgdn"), 6)
)
_KEYPAD = {f"kp{digit}": (str(digit), chr(ord("p") + digit)) for digit in range(10)} | {
    f"kp{char}": (char, final) for char, final in zip("/*-+.", "ojmkn", strict=True)
}
_KEYPAD["kpenter"] = ("\n", "M")
_CONTROL_OF = "1!9(0)=+;:'\",<.>/-8?2 34567|\x7f"
_CONTROL = dict(zip(_CONTROL_OF, "119900==;;'',,..\x1f\x1f\x7f\x7f\0\0\x1b\x1c\x1d\x1e\x1f\x1c\b", strict=True))
"""As on a VT220, for characters without a control character of their own."""
_MODIFIERS = re.compile(r"^(?:[CMScms]-(?=.)|\^(?=.))*", re.DOTALL)
_MODIFIER_NUMBERS = {"S": 1, "M": 2, "C": 4}


@dataclass(frozen=True, slots=True)
class KeyBytes:
    """The bytes that are sent for a key.

    ``mode`` is empty, or the tmux format that is 1 when ``application`` is to be sent instead of ``normal``.
    """

    normal: str
    application: str = ""
    mode: str = ""


def encode_keys(keys: Iterable[str], target: object) -> list[KeyBytes]:
    """Return the bytes of every key, checked before any is typed.

    Raises:
        TerminalError: one is not the name of a key, or terminals send nothing for it.
    """
    return [_encode(key, target) for key in keys]


def _encode(key: str, target: object) -> KeyBytes:
    prefix = _MODIFIERS.match(key)
    base = key[prefix.end() :] if prefix else key
    modifiers = {"C" if mark in "^C" else mark for mark in key[: len(key) - len(base)].upper() if mark != "-"}
    name = base.lower() if len(base) != 1 else base
    if len(name) != 1 and name not in _NAMES:
        raise TerminalError(
            f"{key!r} is not the name of a key; nothing was typed",
            target=target,
            hint="names are as in tmux: Enter, Escape, C-c, M-x, Up, F1; other text: --text (literal_text)",
        )
    found = _special(name, modifiers) or _plain(name, modifiers)
    if found is None:
        raise TerminalError(
            f"no terminal sends anything for the key {key!r}; nothing was typed",
            target=target,
            hint="leave out a modifier: S- is for named keys, C- for letters, @ [ \\ ] ^ _ ? and named keys",
        )
    return found


def _special(name: str, modifiers: set[str]) -> KeyBytes | None:
    """Return the bytes of a key with an escape sequence, or None for other keys."""
    if name in _ARROWS and not modifiers:
        return KeyBytes(f"\033[{_ARROWS[name]}", f"\033O{_ARROWS[name]}", "keypad_cursor_flag")
    if name in _KEYPAD and modifiers <= {"M"}:
        meta, (digit, final) = _ESCAPE * len(modifiers), _KEYPAD[name]
        return KeyBytes(meta + digit, f"{meta}\033O{final}", "keypad_flag")
    number = 1 + sum(_MODIFIER_NUMBERS[modifier] for modifier in modifiers)
    if name in _NUMBERED:
        return KeyBytes(f"\033[{_NUMBERED[name]}{f';{number}' if modifiers else ''}~")
    alone, final = _LETTERED.get(name, ("", ""))
    if not final:
        return None
    return KeyBytes(f"\033[1;{number}{final}" if modifiers else alone)


def _plain(name: str, modifiers: set[str]) -> KeyBytes | None:
    """Return the bytes of a character, or of a key that sends one; None for other keys."""
    text, modifiers = _TYPED.get(name, name), set(modifiers)
    if "S" in modifiers and name in ("tab", "btab"):
        text = _TYPED["btab"]
        modifiers.discard("S")
    if "C" in modifiers and len(text) == 1:
        text = _control(text)
        modifiers.discard("C")
    if not text or not modifiers <= {"M"}:
        return None
    return KeyBytes(_ESCAPE * len(modifiers) + text)


def _control(char: str) -> str:
    """Return the control character of a key; empty if it has none."""
    if char in _CONTROL:
        return _CONTROL[char]
    upper = char.upper()
    return chr(ord(upper) - 64) if "@" <= upper <= "_" else ""


_NAMES = frozenset([*_TYPED, *_LETTERED, *_NUMBERED, *_KEYPAD])
