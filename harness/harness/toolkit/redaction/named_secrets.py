"""Finds secrets by what precedes them: names, options, headers, programs, the user in a URL."""

from __future__ import annotations

import re
from collections.abc import Iterator

from . import commands, file_formats
from .commands import command_spans
from .file_formats import OPENS_ALONE, WORDS, directive_spans, element_spans, header_spans, is_login, url_spans
from .literals import Literals, SearchedText
from .patterns import (
    MARK,
    Span,
    compiled,
    is_code,
    is_literal,
    is_number,
    is_placeholder,
    is_prose,
    is_random,
    is_secret_name,
    is_word,
    value_spans,
)

__all__ = ["OPEN_LINE", "TRIGGER", "named_spans"]

_STRONG = (
    *(
        "password",
        "password2",
        "passwd",
        "passphrase",
        "passcode",
        "secret",
        "secret_key_base",
        "client-secret",
        "credential",
    ),
    *("credentials", "apikey", "api_key", "api-key", "accesskey", "access_key", "access-key", "privatekey"),
    *(
        "private_key",
        "private-key",
        "accountkey",
        "account_key",
        "account-key",
        "secretkey",
        "secret_key",
        "secret-key",
    ),
    *(
        "auth_key",
        "auth-key",
        "authkey",
        "signing_key",
        "encryption_key",
        "master_key",
        "master-key",
        "subscription-key",
    ),
    *("_pwd", ";pwd", "_pass", "sshpass", "x-amz-signature", "presharedkey", "preshared_key", "pre-shared-key"),
    *("bindpw", "rootpw", "secret_id", "secret-id", "cli_auth", "storepass", "keypass", "functions-key", "psk"),
    *("wpa_psk", "wpapsk", "hmac_key", "authtok"),
)
_SPACED = (
    *("private key", "preshared key", "pre-shared key", "shared key", "secret key", "access key", "api key"),
    *("encryption key", "signing key", "master key", "shared secret", "client secret"),
)
"""Names of several words, as programs print them and users write them."""
_WEAK = ("token", "pwd", "pass", "_auth", "_pat", *_SPACED)
"""Words that parsers and web pages use as well."""
_SHORT = ("pwd", "psk", "pass")
_NO_KEY = re.compile(
    r"(?i)(?:~|\.{0,2})/|(?:rsa|e?c?dsa|ec|ed|x|p|secp|curve|prime|id_|sha|md)[-_]?\d|[\w-]+\.(?:pem|key)\b"
)
"""A file, or a type of key."""
_KEY = re.compile(r"[A-Za-z0-9+/]{43}=")
"""A WireGuard key."""
_CALLED = r"\\{0,7}[\"']?[ \t]{0,4}(?:=>|:=|=|::(?=[ \t])|:)[ \t]{0,4}"
_WEP = "wep[_-]key[0-3]"
_NAMED = {**{word: re.escape(word) + _CALLED for word in (*_STRONG, *_WEAK)}, "wep": _WEP + _CALLED}
_NAMES = Literals(_NAMED)
_VALUE = re.compile(
    r"""\\{1,7}"(?P<inner>(?:[^"\\\n]+|\\[^"\n])*)|"(?P<double>(?:[^"\\\n]+|\\.)*)|'(?P<single>[^'\n]*)"""
    r"""|\$'(?P<ansi>(?:[^'\\\n]+|\\.)*)|(?P<mark>\[redacted\])"""
    r"""|(?P<bare>(?:[^\s"'`,;&|<>(){}\[\]\\]+|\\(?!["'n\\]))+)"""
)
_TOKENS = re.compile(
    r"(?:private|vault|auth|access|refresh|session|security|api|deploy|job|bearer|gitlab|github|consul|id|registry"
    r"|csrf|xsrf|bot|user|app|service|account|admin|personal|device|push|install|upload|download|npm|client)[_-]?\Z"
    r"|(?:\A|[\s\"'])x(?:-[a-z0-9]{1,20}){1,4}-\Z|--[a-z0-9-]{0,40}\Z"
)
"""Text before ``token`` that shows it is not a parser's token."""
_SHORT_NAME = re.compile(r"(?:\A|[\s\"'{,;?&(.#-]|\\n)\Z")
"""Text before a short name, which is also the end of many words."""

_OPTION_NAMES = (
    *(
        "password",
        "passwd",
        "passphrase",
        "token",
        "secret",
        "api-key",
        "apikey",
        "access-key",
        "secret-key",
        "auth-key",
    ),
    *("authkey", "account-key", "pass", "credential", "storepass", "keypass"),
)
_OPTION = {f"-{word}": f"{word}(?<=-{word})[ \t]{{1,4}}" for word in _OPTION_NAMES}
_OPTIONS = Literals(_OPTION)
_LISTED = re.compile(
    rf"""["']--[A-Za-z0-9-]{{0,40}}(?:{"|".join(_OPTION_NAMES)})\\?["'],[ \t]{{0,4}}\\?["'](?P<value>[^"'\\\n]+)"""
)
_OPTION_START = re.compile(r"--[A-Za-z0-9-]*\Z")
_IDENTIFIER = re.compile(r"[A-Za-z_][\w.-]*")
_LAST = re.compile(r"[ \t]*\\?[\"',;)}\]]*[ \t]*(?:#[^\n]*)?(?=\r?\n|\r|\Z|\\n)")
_SEPARATOR = re.compile(r"""[ \t]{0,4}(?:\\?["']|[,;|>)}\]`&#\\]|[(]|<|//|--|[\w.-]{1,60}["']?[ \t]{0,2}[=:])""")
"""The end of a value that may be a word: the structure that follows it."""
_CLOSES = re.compile(r"""\\?["'`]|[ \t]{0,4}[,;|>)}\]&]""")

_NETRC = re.compile(r"password[ \t]{1,4}(?P<value>\S+)")
_MACHINE = re.compile(r"(?:\A|[\"']|\\n)[ \t]*machine[ \t]{1,8}\S{1,150}[ \t]{1,8}\Z")
_LOGIN_LINE = re.compile(
    r"[ \t]*(?:machine[ \t]{1,8}\S{1,100}[ \t]{1,8})?(?:login|account|user)[ \t]{1,8}\S{1,100}[ \t\r]*"
)
_SQL = re.compile(r"(?:password|identified[ \t]{1,4}by)[ \t]{1,4}(?P<quote>['\"])(?P<value>[^'\"\n]+)(?P=quote)")
_DIRECTIVE = re.compile(
    r"""\bauth_pass[ \t]{1,8}(?P<value>[^\s"'{}]+)|\bsecret[ \t]{1,8}"(?P<quoted>[^"\n]+)"[ \t]{0,4};"""
)
"""Directives of keepalived and BIND."""
_INDEXED_VALUE = r"""[ \t]{0,4}(?P<quote>['"])(?P<value>[^'"\s]+)(?P=quote)"""
_DEFINED = re.compile(
    rf"""define(?<=\bdefine)[ \t]{{0,4}}\([ \t]{{0,4}}['"](?:[\w.-]{{0,60}}?{WORDS})['"][ \t]{{0,4}},"""
    rf"""{_INDEXED_VALUE}"""
)
"""``define('DB_PASSWORD', '...')``"""
_INDEXED = re.compile(rf"""\[['"](?:[\w.-]{{0,60}}?{WORDS})['"]\][ \t]{{0,4}}={_INDEXED_VALUE}""")
"""``$x['password'] = '...'``"""
_NAMES_IT = rf"""\b(?:name|key)\\?["']?[ \t]{{0,4}}[:=][ \t]{{0,4}}\\?["']?(?:[\w.-]{{0,60}}?{WORDS})\\?["']?,?"""
_BEGINS_BLOCK = rf"""{WORDS}["']?:[ \t]{{1,4}}[|>][+-]?[0-9]?"""
_PAIR = re.compile(
    rf"""{_NAMES_IT}(?:\s|\\n){{1,80}}\\?["']?value\\?["']?[ \t]{{0,4}}[:=][ \t]{{0,4}}"""
    r"""(?:\\?"(?P<double>[^"\\\n]*)|'(?P<single>[^'\n]*)|(?P<bare>[^\s"'\\{}]+))"""
)
"""``name: DB_PASSWORD`` and ``value: ...``, on one line or two."""
_BLOCK = re.compile(rf"""{_BEGINS_BLOCK}[ \t]{{0,8}}(?:\r?\n|\\n)[ \t]{{1,40}}(?P<value>[^\s](?:[^\n\r\\]|\\(?!n))*)""")
"""A YAML value on the next line."""
MAX_NESTED = 8
"""Maximum names nested in values (``token=token=...``); beyond them the rest is a secret in any case."""
_BEFORE = 200
"""How far before an option its program is searched for, in characters."""

_LOGS_IN = r"(?m:^)[ \t]*(?:machine[ \t]{1,8}\S{1,200}[ \t]{1,8})?(?:login|account|user)[ \t]{1,8}\S{1,200}"
OPEN_LINE = rf"(?:{_NAMES_IT}|{_BEGINS_BLOCK}|{OPENS_ALONE}|{_LOGS_IN}|{file_formats.OPENS_KEY})\s{{1,80}}[^\n]*\Z"
"""A line (in lower case) that makes the content of the next line a secret."""
TRIGGER = "|".join(
    [
        rf"(?:{_WEP}|{'|'.join(re.escape(word) for word in sorted((*_STRONG, *_WEAK), key=len, reverse=True))})"
        rf"{_CALLED}",
        rf"-(?:{'|'.join(_OPTION_NAMES)})[ \t\"'\\]|{WORDS}(?:[ \t]{{1,4}}['\"]|[ \t>]|['\"][ \t,\]])|identified[ \t]",
        r"auth_pass[ \t]|machine[ \t]|value[ \t]{0,4}=",
        file_formats.DIRECTIVE_TRIGGER,
        r"(?:name|key)\\?[\"']?[ \t]{0,4}[:=]|(?=akia|asia|abia|acca)|-----begin|[ \t]login[ \t]",
        file_formats.HEADER_TRIGGER,
        commands.TRIGGER,
    ]
)
"""In an unfinished line (in lower case): a secret may follow; only the end of the line shows where it ends."""


def named_spans(searched: SearchedText) -> Iterator[Span]:
    """Yield the positions of secrets that follow a name."""
    text, low = searched.text, searched.low
    for word in searched.found_lowered(_NAMES):
        yield from _assignments(text, low, compiled(_NAMED[word]), word)
    for word in searched.found_lowered(_OPTIONS):
        yield from _options(text, low, compiled(_OPTION[word]))
    if '"--' in low or "'--" in low:
        yield from (match.span("value") for match in _LISTED.finditer(low) if _is_listed(text, match))
    yield from header_spans(text, low)
    yield from url_spans(text)
    yield from _in_forms(text, low)
    yield from element_spans(text, low)
    yield from directive_spans(searched)
    yield from command_spans(searched)


def _is_listed(text: str, match: re.Match[str]) -> bool:
    value = text[slice(*match.span("value"))]
    return not value.startswith("-") and not is_placeholder(value)


# -- Assignments.


def _assignments(text: str, low: str, pattern: re.Pattern[str], word: str) -> Iterator[Span]:
    match = pattern.search(low)
    end = nested = 0
    while match is not None:
        value = _VALUE.match(text, match.end())
        at = match.end()
        nested = nested + 1 if at < end else 0
        end = value.end() if value is not None else at
        if value is not None and (nested > MAX_NESTED or _is_secret(text, low, match, value, word)):
            yield value.span(value.lastgroup or 0)
            at = value.end()
        match = pattern.search(low, at)


def _is_secret(text: str, low: str, name: re.Match[str], value: re.Match[str], word: str) -> bool:
    kind = value.lastgroup or ""
    found = value[kind]
    if kind == "mark" or not found or (found == "$" and text[value.end() : value.end() + 1] in ("(", "{")):
        return False
    if word in _SHORT and not _SHORT_NAME.search(low, max(0, name.start() - 2), name.start()):
        return False
    if kind == "bare" and _is_shouted(text, name):
        called = text[value.end() : value.end() + 1] == "(" and _IDENTIFIER.fullmatch(found) is not None
        is_secret = not called and word != "pwd"  # PWD is a directory
    else:
        is_secret = _says_enough(low, name, found, word) and (kind != "bare" or _bare_is_secret(text, name, value))
    return is_secret and not is_placeholder(found) and not is_literal(found)


def _says_enough(low: str, name: re.Match[str], found: str, word: str) -> bool:
    """Return whether the name denotes a secret, or the value looks like one."""
    if word == "_auth":
        return is_random(found) or is_login(found)
    if word in _SPACED:
        return (is_random(found) and _NO_KEY.match(found) is None) or _KEY.fullmatch(found) is not None
    return word not in _WEAK or is_random(found) or (word == "token" and _is_credential(low, name))


def _is_shouted(text: str, name: re.Match[str]) -> bool:
    """Return whether it is ``NAME=``, an environment variable."""
    if not name[0].rstrip(" \t").endswith("="):
        return False
    shown = text[slice(*name.span())]
    return shown.isupper() and shown[0].isupper()


def _is_credential(low: str, token: re.Match[str]) -> bool:
    """Return whether the text before ``token`` shows that it is not a parser's token."""
    return _TOKENS.search(low, max(0, token.start() - 44), token.start()) is not None


def _bare_is_secret(text: str, name: re.Match[str], value: re.Match[str]) -> bool:
    """Return whether an unquoted value is a secret: it may also be code or prose."""
    found, end, named = value[0], value.end(), name[0]
    if text[end : end + 1] in ("(", "[", "{", "<") and _IDENTIFIER.fullmatch(found):
        return False
    if found.startswith((":", "=", "~", "!")):
        return False
    attached = named.endswith("=") and not named[-2:-1].isspace()
    ends = attached or _LAST.match(text, end) is not None or _goes_on_without(text, found, end, named)
    return ends and not is_code(found)


def _goes_on_without(text: str, found: str, end: int, named: str) -> bool:
    """Return whether the text after a value on its line continues neither prose nor code."""
    if is_word(found):
        ends = _SEPARATOR if named.rstrip(" \t").endswith(":") else _CLOSES
        return ends.match(text, end) is not None and not is_prose(found)
    return not is_number(found) or len(found) >= 5 or _CLOSES.match(text, end) is not None


def _options(text: str, low: str, pattern: re.Pattern[str]) -> Iterator[Span]:
    """Yield the positions of values of options: ``--db-password VALUE``."""
    for match in pattern.finditer(low):
        if not _OPTION_START.search(text, max(0, match.start() - 40), match.start() + 1):
            continue
        value = _VALUE.match(text, match.end())
        if value is None or value.lastgroup == "mark":
            continue
        found = value[value.lastgroup or 0]
        if found and not found.startswith("-") and not is_placeholder(found) and not _is_synopsis(found):
            yield value.span(value.lastgroup or 0)


def _is_synopsis(found: str) -> bool:
    """Return whether it is ``--token TOKEN``, or a sentence about the option."""
    return is_prose(found) or (found.isupper() and is_secret_name(found))


# -- Other forms.


def _in_forms(text: str, low: str) -> Iterator[Span]:
    """Yield secrets in name/value pairs, YAML blocks, SQL, and ``login me password PASSWORD``."""
    if "value" in low:
        yield from value_spans(text, _PAIR.finditer(low))
    if ": |" in text or ": >" in text:
        yield from value_spans(text, _BLOCK.finditer(low))
    if "define" in low:
        yield from value_spans(text, _DEFINED.finditer(low))
    if "']" in low or '"]' in low:
        yield from value_spans(text, _INDEXED.finditer(low))
    if "auth_pass" in low or "secret" in low:
        yield from value_spans(text, _DIRECTIVE.finditer(low))
    if "password" in low or "identified" in low:
        yield from value_spans(text, _SQL.finditer(low))
    if "login" in low or "machine" in low:
        for match in _NETRC.finditer(text):
            logs_in = _logs_in(low, match.start()) or _is_alone_behind_login(low, match)
            if logs_in and not match["value"].startswith(MARK):
                yield match.span("value")


def _logs_in(low: str, at: int) -> bool:
    """Return whether the text before that position on its line belongs to a login."""
    before = _before(low, at)
    return "login " in before or _MACHINE.search(before) is not None


def _is_alone_behind_login(low: str, password: re.Match[str]) -> bool:
    """Return whether a line contains only the password, and the line before it the user."""
    before, after = _before(low, password.start()), low[password.end() : password.end() + 2].lstrip("\r")
    start = password.start() - len(before)
    if before.strip() or after[:1] not in ("", "\n") or start == 0:
        return False
    return _LOGIN_LINE.fullmatch(_before(low, start - 1)) is not None and not is_prose(password["value"])


def _before(low: str, end: int) -> str:
    """Return the text before that position on its line."""
    return low[max(low.rfind("\n", max(0, end - _BEFORE), end) + 1, end - _BEFORE, 0) : end]
