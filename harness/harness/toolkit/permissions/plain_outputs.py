"""Substitutions whose output is known in kind: numbers, ids, dates and names of the host, never an option."""

from __future__ import annotations

import re
from collections.abc import Sequence

from .shelltypes import Word

__all__ = ["lists_plain_words", "prints_plain_words"]

_PRINTS = re.compile(
    r"\$\((?:"
    r"pgrep(?: -[fnox]+| -[uUgGP] [\w,-]+)* [\w./-]+|pidof(?: -[sx]+)* [\w./-]+|seq(?: -w)?(?: [0-9]+){1,3}"
    r"|(?:docker|podman) (?:ps|images|volume ls|network ls)"
    r"(?: (?:-[al]*q[al]*|--quiet|-[al]+|--all|(?:--filter|-f) [\w.=-]+))+"
    r"|date(?: -u)? [\"']?\+(?:%[YmdHMSsFTjuy]|[0-9A-Za-z_:.])(?:%[YmdHMSsFTjuy]|[\w:.-])*[\"']?"
    r"|hostname(?: -[sfI])?|uname -[rmns]|id -[ugn]+|whoami|nproc|arch"
    r")\)"
)


def prints_plain_words(raw: str) -> bool:
    """Whether a substitution becomes words that are no options and no patterns; it may become none. Pure."""
    if not _PRINTS.fullmatch(raw):
        return False
    lists = re.match(r"\$\((?:docker|podman) ", raw)
    return not lists or re.search(r" (?:-[al]*q|--quiet)", raw) is not None


def lists_plain_words(words: Sequence[Word]) -> bool:
    """The same of a simple command whose output is read. Pure."""
    said = " ".join(word.text for word in words)
    return bool(words) and all(word.known for word in words) and prints_plain_words(f"$({said})")
