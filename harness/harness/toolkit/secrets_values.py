"""Whether a value that has the name of a secret is one: code, references and sentences are not."""

from __future__ import annotations

import re
from collections.abc import Iterator

from .secrets_names import MARK, is_secret_name
from .secrets_tokens import Span

__all__ = [
    "LITERALS",
    "is_code",
    "is_literal",
    "is_number",
    "is_placeholder",
    "is_prose",
    "is_random",
    "is_word",
    "value_spans",
]

_TYPES = ("string", "str", "text", "bytes", "int", "integer", "number", "bool", "boolean", "object", "any", "self")
_MORE_TYPES = ("char", "varchar", "byte", "float", "double", "usize", "isize", "buffer", "dict", "list", "json")
_CONSTANTS = ("true", "false", "yes", "no", "none", "null", "nil", "undefined", "optional", "required", "default")
_STATES = ("changed", "unchanged", "enabled", "disabled", "empty", "missing", "invalid", "example", "auto", "static")
_SOURCES = ("prompt", "ask", "stdin", "env", "password", "passwd", "pass", "secret", "token", "key", "value", "files")
_MORE_SOURCES = ("pwd", "pw", "hash", "hashed", "include", "omit", "same-origin")
LITERALS = frozenset((*_TYPES, *_MORE_TYPES, *_CONSTANTS, *_STATES, *_SOURCES, *_MORE_SOURCES))
"""Words that stand where a secret would, in small letters."""

_SENTENCES = """
a accepted after again all allowed already also an and any are argument as at authentication bad be because
been before blank but by can cannot check choose click command contact correct could created deleted denied
did do does either enter error every expired failed failure flag for from given good has have here how if
ignored in incorrect into is it its keep last leave like locked login lost make may mismatch more must need
never new next not now of off ok old on one only option or our out parameter permission please press provided
read rejected removed reset retry return rotated same see set should since so some strong success switch than
that the their then there these they this to too try two type unable unexpected unknown unset until updated
use used user using valid verified wait was weak were what when where which while who will with without wrong
you your
"""
_PROSE = frozenset(_SENTENCES.split())
"""Words with which a sentence goes on after a colon."""
_REFERENCE = re.compile(r"\$(?:[A-Za-z_]\w*|\{[^}]*\}?|\(.*)|\{\{.*|<[^>]*>?|%\(.*|(?P<one>[*x.X-])(?P=one)*|\*+.*")
_VARIABLE = re.compile(r"%[A-Za-z_]\w*%|\$env:\w+|\$\{?\w+\}?[/:].*|@\{.*")
_SIZED = re.compile(r"(?:u|i|f|u?int|float|char|varchar|bytes)\d+")
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*")
_ROOTS = (
    "self|this|req|request|config|cfg|conf|settings|process|os|env|args|argv|opts|options|params|data|user|ctx|context"
    "|props|state|event|body|values|var|local|module|each|secrets|github|inputs|steps|needs|cls|app|input|form|session"
)
_ATTRIBUTE = re.compile(rf"(?:{_ROOTS})(?:\??\.[A-Za-z_]\w*)+", re.IGNORECASE)
_NUMBER = re.compile(r"[0-9][0-9.,:_/-]*[%kKmMgGs]?")
_WORD = re.compile(r"[A-Za-z]?[a-z'\u2019-]*[.!?:]*")
_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


def is_placeholder(value: str) -> bool:
    """Whether it stands for a value: ``$VARIABLE``, ``{{ template }}``, ``<your key>``, ``****``, our own mark."""
    return value.startswith(MARK) or _REFERENCE.fullmatch(value) is not None or _VARIABLE.fullmatch(value) is not None


def is_literal(value: str) -> bool:
    """Whether it is a type, a constant or another word that stands where a secret would."""
    return value[:20].lower() in LITERALS or _SIZED.fullmatch(value) is not None


def is_code(value: str) -> bool:
    """Whether a program says so: the name of a variable that holds a secret, or its type."""
    if is_secret_name(value):
        return True
    if _IDENTIFIER.fullmatch(value) and any(is_secret_name(part) for part in _PARTS.findall(value)):
        return not any(letter.isdigit() for letter in value)
    return _ATTRIBUTE.fullmatch(value) is not None


def is_prose(value: str) -> bool:
    """Whether a sentence would go on with this word."""
    return value.rstrip(".!?:").lower() in _PROSE


def is_word(value: str) -> bool:
    """Whether it may be a word of any language with Latin letters."""
    return _WORD.fullmatch(value) is not None


def is_number(value: str) -> bool:
    """Whether it is a number, a date, a time or a size."""
    return _NUMBER.fullmatch(value) is not None


def is_random(text: str) -> bool:
    """Whether it is nothing that stands in code or prose."""
    return len(text) >= 6 and any(letter.isdigit() for letter in text) and not is_number(text)


def value_spans(text: str, matches: Iterator[re.Match[str]]) -> Iterator[Span]:
    """Where the last group of each match is, but for what stands where a secret would."""
    for match in matches:
        start, end = match.span(match.lastgroup or 0)
        value = text[start:end]
        if value and not is_placeholder(value) and not is_literal(value):
            yield start, end
