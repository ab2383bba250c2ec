"""Checks of programs with their own word syntax that only print: sed, find and others."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from ..words import Word, grammar, parse_options
from .special_programs import MORE_SPECIAL

__all__ = [
    "SPECIAL",
    "script_only_prints",
]


# -- sed scripts: a parser of the part of the language that does not write files, run commands or read other files.


_NUMBER = r"(?:[0-9]+(?:~[0-9]+)?|\$)"
_SED_REGEX = r"/(?:[^/\\\n]|\\[^\n])+/I?"
_ADDRESS = rf"(?:{_NUMBER}|{_SED_REGEX})"
_RANGE = re.compile(rf"[ \t]*(?:{_ADDRESS}(?:[ \t]*,[ \t]*(?:{_ADDRESS}|\+[0-9]+|~[0-9]+))?)?[ \t]*!?[ \t]*")
_COMMAND = re.compile(r"[pdPDNnhHgGxq=](?=[ \t]*(?:[;}\n]|\Z))|q[ \t]*[0-9]{1,3}(?=[ \t]*(?:[;}\n]|\Z))")
_SUBSTITUTE = re.compile(
    r"s(?P<mark>[/|#,:@!_%+])(?P<from>(?:(?!(?P=mark))[^\\\n]|\\[^\n])*)(?P=mark)"
    r"(?P<to>(?:(?!(?P=mark))[^\\\n]|\\[^\n])*)(?P=mark)(?P<flags>[gpIi0-9]*)(?=[ \t]*(?:[;}\n]|\Z))"
)
_TRANSLATE = re.compile(r"y/(?:[^/\\\n]|\\[^\n])*/(?:[^/\\\n]|\\[^\n])*/(?=[ \t]*(?:[;}\n]|\Z))")
_END = re.compile(r"[ \t]*[;\n]*[ \t]*")
_BRACKETS = re.compile(r"\[\^?\]?(?:[^\[\]]|\[:[a-z]+:\])*\]")
_LIMIT = 2_000


def script_only_prints(script: str) -> bool:
    """Return whether the whole script is understood and no part of it uses a file or runs a command. Pure."""
    if len(script) > _LIMIT:
        return False
    at, groups = 0, 0
    while at < len(script):
        if (match := _END.match(script, at)) and match.end() > at:
            at = match.end()
            continue
        if script[at] == "}":
            at, groups = at + 1, groups - 1
        else:
            at, opened = _one(script, at)
            groups += opened
        if at < 0 or groups < 0:
            return False
    return groups == 0


def _one(script: str, at: int) -> tuple[int, int]:
    """Return the end of one command (-1 if it is not understood), and 1 if it opens a group."""
    address = _RANGE.match(script, at)
    if address is None or not _whole_brackets(address[0]):
        return -1, 0
    at = address.end()
    if script.startswith("{", at):
        return at + 1, 1
    for pattern in (_COMMAND, _SUBSTITUTE, _TRANSLATE):
        match = pattern.match(script, at)
        if match is not None:
            fine = pattern is not _SUBSTITUTE or _whole_brackets(match["from"])
            return (match.end() if fine else -1), 0
    return -1, 0


def _whole_brackets(regex: str) -> bool:
    """Return whether no bracket is left open: sed versions differ on whether ``/`` in brackets ends the expression."""
    rest = re.sub(r"\\[^\n]", "", regex)
    rest = _BRACKETS.sub("", rest)
    return "[" not in rest


# -- Programs with their own word syntax.


Special = Callable[[tuple[Word, ...]], tuple[str, tuple[Word, ...]]]
"""Checks the words: why they are not read-only (empty if they are), and the files that the command reads."""

_TESTS = frozenset(
    [
        "-b",
        "-c",
        "-d",
        "-e",
        "-f",
        "-g",
        "-h",
        "-k",
        "-L",
        "-n",
        "-O",
        "-G",
        "-S",
        "-N",
        "-p",
        "-r",
        "-s",
        "-u",
        "-w",
        "-x",
        "-z",
    ]
)
_COMPARE = frozenset({"=", "!=", "-nt", "-ot", "-ef"})
_NUMBERS = frozenset({"-eq", "-ne", "-lt", "-le", "-gt", "-ge"})
_INTEGER = re.compile(r"-?[0-9]{1,18}|\$\?|\$#|\"\$\?\"|\"\$#\"")


def _condition(words: tuple[Word, ...]) -> tuple[str, tuple[Word, ...]]:
    """Check ``test`` and ``[``: compared numbers must be literals, as some shells evaluate them as arithmetic."""
    words = words[:-1] if words and words[-1].text in ("]", "]]") else words
    while words and words[0].known and words[0].text == "!":
        words = words[1:]
    if len(words) == 2 and words[0].known and words[0].text in _TESTS:
        return ("" if not words[1].spread else "a condition on words only known at run time"), ()
    if len(words) == 3 and words[1].known and words[1].text in _COMPARE:
        spread = words[0].spread or words[2].spread
        return ("a condition on words only known at run time" if spread else ""), ()
    if len(words) == 3 and words[1].known and words[1].text in _NUMBERS:
        numbers = all(_INTEGER.fullmatch(word.text if word.known else word.raw) for word in (words[0], words[2]))
        return ("" if numbers else "some shells evaluate these operands as arithmetic, which may run commands"), ()
    if len(words) == 1 and words[0].known and words[0].text[:1] not in ("-", "!"):
        return "", ()
    return "the condition is not on the allowlist", ()


def _printf(words: tuple[Word, ...]) -> tuple[str, tuple[Word, ...]]:
    if not words or not words[0].known or words[0].text.startswith("-"):
        return "printf: the format is an option or only known at run time", ()
    formats = re.sub(r"%%", "", words[0].text)
    kinds = re.findall(r"%([-+ #0]*[0-9]*(?:\.[0-9]+)?)(.)", formats, re.DOTALL)
    if any("*" in flags or kind not in "sbqc" for flags, kind in kinds) and not _all_numbers(words[1:]):
        return "printf: some shells evaluate its numbers as arithmetic, which may run commands", ()
    return "", ()


def _all_numbers(words: tuple[Word, ...]) -> bool:
    return all(word.known and re.fullmatch(r"-?[0-9]+(\.[0-9]+)?", word.text) for word in words)


_FIND_FLAGS = frozenset(
    [
        "-H",
        "-L",
        "-P",
        "-a",
        "-and",
        "-o",
        "-or",
        "-not",
        "!",
        "(",
        ")",
        ",",
        "-empty",
        "-readable",
        "-writable",
        "-executable",
        "-nouser",
        "-nogroup",
        "-true",
        "-false",
        "-print",
        "-print0",
        "-ls",
        "-prune",
        "-quit",
        "-xdev",
        "-mount",
        "-follow",
        "-daystart",
        "-depth",
        "-d",
        "-noleaf",
        "-nowarn",
        "-warn",
        "-ignore_readdir_race",
    ]
)
_FIND_VALUES = frozenset(
    [
        "-name",
        "-iname",
        "-path",
        "-ipath",
        "-wholename",
        "-iwholename",
        "-lname",
        "-ilname",
        "-regex",
        "-iregex",
        "-regextype",
        "-type",
        "-xtype",
        "-size",
        "-mtime",
        "-mmin",
        "-atime",
        "-amin",
        "-ctime",
        "-cmin",
        "-newer",
        "-anewer",
        "-cnewer",
        "-newermt",
        "-newerct",
        "-newerat",
        "-samefile",
        "-inum",
        "-links",
        "-user",
        "-group",
        "-uid",
        "-gid",
        "-perm",
        "-maxdepth",
        "-mindepth",
        "-fstype",
        "-printf",
        "-used",
        "-context",
    ]
)


def _anything(words: tuple[Word, ...]) -> tuple[str, tuple[Word, ...]]:
    """Accept any words: of ``echo`` and ``true`` they are only text."""
    return "", ()


def _find(words: tuple[Word, ...]) -> tuple[str, tuple[Word, ...]]:
    """Check the tests and actions of ``find``; commands that it executes are classified separately."""
    rest = list(words)
    roots: list[Word] = []
    while rest:
        word = rest.pop(0)
        if not word.known:
            roots.append(word)
            if not word.operand:
                return f"find: a word is only known at run time: {word.raw}", ()
        elif word.text in _FIND_VALUES:
            if not rest or rest.pop(0).spread:
                return f"find: the value of {word.text} is missing or only known at run time", ()
        elif word.text in ("-exec", "-execdir"):
            while rest and not (rest[0].known and rest[0].text in (";", "+")):
                rest.pop(0)
            rest = rest[1:]
        elif word.text not in _FIND_FLAGS:
            roots.append(word)
            if not word.operand:
                return f"find: {word.text} is not on the allowlist", ()
    return "", tuple(roots)


def _sed(words: tuple[Word, ...]) -> tuple[str, tuple[Word, ...]]:
    options = parse_options(
        words,
        grammar(
            "-nErsuz -e= --quiet --silent --expression= --regexp-extended --separate --unbuffered --null-data "
            "--posix --debug --help --version"
        ),
    )
    if options.reason:
        return f"sed: {options.reason}", ()
    scripts = [word for name, word in options.given if name in ("-e", "--expression") and word is not None]
    files = options.operands
    if not scripts:
        scripts, files = files[:1], files[1:]
    if not scripts or not all(word.known and script_only_prints(word.text) for word in scripts):
        return "sed: the script may write files, run commands or read other files", ()
    return "", tuple(files)


def _tar(words: tuple[Word, ...]) -> tuple[str, tuple[Word, ...]]:
    if words and words[0].known and words[0].text[:1].isalpha() and words[0].text.isascii():
        if "f" in words[0].text[:-1]:
            return "tar: without a dash, letters after f take their values from further words", ()
        words = (Word.of("-" + words[0].text), *words[1:])  # the form without a dash: tar tzf FILE
    options = parse_options(
        words,
        grammar(
            "-tvzjJR -f: --list --verbose --gzip --bzip2 --xz --zstd --file: --wildcards --exclude= --full-time "
            "--numeric-owner --block-number --utc --strip-components="
        ),
    )
    if options.reason:
        return f"tar: {options.reason}", ()
    if not options.has("-t", "--list"):
        return "tar: without -t it does more than list", ()
    if any(":" in path.text or not path.known for path in options.paths):
        return "tar: an archive name is only known at run time or has a colon, which means another host", ()
    return "", tuple(path for path in options.paths if path.text != "-")


_IP_OBJECTS = frozenset(
    [
        "a",
        "ad",
        "add",
        "addr",
        "addre",
        "addres",
        "address",
        "l",
        "li",
        "lin",
        "link",
        "r",
        "ro",
        "rou",
        "rout",
        "route",
        "ru",
        "rul",
        "rule",
        "n",
        "ne",
        "nei",
        "neigh",
        "neighbor",
        "neighbour",
        "maddr",
        "maddress",
        "mroute",
        "tunnel",
        "netns",
        "vrf",
        "netconf",
        "token",
        "tuntap",
    ]
)
_IP_SHOW = frozenset({"show", "sho", "sh", "list", "lis", "ls", "lst"})
"""Not shorter: ``ip link s`` is ``set``."""
_IP_OPTIONS = frozenset(
    [
        "-4",
        "-6",
        "-0",
        "-br",
        "-brief",
        "-s",
        "-stats",
        "-statistics",
        "-d",
        "-details",
        "-j",
        "-json",
        "-p",
        "-pretty",
        "-o",
        "-oneline",
        "-c",
        "-color",
        "-r",
        "-resolve",
        "-h",
        "-human",
        "-human-readable",
        "-iec",
        "-N",
        "-Numeric",
        "-t",
        "-timestamp",
        "-a",
        "-all",
        "-V",
        "-Version",
    ]
)


def _ip(words: tuple[Word, ...]) -> tuple[str, tuple[Word, ...]]:
    if not all(word.known for word in words):
        return "ip: a word is only known at run time", ()
    texts = [word.text for word in words]
    while texts and texts[0].replace("--", "-", 1) in _IP_OPTIONS:
        texts.pop(0)
    if not texts:
        return "", ()
    if texts[0] not in _IP_OBJECTS:
        return f"ip {texts[0]} is not on the allowlist", ()
    shows = texts[1:2] in ([], ["s"]) if texts[0] in ("a", "addr", "address") else not texts[1:]
    gets = texts[0] in ("r", "route") and texts[1:2] == ["get"]
    if not (shows or gets or texts[1] in _IP_SHOW):
        return f"ip {' '.join(texts[:2])} is not on the allowlist", ()
    return "", ()


def _stty(words: tuple[Word, ...]) -> tuple[str, tuple[Word, ...]]:
    texts = [word.text for word in words if word.known]
    allowed = len(texts) == len(words) and texts in (["-a"], ["size"], ["-g"], [])
    return ("" if allowed else "stty: it may change the terminal"), ()


SPECIAL: Mapping[str, Special] = {
    "echo": _anything,
    "true": _anything,
    "false": _anything,
    ":": _anything,
    "[": _condition,
    "[[": _condition,
    "test": _condition,
    "printf": _printf,
    "find": _find,
    "sed": _sed,
    "tar": _tar,
    "ip": _ip,
    "stty": _stty,
    "expr": _anything,
    **MORE_SPECIAL,
}
