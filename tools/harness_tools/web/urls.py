"""Normalized URLs, so that the checked URL is the fetched one. Pure."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import Annotated
from urllib.parse import quote, unquote, urljoin, urlsplit

from pydantic import AfterValidator

__all__ = ["HttpUrl", "WebUrl", "host_name", "parse_url"]

MAX_URL_CHARS = 8_192
"""Maximum characters of a URL."""
PORTS = {"http": 80, "https": 443}
_UNSEEN = re.compile(r"[\x00-\x20\x7f-\xa0\u1680\u2000-\u200f\u2028-\u202f\u205f-\u206f\u3000\ufeff\ud800-\udfff\\]")
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_LONE_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")
PATH_SAFE = "/:@!$&'()*+,;=~-._%"
QUERY_SAFE = PATH_SAFE + "?"


@dataclass(frozen=True, slots=True)
class WebUrl:
    """A normalized web address: no user, no fragment, no dot segments in the path, an ASCII host name."""

    scheme: str
    host: str
    port: int
    path: str
    """Including the query."""

    @property
    def origin(self) -> tuple[str, str, int]:
        """The origin, within which credentials may be sent."""
        return self.scheme, self.host, self.port

    @property
    def authority(self) -> str:
        """Host and port, as in a URL."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == PORTS[self.scheme] else f"{host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}{self.path}"

    def join(self, location: str) -> WebUrl:
        """Resolve the location of a redirect.

        Raises:
            ValueError: The URL may not be fetched.
        """
        return parse_url(urljoin(str(self), location.strip(" \t")))


def parse_url(text: str) -> WebUrl:
    """Parse and normalize a URL.

    Raises:
        ValueError: It is invalid, or disguises its host: with a user, a backslash, or an address in octal.
    """
    if len(text) > MAX_URL_CHARS:
        raise ValueError(f"it is longer than {MAX_URL_CHARS} characters")
    if odd := _UNSEEN.search(text):
        raise ValueError(f"it contains {odd[0]!r}; write it percent-encoded")
    scheme, separator, rest = text.partition("://")
    if not separator:
        raise ValueError("it is not a complete URL; write https://host/path")
    if scheme.lower() not in PORTS:
        raise ValueError(f"only http and https URLs are supported, not {scheme[:20]}")
    parts = urlsplit(f"{scheme.lower()}://{rest}")
    if "@" in parts.netloc:
        raise ValueError("a URL must not contain a user or a password")
    host, port = _split_port(parts.netloc)
    path = _path(parts.path) + (f"?{_quoted(parts.query, QUERY_SAFE)}" if parts.query else "")
    return WebUrl(parts.scheme, _host(host), PORTS[parts.scheme] if port is None else port, path)


def _split_port(netloc: str) -> tuple[str, int | None]:
    host, colon, digits = netloc.rpartition(":")
    if not colon or netloc.endswith("]"):
        return netloc, None
    if not digits:
        return host, None
    if not (digits.isascii() and digits.isdecimal() and len(digits) <= 5 and 0 < int(digits) < 65536):
        raise ValueError(f"{digits[:20]!r} is not a valid port")
    return host, int(digits)


def _host(text: str) -> str:
    if text.startswith("["):
        return _address6(text)
    return host_name(text)


def _address6(text: str) -> str:
    if not text.endswith("]"):
        raise ValueError(f"{text[:80]!r} is not a valid host")
    try:
        address = ipaddress.IPv6Address(_unscoped(text[1:-1]))
    except ValueError:
        raise ValueError(f"{text[:80]!r} is not an IPv6 address") from None
    if address.ipv4_mapped is None:
        return str(address)
    low = int(address) & 0xFFFFFFFF  # Python versions format these differently
    return f"::ffff:{low >> 16:x}:{low & 0xFFFF:x}"


def _unscoped(text: str) -> str:
    if "%" in text:
        raise ValueError("a scope")
    return text


def host_name(text: str) -> str:
    """Normalize a host name or IPv4 address.

    Raises:
        ValueError: It is invalid, or an address in another form than ``a.b.c.d``.
    """
    name = _ascii(text).removesuffix(".")
    labels = name.split(".")
    if not name or len(name) > 253 or not all(_LABEL.fullmatch(label) for label in labels):
        raise ValueError(f"{text[:80]!r} is not a valid host name")
    if _NUMBER.fullmatch(labels[-1]):
        return _address4(name)
    return name


def _address4(name: str) -> str:
    try:
        return str(ipaddress.IPv4Address(name))
    except ValueError:
        raise ValueError(f"{name[:80]!r} is an unusual form of an address; write it as 192.0.2.1") from None


def _ascii(text: str) -> str:
    if text.isascii():
        return text.lower()
    import idna

    try:
        return idna.encode(text[:253], uts46=True).decode("ascii").lower()
    except idna.IDNAError as error:
        raise ValueError(f"{text[:80]!r} is not a valid host name: {error}") from None


def _path(path: str) -> str:
    """Return the path without ``.`` and ``..``, also percent-encoded ones."""
    kept: list[str] = []
    segments = path.split("/")[1:]
    for number, segment in enumerate(segments):
        plain = unquote(segment) if len(segment) <= 6 else segment
        if plain == "..":
            kept = kept[:-1]
        elif plain != ".":
            kept.append(segment)
            continue
        if number == len(segments) - 1:
            kept.append("")
    return _quoted("/" + "/".join(kept), PATH_SAFE)


def _quoted(text: str, safe: str) -> str:
    return quote(_LONE_PERCENT.sub("%25", text), safe=safe)


def _checked(text: str) -> str:
    return str(parse_url(text))


HttpUrl = Annotated[str, AfterValidator(_checked)]
"""An http or https URL, which is normalized."""
