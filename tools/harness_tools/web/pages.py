"""What came as a page: whether it is text, in which characters, and what of it is kept. Pure."""

from __future__ import annotations

import codecs
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass

from harness.toolkit.values import Advice

from .urls import WebUrl

__all__ = ["Answer", "Inflater", "MediaType", "Page", "WebFailure", "decoded", "is_html", "media_type", "wants_body"]


class WebFailure(Exception):
    """What a model is told: one word, and a sentence, which ends with the advice."""

    def __init__(self, code: str, text: str, advice: Advice | None = None) -> None:
        self.code = code
        self.text = text + (advice.text if advice is not None else "")
        self.advice = () if advice is None else (advice,)
        super().__init__(self.text)


@dataclass(frozen=True, slots=True)
class Answer:
    """One response. The names of ``headers`` are in lower case; ``body`` is decompressed, and at most as asked for."""

    status: int
    headers: Mapping[str, str]
    body: bytes = b""
    truncated: bool = False


@dataclass(frozen=True, slots=True)
class Page:
    """What a URL led to. ``hops`` are the URLs that redirected, in their order."""

    url: WebUrl
    answer: Answer
    hops: tuple[WebUrl, ...] = ()


@dataclass(frozen=True, slots=True)
class MediaType:
    """A content type: ``text/html`` and its ``charset``, both in lower case, empty when nothing is said."""

    name: str = ""
    charset: str = ""


SHOWN_TYPES = re.compile(
    r"text/.+|application/(?:.+\+)?(?:json|xml|yaml|toml)|application/(?:x-)?(?:javascript|ecmascript|ndjson|jsonlines|"
    r"json-seq|sh|yaml|toml|tex|httpd-php|sql|graphql|rtf|www-form-urlencoded|ld\+json|xhtml\+xml)|image/svg\+xml|"
    r"message/.+|multipart/.+"
)
HTML = frozenset({"text/html", "application/xhtml+xml"})
CHARSETS = frozenset(
    {
        *("ascii", "utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "koi8-r", "koi8-u", "tis-620"),
        *(f"iso8859-{number}" for number in range(1, 17)),
        *(f"cp{number}" for number in (437, 850, 852, 855, 866, 874, 932, 949, 950, *range(1250, 1259))),
        *("gb2312", "gbk", "gb18030", "big5", "big5hkscs", "shift_jis", "euc_jp", "iso2022_jp", "euc_kr", "mac-roman"),
    }
)
"""Codecs that are asked for by a page: each is as fast as the text is long, and makes text of bytes."""
_META = re.compile(rb"""<meta\s[^>]{0,200}?charset\s*=\s*["']?([A-Za-z0-9_.:-]{1,40})""", re.IGNORECASE)
META_SEARCHED = 4_096
LATIN = "cp1252"
"""What a page is in that says nothing and is no UTF-8."""
AS_BROWSERS = {"ascii": LATIN, "iso8859-1": LATIN, "utf-16": "utf-16-le"}
"""As which charset every browser reads another."""
GZIP = b"\x1f\x8b"
WINDOW = 4 << 10
"""Bytes that are decompressed at once: at each end of a gzip member, and there may be thousands, the rest is copied."""
BOMS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))


def media_type(headers: Mapping[str, str]) -> MediaType:
    """The content type that a response states."""
    name, _, rest = headers.get("content-type", "")[:1_000].partition(";")
    charset = re.search(r"charset\s*=\s*\"?([^\s\";,]{1,40})", rest, re.IGNORECASE)
    return MediaType(name.strip().lower(), charset[1].lower() if charset else "")


def is_text(kind: MediaType) -> bool:
    """Whether this type is shown; what states no type is looked at."""
    return not kind.name or SHOWN_TYPES.fullmatch(kind.name) is not None


def is_html(kind: MediaType, text: str) -> bool:
    """Whether it is a page to be turned into Markdown."""
    return kind.name in HTML or (
        not kind.name and re.match(r"\s{0,200}<(?:!doctype html|html)\b", text, re.I) is not None
    )


def wants_body(status: int, headers: Mapping[str, str]) -> bool:
    """Whether the body is worth its transfer: it is no redirect, and may be text."""
    redirect = 300 <= status < 400 and "location" in headers
    return not redirect and is_text(media_type(headers))


def decoded(answer: Answer) -> tuple[str, str]:
    """The body as text, and the name of its charset. An unfinished character at a cut end is left out.

    Raises:
        WebFailure: ``not_text``.
    """
    kind = media_type(answer.headers)
    wide = any(answer.body.startswith(mark) for mark, _ in BOMS) or kind.charset.startswith(("utf-16", "utf-32"))
    if not is_text(kind) or (b"\0" in answer.body[:META_SEARCHED] and not wide):
        raise WebFailure("not_text", f"only texts are shown, and it {_what(kind)}; save it on the target instead")
    for name in _candidates(kind, answer.body):
        decoder = codecs.getincrementaldecoder(name)("strict")
        try:
            return decoder.decode(answer.body, not answer.truncated).removeprefix("\ufeff"), name
        except UnicodeError:
            continue
    return answer.body.decode(LATIN, "replace"), LATIN


def _what(kind: MediaType) -> str:
    return f"is {kind.name[:100]}" if not is_text(kind) else "holds NUL bytes"


def _candidates(kind: MediaType, body: bytes) -> list[str]:
    mark = next((name for start, name in BOMS if body.startswith(start)), "")
    meta = _META.search(body[:META_SEARCHED])
    said = [mark, kind.charset, meta[1].decode("ascii").lower() if meta else ""]
    known = [name for name in map(_codec, said) if name]
    return list(dict.fromkeys([*known, "utf-8"]))


def _codec(name: str) -> str:
    """Python's name of a charset that is worth a try; empty for others."""
    try:
        found = codecs.lookup(name).name if name else ""
    except (LookupError, ValueError):
        return ""
    found = AS_BROWSERS.get(found, found)
    return found if found in CHARSETS else ""


class Inflater:
    """Decompresses a body as it comes, and never makes more of it than there is room for.

    Raises:
        WebFailure: ``encoding``: it is packed in a way that was not asked for.
    """

    def __init__(self, encoding: str) -> None:
        packed = encoding.strip().lower()
        if packed not in ("", "identity", "gzip", "x-gzip", "deflate"):
            raise WebFailure("encoding", f"the server sent it packed as {packed[:40]!r}, which was not asked for")
        self._plain = packed in ("", "identity")
        self._bits = 47 if "gzip" in packed else 15
        self._object = None if self._plain else zlib.decompressobj(self._bits)
        self._begun = False
        self._fresh = True
        self._over = False
        self._held = b""

    def feed(self, data: bytes, room: int) -> bytes:
        """What these bytes mean, as far as there is room.

        Raises:
            WebFailure: ``encoding``: they are damaged.
        """
        if self._object is None:
            return data[:room]
        parts, made = [], 0
        for start in range(0, len(data), WINDOW):
            if made >= room or self._over:
                break
            part = self._window(data[start : start + WINDOW], room - made)
            parts.append(part)
            made += len(part)
        return b"".join(parts)

    def _window(self, data: bytes, room: int) -> bytes:
        parts, made = [], 0
        data, self._held = self._held + data, b""
        try:
            while data and made < room:
                if self._fresh and len(data) < len(GZIP):
                    self._held = data  # one byte does not tell a header from the lack of it
                    break
                if self._fresh and self._begun and not data.startswith(GZIP):
                    self._over = True
                    break
                part = self._inflate(data, room - made)
                parts.append(part)
                made += len(part)
                data = self._rest()
        except zlib.error as error:
            raise WebFailure("encoding", f"what the server sent is damaged: {error}") from error
        return b"".join(parts)

    def _inflate(self, data: bytes, room: int) -> bytes:
        assert self._object is not None
        try:
            part = self._object.decompress(data, room)
        except zlib.error:
            if self._begun or self._bits != 15:
                raise
            self._object = zlib.decompressobj(-15)  # many servers send it so, and call it deflate
            part = self._object.decompress(data, room)
        self._begun, self._fresh = True, False
        return part

    def _rest(self) -> bytes:
        """What follows the end of one gzip member: another one."""
        assert self._object is not None
        if not self._object.eof:
            return b""
        self._over = self._bits != 47
        rest = b"" if self._over else self._object.unused_data
        self._object, self._fresh = zlib.decompressobj(self._bits), True
        return rest
