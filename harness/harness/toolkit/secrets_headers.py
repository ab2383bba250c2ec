"""Secrets in headers of HTTP and in URLs."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator

from .secrets_names import MARK
from .secrets_tokens import Span
from .secrets_values import is_literal, is_placeholder, is_prose, is_random

__all__ = ["TRIGGER", "header_spans", "is_login", "url_spans"]

TRIGGER = r"authorization|bearer[ \t]|basic[ \t]|cookie"
"""In a line (lowered) that has not ended: what follows may be a secret."""

_AUTHORIZATION = re.compile(r"authorization\\?[\"']?[ \t]{0,4}[:=][ \t]{0,4}\\?[\"']?")
_SCHEME = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9_-]{1,40})[ \t]{1,4}(?=[^\s|;&>])")
_SINGLE = re.compile(r"[^\s\"'\\<>]+")
_WHOLE = re.compile(
    r"""(?:[^\s"'\\<>]|[ \t](?![|;&>])|"[^"\n]*"(?=,|[ \t]*$)|(?<==)"[^"\n]*"|(?<==)\\"[^"\n\\]*\\")+""", re.M
)
_PARAMETERS = (
    "digest",
    "hawk",
    "oauth",
    "aws4-hmac-sha256",
    "signature",
    "mac",
    "scram-sha-256",
    "scram-sha-1",
    "mutual",
)
"""Schemes whose credentials are several words."""
_SCHEMES = frozenset(
    (
        *(
            "bearer",
            "basic",
            "token",
            "negotiate",
            "ntlm",
            "apikey",
            "api-key",
            "ssws",
            "geniekey",
            "key",
            "dpop",
            "aws",
        ),
        *("sharedkey", "sharedkeylite", "vapid", "hoba", "jwt", "hmac", "kerberos", "splunk", "bot", "secret", "goog1"),
        *("discogs", "klaviyo-api-key", "deepl-auth-key", "client-id", "zoho-oauthtoken", "privatetoken"),
    )
)
_BEARER = re.compile(r"bearer[ \t]{1,4}")
_BEARER_VALUE = re.compile(r"(?=[A-Za-z._~+/=-]{0,80}[0-9])[A-Za-z0-9._~+/=-]{16,}")
_BASIC = re.compile(r"basic[ \t]{1,4}")
_BASIC_VALUE = re.compile(r"[A-Za-z0-9+/]{8,}={0,2}")

_COOKIE = re.compile(r"(?<![a-z0-9_])(?P<set>set-)?cookie2?\\?[\"']?[ \t]{0,4}:[ \t]{0,4}\[?\\?[\"']?")
_CRUMB = re.compile(r"[ \t]{0,4}(?P<name>[^\s=;,\"'\\<>()]{1,200})=(?P<value>[^\s;\"'\\]*);?")
_CRUMB_QUOTED = re.compile(r"[ \t]{0,4}[^\s=;,\"'\\<>()]{1,200}=\\?\"(?P<value>[^\"\\\n;]*)\\?\";?")
_ATTRIBUTES = frozenset(("path", "domain", "expires", "max-age", "samesite", "version", "comment", "priority"))

_URL = re.compile(
    r"://(?P<user>[^\s/:@\"'<>,\[]*):(?P<password>(?!\d{1,5}(?:[/?#\"']|$))(?:[^\s\"'<>/]|/(?!/)){0,256})@"
)
_USER = re.compile(
    r"://(?<=http://|ttps://)(?P<user>[^\s/:@\"'<>,?#\[]{1,512})(?::(?:x-oauth-basic)?)?@(?=[A-Za-z0-9\[$])"
)
_ORACLE = re.compile(r"jdbc:oracle:\w{1,10}:[^\s/\"']{1,100}/(?P<password>[^\s/\"'@]{1,200})@")
_GO = re.compile(r"(?<![\w/:])[\w.-]{1,100}:(?P<password>[^\s:/\"'@]{1,200})@(?:tcp|unix)\(")
_SIGNED = re.compile(
    r"[?&](?:sig|signature|x-goog-signature|x-amz-credential|sv_sig)=(?P<value>[^\s&\"'<>#]{8,})", re.IGNORECASE
)


def header_spans(text: str, low: str) -> Iterator[Span]:
    """Where the credentials of headers are; ``low`` is the text in small letters."""
    if "authorization" in low:
        yield from _authorizations(text, low)
    for word, pattern, value in (("bearer", _BEARER, _BEARER_VALUE), ("basic", _BASIC, _BASIC_VALUE)):
        match = pattern.search(low) if word in low else None
        while match is not None:
            found = value.match(text, match.end())
            if found is not None and _is_header_value(found[0], word):
                yield found.span()
            match = pattern.search(low, found.end() if found is not None else match.end())
    if "cookie" in low:
        for match in _COOKIE.finditer(low):
            yield from _cookies(text, match)


def _authorizations(text: str, low: str) -> Iterator[Span]:
    match = _AUTHORIZATION.search(low)
    while match is not None:
        at = match.end()
        scheme = _SCHEME.match(text, at)
        found = _credentials(text, scheme) if scheme is not None else _alone(text, at)
        if found is not None:
            yield found.span()
        match = _AUTHORIZATION.search(low, found.end() if found is not None else at)


def _credentials(text: str, scheme: re.Match[str]) -> re.Match[str] | None:
    """What follows the name of a scheme, or the word itself when it is none."""
    if text.startswith(MARK, scheme.end()):
        return None
    name = scheme["scheme"].lower()
    found = (_WHOLE if name in _PARAMETERS else _SINGLE).match(text, scheme.end())
    if found is None or is_placeholder(found[0]):
        return None
    if name in _PARAMETERS:
        return found if "=" in found[0] else None
    known = name in _SCHEMES and not is_prose(found[0]) and not is_literal(found[0])
    if known or is_random(found[0]):
        return found
    return _alone(text, scheme.start()) if is_random(name) else None


def _alone(text: str, start: int) -> re.Match[str] | None:
    found = _SINGLE.match(text, start)
    return found if found is not None and len(found[0]) >= 6 and _is_header_value(found[0], "") else None


def _is_header_value(text: str, word: str) -> bool:
    if text.startswith((MARK, "$")) or "(" in text or is_literal(text) or is_prose(text) or is_placeholder(text):
        return False
    return word != "basic" or is_login(text)


def is_login(text: str) -> bool:
    """Whether it is ``user:password`` in base64."""
    try:
        plain = base64.b64decode(text + "=" * (-len(text) % 4), validate=True).decode()
    except (binascii.Error, ValueError):
        return False
    return ":" in plain and plain.isprintable()


def _cookies(text: str, header: re.Match[str]) -> Iterator[Span]:
    """The values of a header; of ``Set-Cookie`` the first is one, and the others are attributes."""
    at = header.end()
    while (crumb := _CRUMB_QUOTED.match(text, at) or _CRUMB.match(text, at)) is not None:
        value = crumb["value"]
        if value and not is_placeholder(value):
            yield crumb.span("value")
        if header["set"] or not crumb[0].endswith(";"):
            return
        at = crumb.end()


def url_spans(text: str) -> Iterator[Span]:
    """Where passwords and tokens are in URLs and in addresses of databases."""
    if "://" in text:
        for match in _URL.finditer(text):
            if _is_password(match["password"]):
                yield match.span("password")
        for match in _USER.finditer(text):
            if match[0].endswith(":x-oauth-basic@") or is_random(match["user"]) or len(match["user"]) >= 32:
                yield match.span("user")
    if "jdbc:oracle:" in text:
        yield from (match.span("password") for match in _ORACLE.finditer(text) if _is_password(match["password"]))
    if "@tcp(" in text or "@unix(" in text:
        yield from (match.span("password") for match in _GO.finditer(text) if _is_password(match["password"]))
    if "=" in text and ("?" in text or "&" in text):
        yield from (match.span("value") for match in _SIGNED.finditer(text) if not is_placeholder(match["value"]))


def _is_password(found: str) -> bool:
    return bool(found) and not is_placeholder(found) and found != "x-oauth-basic"
