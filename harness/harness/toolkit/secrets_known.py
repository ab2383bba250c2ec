"""Secrets that somebody named: their exact text, and the forms in which programs print it."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from urllib.parse import quote, quote_plus

from .secrets_names import MARK, is_secret_name
from .secrets_tokens import Span

__all__ = ["forms", "known_spans", "remember", "remembered", "secrets_in"]

SHORTEST = 4
"""A shorter secret would take ordinary text out, so it is not looked for."""
SHORTEST_FORM = 8
"""Encoded forms that are shorter are part of too many other texts."""

_remembered: tuple[str, ...] = ()
"""Replaced as a whole, so that any thread may read it."""


def remember(secret: str) -> None:
    """From now on every redactor of this process takes it out: for a secret that we read ourselves, later."""
    global _remembered  # noqa: PLW0603  # a secret of the process, whoever made the redactors
    found = {*_remembered, *forms(secret)}
    _remembered = tuple(sorted(found, key=lambda form: (-len(form), form)))


def remembered() -> tuple[str, ...]:
    """The forms of what was remembered, the longest first."""
    return _remembered


def forms(secret: str) -> tuple[str, ...]:
    """The texts to look for: as it is, in a URL, in JSON, in base64 at any place of a longer text, in hexadecimal."""
    if len(secret) < SHORTEST or secret in MARK:
        return ()
    raw = secret.encode("utf-8", "surrogateescape") if not _lone(secret) else secret.encode("utf-8", "surrogatepass")
    encoded = [quote(raw, safe=""), quote(raw), quote_plus(raw), raw.hex(), raw.hex().upper()]
    encoded += [json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1], secret.replace("\n", "\r\n")]
    encoded += [secret.replace("'", "'\\''")]
    for coder in (base64.standard_b64encode, base64.urlsafe_b64encode):
        encoded += [_inner(raw, offset, coder(b"\0" * offset + raw).decode()) for offset in range(3)]
    long = {form for form in encoded if len(form) >= SHORTEST_FORM}
    return tuple(sorted({secret, *long}, key=lambda form: (-len(form), form)))


def _lone(text: str) -> bool:
    return re.search("[\ud800-\udc7f\udd00-\udfff]", text) is not None


def _inner(raw: bytes, offset: int, coded: str) -> str:
    """The characters that depend on the secret alone."""
    first = {0: 0, 1: 2, 2: 3}[offset]
    last = (len(raw) + offset) * 8 // 6
    return coded[first:last]


def known_spans(text: str, known: Iterable[str]) -> Iterator[Span]:
    """Where these exact texts are."""
    for form in known:
        at = text.find(form)
        while at >= 0:
            yield at, at + len(form)
            at = text.find(form, at + len(form))


def secrets_in(environ: Mapping[str, str]) -> tuple[str, ...]:
    """The values of variables that are named like secrets, but for words that texts are full of."""
    return tuple(value for name, value in environ.items() if is_secret_name(name) and _tells(value))


def _tells(value: str) -> bool:
    if len(value) < 6 or value.startswith(("/", "~", "./")) or value.lower() in {"true", "false"}:
        return False
    return len(value) >= 12 or not (value.isdigit() or value.isalpha())
