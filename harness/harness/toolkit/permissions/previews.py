"""What a question shows beside its text: where a command starts, and the first lines of what is written. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .answers import Scope
from .claims import Claim

__all__ = ["LASTING", "LINES", "WIDTH", "places_of", "preview_of"]

LINES = 20
WIDTH = 160
"""Lines, and characters of each, that are shown."""
LASTING = "an answer for more than once covers any other content there, too"
ONLY_THIS = frozenset({Scope.ONCE, Scope.DENY_ONCE})


def preview_of(text: str | None, scopes: Sequence[Scope], redact: Callable[[str], str]) -> str:
    """The lines to show, printable; empty without a text. Lines of the text begin with ``| ``, others are ours."""
    if text is None:
        return ""
    size = len(text.encode("utf-8", "replace"))  # a byte that is no UTF-8 is one character, and becomes one
    shown_text = redact(text)
    lines = shown_text.removesuffix("\n").split("\n") if text else []
    more, hidden = len(lines) - LINES, text.count("\n") - shown_text.count("\n")
    shown = [
        f"content, {size} {'byte' if size == 1 else 'bytes'}:",
        *(f"| {_line(line)}" for line in lines[:LINES]),
        *([f"\u2026 {more} more {'line' if more == 1 else 'lines'}"] if more > 0 else []),
        *([f"\u2026 {hidden} of its line ends are hidden with what looks like a secret"] if hidden > 0 else []),
        *([LASTING] if not ONLY_THIS.issuperset(scopes) else []),
    ]
    return "\n".join(shown)


def places_of(claims: Sequence[Claim], pane: object, redact: Callable[[str], str]) -> list[str]:
    """Where the commands would start: the same words do something else in another directory, or in another pane."""
    asked = [claim for claim in claims if claim.kind in ("command", "keys") and not claim.secret]
    named = dict.fromkeys(redact(claim.whole.cwd.rstrip("/") or "/") for claim in asked if claim.whole.cwd)
    panes = [f"in the pane {_line(redact(pane))}"] if asked and isinstance(pane, str) and pane else []
    return [*(f"in the directory {_line(cwd)}" for cwd in named), *panes]


def _line(text: str) -> str:
    """What fits of a line, and how much does not; control characters are spelled out."""
    head = "".join(char if char.isprintable() else repr(char)[1:-1] for char in text[:WIDTH])
    left = len(text) - WIDTH
    return f"{head} \u2026 {left} more {'character' if left == 1 else 'characters'}" if left > 0 else head
