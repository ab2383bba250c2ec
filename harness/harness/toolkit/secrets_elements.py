"""Secrets in elements of XML: ``<password value="...">``, ``<entry key="password">...</entry>``."""

from __future__ import annotations

import re
from collections.abc import Iterator

from .secrets_tokens import Span
from .secrets_values import is_random, value_spans

__all__ = ["OPENS_ALONE", "WORDS", "element_spans"]

WORDS = r"(?:password|passwd|passphrase|secret|token|api_?-?key|access_?-?key|private_?-?key|pwd)"
"""What the name of a secret ends with, in small letters."""
_CONTENT = r"(?:\s|\\[nrt]){0,80}(?P<value>[^<>\s](?:[^<>\n]*[^<>\s])?)\s{0,80}</"
_OPENS = rf"<(?:[\w:-]{{0,60}}?){WORDS}(?:hash)?(?:[ \t][^<>\n]{{0,200}})?>"
OPENS_ALONE = rf"(?m:^)[ \t]{{0,80}}{_OPENS}"
"""An element that begins its line: what holds its value may be the next one."""
_CALLED_SO = rf"""(?:name|key|id)=\\?["'](?:[\w.-]{{0,60}}?{WORDS})\\?["']"""
_ATTRIBUTE = r"""value[ \t]{0,4}=[ \t]{0,4}\\?(?:"(?P<double>[^"\\\n<>]+)|'(?P<single>[^'\n<>]+))"""
_ELEMENT = re.compile(rf"{_OPENS}{_CONTENT}")
_ELEMENT_BELOW = re.compile(rf"{OPENS_ALONE}[ \t]{{0,80}}\r?\n[ \t]{{0,80}}(?P<value>[^<>\s]+)[ \t]*(?=[\r\n<]|\Z)")
_ELEMENT_VALUE = re.compile(rf"<(?:[\w:-]{{0,60}}?){WORDS}[ \t](?:[^<>\n]{{0,200}}?[ \t])?{_ATTRIBUTE}")
_ELEMENT_CALLED = re.compile(
    r"<(?:entry|string|param|property|prop|setting|item|field|var|variable|parameter|option|arg|constructor-arg)[ \t]"
    rf"(?:[^<>\n]{{0,200}}?[ \t])?{_CALLED_SO}[^<>\n]{{0,200}}(?<!/)>(?:\s{{0,80}}<value>)?{_CONTENT}"
)
_VALUE_CALLED = re.compile(rf"""{_ATTRIBUTE}\\?["'][ \t]{{1,8}}{_CALLED_SO}""")
_PASS_ELEMENT = re.compile(r"<(?:[\w:-]{0,60}[-_:])?pass(?:[ \t][^<>\n]{0,200})?>(?P<value>[^<>\s]+)</")


def element_spans(text: str, low: str) -> Iterator[Span]:
    """Where secrets are in elements and their attributes; ``low`` is the text in small letters."""
    if "</" in text:
        yield from value_spans(text, _ELEMENT.finditer(low))
        yield from value_spans(text, _ELEMENT_CALLED.finditer(low))
        yield from (match.span("value") for match in _PASS_ELEMENT.finditer(low) if is_random(match["value"]))
    if ">\n" in text or ">\r" in text:
        yield from value_spans(text, _ELEMENT_BELOW.finditer(low))
    if "value" in low and ">" in text:
        yield from value_spans(text, _ELEMENT_VALUE.finditer(low))
        yield from value_spans(text, _VALUE_CALLED.finditer(low))
