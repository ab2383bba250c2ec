"""Secrets that are known by what stands before them: assignments, headers, options, the password in a URL."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator

from .secrets_names import MARK, is_secret_name
from .secrets_tokens import Span, compiled

__all__ = ["TRIGGER", "lowered", "named_spans"]

_STRONG = (
    *("password", "passwd", "passphrase", "secret", "secret_key_base", "client-secret", "credential", "credentials"),
    *("apikey", "api_key", "api-key", "accesskey", "access_key", "access-key", "privatekey", "private_key"),
    *("private-key", "accountkey", "account_key", "secretkey", "secret_key", "secret-key", "auth_key", "auth-key"),
    *("signing_key", "encryption_key", "master_key", "_pwd", ";pwd", "_pass", "x-amz-signature"),
)
_WEAK = ("token",)
"""A word of parsers and pages, too."""
_CALLED = r"\\?[\"']?[ \t]{0,4}(?:=>|:=|=|:)[ \t]{0,4}"
_NAMED = tuple((word, re.escape(word) + _CALLED) for word in (*_STRONG, *_WEAK))
_VALUE = re.compile(
    r"""\\"(?P<inner>(?:[^"\\\n]|\\[^"\n])*)|"(?P<double>(?:[^"\\\n]|\\.)*)|'(?P<single>[^'\n]*)"""
    r"""|(?P<mark>\[redacted\])|(?P<bare>[^\s"'`,;&|<>(){}\[\]]+)"""
)
_OPTION = tuple((f"-{word}", f"{word}(?<=-{word})[ \t]{{1,4}}") for word in ("password", "token", "secret", "api-key"))
_OPTION_START = re.compile(r"--[A-Za-z0-9-]*\Z")
_TYPES = ("string", "str", "text", "bytes", "int", "integer", "number", "bool", "boolean", "object", "any", "self")
_LITERALS = ("true", "false", "yes", "no", "none", "null", "nil", "undefined", "optional", "required", "default")
_STATES = ("changed", "unchanged", "enabled", "disabled", "empty", "missing", "invalid", "example", "auto", "static")
_SOURCES = ("prompt", "ask", "stdin", "env", "password", "passwd", "pass", "secret", "token", "key", "value", "files")
_CODE_WORDS = frozenset((*_TYPES, *_LITERALS, *_STATES, *_SOURCES))
_REFERENCE = re.compile(r"\$(?:[A-Za-z_]\w*|\{[^}]*\}?|\(.*)|\{\{.*|<[^>]*>?|%\(.*|(?P<one>[*x.X-])(?P=one)*|\*+.*")
_IDENTIFIER = re.compile(r"[A-Za-z_][\w.-]*")
_LAST = re.compile(r"[ \t]*\\?[\"',;)}\]]*[ \t]*(?:#[^\n]*)?(?=\r?\n|\r|\Z|\\n)")

_AUTHORIZATION = re.compile(
    r"authorization\\?[\"']?[ \t]{0,4}[:=][ \t]{0,4}\\?[\"']?"
    r"(?:(?:bearer|basic|token|digest|negotiate|apikey|aws4-hmac-sha256)[ \t]{1,4})?"
)
_HEADER_VALUE = re.compile(r"[^\s\"'\\<>]{6,}")
_BEARER = re.compile(r"bearer[ \t]{1,4}")
_BEARER_VALUE = re.compile(r"(?=[A-Za-z._~+/=-]{0,80}[0-9])[A-Za-z0-9._~+/=-]{16,}")
_BASIC = re.compile(r"basic[ \t]{1,4}")
_BASIC_VALUE = re.compile(r"[A-Za-z0-9+/]{8,}={0,2}")
_URL = re.compile(r"://[^\s/:@\"'<>,]*:(?P<password>[^\s/\"'<>,?#]*)@")
_FLAGS = re.compile(r"[ \t](?:-p[ \t]?|-u[ \t]?|--user[ =]|-a )(?P<value>'[^'\n]*|\"[^\"\n]*|[^\s'\"-][^\s'\"]*)")
_TOOLS = ("mysql", "mariadb", "sshpass", "redis-cli", "curl")
_NETRC = re.compile(r"password[ \t]{1,4}(?P<value>\S+)")
_BEFORE = 200
"""How far before an option its program is looked for."""

TRIGGER = "|".join(
    [
        rf"(?:{'|'.join(re.escape(word) for word in sorted((*_STRONG, *_WEAK), key=len, reverse=True))}){_CALLED}",
        r"-(?:password|token|secret|api-key)[ \t]",
        r"authorization|bearer[ \t]|basic[ \t]|(?=akia|asia|abia|acca)|-----begin|[ \t]login[ \t]",
        *_TOOLS,
    ]
)
"""In a line (lowered) that has not ended: what follows may be a secret, and only the line's end shows where it ends."""


def lowered(text: str) -> str:
    """The text in small letters, each at its place."""
    low = text.lower()
    return low if len(low) == len(text) else text.replace("\u0130", "I").lower()


def named_spans(text: str) -> Iterator[Span]:
    """Where secrets are that have a name before them."""
    low = lowered(text)
    for word, pattern in _NAMED:
        if word in low:
            yield from _assignments(text, low, compiled(pattern), strong=word not in _WEAK)
    for word, pattern in _OPTION:
        if word in low:
            yield from _options(text, low, compiled(pattern))
    yield from _headers(text, low)
    if "://" in text:
        yield from (match.span("password") for match in _URL.finditer(text) if match["password"] != MARK)
    yield from _tool_flags(text, low)


# -- assignments


def _assignments(text: str, low: str, pattern: re.Pattern[str], *, strong: bool) -> Iterator[Span]:
    match = pattern.search(low)
    while match is not None:
        value = _VALUE.match(text, match.end())
        at = match.end()
        if value is not None and _is_secret(text, match, value, strong=strong):
            yield value.span(value.lastgroup or 0)
            at = value.end()
        match = pattern.search(low, at)


def _is_secret(text: str, name: re.Match[str], value: re.Match[str], *, strong: bool) -> bool:
    kind = value.lastgroup or ""
    found = value[kind]
    if kind == "mark" or not found or found.startswith(MARK):
        return False
    if found[:20].lower() in _CODE_WORDS or _REFERENCE.fullmatch(found):
        return False
    if found == "$" and text[value.end() : value.end() + 1] in ("(", "{"):
        return False
    between = name[0].rstrip(" \t")
    if kind == "bare" and between.endswith("=") and text[name.start()].isupper():
        return text[value.end() : value.end() + 1] != "(" or not _IDENTIFIER.fullmatch(found)
    if not strong and not _random(found):
        return False
    return kind != "bare" or _bare_is_secret(text, between, name, value)


def _bare_is_secret(text: str, between: str, name: re.Match[str], value: re.Match[str]) -> bool:
    """Without quotes it may be code, or a sentence."""
    found = value[0]
    if _IDENTIFIER.fullmatch(found) and (text[value.end() : value.end() + 1] in "([{" or is_secret_name(found)):
        return text[value.end() : value.end() + 1] == "" and not is_secret_name(found)
    tight = between.endswith("=") and len(between) == len(name[0]) and not between[-2:-1].isspace()
    return tight or _LAST.match(text, value.end()) is not None


def _random(text: str) -> bool:
    """Nothing that anybody would write in code or prose."""
    return len(text) >= 8 and any(character.isdigit() for character in text) and not text.isdigit()


def _options(text: str, low: str, pattern: re.Pattern[str]) -> Iterator[Span]:
    """``--db-password VALUE``."""
    for match in pattern.finditer(low):
        if not _OPTION_START.search(text, max(0, match.start() - 40), match.start()):
            continue
        value = _VALUE.match(text, match.end())
        if value is None or value.lastgroup == "mark":
            continue
        found = value[value.lastgroup or 0]
        if found and not found.startswith(("-", MARK)) and not _REFERENCE.fullmatch(found):
            yield value.span(value.lastgroup or 0)


# -- headers and command lines


def _headers(text: str, low: str) -> Iterator[Span]:
    for word, pattern, value in (
        ("authorization", _AUTHORIZATION, _HEADER_VALUE),
        ("bearer", _BEARER, _BEARER_VALUE),
        ("basic", _BASIC, _BASIC_VALUE),
    ):
        match = pattern.search(low) if word in low else None
        while match is not None:
            found = value.match(text, match.end())
            if found is not None and _is_header_value(found[0], word):
                yield found.span()
            match = pattern.search(low, found.end() if found is not None else match.end())


def _is_header_value(text: str, word: str) -> bool:
    if text.startswith((MARK, "$")) or text[:20].lower() in _CODE_WORDS:
        return False
    return word != "basic" or _is_login(text)


def _is_login(text: str) -> bool:
    """``user:password`` in base64."""
    try:
        plain = base64.b64decode(text + "=" * (-len(text) % 4), validate=True).decode()
    except (binascii.Error, ValueError):
        return False
    return ":" in plain and plain.isprintable()


def _tool_flags(text: str, low: str) -> Iterator[Span]:
    """``mysql -pPASSWORD``, ``sshpass -p PASSWORD``, ``curl -u user:PASSWORD``, ``login me password PASSWORD``."""
    if any(tool in low for tool in _TOOLS):
        for match in _FLAGS.finditer(text):
            yield from _flag(low, match)
    if "login" in low:
        for match in _NETRC.finditer(text):
            if "login " in _before(low, match.start()) and not match["value"].startswith(MARK):
                yield match.span("value")


def _before(low: str, end: int) -> str:
    """The line before that place."""
    return low[max(low.rfind("\n", max(0, end - _BEFORE), end) + 1, end - _BEFORE, 0) : end]


def _flag(low: str, match: re.Match[str]) -> Iterator[Span]:
    line = _before(low, match.start())
    start, end = match.span("value")
    flag = match[0][1:].rstrip()
    start += match["value"][0] in "'\""
    if flag.startswith(("-u", "--user")):
        colon = match.string.find(":", start, end)
        start = colon + 1 if colon >= 0 else end
        tools: tuple[str, ...] = ("curl",)
    else:
        tools = ("mysql", "mariadb", "sshpass") if flag.startswith("-p") else ("redis-cli",)
    if start < end and any(tool in line for tool in tools) and not match.string.startswith(MARK, start):
        yield start, end
