"""Taking secrets out of texts, results and objects, before anything is shown, kept or sent."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import cast

from ..errors import ConfigError
from .seams import Redactor
from .secrets_escapes import open_escape, plain_text
from .secrets_known import forms, known_spans, remembered, secrets_in
from .secrets_named import named_spans
from .secrets_names import MARK, is_secret_name
from .secrets_stream import StreamRedactor, safe_end
from .secrets_tokens import Span, private_key_spans, token_spans
from .values import Block, Json, JsonObject, Text, ToolResult

__all__ = ["MARK", "PatternRedactor", "StreamRedactor", "redact_head", "redact_object", "redact_result", "secrets_in"]

Redact = Callable[[str], str]
PASSES = 4
"""A secret that is gone may show that its neighbour is one, too."""
MARGIN = 8 << 10
"""Characters that are looked at beyond a cut: what a cut splits is no secret any more to anybody but its finder."""


class PatternRedactor(Redactor):
    """Takes out what looks like a secret, and what is known to be one.

    Args:
        secrets: exact texts; also found in URLs, JSON, base64 and hexadecimal. Those below 4 characters are ignored.
        patterns: further regular expressions; where one has a group, only the first group is the secret. They are
            as fast or slow as they are written.

    Raises:
        ConfigError: a pattern is none.
    """

    def __init__(self, secrets: Iterable[str] = (), patterns: Iterable[str] = ()) -> None:
        known = {form for secret in secrets for form in forms(secret)}
        self._known = sorted(known, key=lambda form: (-len(form), form))
        self._broken = [form for form in self._known if not form.isascii() or any(letter.isspace() for letter in form)]
        self._patterns = [_compiled(pattern) for pattern in patterns]

    @classmethod
    def with_environment(
        cls, environ: Mapping[str, str], *, secrets: Iterable[str] = (), patterns: Iterable[str] = ()
    ) -> PatternRedactor:
        """One that also knows the values of variables that are named like secrets."""
        return cls((*secrets, *secrets_in(environ)), patterns)

    def text(self, text: str) -> str:
        for _ in range(PASSES):
            clean = _without(text, self._spans(text))
            if clean == text:
                break
            text = clean
        return text

    def complete(self, text: str) -> int:
        plain = plain_text(text)
        if plain is None:
            return min(self._complete(text), open_escape(text))
        return min(self._complete(text), plain.place(self._complete(plain.text)), open_escape(text))

    def _complete(self, text: str) -> int:
        end = min([safe_end(text), *(_begun(text, form) for form in self._broken)])
        return min([end, *(start for start, stop in self._given(text) if start < end < stop)])

    def _spans(self, text: str) -> Iterator[Span]:
        yield from self._by_form(text)  # also where a letter is struck over, which is gone from the plain text
        plain = plain_text(text)
        if plain is None:
            yield from named_spans(text)
        else:
            for find in (self._by_form, named_spans):
                yield from map(plain.span, find(plain.text))

    def _by_form(self, text: str) -> Iterator[Span]:
        yield from self._given(text)
        yield from private_key_spans(text)
        yield from token_spans(text)

    def _given(self, text: str) -> Iterator[Span]:
        """What whoever made this named."""
        yield from known_spans(text, self._known)
        yield from known_spans(text, remembered())
        for pattern in self._patterns:
            yield from (match.span(bool(pattern.groups)) for match in pattern.finditer(text))


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise ConfigError(f"redaction: {pattern!r} is no regular expression: {error}") from error


def _begun(text: str, form: str) -> int:
    """Where the end of the text may be the beginning of that secret."""
    for length in range(min(len(form) - 1, len(text)), 0, -1):
        if text.endswith(form[:length]):
            return len(text) - length
    return len(text)


def _without(text: str, spans: Iterable[Span]) -> str:
    """The text with the mark in the place of each span; those that touch are one."""
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
    """The first ``limit`` characters of the redacted text, without redacting all of it."""
    if len(text) <= limit + MARGIN:
        return redact(text)[:limit]
    return redact(text[: limit + MARGIN])[: -MARGIN // 2][:limit]


def redact_result(result: ToolResult, redact: Redact) -> ToolResult:
    """A result with every text of it redacted."""
    content: tuple[Block, ...] = tuple(
        Text(redact(block.text)) if isinstance(block, Text) else block for block in result.content
    )
    metadata = redact_object(result.metadata, redact)
    return replace(result, content=content, data=_redacted(result.data, redact), metadata=metadata)


def redact_object(value: JsonObject, redact: Redact) -> JsonObject:
    """An object with every text of it redacted; a text whose key is the name of a secret is one."""
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
