"""The keys of a call, and what is known of a shell's prompt from its screen. Pure.

The text of keys has named keys in angle brackets; a typed ``<`` is ``<lt>``: ``sort <lt>in<Enter>``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["Key", "Typed", "has_empty_prompt", "only_interrupts", "only_pages", "parse_keys", "whole_line"]

_TOKEN = re.compile(r"<(?P<key>(?:[CMScms]-|\^)*(?:[^<>]{1,20}|[<>]))>|(?P<text>[^<]+)|(?P<odd><)", re.DOTALL)
_MODIFIED = re.compile(r"(?:[CMScms]-|\^)+(?=.)", re.DOTALL)
_INTERRUPT = "c-c"
_PAGING_KEYS = frozenset({"c-c", "c-l", "up", "down", "pageup", "pagedown", "npage", "ppage", "pgup", "pgdn"})
"""None that moves within a line: when the pager ends in this moment, a shell reads them."""
_PAGING_LETTERS = frozenset("qgGbfdujknN hp")
_ENTER = frozenset({"enter", "kpenter", "c-m", "c-j"})
_LINE_END = ("\r\n", "\n", "\r")
_PROMPT = re.compile(
    r"(?:\[I\] )?(?:\[harness [^\]\n]{1,40}\] ?)?(?:\([\w.-]+\) )*"
    r"(?:[\w.-]+@[\w.-]+:? ?[^\s'\"|&;<>]*|\[[\w.-]+@[\w.-]+ [^\s\]'\"]+\]|[\w.-]+|)"
    r"(?: \[[\d|]+\])?(?:[$#%]|(?<=\S)>|\u276f) *",
    re.ASCII,
)
_CONTINUES = re.compile(r"(?:[a-z]+ ?)*>", re.ASCII)


@dataclass(frozen=True, slots=True)
class Key:
    """A named key, in small letters (``c-c``, ``enter``)."""

    name: str


Typed = str | Key


def parse_keys(text: str) -> tuple[Typed, ...] | None:
    """The texts and keys, in order; None when a ``<`` is neither a key's nor written as ``<lt>``."""
    found: list[Typed] = []
    for match in _TOKEN.finditer(text):
        if match["odd"]:
            return None
        item = match["text"] if match["text"] is not None else _key(match["key"])
        if isinstance(item, str) and found and isinstance(found[-1], str):
            found[-1] += item
        else:
            found.append(item)
    return tuple(found)


def _key(name: str) -> Typed:
    """A key that only types its letter is text."""
    if name == "lt":
        return "<"
    if name.lower() == "space":
        return " "
    if len(name) == 1:
        return name
    mods = _MODIFIED.match(name)
    if mods is None:
        return Key(name.lower())
    letters = mods[0].replace("^", "C-").upper()
    return Key("".join(f"{letter.lower()}-" for letter in "CMS" if letter in letters) + name[mods.end() :].lower())


def only_interrupts(keys: tuple[Typed, ...]) -> bool:
    """Whether all of it is C-c, which does the same everywhere."""
    return all(isinstance(item, Key) and item.name == _INTERRUPT for item in keys)


def only_pages(keys: tuple[Typed, ...]) -> bool:
    """Whether the keys move about in a pager, and nothing follows the ``q`` that ends it."""
    text = "".join(item if isinstance(item, str) else "\0" for item in keys)
    named = all(item.name in _PAGING_KEYS for item in keys if isinstance(item, Key))
    return named and all(letter in _PAGING_LETTERS for letter in text.replace("\0", "")) and "q" not in text[:-1]


def whole_line(keys: tuple[Typed, ...]) -> str:
    """The one line of text that the keys are, with its Enter; empty when they are anything else."""
    match keys:
        case (str(text), Key(name)) if name in _ENTER:
            line = text
        case (str(text),) if text.endswith(_LINE_END):
            line = text.removesuffix("\n").removesuffix("\r")
        case _:
            return ""
    return line if line.strip() and not any(ord(char) < 32 or ord(char) == 127 for char in line) else ""


def has_empty_prompt(screen: str, width: int = 0) -> bool:
    """Whether the last line of a screen is a usual prompt, and nothing else.

    Some shells (zsh) break a long line themselves: behind a row that fills the ``width`` of the pane, the last one may
    be its end.
    """
    lines = [line for line in screen.split("\n") if line.strip()]
    if not lines or _CONTINUES.fullmatch(lines[-1].strip()):
        return False
    if width > 1 and len(lines) > 1 and len(lines[-2]) % width in (0, width - 1):
        return False
    return _PROMPT.fullmatch(lines[-1]) is not None
