"""Whether a program with these words only reads. A positive list: what is not on it is not read-only."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from .names_only import shows_names_only
from .readonlychecks import CHECKS
from .readonlydata import PROGRAMS
from .readonlyprogram import Program
from .readonlyspecial import SPECIAL
from .shelloptions import Options, grammar, parse_options
from .shelltypes import Word

__all__ = ["Finding", "examine", "readable_path"]

_DEVICES = frozenset({"/dev/null", "/dev/zero", "/dev/urandom", "/dev/random", "/dev/stdin", "/dev/fd/0"})
_ELSEWHERE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_STREAMS = re.compile(r"/proc/(kmsg|kcore|.*/mem|sysrq-trigger)|/sys/kernel/(debug|tracing)(/.*)?")


@dataclass(frozen=True, slots=True)
class Finding:
    """What is known of one command. ``reason`` is empty when it only reads.

    ``paths`` are the files it names; ``shows_content``: it may show what is in them. Names, sizes, dates and
    certificates are not secrets.
    """

    reason: str
    paths: tuple[str, ...] = ()
    shows_content: bool = True

    @property
    def read_only(self) -> bool:
        """It only reads."""
        return not self.reason


def examine(name: str, words: Sequence[Word]) -> Finding:
    """Judge a program, by its plain name, with the words behind it. Pure."""
    return replace(_examined(name, words), shows_content=not shows_names_only(name, words))


def _examined(name: str, words: Sequence[Word]) -> Finding:
    if name in SPECIAL:
        reason, paths = SPECIAL[name](tuple(words))
        return Finding(reason or _paths(paths), tuple(path.text for path in paths))
    program = PROGRAMS.get(name)
    if program is None:
        return Finding(f"{name} is not on the list of programs that only read")
    return _judge(name, program, words)


def _judge(name: str, program: Program, words: Sequence[Word]) -> Finding:
    if program.commands:
        return _with_command(name, program, words)
    if program.responses and (found := next((word for word in words if _may_be_response(word)), None)):
        return Finding(f"{name}: {found.raw} may be @FILE, whose text becomes its words")
    known = grammar(program.options, one_dash=program.one_dash, own=program.own)
    only_named = program.operands == "names"
    options = parse_options(words, known, permute=program.permute, loose=program.loose, patterns=only_named)
    if program.operands in ("paths", "pattern") and (unclear := [word for word in options.operands if _unclear(word)]):
        return Finding(f"{name}: what {unclear[0].raw} becomes is only known at run time")
    if options.reason:
        return Finding(f"{name}: {options.reason}")
    paths = [*options.paths, *_operands_read(program, options)]
    check = CHECKS.get(name)
    reason = _operands(program, options) or (check(options) if check is not None else "") or _paths(paths)
    named = options.operands if program.operands == "names" else []
    if name.startswith("git "):
        named = [*named, *_in_commits(options)]
    return Finding(f"{name}: {reason}" if reason else "", tuple(path.text for path in [*paths, *named]))


def _unclear(word: Word) -> bool:
    """It may become an option that names a file, or more files than one sees."""
    return not word.known and not word.operand and not word.pattern


def _may_be_response(word: Word) -> bool:
    """It begins with ``@``, or nobody knows how it begins: a wildcard may stand for such a name, too."""
    start = word.text if word.known else word.lead
    return start.startswith("@") or (not start and not word.known)


def _in_commits(options: Options) -> list[Word]:
    """``HEAD:a/b`` and ``:(top)a/b`` are files, too."""
    texts = [word.text for word in options.operands if ":" in word.text]
    return [Word.of(tail) for text in texts for tail in re.split(r":[0-3]:|:\([^)]*\)|:", text)[1:] if tail]


def _operands_read(program: Program, options: Options) -> list[Word]:
    if program.operands == "paths":
        return _with_suffixes([word for word in options.operands if word.text != "-"], program.suffixes)
    if program.operands == "pattern":
        first = 0 if options.has("-e", "-f", "--regexp", "--file", "--expression") else 1
        return _with_suffixes([word for word in options.operands[first:] if word.text != "-"], program.suffixes)
    return []


def _with_suffixes(words: list[Word], suffixes: Sequence[str]) -> list[Word]:
    return words + [replace(word, text=word.text + suffix) for word in words for suffix in suffixes]


def _operands(program: Program, options: Options) -> str:
    if program.operands == "none" and options.operands:
        return f"{options.operands[0].raw} is an operand, which may change something"
    if program.most is not None and len(options.operands) > program.most:
        return f"more than {program.most} operands"
    if program.most is not None and any(word.spread for word in options.operands):
        return "the number of its operands is only known at run time"
    return ""


def _with_command(name: str, program: Program, words: Sequence[Word]) -> Finding:
    first = parse_options(words, grammar(program.options), permute=False)
    if first.reason:
        return Finding(f"{name}: {first.reason}")
    paths = tuple(word.text for word in first.paths)
    if not first.operands:
        alone = "" if program.alone else f"{name} alone is not on the list"
        return Finding(alone, paths)
    verb = first.operands[0]
    inner = program.commands.get(verb.text) if verb.known else None
    if inner is None:
        return Finding(f"{name} {verb.raw} is not on the list", paths)
    finding = _judge(f"{name} {verb.text}", inner, first.operands[1:])
    return Finding(finding.reason, (*paths, *finding.paths))


def _paths(words: Sequence[Word]) -> str:
    """Why one of the files may not be read unasked; empty when none is in the way."""
    return next((reason for word in words if (reason := readable_path(word))), "")


def readable_path(word: Word) -> str:
    """Why a file is not simply read: it is not known, or to read it does something. Empty when it is."""
    if not (word.known or word.pattern):
        return f"the file {word.raw} is only known at run time"
    if re.match(r"~[-+0-9]", word.raw):
        return f"the directory of {word.raw} is only known at run time"
    plain = posixpath.normpath("/" + word.text.lstrip("/")) if word.text.startswith("/") else word.text
    if plain.startswith("/dev/") and plain not in _DEVICES:
        return f"{word.text} is a device or a connection"
    if _ELSEWHERE.match(word.text):
        return f"{word.text} is on another host"
    if _STREAMS.fullmatch(plain):
        return f"to read {word.text} takes from it, or shows the system's memory"
    return ""
