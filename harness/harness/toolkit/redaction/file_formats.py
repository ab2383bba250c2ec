"""Secrets in files of settings that write a word and its values without a sign between them, line by line.

Those of SNMP, HAProxy, Redis, IPsec, PPP and routers, password files of PostgreSQL, Postfix and systems, keys of
wireless networks and of rclone, and connection strings.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from .secrets_tokens import Span, compiled
from .secrets_values import is_literal, is_placeholder, is_prose, is_word

__all__ = ["OPENS_KEY", "TRIGGER", "directive_spans"]

_BEFORE_LINE = frozenset("\n:\"'`|#+>-")
"""What stands before a line, also where grep, diff, a comment or ``echo`` shows it."""
_NO_VERB = r"(?!(?:is|are|was|has|can|may|must|in|to|and|or|the|for|of|with)\b)"
"""A sentence about the word itself does not go on so."""
_LEVEL = r"(?:\d[ \t]+)?(?!\d(?:\s|$))"
"""How a router has hidden what follows."""


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
"""Where a word begins: looking from each of its letters on would take long."""
_NAMED = r"""\\?"[^"\\\n]{1,100}\\?\""""
_FIELD = rf"(?:{_NAMED}|[\w.@+%-]{{1,100}})"
_PPP_SERVER = r"(?:\*|x?l2tpd?|pptpd?|pppd?|accel-pppd?|[\w.-]{0,40}vpn[\w.-]{0,40})"
_PPP_ADDRESSES = r"(?:[ \t]+(?:\*|-|\d[\d./:-]*))+"
_ODD_VALUE = r"(?=\S{6})(?=[^\s]*[a-z])(?P<v>(?:[^\s\"';/\\]|\\(?![nrt\"]))+)"
"""It has a letter and is no path."""
_IN_QUOTES = r"""(?:\\?"(?P<v_double>[^"\\\n]+)\\?"|'(?P<v_single>[^'\n]+)')"""
_IPSEC_OWNER = r"(?:(?<![^\s\"'`])|(?<=\\[nt])):[ \t]{0,20}"
_MAIL_USER = r"[^\s:@]{1,100}@[\w-]{1,60}(?:\.[\w-]{1,60}){1,6}"
_MAIL_HOST = r"(?:[\w-]{1,60}\.){1,6}[a-z]{2,20}"
OPENS_KEY = r"(?m:^)[ \t]{0,8}account[ \t]{0,4}=[ \t]{0,4}\S{1,200}"
"""A line of rclone (lowered) behind which the next one holds a key."""


@dataclass(frozen=True, slots=True)
class _Directive:
    """A pattern of small letters, all of whose groups are secrets.

    ``literal``, ``also``: what a text with it holds. ``anywhere``: it need not begin its line. ``odd``: sentences are
    written in the same way, so that only what is no word of a language counts.
    """

    literal: str
    pattern: str
    anywhere: bool = False
    odd: bool = False
    also: str = ""


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
    _Directive(":54", rf"{_LINE}{_HOST}:54\d\d:{_FIELDS}"),
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
        "@", rf"(?:@|\[|{_STARTS}){_MAIL_HOST}\]?(?::\w{{1,12}})?[ \t]+{_MAIL_USER}:{_ODD_VALUE}{_END}", odd=True
    ),
    *(
        _Directive(f":{port}", rf"{_STARTS}{_MAIL_HOST}:{port}[ \t]+[^\s:]{{1,200}}:{_ODD_VALUE}{_END}", odd=True)
        for port in (25, 465, 587, 2525)
    ),
    _Directive(":::", rf"{_STARTS}" r"[\w.-]{1,64}:!?(?P<v>[./a-z0-9]{13}):\d{1,6}:\d*:\d*:\d*:"),
    _Directive(":", rf"{_STARTS}[\w.@-]{{1,64}}:[^:\n]{{0,60}}[a-z][^:\n]{{0,60}}:(?P<v>[0-9a-f]{{32}}){_END}"),
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
    _Directive("pwd=", rf"{_APART}pwd=(?P<v>[^\s;/\"'][^\s;\"']{{0,300}});[ \t]?{_CONNECTED}[ \t]?=", anywhere=True),
    _Directive("pwd=", rf"{_CONNECTED}=[^\s;]{{0,200}};[ \t]+pwd=(?P<v>[^\s;/\"'][^\s;\"']*)", anywhere=True),
)
TRIGGER = (
    r"user(?:name)?[ \t]+\S+[ \t]+(?:privilege|password|secret)[ \t]|enable[ \t]+(?:secret|password)[ \t]"
    r"|-server[ \t][^\n]{0,200}?key[ \t]|isakmp[ \t]+key[ \t]"
    r"|[ \t](?:\*|x?l2tpd?|pptpd?|pppd?|accel-pppd?|[\w.-]{0,40}vpn[\w.-]{0,40})[ \t]|\A[ \t]*\*[ \t]"
    r"|\A[ \t]*\"[^\"\n]{1,100}\"[ \t]"
    r"|:[ \t]*(?:psk|eap|xauth|ntlm|pin|rsa|ecdsa|bliss|pkcs8|pkcs12|p12)[ \t]|00:00:00:00:00:00[ \t]"
)
"""In a line (lowered) that has not ended: what follows may be a secret, and only the line's end says whether it is."""


def directive_spans(text: str, low: str) -> Iterator[Span]:
    """Where the secrets of directives are; ``low`` is the text in small letters."""
    for directive in _DIRECTIVES:
        if directive.literal not in low or directive.also not in low:
            continue
        for match in compiled(f"(?m){directive.pattern}").finditer(low):
            if directive.anywhere or _begins_line(low, match.start()):
                yield from (span for span in _groups(match) if _counts(text[slice(*span)], directive.odd))


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
