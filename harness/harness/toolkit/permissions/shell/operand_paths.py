"""Resolution of the operands of a command to files, also below directories and after a ``cd``."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

from ....context import ExecutionContext
from ....patterns.wildcards import has_wildcard
from ..paths.target_paths import MATCHES, PathResolver, RealPath, at_home, links_among
from .paths import CHANGING, HERE, PLAIN, attached_directories, braced, homeward
from .wrappers import is_wrapper

if TYPE_CHECKING:
    from .classification import CommandClassification, SimpleCommand

__all__ = [
    "DirectoryOperands",
    "EntryPath",
    "OperandPaths",
    "directory_operands",
    "entry_names",
]


# -- Files that a command opens below a directory operand, with the names of its other operands. Pure.
#
# ``diff FILE DIRECTORY`` reads ``DIRECTORY/FILE``, and ``cp FILE DIRECTORY`` writes it. The target shows whether an
# operand is a directory; for an unknown program, each operand may be the directory or the name.


COPIERS = frozenset(
    {
        *("cp", "mv", "ln", "install", "scp", "rsync", "sftp", "rclone", "ditto", "pcp", "link"),
        *("gcp", "gmv", "gln", "ginstall", "docker", "podman", "nerdctl", "kubectl", "oc", "git", "hg", "svn"),
        *("wget", "curl", "aws", "gsutil", "gcloud", "az", "unzip", "7z"),
    }
)
"""Programs that are known to create files in a directory operand."""
DOWNLOADERS = frozenset({"wget", "curl"})
"""Programs that create a file in the current directory, named after the last part of a URL."""
COMPARERS = frozenset({"diff"})
_LAST_NAME = re.compile(r"[^/:?#]+(?=[/:]*(?:[?#].*)?\Z)", re.DOTALL)
"""The last name of a URL or ``HOST:PATH``."""


@dataclass(frozen=True, slots=True)
class DirectoryOperands:
    """Words of a command that may be directories, and words whose names may be entries in them.

    ``guessed``: the program is unknown, so the entries are not looked up on the target.
    """

    directories: tuple[str, ...]
    sources: tuple[str, ...]
    guessed: bool = False


def directory_operands(argv: Sequence[str], *, read_only: bool) -> DirectoryOperands | None:
    """Return the words of a simple command that may be directories with entries named by others; None if none are."""
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
    """Return operands and option values that may be directories; wildcards count only last or after an option."""
    values = (word.partition("=")[2] for word in words if word.startswith("-") and "=" in word)
    behind = {after for word, after in pairwise(words) if word.startswith("-")} | set(operands[-1:])
    plain = (word for word in operands if word in behind or not has_wildcard(word))
    return (*plain, *filter(None, values))


def entry_names(word: str) -> tuple[str, ...]:
    """Return the names that a path, a URL or ``HOST:PATH`` may get as an entry in a directory."""
    last = _LAST_NAME.search(word)
    names = (posixpath.basename(word.rstrip("/")), last[0] if last else "")
    return tuple(name for name in dict.fromkeys(names) if name not in ("", ".", ".."))


def _operands(words: Sequence[str]) -> tuple[str, ...]:
    end = words.index("--") if "--" in words else len(words)
    plain = (word for word in words[:end] if word and not word.startswith("-"))
    return tuple(dict.fromkeys((*plain, *filter(None, words[end + 1 :]))))


# -- The files on the target that the words of a command mean, after expansions and an earlier ``cd``.


MAX_LOOKUPS = 64
"""Directory entries that are looked up one by one; for more, the directories are listed."""
_CHANGES = frozenset({"cd", "pushd", "chdir"})
_SEVERAL = re.compile(r"[;\n`()]|\|\||(?<!&)&(?!&)")
"""Separators after which a command may run even if ``cd`` failed, or without it."""
_UNSURE = re.compile(r"^-|[$*?\[]")


@dataclass(frozen=True, slots=True)
class EntryPath:
    """A file below a directory operand that a command opens without naming it."""

    path: RealPath
    writes: bool


class OperandPaths:
    """The words of one command, resolved on the target.

    Args:
        execution: the target.
        files: the resolved paths of its words.
        start: the directory in which it starts; empty if unknown.
        classification: that of the command.
        text: the command text.
    """

    def __init__(
        self,
        execution: ExecutionContext,
        files: Sequence[RealPath],
        start: str,
        classification: CommandClassification,
        text: str,
    ) -> None:
        self._execution = execution
        self._files = files
        self._start = start
        self._home = execution.capabilities.home
        self._commands = classification.commands
        self._entered = _entered(text, classification.commands)

    async def entries(self) -> list[EntryPath] | None:
        """Return the files below directory operands with the names of other operands; None if there are too many.

        Raises:
            HarnessError: the connection was lost.
        """
        found: list[EntryPath] = []
        for command in self._commands:
            operands = directory_operands(command.argv, read_only=command.read_only)
            paths = await self._entries_of(command, operands) if operands is not None else []
            if paths is None:
                return None
            found += (EntryPath(path, not command.read_only) for path in paths)
        return found

    async def _entries_of(self, command: SimpleCommand, operands: DirectoryOperands) -> list[RealPath] | None:
        here = await self.here() if HERE in operands.directories else []
        words = self.all(operands.directories, command, here)
        directories = {path.real: path for path in words if path.is_dir or not path.is_known}
        if not directories:
            return []
        names = tuple(dict.fromkeys(name for word in operands.sources for name in self._names(word, command)))
        if len(directories) * len(names) > MATCHES:
            return None
        guessed = [_entry(directory, name) for directory in directories.values() for name in names]
        return guessed if operands.guessed else await self._looked_up(guessed)

    def _names(self, word: str, command: SimpleCommand) -> Iterable[str]:
        """Return the names that a word may give to an entry."""
        if has_wildcard(word) or "$" in word or "{" in word:
            return [name for path in self.meant(word, command) for name in entry_names(path.given)]
        return entry_names(word)

    async def _looked_up(self, entries: list[RealPath]) -> list[RealPath] | None:
        """Return the entries, with links resolved; None if there are too many."""
        links = {path.real for path in entries}
        if len(entries) > MAX_LOOKUPS:
            listed = await links_among(sorted(links), self._execution)
            if listed is None or len(listed) > MAX_LOOKUPS:
                return None
            links = listed
        finder = PathResolver(self._execution)
        return [
            replace(await finder.find(path.real, "/"), given=path.given) if path.real in links else path
            for path in entries
        ]

    # -- from words to directories

    def all(self, words: Iterable[str], command: SimpleCommand, here: Sequence[RealPath]) -> list[RealPath]:
        """Return the paths of some words; ``here`` replaces :data:`HERE`."""
        return [path for word in words for path in (here if word == HERE else self.meant(word, command))]

    def meant(self, word: str, command: SimpleCommand) -> list[RealPath]:
        """Return the paths that a word may mean: in each directory a ``cd`` leads to, and each name it matches."""
        written = {_plain(path, self._home) for path in command.paths}
        if "$" in homeward(word):  # its values are among the paths but not among the words
            others = {_plain(one, self._home) for one in command.argv}
            return [path for path in self._files if _plain(path.given, self._home) in written - others]
        if "{" in word:
            return [found for form in braced([word]) if "{" not in form for found in self.meant(form, command)]
        if has_wildcard(word):
            matched = (path for path in self._files if _plain(path.given, self._home) not in written)
            return [replace(path, is_dir=True) for path in matched]  # matches were not inspected
        plain = _plain(word, self._home)
        if self._entered and not plain.startswith("/"):
            return [path for path in self._files if path.given == posixpath.join(self._entered, word)]
        return [
            path
            for path in self._files
            if (given := _plain(path.given, self._home)) == plain or (given in written and given.endswith(f"/{plain}"))
        ]

    async def here(self) -> list[RealPath]:
        """Return the directories in which it may run."""
        finder = PathResolver(self._execution)
        if self._entered:
            return [await finder.find(homeward(self._entered), self._start)]
        moves = [command for command in self._commands if command.argv and command.argv[0] in _CHANGES]
        words = {homeward(path) for command in moves for path in (command.paths or ("~",)) if path}
        start = [await finder.find(self._start, "")] if self._start.startswith("/") else []
        return [*start, *[await finder.find(word, self._start) for word in sorted(words)]]


def _entry(directory: RealPath, name: str) -> RealPath:
    return RealPath(
        posixpath.join(directory.given, name),
        posixpath.join(directory.absolute, name),
        posixpath.join(directory.real, name),
        directory.is_known,
    )


def _plain(path: str, home: str) -> str:
    return at_home(homeward(path), home).rstrip("/") or "/"


def _entered(text: str, commands: Sequence[SimpleCommand]) -> str:
    """Return DIRECTORY if the text is ``cd DIRECTORY &&`` and commands that all run there; empty otherwise."""
    moves = [command for command in commands if command.argv and command.argv[0] in _CHANGES]
    if len(moves) != 1 or moves[0] is not commands[0] or len(moves[0].argv) != 2 or _SEVERAL.search(text):
        return ""
    word = homeward(moves[0].argv[1])
    is_first = text.strip().removeprefix(moves[0].text).lstrip().startswith("&&")
    return word if is_first and not _UNSURE.search(word) else ""
