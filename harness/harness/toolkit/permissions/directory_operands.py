"""Files that a command opens below a directory operand, under the names of its other operands. Pure.

``diff FILE DIRECTORY`` reads ``DIRECTORY/FILE``, and ``cp FILE DIRECTORY`` writes it. Whether an operand is a directory
is found out on the target; of a program that is not known, every operand may be the one or the other.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from .globs import has_wildcard
from .shellpaths import attached_directories
from .shelltrees import HERE
from .shelltreesdata import CHANGING, PLAIN
from .shellwrap import is_wrapper

__all__ = ["DirectoryOperands", "directory_operands", "entry_names"]

COPIERS = frozenset(
    {
        *("cp", "mv", "ln", "install", "scp", "rsync", "sftp", "rclone", "ditto", "pcp", "link"),
        *("gcp", "gmv", "gln", "ginstall", "docker", "podman", "nerdctl", "kubectl", "oc", "git", "hg", "svn"),
        *("wget", "curl", "aws", "gsutil", "gcloud", "az", "unzip", "7z"),
    }
)
"""Programs that are known to make files in a directory that they are given."""
DOWNLOADERS = frozenset({"wget", "curl"})
"""What makes a file where it runs, under the last name of an address."""
COMPARERS = frozenset({"diff"})
_LAST_NAME = re.compile(r"[^/:?#]+(?=[/:]*(?:[?#].*)?\Z)", re.DOTALL)
"""The last name of an address or ``HOST:PATH``."""


@dataclass(frozen=True, slots=True)
class DirectoryOperands:
    """Words of a command that may be directories, and words whose names may be entries of those.

    ``guessed``: the program is not known, so that its entries are not looked up on the target.
    """

    directories: tuple[str, ...]
    sources: tuple[str, ...]
    guessed: bool = False


def directory_operands(argv: Sequence[str], *, read_only: bool) -> DirectoryOperands | None:
    """Which words of a simple command may be directories with entries named by others; None when none are."""
    name = posixpath.basename(argv[0]) if argv else ""
    operands = _operands(argv[1:])
    if name in COMPARERS or (name == "git" and "diff" in operands):
        return DirectoryOperands(operands, operands)
    opens_no_entry = name in PLAIN or name in CHANGING or (is_wrapper(name) and name not in COPIERS)
    if not name or read_only or opens_no_entry:
        return None
    directories = (*_may_be_directories(argv[1:], operands), *attached_directories(name, argv[1:]))
    here = name in DOWNLOADERS or (name in ("ln", "link") and len(operands) == 1)
    if here:
        directories = (*directories, HERE)
    if not operands or len({*directories, *operands}) < 2:
        return None
    return DirectoryOperands(directories, operands, guessed=name not in COPIERS)


def _may_be_directories(words: Sequence[str], operands: tuple[str, ...]) -> tuple[str, ...]:
    """All operands, and values of options. What stands for several files is a directory at the end or behind an option
    only."""
    values = (word.partition("=")[2] for word in words if word.startswith("-") and "=" in word)
    behind = {after for word, after in pairwise(words) if word.startswith("-")} | set(operands[-1:])
    plain = (word for word in operands if word in behind or not has_wildcard(word))
    return (*plain, *filter(None, values))


def entry_names(word: str) -> tuple[str, ...]:
    """The names under which a path, an address or ``HOST:PATH`` gets an entry in a directory."""
    last = _LAST_NAME.search(word)
    names = (posixpath.basename(word.rstrip("/")), last[0] if last else "")
    return tuple(name for name in dict.fromkeys(names) if name not in ("", ".", ".."))


def _operands(words: Sequence[str]) -> tuple[str, ...]:
    end = words.index("--") if "--" in words else len(words)
    plain = (word for word in words[:end] if word and not word.startswith("-"))
    return tuple(dict.fromkeys((*plain, *filter(None, words[end + 1 :]))))
