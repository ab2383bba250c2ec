"""Redaction: replaces known secrets, and what looks like a secret, in every text."""

from __future__ import annotations

import base64
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import cast
from urllib.parse import quote, quote_plus

from ...errors import ConfigError
from ..values import Block, Json, JsonObject, Text, ToolResult
from .literals import Literals, SearchedText, lowered
from .named_secrets import OPEN_LINE, TRIGGER, named_spans
from .patterns import (
    MARK,
    Span,
    compiled,
    is_secret_name,
    open_escape,
    open_token,
    plain_text,
    private_key_spans,
    titles_text,
    token_spans,
)

__all__ = [
    "MARK",
    "PatternRedactor",
    "Redactor",
    "forms",
    "known_spans",
    "redact_head",
    "redact_object",
    "redact_result",
    "remember",
    "remembered",
    "safe_end",
    "secrets_in",
]


# -- Known secrets: their exact text, and the forms in which programs print them.


SHORTEST = 4
"""Shorter secrets are ignored, because they would match ordinary text."""
SHORTEST_FORM = 8
"""Shorter encoded forms are ignored, because they occur in too many other texts."""

_remembered = Literals(())
"""Replaced as a whole, so that any thread may read it."""


def remember(secret: str) -> None:
    """Make every redactor of this process redact a secret that harness has read later."""
    global _remembered  # noqa: PLW0603  # applies to the process, for all redactors
    found = {*_remembered, *forms(secret)}
    _remembered = Literals(sorted(found, key=lambda form: (-len(form), form)))


def remembered() -> Literals:
    """Return the forms of the remembered secrets, longest first."""
    return _remembered


def forms(secret: str) -> tuple[str, ...]:
    """Return a secret's forms: literal, in a URL, in JSON, in base64 at any offset, in hexadecimal."""
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
    """Return the characters that depend on the secret only."""
    first = {0: 0, 1: 2, 2: 3}[offset]
    last = (len(raw) + offset) * 8 // 6
    return coded[first:last]


def known_spans(searched: SearchedText, known: Literals) -> Iterator[Span]:
    """Yield the positions of exact texts."""
    text = searched.text
    for form in searched.found(known):
        at = text.find(form)
        while at >= 0:
            yield at, at + len(form)
            at = text.find(form, at + len(form))


def secrets_in(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the values of variables with secret names, without values that occur in ordinary text."""
    return tuple(value for name, value in environ.items() if is_secret_name(name) and _tells(value))


def _tells(value: str) -> bool:
    if len(value) < 6 or value.startswith(("/", "~", "./")) or value.lower() in {"true", "false"}:
        return False
    return len(value) >= 12 or not (value.isdigit() or value.isalpha())


# -- How much of an unfinished text can be shown.


CONTEXT = 2 << 10
"""Characters of the line that were already shown and are matched again with the text that follows."""
UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\ud7ff\uf900-\ufaff\uff00-\uffef\U0001f000-\U0003ffff"
_BEFORE_UNSPACED = re.compile(rf"[A-Za-z0-9_.,!?{UNSPACED}-]*[{UNSPACED}]")
"""The start of a word up to its last character of a script without spaces, and before anything such as ``://``."""
_OPEN_KEY = re.compile(r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----[A-Za-z0-9+/=\s\\:,.-]*\Z")


def safe_end(text: str, *, words: bool = True) -> int:
    """Return how much of an unfinished text can be shown: later text cannot make a secret of it. Pure.

    Without ``words``, an unfinished word is only held after the name of a secret.

    Complete lines can, except an unfinished private key and a line that announces a secret on the next one. Of the last
    line, all but the last word can, up to the first name of a secret. In scripts without spaces, such as Chinese and
    Japanese, each character ends a word, because no known form of a secret contains one.
    """
    line = text.rfind("\n") + 1
    tail = text[line:]
    word = max(tail.rfind(" "), tail.rfind("\t"), tail.rfind("\r")) + 1
    if not tail.isascii() and (unspaced := _BEFORE_UNSPACED.match(tail, word)):
        word = unspaced.end()
    trigger = compiled(TRIGGER).search(lowered(tail))
    end = line + (min(word, trigger.end()) if trigger else word if words else len(tail))
    before = max(0, text.rfind("\n", 0, max(0, line - 1)) + 1, line - CONTEXT)
    if line and (opened := compiled(OPEN_LINE).search(lowered(text[before:]))):
        end = min(end, before + opened.start())
    begin = text.rfind("-----BEGIN")
    if begin >= 0 and (begin >= line or _OPEN_KEY.match(text, begin)):
        end = min(end, begin)
    return end


# -- Redacting texts, results and objects before they are shown, stored or sent.


Redact = Callable[[str], str]
PASSES = 4
"""Maximum passes: replacing one secret may reveal another next to it."""
MARGIN = 8 << 10
"""Characters that are redacted beyond a cut: a secret that the cut splits would not be recognized."""


class Redactor(ABC):
    """Removes secrets from what is shown, stored or sent."""

    @abstractmethod
    def text(self, text: str) -> str:
        """Return the text with each secret replaced."""

    def result(self, result: ToolResult) -> ToolResult:
        """Return the result with all its texts redacted."""
        return redact_result(result, self.text)

    def complete(self, text: str) -> int:
        """Return how many characters of an unfinished text can be shown: later text cannot change their redaction."""
        return safe_end(text)

    def live(self, text: str) -> tuple[int, int]:
        """Return how much of an unfinished text a live screen can show at once, and after a moment without more.

        A screen shows each letter as it is typed: the default, which shows whole words, would hide them. After a
        moment, what follows the name of a secret is shown, redacted as if it were complete.
        """
        return self.complete(text), self.complete(text)

    def known_start(self, text: str) -> int:
        """Return where the end of the text may be the start of a known secret; the length of the text otherwise.

        If that is within another secret, return where this one starts: masked in part, it would not be recognized.
        """
        return len(text)

    def json(self, value: JsonObject) -> JsonObject:
        """Return the object with all its texts redacted."""
        return redact_object(value, self.text)


class PatternRedactor(Redactor):
    """Redacts known secrets, and what looks like a secret.

    Args:
        secrets: exact texts; also found in URLs, JSON, base64 and hexadecimal. Texts below 4 characters are ignored.
        patterns: additional regular expressions; if one has a group, only the first group is the secret. Their
            speed is the author's responsibility.

    Raises:
        ConfigError: a pattern is not a regular expression.
    """

    def __init__(self, secrets: Iterable[str] = (), patterns: Iterable[str] = ()) -> None:
        known = {form for secret in secrets for form in forms(secret)}
        self._known = Literals(sorted(known, key=lambda form: (-len(form), form)))
        self._broken = [form for form in self._known if not form.isascii() or any(letter.isspace() for letter in form)]
        self._patterns = [_compiled(pattern) for pattern in patterns]

    @classmethod
    def with_environment(
        cls, environ: Mapping[str, str], *, secrets: Iterable[str] = (), patterns: Iterable[str] = ()
    ) -> PatternRedactor:
        """Return a redactor that also knows the values of variables with secret names."""
        return cls((*secrets, *secrets_in(environ)), patterns)

    def text(self, text: str) -> str:
        for _ in range(PASSES):
            clean = _without(text, self._spans(text))
            if clean == text:
                break
            text = clean
        return text

    def live(self, text: str) -> tuple[int, int]:
        later, soon = self._open(text), safe_end(text, words=False)
        if (plain := plain_text(text)) is not None:
            later = min(later, plain.place(self._open(plain.text)))
            soon = min(soon, plain.place(safe_end(plain.text, words=False)))
        later = min(later, open_escape(text))
        return min(soon, later), later

    def known_start(self, text: str) -> int:
        end = self._open_known(text)
        if end == len(text):
            return end
        return min([end, *(start for start, stop in self._spans(text) if start < end < stop)])

    def _open_known(self, text: str) -> int:
        return min([len(text), *(_begun(text, form, SHOWN) for form in (*self._known, *remembered()))])

    def _open(self, text: str) -> int:
        """Return where the end of the text may be the start of a secret that is recognized without a name."""
        ends = [self._open_known(text), open_token(text)]
        begin = text.rfind("-----BEGIN")
        if begin >= 0 and ("\n" not in text[begin:] or _OPEN_KEY.match(text, begin)):
            ends.append(begin)
        if self._patterns:  # whatever they match may start with any word
            ends.append(self._complete(text))
        return min(ends)

    def complete(self, text: str) -> int:
        plain = plain_text(text)
        if plain is None:
            return min(self._complete(text), open_escape(text))
        return min(self._complete(text), plain.place(self._complete(plain.text)), open_escape(text))

    def _complete(self, text: str) -> int:
        end = min([safe_end(text), *(_begun(text, form) for form in self._broken)])
        return min([end, *(start for start, stop in self._given(SearchedText(text)) if start < end < stop)])

    def _spans(self, text: str) -> Iterator[Span]:
        searched = SearchedText(text)
        yield from self._by_form(searched)  # also overstruck characters, which the plain text lacks
        plain = plain_text(text)
        if plain is None:
            yield from named_spans(searched)
        else:
            searched = SearchedText(plain.text)
            for find in (self._by_form, named_spans):
                yield from map(plain.span, find(searched))
            if (titles := titles_text(text)) is not None:
                yield from map(titles.span, named_spans(SearchedText(titles.text)))

    def _by_form(self, searched: SearchedText) -> Iterator[Span]:
        yield from self._given(searched)
        yield from private_key_spans(searched.text)
        yield from token_spans(searched)

    def _given(self, searched: SearchedText) -> Iterator[Span]:
        """Yield the positions of known secrets and of the additional patterns."""
        yield from known_spans(searched, self._known)
        yield from known_spans(searched, remembered())
        for pattern in self._patterns:
            yield from (match.span(bool(pattern.groups)) for match in pattern.finditer(searched.text))


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise ConfigError(f"redaction: {pattern!r} is not a regular expression: {error}") from error


SHOWN = 2
"""Maximum letters, and at most a quarter, of a known secret that a live screen shows before it is recognized."""


def _begun(text: str, form: str, shown: int = 0) -> int:
    """Return where the end of the text may be the start of that secret, of which ``shown`` letters may be shown."""
    least = form[: min(shown, len(form) // 4) + 1]
    at = text.find(least, max(0, len(text) - len(form) + 1))
    while at >= 0 and not form.startswith(text[at:]):
        at = text.find(least, at + 1)
    return at if at >= 0 else len(text)


def _without(text: str, spans: Iterable[Span]) -> str:
    """Return the text with each span replaced by the mark; adjacent spans share one."""
    parts: list[str] = []
    done = 0
    for start, end in _joined(sorted(span for span in spans if 0 <= span[0] < span[1])):
        parts += [text[done:start], MARK]
        done = end
    return "".join([*parts, text[done:]]) if parts else text


def _joined(spans: Iterable[Span]) -> Iterator[Span]:
    last: Span | None = None
    for span in spans:
        if last is not None and span[0] <= last[1]:
            last = (last[0], max(last[1], span[1]))
            continue
        if last is not None:
            yield last
        last = span
    if last is not None:
        yield last


def redact_head(redact: Redact, text: str, limit: int) -> str:
    """Return the first ``limit`` characters of the redacted text, without redacting all of it."""
    if len(text) <= limit + MARGIN:
        return redact(text)[:limit]
    return redact(text[: limit + MARGIN])[: -MARGIN // 2][:limit]


def redact_result(result: ToolResult, redact: Redact) -> ToolResult:
    """Return a result with all its texts redacted."""
    content: tuple[Block, ...] = tuple(
        Text(redact(block.text)) if isinstance(block, Text) else block for block in result.content
    )
    metadata = redact_object(result.metadata, redact)
    return replace(result, content=content, data=_redacted(result.data, redact), metadata=metadata)


def redact_object(value: JsonObject, redact: Redact) -> JsonObject:
    """Return an object with all its texts redacted, including all texts under a secret name."""
    return cast(JsonObject, _redacted(dict(value), redact))


def _redacted(value: Json, redact: Redact) -> Json:
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, list):
        return [_redacted(item, redact) for item in value]
    if isinstance(value, dict):
        return {
            key: MARK if isinstance(item, str) and item and is_secret_name(key) else _redacted(item, redact)
            for key, item in value.items()
        }
    return value
