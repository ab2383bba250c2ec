"""Which lines match a regular expression that a model wrote, in time that grows with the text and no faster.

RE2 (the extra ``tools``) never backtracks. Without it only a text without special characters is taken, as it stands.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from harness.extras import install_extra

__all__ = ["BadPattern", "Chosen", "choose", "line_matcher"]

MOST_PATTERN = 1_000
MEMORY = 8 << 20
"""Bytes that RE2 may use for one pattern."""
_SPECIAL = re.compile(r"[\\^$.|?*+()\[\]{}]")
REDACTED = "[redacted]"

Matcher = Callable[[bytes], bool]


class BadPattern(ValueError):  # it is no failure of ours
    """It is no regular expression, or one that is not supported."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """The lines that match, with their newlines, and how many bytes and lines were looked at for them."""

    data: bytes
    used: int
    lines: int
    matched: int


def line_matcher(pattern: str) -> Matcher:
    """Whether a line, without its newline, matches anywhere.

    Raises:
        BadPattern: it is none; the message says why.
    """
    if len(pattern) > MOST_PATTERN:
        raise BadPattern(f"it is longer than {MOST_PATTERN} characters")
    try:
        wanted = pattern.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise BadPattern("it is no text") from None
    if not _SPECIAL.search(pattern):
        return lambda line: wanted in line
    return _compiled(wanted)


def _compiled(pattern: bytes) -> Matcher:
    try:
        import re2  # type: ignore[import-untyped]  # it brings no types
    except ImportError:
        raise BadPattern(
            f"regular expressions need a library ({install_extra('tools')}); "
            "without it give a text without special characters"
        ) from None
    options: Any = re2.Options()
    options.max_mem, options.log_errors = MEMORY, False
    try:
        found: Any = re2.compile(pattern, options)
    except re2.error as error:
        raise BadPattern(_reason(error)) from None
    return lambda line: found.search(line) is not None


def _reason(error: Exception) -> str:
    said = error.args[0] if error.args else ""
    text = said.decode("utf-8", "replace") if isinstance(said, bytes) else str(said)
    return f"{text} (RE2 knows no lookaround and no backreferences)"


def choose(
    data: bytes,
    matches: Matcher,
    room: int,
    *,
    ended: bool,
    full: bool = False,
    redact: Callable[[str], str] = str,
) -> Chosen:
    """The lines of a piece that match, up to ``room`` bytes of them, but one at least. Pure.

    A last line without newline is left until its rest comes, unless nothing follows it (``ended``), or it is alone in a
    piece that can hold no more (``full``). ``redact`` takes out secrets: a line of a private key is known as a part of
    one only among the others.
    """
    known = _known(data, redact)
    shown, used, lines, matched = bytearray(), 0, 0, 0
    for line in _lines(data, ended=ended, full=full):
        hit = matches(line.rstrip(b"\r\n"))
        if hit and shown and len(shown) + len(line) > room:
            break
        used, lines = used + len(line), lines + 1
        if hit:
            shown += line if known is None else _clean(line, known, redact)
            matched += 1
    return Chosen(bytes(shown), used, lines, matched)


def _known(data: bytes, redact: Callable[[str], str]) -> frozenset[str] | None:
    """The lines that are left of a piece without its secrets; None when it has none."""
    text = data.decode("utf-8", "surrogateescape")
    clean = redact(text)
    return None if clean == text else frozenset(clean.split("\n"))


def _clean(line: bytes, known: frozenset[str], redact: Callable[[str], str]) -> bytes:
    """A line without its secrets; one that is not left of the piece was inside of one."""
    clean = redact(line.decode("utf-8", "surrogateescape"))
    text = clean if clean.rstrip("\n") in known else REDACTED + "\n"
    return text.encode("utf-8", "surrogateescape")


def _lines(data: bytes, *, ended: bool, full: bool) -> Iterable[bytes]:
    lines = data.split(b"\n")
    last = lines.pop()
    yield from (line + b"\n" for line in lines)
    if last and (ended or (full and not lines)):
        yield last
