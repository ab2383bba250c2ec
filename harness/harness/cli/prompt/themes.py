"""How the prompt looks: what each kind of text is drawn with. Pure."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from ..asked import columns_of
from .printable import printable

__all__ = [
    "DEFAULT",
    "NONE",
    "THEMES",
    "Line",
    "Role",
    "Span",
    "Theme",
    "folded",
    "line",
    "painted",
    "text_of",
    "theme_for",
]

Role = Literal[
    "", "accent", "code", "dim", "error", "ok", "prompt", "quote", "selected", "status", "title", "tool", "warn"
]


@dataclass(frozen=True, slots=True)
class Span:
    """A text, and what kind of text it is."""

    text: str
    role: Role = ""


Line = tuple[Span, ...]
"""One line to show; its texts may be anything, they are made printable when it is drawn."""


def line(*parts: str | Span) -> Line:
    """A line of texts and spans."""
    return tuple(Span(part) if isinstance(part, str) else part for part in parts)


def text_of(shown: Line) -> str:
    """A line without what it is drawn with."""
    return "".join(span.text for span in shown)


def folded(shown: Line, width: int, indent: str = "  ") -> list[Line]:
    """Break a line at spaces into rows of at most ``width`` columns, the further ones indented. Pure.

    A word that is wider than a row is broken where it must be.
    """
    one = tuple(Span(printable(span.text).replace("\n", " ").expandtabs(4), span.role) for span in shown)
    rows: list[Line] = []
    start, text = 0, text_of(one)
    while columns_of(text[start:]) > (room := max(width - (len(indent) if rows else 0), 1)):
        end = _row_end(text, start, room)
        rows.append((*([Span(indent)] if rows else []), *_part(one, start, end)))
        start = end + (text[end : end + 1] == " ")
    return [*rows, (*([Span(indent)] if rows else []), *_part(one, start, len(text)))]


def _row_end(text: str, start: int, room: int) -> int:
    """Where a row that begins at ``start`` ends: at its last space that is not an indentation."""
    end = start + 1
    while end < len(text) and columns_of(text[start : end + 1]) <= room:
        end += 1
    first = len(text) - len(text[start:].lstrip())
    space = text.rfind(" ", first, end + 1)
    return space if space > first else end


def _part(one: Line, start: int, end: int) -> Line:
    spans, at = [], 0
    for span in one:
        part = span.text[max(0, start - at) : max(0, end - at)]
        at += len(span.text)
        if part:
            spans.append(Span(part, span.role))
    return tuple(spans)


@dataclass(frozen=True, slots=True)
class Theme:
    """A look: for each role the words ``bold``, ``dim``, ``italic``, ``underline``, ``reverse`` and a colour's name."""

    name: str
    styles: Mapping[Role, str]

    @property
    def coloured(self) -> bool:
        """It has colours."""
        return any(word in COLOURS for style in self.styles.values() for word in style.split())


COLOURS: Final = {
    name: str(code)
    for start, prefix in ((30, "ansi"), (90, "ansibright"))
    for code, name in enumerate(
        (prefix + colour for colour in ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white")), start
    )
}
_ATTRIBUTES: Final = {"bold": "1", "dim": "2", "italic": "3", "underline": "4", "reverse": "7"}

DEFAULT: Final = Theme(
    "default",
    {
        "accent": "ansicyan",
        "code": "ansicyan",
        "dim": "dim",
        "error": "bold ansired",
        "ok": "ansigreen",
        "prompt": "bold ansicyan",
        "quote": "italic",
        "selected": "reverse bold",
        "status": "reverse",
        "title": "bold",
        "tool": "ansiblue",
        "warn": "ansiyellow",
    },
)
_LIGHT: Final = Theme(
    "light",
    {
        **DEFAULT.styles,
        "accent": "ansiblue",
        "code": "ansimagenta",
        "prompt": "bold ansiblue",
        "tool": "ansimagenta",
        "warn": "bold ansimagenta",
    },
)
_CONTRAST: Final = Theme(
    "contrast",
    {
        **DEFAULT.styles,
        "accent": "bold ansibrightcyan",
        "code": "ansibrightcyan",
        "dim": "",
        "error": "reverse bold ansibrightred",
        "ok": "bold ansibrightgreen",
        "tool": "bold ansibrightblue",
        "warn": "bold ansibrightyellow",
    },
)
_MONO: Final = Theme(
    "mono",
    {
        "accent": "bold",
        "dim": "dim",
        "error": "bold",
        "prompt": "bold",
        "quote": "italic",
        "selected": "reverse bold",
        "status": "reverse",
        "title": "bold",
        "tool": "bold",
        "warn": "underline",
    },
)
NONE: Final = Theme("none", {})
"""Nothing but text: for terminals that know nothing else."""
THEMES: Final = {theme.name: theme for theme in (DEFAULT, _LIGHT, _CONTRAST, _MONO, NONE)}


def theme_for(name: str, *, color: bool, environ: Mapping[str, str] | None = None) -> Theme:
    """The theme of that name, or the default one; without colours where none are wanted."""
    env = os.environ if environ is None else environ
    chosen = THEMES.get(name, DEFAULT)
    return _MONO if chosen.coloured and (not color or env.get("NO_COLOR")) else chosen


def painted(lines: Sequence[Line], theme: Theme) -> str:
    """Lines as a terminal takes them, each with its end. Whatever the texts hold, they are only seen."""
    return "".join(f"{''.join(_span(span, theme) for span in one)}\n" for one in lines)


def _span(span: Span, theme: Theme) -> str:
    text = printable(span.text).replace("\n", " ")
    codes = ";".join(_code(word) for word in theme.styles.get(span.role, "").split())
    return f"\x1b[{codes}m{text}\x1b[0m" if codes and text else text


def _code(word: str) -> str:
    return _ATTRIBUTES.get(word) or COLOURS[word]
