"""What keys do at a shell's prompt: the line they make, and the commands they start. Pure.

The text of keys has named keys in angle brackets; a typed ``<`` is ``<lt>``: ``sort <lt>in<Enter>``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["HARMLESS_KEYS", "Key", "Typed", "at_prompt", "parse_keys", "typed_line", "without_names"]

_TOKEN = re.compile(r"<(?P<key>(?:[CMScms]-|\^)*(?:[^<>]{1,20}|[<>]))>|(?P<text>[^<]+)|(?P<odd><)", re.DOTALL)
_MODIFIED = re.compile(r"(?:[CMScms]-|\^)+(?=.)", re.DOTALL)
HARMLESS_KEYS = frozenset(
    [
        *("c-c", "up", "down", "left", "right", "home", "end", "pageup", "pagedown", "npage", "ppage", "pgup", "pgdn"),
        *("c-l",),
    ]
)
"""Interrupt, redraw, and what moves about."""
_ENTER = frozenset({"enter", "kpenter", "c-m", "c-j"})
_DROPS_LINE = frozenset({"c-c", "c-u"})
_STAYS = frozenset({"c-l", "end"})
_MOVES = frozenset({"up", "down", "left", "right", "home", "pageup", "pagedown", "npage", "ppage", "pgup", "pgdn"})
_PROMPT = re.compile(
    r"(?:\[harness [^\]\n]{1,40}\] ?)?(?:\([\w.-]+\) )*"
    r"(?:[\w.-]+@[\w.-]+:? ?[^\s'\"|&;<>]*|\[[\w.-]+@[\w.-]+ [^\s\]'\"]+\]|[\w.-]+|)"
    r"(?P<mark>[$#%]|(?<=\S)>|\u276f) ?",
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


def without_names(keys: tuple[Typed, ...]) -> bool:
    """There is no text in it, and no key that does more than interrupt or move about."""
    return all(isinstance(item, Key) and item.name in HARMLESS_KEYS for item in keys)


def typed_line(screen: str, width: int = 0) -> str | None:
    """What is typed at the prompt in the last line of a screen; None when there is no prompt that is known.

    Only the first mark of a prompt counts, so that a mark inside what is typed hides nothing of it. Some shells (zsh)
    break a long line themselves: behind a row that fills the ``width`` of the pane, the last one may be its end.
    """
    lines = [line for line in screen.split("\n") if line.strip()]
    if not lines or _CONTINUES.fullmatch(lines[-1].strip()):
        return None
    if width > 1 and len(lines) > 1 and len(lines[-2]) % width in (0, width - 1):
        return None
    match = _PROMPT.match(lines[-1])
    if match is None or (match.end() < len(lines[-1]) and not match[0].endswith(" ")):
        return None
    return lines[-1][match.end() :]


def at_prompt(keys: tuple[Typed, ...], line: str) -> tuple[str, ...] | str:
    """The commands that the keys start or begin at a prompt where ``line`` is typed; a reason when that is not "
    "clear."""
    commands: list[str] = []
    buffer: str | None = line
    touched = False
    for item in keys:
        if isinstance(item, Key) and item.name in _MOVES:
            buffer = None  # the cursor moved, or a line of the history came: what follows goes anywhere
            continue
        if isinstance(item, Key) and item.name not in _ENTER | _DROPS_LINE | _STAYS:
            return f"the key {item.name} may do anything at a shell's prompt"
        if isinstance(item, Key) and item.name in _DROPS_LINE:
            buffer, touched = "", False
            continue
        if isinstance(item, Key) and item.name in _STAYS:
            continue
        if buffer is None:
            return "the line was changed by keys, so it is not known what it says"
        step = _type(item, buffer)
        if isinstance(step, str):
            return step
        started, buffer = step
        commands += started
        touched = bool(buffer)
    if touched and buffer and buffer.strip():
        commands.append(buffer)
    return tuple(commands)


def _type(item: Typed, buffer: str) -> tuple[list[str], str] | str:
    """What a text or Enter does: the commands it starts, and what is then on the line."""
    if isinstance(item, Key):
        return ([buffer] if buffer.strip() else []), ""
    if any((ord(character) < 32 and character not in "\n\r") or ord(character) == 127 for character in item):
        return "it types control characters"
    first, *more = re.split(r"[\r\n]", item)
    lines = [buffer + first, *more]
    return [line for line in lines[:-1] if line.strip()], lines[-1]
