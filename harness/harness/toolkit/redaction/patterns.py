"""The forms of secrets: names, values, tokens, also with escape sequences inside them."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property

from .literals import Literals, SearchedText

__all__ = [
    "LITERALS",
    "MARK",
    "PlainText",
    "Span",
    "compiled",
    "is_code",
    "is_literal",
    "is_number",
    "is_placeholder",
    "is_prose",
    "is_random",
    "is_secret_name",
    "is_word",
    "open_escape",
    "open_token",
    "plain_text",
    "private_key_spans",
    "titles_text",
    "token_spans",
    "value_spans",
]


# -- Secrets with a form of their own: keys and tokens with a prefix, JWTs, private keys.
#
# Every pattern starts with a literal, so a text without it costs one search, and no pattern can match at two positions
# of one run of its characters: the time is linear in the length of the text.


Span = tuple[int, int]
"""Start and end, in characters."""

compiled = cache(re.compile)
"""Patterns are compiled on first use: compiling all of them would slow down every start."""

_WORD = "A-Za-z0-9_-"


def _token(prefix: str, rest: str, inside: str = _WORD) -> tuple[str, str]:
    """Return a prefix, and the pattern of a token with that prefix which does not start within a word."""
    return prefix, f"{re.escape(prefix)}(?<![{inside}]{re.escape(prefix)}){rest}"


_AWS = r"[A-Z0-9]{16}(?![A-Za-z0-9])(?:[ \t,:|\"']{1,8}[A-Za-z0-9/+]{40}(?![A-Za-z0-9/+=]))?"
"""The id, and the secret if it follows, as in a table."""
_WITH_DIGIT = "(?=[A-Za-z_-]{0,60}[0-9])[A-Za-z0-9_-]{20,}"
_BASE64 = "[A-Za-z0-9+/=]+"
_CRYPT = "[./A-Za-z0-9]"
_HASHES = (
    *(
        (f"${kind}$", rf"\${kind}\${_CRYPT}{{0,16}}\${_CRYPT}{{{size}}}(?!{_CRYPT})")
        for kind, size in (("1", 22), ("apr1", 22))
    ),
    *(
        (f"${kind}$", rf"\${kind}\$(?:rounds=\d{{1,9}}\$)?{_CRYPT}{{0,16}}\${_CRYPT}{{{size}}}(?!{_CRYPT})")
        for kind, size in (("5", 43), ("6", 86))
    ),
    *((f"$2{kind}$", rf"\$2{kind}\$\d\d\${_CRYPT}{{53}}") for kind in ("", "a", "b", "x", "y")),
    *((f"${kind}$", rf"\${kind}\${_CRYPT}{{1,16}}\${_CRYPT}{{1,86}}\${_CRYPT}{{43}}") for kind in ("y", "gy")),
    ("$7$", rf"\$7\${_CRYPT}{{11,97}}\${_CRYPT}{{43}}"),
    *((f"${kind}$", rf"\${kind}\${_CRYPT}{{31}}(?!{_CRYPT})") for kind in ("P", "H")),
    ("$argon2", r"\$argon2(?:id|i|d)\$v=\d+\$[mtp=,0-9]{5,40}\$[A-Za-z0-9+/]{8,90}\$[A-Za-z0-9+/]{16,180}"),
    ("$sha1$", rf"\$sha1\$\d{{1,9}}\${_CRYPT}{{1,64}}\${_CRYPT}{{28}}"),
    ("pbkdf2_sha", r"pbkdf2_sha(?:1|256)\$\d{1,9}\$[A-Za-z0-9]{1,64}\$[A-Za-z0-9+/=]{20,100}"),
    *((f"{{{kind}}}", rf"\{{{kind}\}}[A-Za-z0-9+/]{{20,}}={{0,2}}") for kind in ("SHA", "SSHA", "SSHA256", "SSHA512")),
    *((f"{{{kind}}}", rf"\{{{kind}\}}[A-Za-z0-9+/]{{20,}}={{0,2}}") for kind in ("SHA256", "SHA512", "SMD5", "MD5")),
)
"""Password hashes, as in ``/etc/shadow``, ``opasswd``, the files of ``htpasswd``, LDAP and Django."""
_TOKENS = dict(
    (
        *_HASHES,
        *(_token(prefix, _AWS, "A-Za-z0-9") for prefix in ("AKIA", "ASIA", "ABIA", "ACCA")),
        *(_token(f"gh{kind}_", "[A-Za-z0-9]{20,}", "A-Za-z0-9") for kind in "pousr"),
        _token("github_pat_", "[A-Za-z0-9_]{20,}", "A-Za-z0-9"),
        *(
            _token(f"gl{kind}-", "[A-Za-z0-9_.-]{16,}", "A-Za-z0-9")
            for kind in ("pat", "dt", "rt", "cbt", "ptt", "ft", "soat", "oas", "agent", "imt", "ffct")
        ),
        *(_token(f"xox{kind}-", "[A-Za-z0-9-]{10,}", "A-Za-z0-9") for kind in "abeoprs"),
        _token("xapp-", "[A-Za-z0-9-]{10,}", "A-Za-z0-9"),
        _token("hooks.slack.com/", "(?:services|workflows|triggers)/[A-Za-z0-9/_-]{16,}", "A-Za-z0-9"),
        _token("sk-", _WITH_DIGIT),
        *(_token(f"{kind}_{mode}_", "[A-Za-z0-9]{16,}") for kind in ("sk", "rk") for mode in ("live", "test")),
        _token("AIza", "[A-Za-z0-9_-]{35}"),
        _token("ya29.", "[A-Za-z0-9_-]{20,}"),
        _token("npm_", "[A-Za-z0-9]{36}"),
        _token("pypi-", "AgE[A-Za-z0-9_-]{50,}"),
        _token("hf_", "[A-Za-z0-9]{30,}"),
        _token("dop_v1_", "[a-f0-9]{64}"),
        _token("dckr_pat_", "[A-Za-z0-9_-]{20,}"),
        _token("hvs.", "[A-Za-z0-9_-]{24,}"),
        _token("SG.", r"[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}"),
        _token("AGE-SECRET-KEY-1", "[A-Z0-9]{50,}"),
        _token("AGE-SECRET-KEY-PQ-1", "[A-Z0-9]{50,}"),
        _token("K00", "[0-9][A-Za-z0-9+/]{27}(?![A-Za-z0-9+/=])", "A-Za-z0-9+/"),  # of Backblaze
        _token("eyJ", r"[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*"),
        # base64-encoded private keys, as in the files of kubectl
        _token("LS0tLS1CRUdJTiBSU0EgUFJJVkFURSB", _BASE64, "A-Za-z0-9+/"),
        _token("LS0tLS1CRUdJTiBQUklWQVRFIEtFWS", _BASE64, "A-Za-z0-9+/"),
        _token("LS0tLS1CRUdJTiBFQyBQUklWQVRFIE", _BASE64, "A-Za-z0-9+/"),
        _token("LS0tLS1CRUdJTiBPUEVOU1NIIFBSSVZBVEUg", _BASE64, "A-Za-z0-9+/"),
    )
)
"""By their prefix."""
_PREFIXES = Literals(_TOKENS)
_ANY_PREFIX = "|".join(map(re.escape, _TOKENS))


_OPEN_AWS = re.compile(r"(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}[ \t,:|\"']{1,8}[A-Za-z0-9/+]{0,40}\Z")


def open_token(text: str) -> int:
    """Return where the end of the text may be a part of a key or token; the length of the text if it is not. Pure."""
    start = max(0, len(text) - 4200)
    word = max(start, *(text.rfind(blank, start) + 1 for blank in " \t\r\n"))
    found = [match.start()] if (match := compiled(_ANY_PREFIX).search(text, word)) is not None else []
    if (match := _OPEN_AWS.search(text, start)) is not None:
        found.append(match.start())
    if (scheme := text.rfind("://", word)) >= 0:  # a password in a URL, until the sign that shows that it is not one
        login = text.find(":", scheme + 3)
        found += [login] if login >= 0 and not {"/", "@"} & set(text[scheme + 3 :]) else []
    return min(found, default=len(text))


def token_spans(searched: SearchedText) -> Iterator[Span]:
    """Yield the positions of keys and tokens."""
    for prefix in searched.found(_PREFIXES):
        yield from (match.span() for match in compiled(_TOKENS[prefix]).finditer(searched.text))


_BEGIN = re.compile(r"-----BEGIN (?:[A-Z0-9]+ ){0,4}PRIVATE KEY(?: BLOCK)?-----")
_END = re.compile(r"-----END (?:[A-Z0-9]+ ){0,4}PRIVATE KEY(?: BLOCK)?-----")
_HEADER = r"(?:Proc-Type|DEK-Info|Comment|Version): [^\n]{0,100}"
_BODY = re.compile(rf"(?:[ \t]*(?:[A-Za-z0-9+/=]{{1,80}}|{_HEADER})?[ \t]*\r?\n)*[ \t]*[A-Za-z0-9+/=]{{0,80}}")
_LINE = re.compile(r"[ \t]*[A-Za-z0-9+/=]{1,80}[ \t]*\r?")


def private_key_spans(text: str) -> Iterator[Span]:
    """Yield the positions of private keys with their header and footer, even if one of these is missing."""
    if "PRIVATE KEY" not in text:
        return
    ends = [(match.start(), match.end()) for match in _END.finditer(text)]
    done = number = 0
    for begin in _BEGIN.finditer(text):
        if begin.start() < done:
            continue
        while number < len(ends) and ends[number][0] < begin.end():
            yield _headless(text, done, ends[number])
            done, number = ends[number][1], number + 1
        if number < len(ends) and "-----BEGIN" not in text[begin.end() : ends[number][0]]:
            done = ends[number][1]
            number += 1
        else:
            body = _BODY.match(text, begin.end())
            done = begin.end() + len((body[0] if body else "").rstrip())
        yield begin.start(), done
    for end in ends[number:]:
        if end[0] >= done:
            yield _headless(text, done, end)
            done = end[1]


def _headless(text: str, floor: int, end: Span) -> Span:
    """Return the lines of a key before its footer, for a text that starts within the key."""
    start = text.rfind("\n", floor, end[0]) + 1 or floor
    while start > floor:
        line = text.rfind("\n", floor, start - 1) + 1 or floor
        if not _LINE.fullmatch(text, line, start - 1):
            break
        start = line
    return start, end[1]


# -- Texts without terminal escape sequences, which may occur within a secret or its name.


_SEQUENCE = (
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b\n]{0,4096}(?:\x07|\x1b\\)|[()*+][0-9A-Za-z]|[=>78cDEHM])|\x0e|\x0f"
)
"""Colors and the like, titles and links, character sets."""
_ESCAPE = re.compile(_SEQUENCE)
_ESCAPE_OR_OVERSTRUCK = re.compile(rf"{_SEQUENCE}|[^\n\x08]\x08")
"""Also overstruck characters (``p\bp`` is bold)."""
_TITLE = re.compile(r"\x1b\]([^\x07\x1b\n]{0,4096})(?:\x07|\x1b\\)")
_OPEN = re.compile(r"\x1b(?:\[[0-?]*[ -/]*|\][^\x07\x1b\n]{0,4096}\x1b?|[()*+])?\Z")


@dataclass(frozen=True)
class PlainText:
    """A text without its escape sequences, with the original positions.

    Args:
        text: the text without escape sequences.
        size: the length of the original text.
        pieces: yields the original start and end of each piece, and the number of characters added after it.
    """

    text: str
    size: int
    pieces: Callable[[], Iterator[tuple[int, int, int]]]

    @cached_property
    def _positions(self) -> tuple[list[int], list[int]]:
        """Where the pieces start in the text, and how far each was moved; few texts have a secret, so few need it."""
        starts, shifts, length = [], [], 0
        for begin, end, added in self.pieces():
            starts.append(length)
            shifts.append(begin - length)
            length += end - begin + added
        return starts, shifts

    def place(self, index: int) -> int:
        """Return the original position of a character; the original end for the end of the text."""
        if index >= len(self.text):
            return self.size
        starts, shifts = self._positions
        return index + shifts[bisect_right(starts, index) - 1]

    def span(self, span: Span) -> Span:
        """Return the original position of a span, including escape sequences inside it."""
        return (self.place(span[0]), self.place(span[1] - 1) + 1) if span[0] < span[1] else (0, 0)


def plain_text(text: str) -> PlainText | None:
    """Return the text without escape sequences; None if it has none. Pure."""
    if not any(sign in text for sign in "\x1b\x08\x0e\x0f"):
        return None
    escape = _ESCAPE_OR_OVERSTRUCK if "\x08" in text else _ESCAPE
    plain = escape.sub("", text)
    if len(plain) == len(text):
        return None

    def pieces() -> Iterator[tuple[int, int, int]]:
        done = 0
        for match in escape.finditer(text):
            if match.start() > done:
                yield done, match.start(), 0
            done = match.end()
        yield done, len(text), 0

    return PlainText(plain, len(text), pieces)


def titles_text(text: str) -> PlainText | None:
    """Return what titles and links contain, a line each, which the plain text lacks; None without any. Pure."""
    if "\x1b]" not in text or not (titles := _TITLE.findall(text)):
        return None
    return PlainText(
        "\n".join([*titles, ""]), len(text), lambda: ((*match.span(1), 1) for match in _TITLE.finditer(text))
    )


def open_escape(text: str) -> int:
    """Return the start of an incomplete escape sequence; the length of the text without one. Pure."""
    floor = max(0, len(text) - 4200)
    begin = text.rfind("\x1b", floor)
    if begin == len(text) - 1:  # perhaps half of the terminator of a title
        before = text.rfind("\x1b", floor, max(begin, 0))
        begin = before if before >= 0 and _OPEN.match(text, before) else begin
    return begin if begin >= 0 and _OPEN.match(text, begin) else len(text)


# -- Names whose values are secrets.


MARK = "[redacted]"
"""The replacement for a secret."""

_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_WORDS = (
    *("password", "passwd", "passphrase", "pwd", "secret", "token", "credential", "credentials"),
    *("apikey", "authorization", "accesskey", "privatekey"),
)
_PAIRS = frozenset({"api", "access", "private", "secret", "auth", "account", "signing", "encryption", "master"})
_DIRECTORIES = (["pwd"], ["old", "pwd"], ["oldpwd"])


def is_secret_name(name: str) -> bool:
    """Return whether a name denotes a secret: ``DB_PASSWORD``, ``apiKey``, ``client-secret``."""
    words = [part.lower() for part in _PARTS.findall(name.rstrip("0123456789_-"))]
    if not words or words in _DIRECTORIES:
        return False
    return words[-1].endswith(_WORDS) or (len(words) > 1 and words[-1] == "key" and words[-2] in _PAIRS)


# -- Whether a value with the name of a secret is a secret: code, references and prose are not.


_TYPES = ("string", "str", "text", "bytes", "int", "integer", "number", "bool", "boolean", "object", "any", "self")
_MORE_TYPES = ("char", "varchar", "byte", "float", "double", "usize", "isize", "buffer", "dict", "list", "json")
_CONSTANTS = ("true", "false", "yes", "no", "none", "null", "nil", "undefined", "optional", "required", "default")
_STATES = ("changed", "unchanged", "enabled", "disabled", "empty", "missing", "invalid", "example", "auto", "static")
_SOURCES = ("prompt", "ask", "stdin", "env", "password", "passwd", "pass", "secret", "token", "key", "value", "files")
_MORE_SOURCES = ("pwd", "pw", "hash", "hashed", "include", "omit", "same-origin")
LITERALS = frozenset((*_TYPES, *_MORE_TYPES, *_CONSTANTS, *_STATES, *_SOURCES, *_MORE_SOURCES))
"""Words in place of a secret, in lower case."""

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
"""Words that continue a sentence after a colon."""
_REFERENCE = re.compile(
    r"\$(?:[A-Za-z_]\w*|\{[^}]*\}?|\(.*|env:\w+|\{?\w+\}?[/:].*)|\{\{.*|<[^>]*>?|%(?:\(.*|[A-Za-z_]\w*%)|@\{.*"
    r"|(?P<one>[*x.X-])(?P=one)*|\*+.*"
)
_SIZED = re.compile(r"(?:u|i|f|u?int|float|char|varchar|bytes)\d+")
_IDENTIFIER_ALONE = re.compile(r"[A-Za-z_]\w*")
_ROOTS = (
    "self|this|req|request|config|cfg|conf|settings|process|os|env|args|argv|opts|options|params|data|user|ctx|context"
    "|props|state|event|body|values|var|local|module|each|secrets|github|inputs|steps|needs|cls|app|input|form|session"
)
_ATTRIBUTE = re.compile(rf"(?:{_ROOTS})(?:\??\.[A-Za-z_]\w*)+", re.IGNORECASE)
_NUMBER = re.compile(r"[0-9][0-9.,:_/-]*[%kKmMgGs]?")
_WORD_OF_SENTENCE = re.compile(r"[A-Za-z]?[a-z'\u2019-]*[.!?:]*")
_PARTS_OF_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


def is_placeholder(value: str) -> bool:
    """Return whether it is a placeholder: ``$VARIABLE``, ``{{ template }}``, ``<your key>``, ``****``, ``MARK``."""
    return value.startswith(MARK) or _REFERENCE.fullmatch(value) is not None


def is_literal(value: str) -> bool:
    """Return whether it is a type, a constant or another word in place of a secret."""
    return value[:20].lower() in LITERALS or _SIZED.fullmatch(value) is not None


def is_code(value: str) -> bool:
    """Return whether it is code: the name of a variable that contains a secret, or its type."""
    if is_secret_name(value):
        return True
    if _IDENTIFIER_ALONE.fullmatch(value) and any(is_secret_name(part) for part in _PARTS_OF_WORD.findall(value)):
        return not any(map(str.isdigit, value))
    return _ATTRIBUTE.fullmatch(value) is not None


def is_prose(value: str) -> bool:
    """Return whether a sentence could continue with this word."""
    return value.rstrip(".!?:").lower() in _PROSE


def is_word(value: str) -> bool:
    """Return whether it may be a word of a language with Latin letters."""
    return _WORD_OF_SENTENCE.fullmatch(value) is not None


def is_number(value: str) -> bool:
    """Return whether it is a number, a date, a time or a size."""
    return _NUMBER.fullmatch(value) is not None


def is_random(text: str) -> bool:
    """Return whether it is unlikely to be code or prose."""
    return len(text) >= 6 and any(map(str.isdigit, text)) and not is_number(text)


def value_spans(text: str, matches: Iterator[re.Match[str]]) -> Iterator[Span]:
    """Yield the positions of each match's last group, without placeholders and literals."""
    for match in matches:
        start, end = match.span(match.lastgroup or 0)
        value = text[start:end]
        if value and not is_placeholder(value) and not is_literal(value):
            yield start, end
