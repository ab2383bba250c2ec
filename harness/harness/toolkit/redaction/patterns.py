"""Secrets that are known by their own form, wherever they stand: keys and tokens with a prefix, JWTs, private keys.

Every pattern begins with a literal, so that a text without it costs one search, and none can match at two places of
one run of its characters: the time is linear in the text, whatever the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

__all__ = ["Span", "compiled", "private_key_spans", "token_spans"]

Span = tuple[int, int]
"""From and to, in characters."""

compiled = cache(re.compile)
"""Patterns are compiled when a text first needs them: all of them at once would cost every start."""

_WORD = "A-Za-z0-9_-"


def _token(prefix: str, rest: str, inside: str = _WORD) -> tuple[str, str]:
    """A token with that prefix, which does not begin in the middle of a word, and the pattern of it."""
    return prefix, f"{re.escape(prefix)}(?<![{inside}]{re.escape(prefix)}){rest}"


_AWS = r"[A-Z0-9]{16}(?![A-Za-z0-9])(?:[ \t,:|\"']{1,8}[A-Za-z0-9/+]{40}(?![A-Za-z0-9/+=]))?"
"""The id, and the secret where it stands beside it, as in a table."""
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
"""Hashes of passwords, as in ``/etc/shadow``, ``opasswd``, the files of ``htpasswd``, LDAP and Django."""
_TOKENS = (
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
    # private keys in base64 once more, as in the files of kubectl
    _token("LS0tLS1CRUdJTiBSU0EgUFJJVkFURSB", _BASE64, "A-Za-z0-9+/"),
    _token("LS0tLS1CRUdJTiBQUklWQVRFIEtFWS", _BASE64, "A-Za-z0-9+/"),
    _token("LS0tLS1CRUdJTiBFQyBQUklWQVRFIE", _BASE64, "A-Za-z0-9+/"),
    _token("LS0tLS1CRUdJTiBPUEVOU1NIIFBSSVZBVEUg", _BASE64, "A-Za-z0-9+/"),
)


def token_spans(text: str) -> Iterator[Span]:
    """Where keys and tokens are."""
    for prefix, pattern in _TOKENS:
        if prefix in text:
            yield from (match.span() for match in compiled(pattern).finditer(text))


_BEGIN = re.compile(r"-----BEGIN (?:[A-Z0-9]+ ){0,4}PRIVATE KEY(?: BLOCK)?-----")
_END = re.compile(r"-----END (?:[A-Z0-9]+ ){0,4}PRIVATE KEY(?: BLOCK)?-----")
_HEADER = r"(?:Proc-Type|DEK-Info|Comment|Version): [^\n]{0,100}"
_BODY = re.compile(rf"(?:[ \t]*(?:[A-Za-z0-9+/=]{{1,80}}|{_HEADER})?[ \t]*\r?\n)*[ \t]*[A-Za-z0-9+/=]{{0,80}}")
_LINE = re.compile(r"[ \t]*[A-Za-z0-9+/=]{1,80}[ \t]*\r?")


def private_key_spans(text: str) -> Iterator[Span]:
    """Where private keys are, the lines around them included; also one whose beginning or end is not there."""
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
    """The lines of a key before its end: somebody read the file from its middle."""
    start = text.rfind("\n", floor, end[0]) + 1 or floor
    while start > floor:
        line = text.rfind("\n", floor, start - 1) + 1 or floor
        if not _LINE.fullmatch(text, line, start - 1):
            break
        start = line
    return start, end[1]
