"""Commands within the words of programs that nobody here knows: ``tini -- rm x``, ``perl -e 'system("rm x")'``. Pure.

It takes far more than there is, so that it only decides that somebody is asked: where such a command would be blocked
or, in mode ``auto``, denied by a rule.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from .blocklist import blocked
from .readonlydata import PROGRAMS
from .shellwrap import is_wrapper

if TYPE_CHECKING:
    from .shelljudge import CommandJudgement, SimpleCommand

__all__ = ["embedded_commands", "embedded_reason"]

MAX_COMMANDS = 512
"""Of one text; what comes later in it is not looked at."""
_MAX_WORDS = 24
"""Words of one of them."""
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


def embedded_reason(judgement: CommandJudgement, patterns: Sequence[str]) -> str:
    """Why a program may run a command that is blocked; empty when it does not."""
    for command in judgement.commands:
        if (words := next((words for words in _embedded(command) if blocked(words, patterns)), None)) is not None:
            return (
                f"{command.argv[0] if command.argv else 'it'} may run {' '.join(words[:4])}: {blocked(words, patterns)}"
            )
    return ""


def embedded_commands(judgement: CommandJudgement) -> tuple[str, ...]:
    """The texts of commands that programs may run, as rules know them."""
    found = (words for command in judgement.commands for words in _embedded(command))
    return tuple(dict.fromkeys(" ".join((posixpath.basename(words[0]), *words[1:])) for words in found))


def _embedded(command: SimpleCommand) -> Iterable[tuple[str, ...]]:
    name = posixpath.basename(command.argv[0]) if command.argv else ""
    if command.read_only or name in _SAY:
        return []
    texts = [word for word in command.argv[1:] if re.search(r"\s", word) and name not in _TAKE_MESSAGES]
    inner = () if is_wrapper(name) else _behind(name, command.argv)
    return islice((*inner, *(words for text in (*texts, command.code) for words in _in_text(text))), MAX_COMMANDS)


def _behind(name: str, argv: Sequence[str]) -> Iterable[tuple[str, ...]]:
    """What stands behind a program, from each word on that may be the name of another."""
    first = next((at + 1 for at, word in enumerate(argv) if word in _MARKS), len(argv)) if name in _SEVERAL else 1
    for at in range(first, len(argv)):
        if _NAME.fullmatch(argv[at]):
            yield tuple(argv[at : at + _MAX_WORDS])


def _in_text(text: str) -> Iterable[tuple[str, ...]]:
    """What may be a command in a program for an interpreter; also as a list of its words."""
    for part in _ENDS.split(text):
        words = part.split()
        for at in range(min(len(words), _MAX_WORDS)):
            if _NAME.fullmatch(words[at]):
                yield tuple(words[at : at + _MAX_WORDS])
    listed = [word for part in _ENDS.split(text) for word in part.split()]
    for at, word in enumerate(listed):
        if posixpath.basename(word) in ("harness", "rm"):
            yield tuple(listed[at : at + _MAX_WORDS])
