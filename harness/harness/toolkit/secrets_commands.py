"""Secrets in command lines: what programs take as an option, as an operand, or from ``echo`` through a pipe."""

from __future__ import annotations

import re
from collections.abc import Iterator

from .secrets_names import is_secret_name
from .secrets_programs import PROGRAMS, TEXT, Rule
from .secrets_tokens import Span, compiled
from .secrets_values import is_placeholder, is_prose

__all__ = ["TRIGGER", "command_spans", "reads_secret"]

MAX_ECHO_CHARS = 1 << 10
"""Characters before a pipe in which every ``echo`` is looked at; before them the first of the command is."""

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
_LOOSE = (
    *((word, rf"{word}(?:(?<![\w./-]{word})|(?<=\\n{word}))[ \t]{{1,8}}{_FLAGS}{_NAME}{TEXT}") for word in _SETTERS),
    *(
        (
            word,
            rf"{word}(?:(?<![\w./-]{word})|(?<=\\n{word}))[ \t]{{1,8}}(?:(?:set|add)[ \t]{{1,8}})?"
            rf"{_FLAGS}{_NAME}{TEXT}",
        )
        for word in _CONFIGURERS
    ),
    *((word, rf"{word}(?:(?<![\w./-]{word})|(?<=\\n{word}))[ \t]{{1,8}}{TEXT}") for word in _DIRECTIVES),
)
"""Words after which a name and its value follow, or a value."""
TRIGGER = "|".join(
    [
        rf"(?:{'|'.join(sorted(map(re.escape, PROGRAMS), key=len, reverse=True))})(?:\.exe)?[ \t\"'\\]",
        r"(?:echo|printf)[ \t]|<<<|configure?[ \t]|(?:set|setx|setenv|env|arg)[ \t]",
        r"(?:requirepass|masterauth|rootpw|bindpw)[ \t]",
    ]
)
"""In a line (lowered) that has not ended: what follows may be a secret."""


def command_spans(text: str, low: str) -> Iterator[Span]:
    """Where secrets are in command lines; ``low`` is the text in small letters."""
    for program, rules in PROGRAMS.items():
        if program in low:
            yield from _of_program(text, low, program, rules)
    if "|" in text:
        yield from _piped(text)
    if "<<" in text:
        yield from _here_documents(text)
    for word, pattern in _LOOSE:
        if word in low:
            yield from _named_after(text, low, compiled(pattern))


def reads_secret(command: str) -> bool:
    """Whether a command reads a secret from its standard input: ``sudo -S``, ``docker login --password-stdin``."""
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
    """``PASSWORD`` in a synopsis."""
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
    """The ``echo`` whose words end there: a near one, or the first of its command, however long that is."""
    floor = _begin_of_command(text, end, "|\n;")
    near = _ECHO.search(text, max(floor, end - MAX_ECHO_CHARS), end)
    first = _ECHO_WORD.search(text, floor, end) if near is None else None
    return near if first is None else _ECHO.match(text, first.start(), end)


def _begin_of_command(text: str, end: int, marks: str) -> int:
    """Where the command begins that ends there. The first mark is what it ends with: no text is gone through twice."""
    floor = text.rfind(marks[0], 0, end) + 1
    return max(floor, *(text.rfind(mark, floor, end) + 1 for mark in marks[1:]))


def _here_documents(text: str) -> Iterator[Span]:
    for match in (*_HERE.finditer(text), *_HEREDOC.finditer(text)):
        floor = _begin_of_command(text, match.start(), "<\n|;")
        if _READS.search(text, floor, match.start()) and _counts(match):
            start, end = _value(match)
            yield start, end - (text[end - 1] == "\n")
