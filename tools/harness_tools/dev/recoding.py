"""What encoding a content is in, when that is certain, and the content in UTF-8. Pure."""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass

from ..encodings import WIDE

__all__ = ["MIXED", "Recoded", "recoded", "recoded_from"]

MIXED = "mixed"
"""What UTF-8 with pieces of UTF-16 is called."""
_ODD = re.compile("[\x00-\x08\x0b\x0e-\x1a\x1c-\x1f\x7f-\x84\x86-\x9f\ufffe\uffff]")
"""Characters that no text holds: what was decoded with the wrong encoding does."""
_WIDE_RUN = re.compile(rb"(?:[\t\n\x0c\r\x20-\x7e]\0){4,}")
"""Plain letters in UTF-16 of the little-endian kind, which is the one that programs mix into other files."""
_PLAIN = re.compile(rb"[\t\n\x0c\r\x20-\x7e]*")
_HALF = re.compile("[\ud800-\udfff]")
NUL_SHARE = 0.3
"""The part of the characters of a UTF-16 text without a mark that must be plain letters for it to be known as such."""


@dataclass(frozen=True, slots=True)
class Recoded:
    """A content in UTF-8, and how it was known. ``lost`` counts characters that could not be kept."""

    data: bytes
    encoding: str
    lost: int = 0


def recoded(data: bytes) -> Recoded | None:
    """The content in UTF-8, when there is no doubt how it is written; None when there is."""
    if b"\0" not in data and not data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return Recoded(data, "utf-8") if _text(data, "utf-8") is not None else None
    found, mixed = _marked(data) or _unmarked(data) or _laced(data), _mixed(data)
    if found is not None and mixed is not None and found.data != mixed.data:
        return None  # two plain letters are a Chinese character, too
    return found or mixed


def recoded_from(data: bytes, encoding: str) -> Recoded | None:
    """The content in UTF-8 from an encoding that somebody names; None when it holds what is nothing in that encoding.

    Halves of surrogate pairs in UTF-16 become U+FFFD, and are counted.
    """
    if encoding == MIXED:
        return _mixed(data)
    try:
        text = data.decode(encoding, "surrogatepass" if encoding in WIDE else "strict")
    except ValueError:
        return None
    if encoding in WIDE:
        text = text.removeprefix("\ufeff")
    clean, lost = _HALF.subn("\ufffd", text)
    return Recoded(clean.encode(), encoding, lost)


def _text(data: bytes, encoding: str) -> str | None:
    try:
        return data.decode(encoding)
    except ValueError:
        return None


def _sensible(data: bytes, encoding: str) -> str | None:
    """The text, when the bytes are one."""
    text = _text(data, encoding)
    return text if text is not None and not _ODD.search(text) else None


def _marked(data: bytes) -> Recoded | None:
    """It begins with a byte order mark of UTF-16 or UTF-32."""
    for mark, encoding in (
        (codecs.BOM_UTF32_LE, "utf-32-le"),
        (codecs.BOM_UTF32_BE, "utf-32-be"),
        (codecs.BOM_UTF16_LE, "utf-16-le"),
        (codecs.BOM_UTF16_BE, "utf-16-be"),
    ):
        if data.startswith(mark):
            text = _sensible(data[len(mark) :], encoding)
            if text is not None:
                return Recoded(text.encode(), encoding)
    return None


def _unmarked(data: bytes) -> Recoded | None:
    """UTF-16 without a mark: every second byte of the plain letters is NUL, on one side only."""
    half = len(data) // 2
    if len(data) % 2 or half < 2:
        return None
    for encoding, high, low in (("utf-16-le", data[1::2], data[0::2]), ("utf-16-be", data[0::2], data[1::2])):
        if high.count(0) >= max(2, half * NUL_SHARE) and not low.count(0):
            text = _sensible(data, encoding)
            if text is not None:
                return Recoded(text.encode(), encoding)
    return None


def _laced(data: bytes) -> Recoded | None:
    """Plain letters with a NUL before or after each, of which one at an end may be missing."""
    even, odd = data[0::2], data[1::2]
    for letters, nuls in ((even, odd), (odd, even)):
        if len(letters) > 2 and not nuls.strip(b"\0") and _PLAIN.fullmatch(letters):
            return Recoded(letters, "null-laced")
    return None


def _mixed(data: bytes) -> Recoded | None:
    """UTF-8 with pieces of UTF-16 in plain letters, as two programs leave it that write to one file."""
    made, runs = _WIDE_RUN.subn(lambda match: match[0][::2], data.removeprefix(codecs.BOM_UTF16_LE))
    if not runs or b"\0" in made or _sensible(made, "utf-8") is None:
        return None
    return Recoded(made, MIXED)
