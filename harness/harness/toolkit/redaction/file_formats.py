"""Finds secrets in headers, URLs, XML, and configuration lines that separate words and values by blanks."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator
from dataclasses import dataclass

from .literals import Literals, SearchedText
from .patterns import MARK, Span, compiled, is_literal, is_placeholder, is_prose, is_random, is_word, value_spans

__all__ = [
    "DIRECTIVE_TRIGGER",
    "HEADER_TRIGGER",
    "OPENS_ALONE",
    "OPENS_KEY",
    "WORDS",
    "directive_spans",
    "element_spans",
    "header_spans",
    "is_login",
    "url_spans",
]


# -- Secrets in XML elements: ``<password value="...">``, ``<entry key="password">...</entry>``.


WORDS = r"(?:password|passwd|passphrase|secret|token|api_?-?key|access_?-?key|private_?-?key|pwd)"
"""Endings of the names of secrets, in lower case."""
_CONTENT = r"(?:\s|\\[nrt]){0,80}(?P<value>[^<>\s](?:[^<>\n]*[^<>\s])?)\s{0,80}</"
_OPENS = rf"<(?:[\w:-]{{0,60}}?){WORDS}(?:hash)?(?:[ \t][^<>\n]{{0,200}})?>"
OPENS_ALONE = rf"(?m:^)[ \t]{{0,80}}{_OPENS}"
"""An element at the start of its line: its value may be on the next line."""
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
    """Yield the positions of secrets in elements and attributes; ``low`` is the text in lower case."""
    if "</" in text:
        yield from value_spans(text, _ELEMENT.finditer(low))
        yield from value_spans(text, _ELEMENT_CALLED.finditer(low))
        yield from (match.span("value") for match in _PASS_ELEMENT.finditer(low) if is_random(match["value"]))
    if ">\n" in text or ">\r" in text:
        yield from value_spans(text, _ELEMENT_BELOW.finditer(low))
    if "value" in low and ">" in text:
        yield from value_spans(text, _ELEMENT_VALUE.finditer(low))
        yield from value_spans(text, _VALUE_CALLED.finditer(low))


# -- Secrets in HTTP headers and URLs.


HEADER_TRIGGER = r"authorization|bearer[ \t]|basic[ \t]|cookie"
"""In an unfinished line (in lower case): the next characters may be a secret."""

_AUTHORIZATION = re.compile(r"authorization\\?[\"']?[ \t]{0,4}[:=][ \t]{0,4}\\?[\"']?")
_SCHEME = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9_-]{1,40})[ \t]{1,4}(?=[^\s|;&>])")
_SINGLE = re.compile(r"[^\s\"'\\<>]+")
_WHOLE = re.compile(
    r"""(?:[^\s"'\\<>]|[ \t](?![|;&>])|"[^"\n]*"(?=,|[ \t]*$)|(?<==)"[^"\n]*"|(?<==)\\"[^"\n\\]*\\")+""", re.M
)
_PARAMETERS = (
    "digest",
    "hawk",
    "oauth",
    "aws4-hmac-sha256",
    "signature",
    "mac",
    "scram-sha-256",
    "scram-sha-1",
    "mutual",
)
"""Schemes whose credentials consist of several words."""
_SCHEMES = frozenset(
    (
        *(
            "bearer",
            "basic",
            "token",
            "negotiate",
            "ntlm",
            "apikey",
            "api-key",
            "ssws",
            "geniekey",
            "key",
            "dpop",
            "aws",
        ),
        *("sharedkey", "sharedkeylite", "vapid", "hoba", "jwt", "hmac", "kerberos", "splunk", "bot", "secret", "goog1"),
        *("discogs", "klaviyo-api-key", "deepl-auth-key", "client-id", "zoho-oauthtoken", "privatetoken"),
    )
)
_BEARER = re.compile(r"bearer[ \t]{1,4}")
_BEARER_VALUE = re.compile(r"(?=[A-Za-z._~+/=-]{0,80}[0-9])[A-Za-z0-9._~+/=-]{16,}")
_BASIC = re.compile(r"basic[ \t]{1,4}")
_BASIC_VALUE = re.compile(r"[A-Za-z0-9+/]{8,}={0,2}")

_COOKIE = re.compile(r"(?<![a-z0-9_])(?P<set>set-)?cookie2?\\?[\"']?[ \t]{0,4}:[ \t]{0,4}\[?\\?[\"']?")
_CRUMB = re.compile(r"[ \t]{0,4}(?P<name>[^\s=;,\"'\\<>()]{1,200})=(?P<value>[^\s;\"'\\]*);?")
_CRUMB_QUOTED = re.compile(r"[ \t]{0,4}[^\s=;,\"'\\<>()]{1,200}=\\?\"(?P<value>[^\"\\\n;]*)\\?\";?")
_ATTRIBUTES = frozenset(("path", "domain", "expires", "max-age", "samesite", "version", "comment", "priority"))

_URL = re.compile(
    r"://(?P<user>[^\s/:@\"'<>,\[]*):(?P<password>(?!\d{1,5}(?:[/?#\"']|$))(?:[^\s\"'<>/]|/(?!/)){0,256})@"
)
_USER = re.compile(
    r"://(?<=http://|ttps://)(?P<user>[^\s/:@\"'<>,?#\[]{1,512})(?::(?:x-oauth-basic)?)?@(?=[A-Za-z0-9\[$])"
)
_ORACLE = re.compile(r"jdbc:oracle:\w{1,10}:[^\s/\"']{1,100}/(?P<password>[^\s/\"'@]{1,200})@")
_GO = re.compile(r"(?<![\w/:])[\w.-]{1,100}:(?P<password>[^\s:/\"'@]{1,200})@(?:tcp|unix)\(")
_SIGNED = re.compile(
    r"[?&](?:sig|signature|x-goog-signature|x-amz-credential|sv_sig)=(?P<value>[^\s&\"'<>#]{8,})", re.IGNORECASE
)


def header_spans(text: str, low: str) -> Iterator[Span]:
    """Yield the positions of credentials in headers; ``low`` is the text in lower case."""
    if "authorization" in low:
        yield from _authorizations(text, low)
    for word, pattern, value in (("bearer", _BEARER, _BEARER_VALUE), ("basic", _BASIC, _BASIC_VALUE)):
        match = pattern.search(low) if word in low else None
        while match is not None:
            found = value.match(text, match.end())
            if found is not None and _is_header_value(found[0], word):
                yield found.span()
            match = pattern.search(low, found.end() if found is not None else match.end())
    if "cookie" in low:
        for match in _COOKIE.finditer(low):
            yield from _cookies(text, match)


def _authorizations(text: str, low: str) -> Iterator[Span]:
    match = _AUTHORIZATION.search(low)
    while match is not None:
        at = match.end()
        scheme = _SCHEME.match(text, at)
        found = _credentials(text, scheme) if scheme is not None else _alone(text, at)
        if found is not None:
            yield found.span()
        match = _AUTHORIZATION.search(low, found.end() if found is not None else at)


def _credentials(text: str, scheme: re.Match[str]) -> re.Match[str] | None:
    """Return the credentials after a scheme's name, or the word itself if it is not a scheme."""
    if text.startswith(MARK, scheme.end()):
        return None
    name = scheme["scheme"].lower()
    found = (_WHOLE if name in _PARAMETERS else _SINGLE).match(text, scheme.end())
    if found is None or is_placeholder(found[0]):
        return None
    if name in _PARAMETERS:
        return found if "=" in found[0] else None
    known = name in _SCHEMES and not is_prose(found[0]) and not is_literal(found[0])
    if known or is_random(found[0]):
        return found
    return _alone(text, scheme.start()) if is_random(name) else None


def _alone(text: str, start: int) -> re.Match[str] | None:
    found = _SINGLE.match(text, start)
    return found if found is not None and len(found[0]) >= 6 and _is_header_value(found[0], "") else None


def _is_header_value(text: str, word: str) -> bool:
    if text.startswith((MARK, "$")) or "(" in text or is_literal(text) or is_prose(text) or is_placeholder(text):
        return False
    return word != "basic" or is_login(text)


def is_login(text: str) -> bool:
    """Return whether it is ``user:password`` in base64."""
    try:
        plain = base64.b64decode(text + "=" * (-len(text) % 4), validate=True).decode()
    except (binascii.Error, ValueError):
        return False
    return ":" in plain and plain.isprintable()


def _cookies(text: str, header: re.Match[str]) -> Iterator[Span]:
    """Yield the positions of values in a header; in ``Set-Cookie`` only the first is a value."""
    at = header.end()
    while (crumb := _CRUMB_QUOTED.match(text, at) or _CRUMB.match(text, at)) is not None:
        value = crumb["value"]
        if value and not is_placeholder(value):
            yield crumb.span("value")
        if header["set"] or not crumb[0].endswith(";"):
            return
        at = crumb.end()


def url_spans(text: str) -> Iterator[Span]:
    """Yield the positions of passwords and tokens in URLs and database addresses."""
    if "://" in text:
        for match in _URL.finditer(text):
            if _is_password(match["password"]):
                yield match.span("password")
        for match in _USER.finditer(text):
            if match[0].endswith(":x-oauth-basic@") or is_random(match["user"]) or len(match["user"]) >= 32:
                yield match.span("user")
    if "jdbc:oracle:" in text:
        yield from (match.span("password") for match in _ORACLE.finditer(text) if _is_password(match["password"]))
    if "@tcp(" in text or "@unix(" in text:
        yield from (match.span("password") for match in _GO.finditer(text) if _is_password(match["password"]))
    if "=" in text and ("?" in text or "&" in text):
        yield from (match.span("value") for match in _SIGNED.finditer(text) if not is_placeholder(match["value"]))


def _is_password(found: str) -> bool:
    return bool(found) and not is_placeholder(found) and found != "x-oauth-basic"


# -- Secrets in configuration lines that separate words and values by blanks.
#
# SNMP, HAProxy, Redis, IPsec, PPP and routers, password files of PostgreSQL, Postfix and systems, keys of wireless
# networks and of rclone, and connection strings.


_BEFORE_LINE = frozenset("\n:\"'`|#+>-")
"""Characters before a line, also as grep, diff, a comment or ``echo`` shows it."""
_NO_VERB = r"(?!(?:is|are|was|has|can|may|must|in|to|and|or|the|for|of|with)\b)"
"""Excludes sentences about the word itself."""
_LEVEL = r"(?:\d[ \t]+)?(?!\d(?:\s|$))"
"""The encryption type that a router writes before a value."""


def _value(name: str = "v") -> str:
    quoted = rf"""\\?"(?P<{name}_double>[^"\\\n]+)|'(?P<{name}_single>[^'\n]+)"""
    return rf"""(?:{quoted}|(?P<{name}>(?:[^\s"';\\]|\\(?![nrt"]))+))"""


_V = _value()
_END = r"[ \t]*(?=[\r\"'`]|\\[nr]|$)"
_ROUTER_USER = (
    rf"user(?:name)?[ \t]+\S{{1,200}}(?:[ \t]+privilege[ \t]+\d+)?[ \t]+(?:password|secret)[ \t]+{_LEVEL}{_V}"
)
_HOST_WORD = r"(?:traps|informs|version|1|2c|3|auth|noauth|priv)"
_SNMP_HOST = rf"snmp-server[ \t]+host[ \t]+\S+(?:[ \t]+{_HOST_WORD}(?=[ \t]))*[ \t]+(?!{_HOST_WORD}(?:\s|$))"
_BITS = "(?:128|192|256)"
_SNMP_USER = (
    rf"snmp-server[ \t]+user[ \t]+\S+[ \t]+\S+[^\n]{{0,100}}?\bauth[ \t]+(?:md5|sha\S*)[ \t]+{_V}"
    rf"(?:[ \t]+priv[ \t]+(?:des|3des|aes)\S*(?:[ \t]+{_BITS}(?=[ \t]))?[ \t]+(?!{_BITS}(?:\s|$)){_value('w')})?"
)
_APART = r"(?:(?<![\w.;-])|(?<=\\n))"
_LINE = r"(?:^|(?<=[\"'])|(?<=\\n))"
_HOST = r"(?:[\w.-]{1,200}|\*|\[[^\s\]]{1,60}\])"
_FIELDS = rf"[^\s:]{{1,100}}:[^\s:]{{1,100}}:(?P<v>(?:[^\s:\\\"']|\\(?![nrt]).)+){_END}"
_CONNECTED = r"(?:uid|user(?:[ _]?id)?|server|data source|database|driver|host)"
_CREATE_USER = (
    rf"createuser[ \t]+(?:-e[ \t]+\S+[ \t]+)?\S+[ \t]+(?:md5|sha[\d-]*)[ \t]+{_V}"
    rf"(?:\\?[\"']?[ \t]+(?:des|aes[\d-]*)[ \t]+{_value('w')})?"
)

_STARTS = r"(?:(?<![\w.@+%\\-])|(?<=\\[nt]))"
"""The start of a word: matching from each of its letters would be slow."""
_NAMED = r"""\\?"[^"\\\n]{1,100}\\?\""""
_FIELD = rf"(?:{_NAMED}|[\w.@+%-]{{1,100}})"
_PPP_SERVER = r"(?:\*|x?l2tpd?|pptpd?|pppd?|accel-pppd?|[\w.-]{0,40}vpn[\w.-]{0,40})"
_PPP_ADDRESSES = r"(?:[ \t]+(?:\*|-|\d[\d./:-]*))+"
_ODD_VALUE = r"(?=\S{6})(?=[^\s]*[a-z])(?P<v>(?:[^\s\"';/\\]|\\(?![nrt\"]))+)"
"""A value with a letter that is not a path."""
_IN_QUOTES = r"""(?:\\?"(?P<v_double>[^"\\\n]+)\\?"|'(?P<v_single>[^'\n]+)')"""
_IPSEC_OWNER = r"(?:(?<![^\s\"'`])|(?<=\\[nt])):[ \t]{0,20}"
_MAIL_USER = r"[^\s:@]{1,100}@[\w-]{1,60}(?:\.[\w-]{1,60}){1,6}"
_MAIL_HOST = r"(?:[\w-]{1,60}\.){1,6}[a-z]{2,20}"
OPENS_KEY = r"(?m:^)[ \t]{0,8}account[ \t]{0,4}=[ \t]{0,4}\S{1,200}"
"""A line of rclone (in lower case) before a line with a key."""


@dataclass(frozen=True, slots=True)
class _Directive:
    """A pattern in lower case, all of whose groups are secrets.

    ``literal``, ``also``: strings that the text must contain. ``anywhere``: it may match within a line. ``odd``: prose
    has the same form, so values that are words or literals are not secrets. ``hint``: a quick pattern that matches in
    each line in which the pattern, which is slow, can match.
    """

    literal: str
    pattern: str
    anywhere: bool = False
    odd: bool = False
    also: str = ""
    hint: str = ""


_DIRECTIVES = (
    _Directive("community", rf"(?:ro|rw|trap)community6?[ \t]+{_V}"),
    _Directive("community", rf"(?:snmp-server|set[ \t]+snmp)[ \t]+community[ \t]+{_LEVEL}{_V}"),
    _Directive("snmp-server", rf"{_SNMP_HOST}{_V}"),
    _Directive("snmp-server", _SNMP_USER),
    _Directive("sink", rf"(?:trap|trap2|inform)sink[ \t]+{_NO_VERB}\S+[ \t]+{_V}"),
    _Directive("com2sec", rf"com2sec6?[ \t]+(?:-cn[ \t]+\S+[ \t]+)?{_NO_VERB}[^\s-]\S*[ \t]+\S+[ \t]+{_V}"),
    _Directive("createuser", _CREATE_USER),
    _Directive("passphrase", rf"(?:def)?(?:auth|priv|security)passphrase[ \t]+{_V}"),
    _Directive("stats", rf"stats[ \t]+auth[ \t]+[^\s:\"']{{1,200}}:{_V}"),
    _Directive("insecure-password", rf"insecure-password[ \t]+{_V}", anywhere=True),
    _Directive("user", rf"{_ROUTER_USER}(?:[ \t]+groups[ \t][^\n]*)?{_END}", odd=True),
    _Directive(
        "enable", rf"enable[ \t]+(?:secret|password)[ \t]+(?:level[ \t]+\d+[ \t]+)?{_LEVEL}{_V}{_END}", odd=True
    ),
    _Directive("neighbor", rf"neighbor[ \t]+\S+[ \t]+password[ \t]+{_LEVEL}{_V}"),
    _Directive("-server", rf"(?:radius|tacacs)-server[ \t]+(?:[^\n]{{0,200}}?[ \t])?key[ \t]+{_LEVEL}{_V}{_END}"),
    _Directive("key-string", rf"key-string[ \t]+{_LEVEL}{_V}"),
    _Directive("-key", rf"ip[ \t]+ospf[ \t]+authentication-key[ \t]+{_LEVEL}{_V}"),
    _Directive("-key", rf"ntp[ \t]+authentication-key[ \t]+\d+[ \t]+md5[ \t]+{_LEVEL}{_V}"),
    _Directive("message-digest-key", rf"message-digest-key[ \t]+\d+[ \t]+md5[ \t]+{_LEVEL}{_V}", anywhere=True),
    _Directive("isakmp", rf"isakmp[ \t]+key[ \t]+{_LEVEL}{_V}[ \t]+(?:address|hostname)\b", anywhere=True),
    _Directive(
        "pre-shared-key",
        rf"pre-shared-key[ \t]+(?:(?:local|remote)[ \t]+)?(?:(?:ascii-text|hexadecimal)[ \t]+)?{_LEVEL}{_V}",
        anywhere=True,
        odd=True,
    ),
    _Directive("wpa-psk", rf"wpa-psk[ \t]+(?:ascii|hex)[ \t]+{_LEVEL}{_V}", anywhere=True),
    _Directive("psk", rf"{_APART}psk[ \t]+(?:\\?\"(?P<v_double>[^\"\\\n]+)|(?P<v>0[xs]\S+))", anywhere=True),
    _Directive("eap ", rf"{_APART}eap[ ]\\?\"(?P<v_double>[^\"\\\n]+)", anywhere=True),
    _Directive("xauth ", rf"{_APART}xauth[ ]\\?\"(?P<v_double>[^\"\\\n]+)", anywhere=True),
    _Directive("enc", rf"set[ \t]+[\w-]*(?:passwd|password|secret|key)[ \t]+enc[ \t]+{_V}"),
    _Directive(
        " on ",
        r"(?:setuser|user)[ \t]+\S+[ \t]+on[ \t](?:[^\n>]{0,200}[ \t])?>(?P<v>[^\s>]+)",
        anywhere=True,
        also=" >",
    ),
    _Directive(
        "encryption key", r"encryption key:[ \t]*(?P<v>(?:[0-9a-f]{2,4}-){2,}[0-9a-f]{2,4}|[0-9a-f]{10,64})\b", True
    ),
    _Directive(":*:", rf"{_LINE}{_HOST}:\*:{_FIELDS}"),
    _Directive(":54", rf"{_LINE}{_HOST}:54\d\d:{_FIELDS}", hint=r":54\d\d:"),
    _Directive(":6432:", rf"{_LINE}{_HOST}:6432:{_FIELDS}"),
    *(
        directive
        for literal in (" *", "\t*", "l2tp", "pptp", "ppp", "vpn")
        for directive in (
            _Directive(
                literal, rf"{_STARTS}{_FIELD}[ \t]+{_PPP_SERVER}[ \t]+{_ODD_VALUE}{_PPP_ADDRESSES}{_END}", odd=True
            ),
            _Directive(
                literal, rf"{_STARTS}(?:\*|{_FIELD})[ \t]+{_PPP_SERVER}[ \t]+{_IN_QUOTES}(?:{_PPP_ADDRESSES})?{_END}"
            ),
        )
    ),
    _Directive('"', rf"{_NAMED}[ \t]+(?:\*|{_FIELD})[ \t]+{_IN_QUOTES}{_PPP_ADDRESSES}{_END}"),
    *(
        _Directive(kind, rf"{_IPSEC_OWNER}{kind}[ \t]+(?:{_IN_QUOTES}|{_ODD_VALUE}){_END}", anywhere=True, odd=True)
        for kind in ("psk", "eap", "xauth", "ntlm", "pin")
    ),
    *(
        _Directive(kind, rf"{_IPSEC_OWNER}{kind}[ \t]+[^\s\"']\S{{0,200}}[ \t]+{_IN_QUOTES}{_END}", anywhere=True)
        for kind in ("rsa", "ecdsa", "bliss", "pkcs8", "pkcs12", "p12")
    ),
    _Directive("]:", rf"\[[\w.-]{{1,200}}\]:\w{{1,12}}[ \t]+{_MAIL_USER}:(?P<v>[^\s:\\\"']+){_END}"),
    _Directive(
        "@",
        rf"(?:@|\[|{_STARTS}){_MAIL_HOST}\]?(?::\w{{1,12}})?[ \t]+{_MAIL_USER}:{_ODD_VALUE}{_END}",
        odd=True,
        hint=r"@[\w.-]{3,500}:",
    ),
    *(
        _Directive(
            f":{port}",
            rf"{_STARTS}{_MAIL_HOST}:{port}[ \t]+[^\s:]{{1,200}}:{_ODD_VALUE}{_END}",
            odd=True,
            hint=rf":{port}[ \t]",
        )
        for port in (25, 465, 587, 2525)
    ),
    _Directive(":::", rf"{_STARTS}" r"[\w.-]{1,64}:!?(?P<v>[./a-z0-9]{13}):\d{1,6}:\d*:\d*:\d*:"),
    _Directive(
        ":",
        rf"{_STARTS}[\w.@-]{{1,64}}:[^:\n]{{0,60}}[a-z][^:\n]{{0,60}}:(?P<v>[0-9a-f]{{32}}){_END}",
        hint=":[0-9a-f]{32}",
    ),
    _Directive(
        "account",
        rf"account[ \t]{{0,4}}=[ \t]{{0,4}}[^\s\\]{{1,200}}[ \t]*(?:\r?\n|(?:\\r)?\\n)"
        rf"[ \t]*key[ \t]{{0,4}}=[ \t]{{0,4}}{_V}",
    ),
    _Directive("00:00:00:00:00:00", rf"00:00:00:00:00:00[ \t]+{_V}{_END}"),
    *(
        _Directive(f"]:{port}", rf"{_LINE}\[[\w.-]{{1,200}}\]:{port}[ \t]+[^\s:]{{1,200}}:(?P<v>[^\s:\\\"']+){_END}")
        for port in (25, 465, 587)
    ),
    _Directive(
        "pwd=",
        rf"{_APART}pwd=(?P<v>[^\s;/\"'][^\s;\"']{{0,300}});[ \t]?{_CONNECTED}[ \t]?=",
        anywhere=True,
        hint=rf";[ \t]?{_CONNECTED}[ \t]?=",
    ),
    _Directive("pwd=", rf"{_CONNECTED}=[^\s;]{{0,200}};[ \t]+pwd=(?P<v>[^\s;/\"'][^\s;\"']*)", anywhere=True),
)
_DIRECTIVE_LITERALS = Literals(directive.literal for directive in _DIRECTIVES)
DIRECTIVE_TRIGGER = (
    r"user(?:name)?[ \t]+\S+[ \t]+(?:privilege|password|secret)[ \t]|enable[ \t]+(?:secret|password)[ \t]"
    r"|-server[ \t][^\n]{0,200}?key[ \t]|isakmp[ \t]+key[ \t]"
    r"|[ \t](?:\*|x?l2tpd?|pptpd?|pppd?|accel-pppd?|[\w.-]{0,40}vpn[\w.-]{0,40})[ \t]|\A[ \t]*\*[ \t]"
    r"|\A[ \t]*\"[^\"\n]{1,100}\"[ \t]"
    r"|:[ \t]*(?:psk|eap|xauth|ntlm|pin|rsa|ecdsa|bliss|pkcs8|pkcs12|p12)[ \t]|00:00:00:00:00:00[ \t]"
)
"""In an unfinished line (in lower case): the next characters may be a secret; only the end of the line decides."""


def directive_spans(searched: SearchedText) -> Iterator[Span]:
    """Yield the positions of secrets in directives."""
    text, low = searched.text, searched.low
    literals = set(searched.found_lowered(_DIRECTIVE_LITERALS))
    for directive in _DIRECTIVES if literals else ():
        if directive.literal not in literals or directive.also not in low:
            continue
        for match in _matches(directive, low):
            if directive.anywhere or _begins_line(low, match.start()):
                yield from (span for span in _groups(match) if _counts(text[slice(*span)], directive.odd))


def _matches(directive: _Directive, low: str) -> Iterator[re.Match[str]]:
    pattern = compiled(f"(?m){directive.pattern}")
    if not directive.hint:
        yield from pattern.finditer(low)
        return
    hint = compiled(directive.hint)
    found = hint.search(low)
    while found is not None:
        line = low.rfind("\n", 0, found.start()) + 1
        end = low.find("\n", found.start())
        end = end if end >= 0 else len(low)
        yield from pattern.finditer(low, line, end)
        found = hint.search(low, end)


def _begins_line(low: str, at: int) -> bool:
    while at > 0 and low[at - 1] in " \t":
        at -= 1
    return at == 0 or low[at - 1] in _BEFORE_LINE or low[max(0, at - 2) : at] in ("\\n", "\\t")  # in JSON


def _groups(match: re.Match[str]) -> Iterator[Span]:
    return (match.span(name) for name, found in match.groupdict().items() if found)


def _counts(value: str, odd: bool) -> bool:
    if is_placeholder(value) or is_prose(value) or value.startswith(("[", "<", "(")):
        return False
    return not odd or not (is_word(value) or is_literal(value))
