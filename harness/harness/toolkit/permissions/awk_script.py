"""Whether a program of awk only prints: a reader of the part of its language that neither writes, runs nor reads more.

Two things must hold: no word in the text, wherever it stands, is one that runs, writes or reads; and the text is a row
of known tokens in which nothing is printed into a file. Where versions of awk read ``/`` differently, the answer is no.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

__all__ = ["awk_program_only_prints"]

MAX_CHARS = 2_000
_RUNS = re.compile(
    r"system|getline|close|fflush|ENVIRON|SYMTAB|FUNCTAB|PROCINFO|ARG|BINMODE|include|load|eval|func|[@`]"
)
"""What must not even be part of a word."""
_TOKEN = re.compile(
    r"(?P<blank>[ \t]+)|(?P<newline>\n)|(?P<string>\"(?:[^\"\\\n]|\\[^\n])*\")"
    r"|(?P<number>[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?|\.[0-9]+)|(?P<name>[A-Za-z_][A-Za-z0-9_]*)"
    r"|(?P<sign>&&|\|\||\+\+|--|[-+*%^=!<>]=|!~|[-+*%^!<>=~?:,;(){}\[\]$])"
)
_REGEX = re.compile(r"/(?:[^/\\\n\[]|\\[^\n]|\[\^?\]?(?:[^\]/\n\\\[]|\[:[a-z]+:\])*\])+/")
_FUNCTIONS = frozenset(
    [
        *("length", "substr", "index", "split", "sub", "gsub", "match", "sprintf", "sin", "cos", "atan2", "exp", "log"),
        *("sqrt", "int", "rand", "srand", "tolower", "toupper", "strftime", "systime", "mktime", "gensub", "asort"),
        *("asorti", "strtonum", "and", "or", "xor", "lshift", "rshift", "compl"),
    ]
)
_KEYWORDS = frozenset(
    [
        *("if", "else", "while", "for", "do", "break", "continue", "in", "delete", "next", "nextfile", "exit"),
        *("print", "printf", "BEGIN", "END", "BEGINFILE", "ENDFILE"),
    ]
)
_BUILTIN = frozenset(
    [
        *("NR", "NF", "FNR", "FS", "OFS", "ORS", "RS", "RT", "RSTART", "RLENGTH", "SUBSEP", "FILENAME", "CONVFMT"),
        *("OFMT", "IGNORECASE"),
    ]
)
_VALUES = frozenset({"name", "number", "string", "regex"})
_CONTINUES = frozenset({",", "&&", "||", "{", "else", "do"})


class _Unknown(Exception):
    """It is not certain what this does."""


def awk_program_only_prints(text: str) -> bool:
    """True when the whole program is understood, and only computes and prints. Pure."""
    if len(text) > MAX_CHARS or (_RUNS.search(text) and not _only_systime(text)):
        return False
    try:
        tokens = list(_tokens(text))
    except _Unknown:
        return False
    return not _prints_into_a_file(tokens) and all(_known(tokens, at) for at in range(len(tokens)))


def _only_systime(text: str) -> bool:
    return _RUNS.search(re.sub(r"\bsystime\b", "", text)) is None


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    """The tokens, each with its kind.

    Raises:
        _Unknown: something is no token, or one that versions of awk read differently.
    """
    at, before = 0, ("", "")
    while at < len(text):
        if text[at] == "/":
            match = _slash(text, at, before)
            kind = "regex" if match else "sign"
            value = match[0] if match else "/"
        else:
            match = _TOKEN.match(text, at)
            if match is None:
                raise _Unknown
            kind, value = match.lastgroup or "", match[0]
        at += len(value)
        if kind != "blank":
            before = (kind, value)
            yield before


def _slash(text: str, at: int, before: tuple[str, str]) -> re.Match[str] | None:
    """A regular expression that begins here; None when this divides."""
    kind, value = before
    if kind in ("number", "string") or value in ("]", "++", "--", "$"):
        return None
    if kind == "name" and value not in _KEYWORDS:
        if value in _FUNCTIONS:
            raise _Unknown
        return None
    if value == ")":  # of a condition, or of an expression
        if re.search(r"[>\"]|\|(?!\|)", text.replace("||", "")):
            raise _Unknown
        return None
    match = _REGEX.match(text, at)
    if match is None:
        raise _Unknown
    return match


def _known(tokens: list[tuple[str, str]], at: int) -> bool:
    """A name is one of the language, or a variable; only functions of the language are called."""
    kind, value = tokens[at]
    if kind != "name" or value in _KEYWORDS or value in _FUNCTIONS:
        return True
    calls = tokens[at + 1 : at + 2] == [("sign", "(")]
    return not calls and (value in _BUILTIN or not value.isupper() or len(value) == 1)


def _prints_into_a_file(tokens: list[tuple[str, str]]) -> bool:
    """A ``>`` behind ``print``, outside of parentheses, opens a file."""
    is_printing, depth, last = False, 0, ""
    for kind, value in tokens:
        if value in ("print", "printf") and kind == "name":
            is_printing, depth = True, 0
        elif kind == "newline":
            is_printing = is_printing and (last in _CONTINUES or depth > 0)
        elif kind == "sign" and value in (";", "}"):
            is_printing = False
        elif kind == "sign" and value in "()":
            depth += 1 if value == "(" else -1
        elif is_printing and depth <= 0 and kind == "sign" and value in (">", ">="):
            return True
        last = value
    return False
