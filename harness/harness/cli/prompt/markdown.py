"""The model's response as it arrives: complete blocks of Markdown are drawn, the rest waits."""

from __future__ import annotations

import io
import re
from dataclasses import dataclass
from typing import Final, Literal

from ..asking import wrapped
from .surface import Span, Theme, painted, printable

__all__ = ["LIBRARIES", "MarkdownBlock", "MarkdownSplitter", "drawn"]

WIDEST = 120
"""Maximum width of a paragraph in columns."""
LONGEST = 8000
"""Number of characters from which an incomplete block is drawn."""
_FENCE = re.compile(r"\s*(?P<mark>`{3,}|~{3,})(?P<info>[^`]*)$")
_HEADING = re.compile(r" {0,3}#{1,6}(?:\s+(?P<title>.*?))?(?:\s+#+)?\s*$")
_STYLE = re.compile(r"(\x1b\[[0-9;]*m)")
Kind = Literal["text", "code", "heading"]


@dataclass(frozen=True, slots=True)
class MarkdownBlock:
    """A complete part: a block of text, one line of code, or a heading."""

    kind: Kind
    text: str


class MarkdownSplitter:
    """Splitter of a response into blocks: a line of code ends with its line feed, text with an empty line."""

    def __init__(self) -> None:
        self._line = ""
        self._block: list[str] = []
        self._fence = ""

    @property
    def rest(self) -> str:
        """The incomplete rest."""
        return "\n".join([*self._block, self._line])

    def feed(self, text: str) -> list[MarkdownBlock]:
        """Add text and return the blocks that are complete now."""
        *lines, self._line = (self._line + text).split("\n")
        pieces = [piece for line in lines for piece in self._fed(line.removesuffix("\r"))]
        if sum(map(len, self._block)) + len(self._line) > LONGEST:
            pieces += self._flushed()
        return pieces

    def end(self) -> list[MarkdownBlock]:
        """Return the last blocks and reset the splitter."""
        pieces = self._fed(self._line) if self._line else []
        pieces += self._flushed()
        self._line, self._fence = "", ""
        return pieces

    def _fed(self, line: str) -> list[MarkdownBlock]:
        if self._fence:
            return self._fed_code(line)
        if fence := _FENCE.match(line):
            self._fence = fence["mark"]
            return self._flushed()
        if _HEADING.match(line):
            return [*self._flushed(), MarkdownBlock("heading", line)]
        if not line.strip():
            return self._flushed()
        self._block.append(line)
        return []

    def _fed_code(self, line: str) -> list[MarkdownBlock]:
        closing = line.strip()
        if closing.startswith(self._fence) and not closing.strip(self._fence[0]):
            self._fence = ""
            return []
        return [MarkdownBlock("code", line)]

    def _flushed(self) -> list[MarkdownBlock]:
        if not self._block:
            return []
        text = "\n".join(self._block)
        self._block = []
        return [MarkdownBlock("text", text)]


def drawn(piece: MarkdownBlock, theme: Theme, width: int) -> str:
    """Return a block as text for a terminal, with control characters escaped."""
    if piece.kind == "code":
        return painted([(Span("  "), Span(piece.text.expandtabs(4), "code"))], theme)
    if piece.kind == "heading":
        match = _HEADING.match(piece.text)
        return painted([(Span((match and match["title"]) or "", "title"),)], theme)
    if theme.name == "none":
        return painted([(Span(row),) for one in piece.text.split("\n") for row in wrapped(one, width)], theme)
    return _by_rich(printable(piece.text), theme, min(width, WIDEST))


def _by_rich(text: str, theme: Theme, width: int) -> str:
    from rich.console import Console
    from rich.theme import Theme as Look

    written = io.StringIO()
    console = Console(
        file=written,
        force_terminal=True,
        color_system="standard" if theme.coloured else None,
        width=max(1, width),
        legacy_windows=False,
        highlight=False,
        emoji=False,
        markup=False,
        theme=Look({"markdown.code": "cyan", "markdown.link_url": "underline"}),
        _environ={},
    )
    console.print(_document(text))
    lines = [_only_styles(line.rstrip()) for line in written.getvalue().split("\n")]
    return "".join(f"{line}\n" for line in _trimmed(lines))


def _trimmed(lines: list[str]) -> list[str]:
    """Return the lines without blank ones at both ends."""
    seen = [number for number, line in enumerate(lines) if _STYLE.sub("", line).strip()]
    return lines[seen[0] : seen[-1] + 1] if seen else []


def _document(text: str) -> object:
    """Parse Markdown without losing text: HTML and entities stay text, and line feeds are kept."""
    from markdown_it import MarkdownIt
    from rich.markdown import Markdown

    parser = MarkdownIt("commonmark", {"html": False}).enable("strikethrough").enable("table").disable("entity")
    document = Markdown("", code_theme="bw", hyperlinks=False)
    document.parsed = parser.parse(text)
    for token in document.parsed:
        for child in token.children or ():
            if child.type == "softbreak":
                child.type = "hardbreak"
    return document


def _only_styles(line: str) -> str:
    parts = _STYLE.split(line)
    return "".join(part if number % 2 else printable(part) for number, part in enumerate(parts))


LIBRARIES: Final = ("rich.console", "rich.markdown", "markdown_it")
"""Modules that drawing needs, which are slow to import."""
