"""Finds secrets in command lines: options, operands, and ``echo`` through a pipe."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from .literals import Literals, SearchedText
from .patterns import Span, compiled, is_placeholder, is_prose, is_secret_name

__all__ = [
    "PROGRAMS",
    "TEXT",
    "TRIGGER",
    "Rule",
    "command_spans",
    "reads_secret",
]


# -- Programs that accept secrets in their arguments, and where these are.


_GAP = r"""(?:[ \t]{1,4}|\\?["'],[ \t]{0,4}\\?["'])"""
"""Between two words: blanks, or separators of a JSON or Python list."""
_START = r"""(?<=[\s"'])"""
_QUOTED = r"""'(?P<single>[^'\n]+)|\\?"(?P<double>[^"\\\n]+)"""
_END = r"""\s"'\\;|&<>`"""
TEXT = rf"(?:{_QUOTED}|(?P<bare>[^{_END}(),-][^{_END}]*))"
"""A word that does not start like an option."""
_ANY = rf"(?:{_QUOTED}|(?P<bare>[^{_END}]+))"
_NO_PORT = r"(?!(?:[\d.]+:)?\d+:\d+)"
"""Not ``-p 80:8080`` of a container with the program's name."""
_WORD = r"""(?:"[^"\n]{1,200}"|'[^'\n]{1,200}'|[^\s"'|;&<>-][^\s"'|;&<>]{0,199})"""


@dataclass(frozen=True, slots=True)
class Rule:
    """A pattern whose last group is the secret.

    ``after``: a pattern that must match earlier in the command; ``first``: only the first match counts.
    """

    pattern: str
    after: str = ""
    first: bool = False


def _option(*names: str, value: str = TEXT, end: str = rf"(?:{_GAP}|=)", after: str = "") -> Rule:
    return Rule(rf"{_START}(?:{'|'.join(map(re.escape, names))}){end}{value}", after)


def _attached(name: str, after: str = "") -> Rule:
    return _option(name, value=_ANY, end="", after=after)


def _operand(words: str, skipped: int = 0, value: str = TEXT) -> Rule:
    """Return a rule for the operand after these words and a number of others."""
    return Rule(rf"(?<![\w-]){words}(?:{_GAP}{_WORD}){{{skipped}}}{_GAP}{value}")


def _within(before: str) -> str:
    """Return a pattern for the rest of a word after these characters."""
    quoted = rf"""'{before}(?P<single>[^'\n]+)|\\?"{before}(?P<double>[^"\\\n]+)|{before}["'](?P<inner>[^"'\n]+)"""
    return rf"(?:{quoted}|{before}(?P<bare>[^{_END}]+))"


_LOGIN = _within(r"[^\s:\"']{0,200}:")
_LOGIN_COMMAND = (_option("-p", "-t", after=r"\blogin\b"), _attached("-p", after=r"\blogin\b"))
_MYSQL = (_attached("-p"), _operand("password"))
_P = (_option("-p", value=_NO_PORT + TEXT),)
_CAPITAL_P = (_option("-P"), _attached("-P"))
_SSHPASS = (Rule(rf"sshpass(?:\.exe)?(?:{_GAP}(?:-[vVe]|-P{_GAP}?{_WORD}))*{_GAP}-p(?:{_GAP})?{_ANY}"),)
_FIRST_P = (Rule(rf"{_START}-p(?:{_GAP})?{_ANY}", first=True),)
_PERCENT = _within(r"[^\s%\"']{0,200}%")
_SAMBA = (
    _option("-U", "--user", value=_PERCENT),
    _option("-U", value=_PERCENT, end=""),
    _operand(r"//[^\s\"']{1,200}"),
)
_LDAP = (_option("-w"), _attached("-w"), Rule(rf"{_START}-[A-Za-z]{{1,6}}w{_GAP}{TEXT}"))
_ARCHIVE = (Rule(rf"{_START}-h?p{_ANY}"),)
_STORE = ("-storepass", "-keypass", "-srcstorepass", "-deststorepass", "-srckeypass", "-destkeypass", "-new")
_COOKIE = _within(r"[^\s=;\"'/]{1,200}=")
_HTPASSWD = r"(?:[ \t]+-[A-Za-z](?:[ \t]+\d+)?){0,4}"
_TWO_WORDS = r"(?:[ \t]+[^\s-]\S{0,200}){2}"
_REDIS = (_option("-a", "--pass"), _operand("(?:auth|AUTH|requirepass|masterauth)"))
_SNMP = (_option("-A", "-X", "-c"), _attached("-c"))
_WIRELESS = r"(?!(?:on|off|open|restricted|\[?\d\]?)(?:\s|$))(?:s:)?"
_IWCONFIG = r"(?:key|enc(?:ryption)?)(?:[ \t]+(?:open|restricted|on|\[\d\]))*"
_RDP = (Rule(rf"{_START}/(?:p|gp|pass|password):{_ANY}"), _option("-p"))
_TOKEN = (_option("-t", "-token"),)

PROGRAMS: dict[str, tuple[Rule, ...]] = {
    **dict.fromkeys(("mysql", "mariadb", "mysqldump", "mysqladmin", "mysqlimport", "mysqlshow"), _MYSQL),
    **dict.fromkeys(("mysqlcheck", "mysqlslap", "mysqlbinlog", "mariadb-dump", "mariadb-admin"), _MYSQL),
    **dict.fromkeys(("mysqlsh", "mycli", "mysql_upgrade"), _MYSQL),
    **dict.fromkeys(("mongo", "mongosh", "mongodump", "mongorestore", "mongoexport", "mongoimport"), _P),
    **dict.fromkeys(("cqlsh", "psexec", "ncftp", "twine", "mongostat"), _P),
    "influx": (*_P, _option("-password", "-t")),
    **dict.fromkeys(("useradd", "usermod"), _FIRST_P),
    "sshpass": _SSHPASS,
    **dict.fromkeys(("redis-cli", "valkey-cli", "keydb-cli"), _REDIS),
    "curl": (
        _option("-u", "--user", "-U", "--proxy-user", "-E", "--cert", value=_LOGIN),
        _option("-u", "-U", value=_LOGIN, end=""),
        _option("--proxy-cert", value=_LOGIN),
        Rule(rf"{_START}-[A-Za-z#]{{1,8}}(?<=[uUE])(?:{_GAP}|=){_LOGIN}"),
        Rule(
            rf"{_START}(?:-[A-Za-z]{{0,8}}x|--(?:pre)?proxy|--socks\w+){_GAP}['\"]?[^\s:/@\"']{{1,200}}:(?!//)"
            r"(?P<bare>[^\s@\"'\\]+)(?=@)"
        ),
        _option("--pass", "--proxy-pass", "--oauth2-bearer", "--tlspassword", "--proxy-tlspassword"),
        _option("-b", "--cookie", value=_COOKIE),
    ),
    "wget": (_option("--http-passwd", "--proxy-passwd"),),
    **dict.fromkeys(("smbclient", "rpcclient", "winexe", "smbget", "smbcacls", "smbmap"), _SAMBA),
    "net": (
        _option("-U", "--user", value=_within(r"[^\s%\"']{0,200}%")),
        Rule(rf"\buser[ \t]+{_WORD}[ \t]+(?![/*])(?=\S{{0,60}}[^a-z\s]|\S+[ \t]+/){_ANY}"),
        Rule(rf"\buse[ \t]+(?:[A-Za-z*]:?[ \t]+)?\\\\\S{{1,200}}[ \t]+(?![/*]){TEXT}"),
    ),
    **dict.fromkeys(("ldapsearch", "ldapadd", "ldapmodify", "ldapdelete", "ldapwhoami", "ldapcompare"), _LDAP),
    "ldappasswd": (*_LDAP, _option("-s", "-a")),
    **dict.fromkeys(("ipmitool", "ipmipower", "sqlcmd", "bcp", "zip", "unzip", "zipcloak"), _CAPITAL_P),
    **dict.fromkeys(("7z", "7za", "7zr", "7zz", "rar", "unrar"), _ARCHIVE),
    "openssl": (
        _option("-pass", "-passin", "-passout", "-password", value=_within("(?:pass):")),
        _option("-k", "-K", "-hmac"),
        _option("-macopt", value=_within("(?:hex)?key:")),
        _operand(r"passwd(?:[ \t]+-(?:1|5|6|apr1|salt[ \t]+\S{1,40}))*"),
    ),
    **dict.fromkeys(("keytool", "jarsigner"), (_option(*_STORE),)),
    "ssh-keygen": (_option("-N", "-P"),),
    "htpasswd": (
        Rule(rf"{_START}-(?=[A-Za-z]*b)(?=[A-Za-z]*n)[A-Za-z]{{2,8}}{_HTPASSWD}[ \t]+[^\s-]\S{{0,200}}{_GAP}{_ANY}"),
        Rule(rf"{_START}-(?=[A-Za-z]*b)(?![A-Za-z]*n)[A-Za-z]{{1,8}}{_HTPASSWD}{_TWO_WORDS}{_GAP}{_ANY}"),
        Rule(rf"{_START}-[A-Za-z]{{1,8}}[ \t]+-b{_HTPASSWD}{_TWO_WORDS}{_GAP}{_ANY}"),
    ),
    **dict.fromkeys(("gpg", "gpg2", "duplicity"), (_option("--passphrase", "--sign-passphrase"),)),
    **dict.fromkeys(
        ("snmpget", "snmpwalk", "snmpset", "snmpbulkwalk", "snmpgetnext", "snmpbulkget", "snmptrap"), _SNMP
    ),
    **dict.fromkeys(("snmpinform", "snmptable", "snmpstatus", "snmpdelta"), _SNMP),
    **dict.fromkeys(("check_snmp", "snmpcheck"), (_option("-C", "-c", "--community", "-A", "-X"),)),
    "iwconfig": (_operand(_IWCONFIG, value=rf"{_WIRELESS}{_ANY}"),),
    "iw": (Rule(rf"(?<!\S)(?:d:)?[0-3]:{_ANY}", after=r"\bconnect\b.*\bkeys?[ \t]"),),
    "wpa_cli": (_operand(r"set_network[ \t]+\d+[ \t]+(?:psk|password|sae_password|wep_key\d|private_key_passwd)"),),
    **dict.fromkeys(
        ("mount", "mount.cifs"), (Rule(rf"(?<![\w-])user(?:name)?=[^\s,%\"']{{1,200}}%(?P<bare>[^{_END},]+)"),)
    ),
    **dict.fromkeys(("http", "https", "xh", "xhs", "ab"), (_option("-a", "--auth", "-A", value=_LOGIN),)),
    "etcdctl": (_option("--user", value=_LOGIN), _operand("user[ \t]+add", value=_LOGIN)),
    "lftp": (_option("-u", "--user", value=_within(r"[^\s,\"']{1,200},")),),
    "aws": (_operand(r"(?:[\w-]+\.){0,3}(?:aws_secret_access_key|aws_session_token|aws_access_key_id)"),),
    "vault": (
        Rule(rf"{_START}[A-Za-z_][\w.-]{{0,100}}=(?!@|-(?:\s|$)){_ANY}", after=r"\b(?:put|write|patch|login)\b"),
        _operand("login", value=rf"(?!\S*=){TEXT}"),
        _option("-token", "-password"),
    ),
    "kubectl": (_option("--from-literal", value=_within(r"[^\s=\"']{1,200}=")),),
    "gh": (_option("-b", "--body", after=r"\bsecret[ \t]+set\b"),),
    "nmcli": (_operand(r"(?:password|psk|wep-key0|[\w-]+\.(?:psk|password|wep-key0))"),),
    "wpa_passphrase": (_operand("wpa_passphrase", 1),),
    "rabbitmqctl": (_operand("(?:add_user|change_password)", 1),),
    "kadmin": (_option("-w", "-pw"),),
    **dict.fromkeys(("xfreerdp", "wlfreerdp", "rdesktop"), _RDP),
    **dict.fromkeys(("consul", "nomad", "cloudflared", "glab"), _TOKEN),
    **dict.fromkeys(("docker", "podman", "nerdctl", "buildah", "skopeo", "crane", "helm"), _LOGIN_COMMAND),
    **dict.fromkeys(("az", "oc", "argocd", "doctl", "cf", "gcloud"), _LOGIN_COMMAND),
    "ansible-vault": (_operand("encrypt_string"),),
    "cargo": (_operand(r"login"),),
    "ngrok": (_operand("(?:authtoken|add-authtoken)"),),
    "rclone": (_operand("(?:obscure|reveal)"),),
    "sqlplus": (Rule(rf"""{_START}[^\s/"'@]{{1,200}}/(?P<bare>[^\s/"'@]+)(?=[@\s"']|$)"""),),
    "mkpasswd": (_operand(r"mkpasswd(?:[ \t]+-\S{1,20})*"),),
}
"""By the name of the program, in lower case."""
_PROGRAM_NAMES = Literals(PROGRAMS)


# -- Finding the secrets.


MAX_ECHO_CHARS = 1 << 10
"""Characters before a pipe in which every ``echo`` is searched; before them only the first one of the command."""

_SEGMENT = re.compile(r"""(?:'[^'\n]*'|"(?:[^"\\\n]|\\[^\n])*"|\\[^\n]|[^;|&\n\\])*""")
"""The rest of a simple command."""
_SUDO = r"sudo[ \t](?:[^|;&\n]{0,1000}[ \t])?-[A-Za-z]*S"
_STDIN = (
    r"(?:--(?:(?:password|passphrase|pass|token|secret)-(?:stdin|fd)|with-token)|pass(?:in|out)?[ \t]stdin"
    r"|secret[ \t](?:set|put|create)|secrets[ \t](?:set|versions)|pass[ \t]insert|vault[ \t]login)"
)
"""Words of a command that reads a secret."""
_PROGRAM = (
    r"(?:sudo[ \t]+(?:-\S{1,20}[ \t]+){0,4})?(?:/[\w/]{0,40}/)?"
    r"(?:chpasswd|passwd|smbpasswd|cryptsetup|kinit|gocryptfs|vncpasswd|saslpasswd2)\b"
)
_READER = rf"(?:{_SUDO}|{_PROGRAM}|[^|;&\n]{{0,4000}}{_STDIN})"
_PIPE = re.compile(rf"\|[ \t]{{0,8}}{_READER}")
_ECHO_WORD = re.compile(r"""(?:^|(?<=[\s;&|("'`]))(?:echo|printf)[ \t]""")
_ECHO = re.compile(
    r"""(?:^|(?<=[\s;&|("'`]))(?:echo|printf)[ \t]+(?:(?:-[neE]+|--|'%s(?:\\n)?'|"%s(?:\\n)?"|%s(?:\\n)?)[ \t]+)*"""
    r"""(?:'(?P<single>[^'\n]+)'|\\?"(?P<double>[^"\\\n]+)\\?"|(?P<bare>[^\s'"][^'"\n]*?))[ \t]*\Z"""
)
_HERE = re.compile(rf"<<<[ \t]{{0,8}}{TEXT}")
_HEREDOC = re.compile(
    r"""<<-?[ \t]{0,4}\\?['"]?(?P<tag>\w{1,40})['"]?[^\n]{0,200}\n"""
    r"""(?P<value>(?:[^\n]{1,500}\n){1,20}?)[ \t]{0,40}(?P=tag)\b"""
)
_READS = re.compile(rf"{_SUDO}|{_PROGRAM}|{_STDIN}")
_ASKS = re.compile(rf"{_READS.pattern}|(?<![\w.-])su(?![\w.-])")


def _word(word: str) -> str:
    return rf"{word}(?:(?<![\w./-]{word})|(?<=\\n{word}))[ \t]{{1,8}}"


_SETTERS = ("set", "setx", "setenv", "env", "arg")
_CONFIGURERS = ("config", "configure")
_DIRECTIVES = ("requirepass", "masterauth", "rootpw", "bindpw", "rootbindpw")
_FLAGS = r"(?:-{1,2}[\w-]{1,20}[ \t]{1,4}){0,3}"
_NAME = r"(?P<name>[\w./:@-]{1,200})[ \t]{1,8}"
_LOOSE = {
    **{word: f"{_word(word)}{_FLAGS}{_NAME}{TEXT}" for word in _SETTERS},
    **{word: rf"{_word(word)}(?:(?:set|add)[ \t]{{1,8}})?{_FLAGS}{_NAME}{TEXT}" for word in _CONFIGURERS},
    **{word: f"{_word(word)}{TEXT}" for word in _DIRECTIVES},
}
"""By a word: the word, and a name and its value, or a value."""
_LOOSE_WORDS = Literals(_LOOSE)
TRIGGER = "|".join(
    [
        rf"(?:{'|'.join(sorted(map(re.escape, PROGRAMS), key=len, reverse=True))})(?:\.exe)?[ \t\"'\\]",
        r"(?:echo|printf)[ \t]|<<<|configure?[ \t]|(?:set|setx|setenv|env|arg)[ \t]",
        r"(?:requirepass|masterauth|rootpw|bindpw)[ \t]",
    ]
)
"""In an unfinished line (in lower case): the next characters may be a secret."""


def command_spans(searched: SearchedText) -> Iterator[Span]:
    """Yield the positions of secrets in command lines."""
    text, low = searched.text, searched.low
    for program in searched.found_lowered(_PROGRAM_NAMES):
        yield from _of_program(text, low, program, PROGRAMS[program])
    if "|" in text:
        yield from _piped(text)
    if "<<" in text:
        yield from _here_documents(text)
    for word in searched.found_lowered(_LOOSE_WORDS):
        yield from _named_after(text, low, compiled(_LOOSE[word]))


def reads_secret(command: str) -> bool:
    """Return whether a command reads a secret from standard input: ``sudo -S``, ``docker login --password-stdin``."""
    return _ASKS.search(command) is not None


def _of_program(text: str, low: str, program: str, rules: tuple[Rule, ...]) -> Iterator[Span]:
    name = re.escape(program)
    called = compiled(rf"{name}(?:(?<![\w.@-]{name})|(?<=\\n{name}))(?:\.exe)?(?=[ \t\"'\\])")
    match = called.search(low)
    while match is not None:
        segment = _SEGMENT.match(text, match.end())
        end = segment.end() if segment else match.end()
        for rule in rules:
            yield from _of_rule(text, rule, match.start(), end)
        match = called.search(low, max(end, match.end()))


def _of_rule(text: str, rule: Rule, start: int, end: int) -> Iterator[Span]:
    if rule.after:
        word = compiled(rule.after).search(text, start, end)
        if word is None:
            return
        start = word.end()
    for match in compiled(rule.pattern).finditer(text, start, end):
        if _counts(match):
            yield _value(match)
        if rule.first:
            return


def _value(match: re.Match[str]) -> Span:
    return match.span(match.lastgroup or 0)


def _counts(match: re.Match[str]) -> bool:
    value = match[match.lastgroup or 0]
    return not (is_placeholder(value) or (match.lastgroup == "bare" and (is_prose(value) or _is_metavar(value))))


def _is_metavar(value: str) -> bool:
    """Return whether it is a placeholder of a synopsis, such as ``PASSWORD``."""
    return value.isupper() and is_secret_name(value)


def _named_after(text: str, low: str, pattern: re.Pattern[str]) -> Iterator[Span]:
    for match in pattern.finditer(low):
        name = text[slice(*match.span("name"))] if "name" in pattern.groupindex else None
        if (name is None or is_secret_name(name) or name.lower().endswith("psk")) and _counts(match):
            yield _value(match)


def _piped(text: str) -> Iterator[Span]:
    for match in _PIPE.finditer(text):
        echo = _echo_before(text, match.start())
        if echo is not None and _counts(echo):
            yield _value(echo)


def _echo_before(text: str, end: int) -> re.Match[str] | None:
    """Return the ``echo`` that ends there: a near one, or the first of its command, however long that is."""
    floor = _begin_of_command(text, end, "|\n;")
    near = _ECHO.search(text, max(floor, end - MAX_ECHO_CHARS), end)
    first = _ECHO_WORD.search(text, floor, end) if near is None else None
    return near if first is None else _ECHO.match(text, first.start(), end)


def _begin_of_command(text: str, end: int, marks: str) -> int:
    """Return the start of the command that ends there; the first mark bounds the search for the other marks."""
    floor = text.rfind(marks[0], 0, end) + 1
    return max(floor, *(text.rfind(mark, floor, end) + 1 for mark in marks[1:]))


def _here_documents(text: str) -> Iterator[Span]:
    for match in (*_HERE.finditer(text), *_HEREDOC.finditer(text)):
        floor = _begin_of_command(text, match.start(), "<\n|;")
        if _READS.search(text, floor, match.start()) and _counts(match):
            start, end = _value(match)
            yield start, end - (text[end - 1] == "\n")
