"""Commands within the words of programs that nobody here knows: ``tini -- rm x``, ``perl -e 'system("rm x")'``. Pure.

It takes far more than there is, so that it only decides that somebody is asked: where such a command would be blocked
or, in mode ``auto``, denied by a rule.
"""

from __future__ import annotations

import posixpath
import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING

from .blocklist import blocked, may_begin_blocked
from .readonlydata import PROGRAMS
from .shellwrap import is_wrapper
from .written_scripts import WRITERS

if TYPE_CHECKING:
    from .shelljudge import CommandJudgement, SimpleCommand

__all__ = ["embedded_commands", "embedded_reason"]

MAX_CHARS = 256 << 10
"""Characters of all that may be commands in one command, each up to its end; with more it asks."""
_SAY = frozenset({"echo", "printf", "logger", "wall", "write", "notify-send", "say", "tee", "cat", "true", ":"})
"""What runs nothing of what it is given."""
_TAKE_MESSAGES = frozenset({"git", "gh", "glab", "hg", "svn", "jj"})
"""What is given texts for people, as by ``commit -m``."""
_SEVERAL = frozenset(
    [
        *(name for name, program in PROGRAMS.items() if program.commands),
        *("npm", "yarn", "pnpm", "cargo", "go", "pip", "pip3", "uv", "pipx", "brew", "dnf", "yum", "zypper", "pacman"),
        *("gem", "bundle", "terraform", "vagrant", "gcloud", "aws", "az", "gh", "glab", "svn", "hg", "snap", "flatpak"),
        *("virsh", "rabbitmqctl", "restic", "borg", "rclone", "mc", "s3cmd", "lxc", "incus", "pct", "qm", "helm"),
        *("apt-get", "aptitude", "service", "rc-service", "initctl", "ip", "tc", "nft", "crictl"),
    ]
)
"""Programs with sub-commands, which are words such as ``rm`` and ``run``."""
_MARKS = frozenset({"exec", "run", "--", "-x", "-X", "--exec", "-exec", "foreach"})
"""Behind one of these a program with sub-commands may be given a command."""
_NAME = re.compile(r"[A-Za-z0-9_./+][\w./+-]*")
_ENDS = re.compile(r"[;|&\n`'\"(){}\[\]!<>$,%\\]+")
_LIST_BEGINS = re.compile(r"[\[(](?=\s*[rub]{0,2}['\"`]?[\w./])")
_LIST_ENDS = re.compile(r"[\])]")
_LIST_WORDS = 24
"""Words in which the operands of ``rm`` and ``harness`` are looked for, whatever stands between them."""


def embedded_reason(judgement: CommandJudgement, patterns: Sequence[str]) -> str:
    """Why a program may run a command that is blocked; empty when it does not."""
    for command in judgement.commands:
        runs = _embedded(command)
        if runs is None:
            return (
                f"{command.argv[0] if command.argv else 'it'} is given more words that may be commands than are judged"
            )
        watched = {word for word in {words[0] for words in runs} if may_begin_blocked(word, patterns)}
        for words in runs:
            if words[0] in watched and (why := blocked(words, patterns)):
                return f"{command.argv[0] if command.argv else 'it'} may run {' '.join(words[:4])}: {why}"
    return ""


def embedded_commands(judgement: CommandJudgement) -> tuple[str, ...]:
    """The texts of commands that programs may run, as rules know them."""
    found = (words for command in judgement.commands for words in _embedded(command) or ())
    return tuple(dict.fromkeys(" ".join((posixpath.basename(words[0]), *words[1:])) for words in found))


def _embedded(command: SimpleCommand) -> tuple[tuple[str, ...], ...] | None:
    """What may be commands in the words of another; None when that is too much to be judged."""
    name = posixpath.basename(command.argv[0]) if command.argv else ""
    if command.read_only or name in _SAY:
        return _runs("", (), command.code) if name in WRITERS else ()
    return _runs(name, command.argv, command.code)


@lru_cache(maxsize=8)
def _runs(name: str, argv: tuple[str, ...], code: str) -> tuple[tuple[str, ...], ...] | None:
    texts = [word for word in argv[1:] if re.search(r"\s", word) and name not in _TAKE_MESSAGES]
    inner = () if is_wrapper(name) else _behind(name, argv)
    found, room = [], MAX_CHARS
    for words in chain(inner, chain.from_iterable(_in_text(text) for text in (*texts, code))):
        room -= sum(map(len, words)) + len(words)
        if room < 0:
            return None
        if words and _NAME.fullmatch(words[0]):
            found.append(words)
    return tuple(found)


def _behind(name: str, argv: Sequence[str]) -> Iterable[tuple[str, ...]]:
    """What stands behind a program, from each word on that may be the name of another."""
    first = next((at + 1 for at, word in enumerate(argv) if word in _MARKS), len(argv)) if name in _SEVERAL else 1
    for at in range(first, len(argv)):
        yield tuple(argv[at:])


def _in_text(text: str) -> Iterable[tuple[str, ...]]:
    """What may be a command in a program for an interpreter; also as a list of its words."""
    parts = [part.split() for part in _ENDS.split(text)]
    for words in parts:
        for at in range(len(words)):
            yield tuple(words[at:])
    listed = [word for words in parts for word in words]
    for at, word in enumerate(listed):
        if posixpath.basename(word) in ("harness", "rm"):
            yield tuple(listed[at : at + _LIST_WORDS])
    yield from _lists(text)


def _lists(text: str) -> Iterable[tuple[str, ...]]:
    """The words of each list: ``["git", "push"]``, ``spawn("git", ["push"])``."""
    ends = [match.start() for match in _LIST_ENDS.finditer(text)]
    for begin in _LIST_BEGINS.finditer(text):
        at = bisect_right(ends, begin.start())
        parts = _ENDS.split(text[begin.end() : ends[at] if at < len(ends) else len(text)])
        yield tuple(word for part in parts for word in part.split())
