"""How the prompt looks: what each kind of text is drawn with. Pure."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from .printable import printable

__all__ = ["DEFAULT", "NONE", "THEMES", "Line", "Role", "Span", "Theme", "line", "painted", "text_of", "theme_for"]

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
