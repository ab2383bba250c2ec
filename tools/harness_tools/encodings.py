"""The encodings of text files that tools know by name."""

from __future__ import annotations

import codecs
from typing import Annotated, Literal, get_args

from pydantic import BeforeValidator

__all__ = ["WIDE", "Encoding", "EncodingOrMixed", "decode_part", "decode_text", "wide_bom"]

_Name = Literal[
    "utf-8",
    "utf-16",
    "utf-16-le",
    "utf-16-be",
    "utf-32",
    "latin-1",
    "iso8859-2",
    "iso8859-5",
    "iso8859-7",
    "iso8859-15",
    "cp437",
    "cp850",
    "cp866",
    "cp1250",
    "cp1251",
    "cp1252",
    "cp1253",
    "koi8-r",
    "shift-jis",
    "euc-jp",
    "gb18030",
    "big5",
    "euc-kr",
]
WIDE = frozenset({"utf-16", "utf-16-le", "utf-16-be", "utf-32"})
"""Those whose newline is more than one byte."""
_BOMS = (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def _known(name: object) -> object:
    """The name under which we know an encoding, for any of its other names."""
    if not isinstance(name, str) or name in get_args(_Name):
        return name
    try:
        same = codecs.lookup(name).name
    except (LookupError, ValueError):
        return name
    return next((known for known in get_args(_Name) if codecs.lookup(known).name == same), name)


Encoding = Annotated[_Name, BeforeValidator(_known)]
"""An encoding by one of its names."""
EncodingOrMixed = Annotated[Literal[_Name, "mixed"], BeforeValidator(_known)]
"""The same, or UTF-8 with pieces of UTF-16 in it."""


def decode_text(data: bytes, encoding: str) -> str:
    """Text from a whole content. Bytes that are none become surrogates in UTF-8, so that they are kept, else U+FFFD."""
    return data.decode(encoding, "surrogateescape" if encoding == "utf-8" else "replace")


def decode_part(data: bytes, encoding: str) -> tuple[str, int]:
    """Text from a content that is cut at its end, and how many bytes of it that is; characters stay whole."""
    decoder = codecs.getincrementaldecoder(encoding)("surrogateescape" if encoding == "utf-8" else "replace")
    text = decoder.decode(data)
    return text, len(data) - len(decoder.getstate()[0])


def wide_bom(data: bytes) -> str:
    """The name of the wide encoding whose mark a content begins with; empty without one."""
    found = next((mark for mark in _BOMS if data.startswith(mark)), b"")
    return {4: "utf-32", 2: "utf-16"}.get(len(found), "")
