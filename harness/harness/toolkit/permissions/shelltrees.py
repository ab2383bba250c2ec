"""Commands that take whole directories: of which words everything below is read or changed. Pure.

It takes more than there is: a word that is no directory is found out on the target, and a program that is not known is
taken for one that does whatever it wants with the directories that it is given.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from .container_commands import COMPOSERS, ENGINES
from .container_reach import container_reach
from .globs import has_wildcard
from .shelloptions import loose_values
from .shellpaths import attached_directories
from .shelltreesdata import CHANGING, COPYING, FEEDING, LISTING, PLAIN, READING, REMOTE, SEARCHING
from .shellwrap import FED_WORDS, SHELLS, is_wrapper

__all__ = ["HERE", "Trees", "feeds", "listed", "takes_names", "trees_of"]

HERE = "."
"""The directory in which the command runs."""
_LOOKS = frozenset({"ls", "stat", "echo", "printf", "test", "[", "basename", "dirname", "readlink", "realpath", "du"})
_READS = frozenset(
    {"cat", "grep", "egrep", "fgrep", "head", "tail", "wc", "file", "strings", "md5sum", "sha256sum", "jq"}
)
_COMMANDS = frozenset({"-exec", "-execdir", "-ok", "-okdir"})
_NAMES = re.compile(r"--(?:files|null-files|files0)-from|-T$")
"""Options that take names from a file."""
_UNKNOWN = re.compile(r"[$`]|\{\}")
_TARS = frozenset({"tar", "gtar", "bsdtar"})
_TAR_VALUES = "fTXCbgKNVHIFL"
_INPUT = frozenset({"-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"})


@dataclass(frozen=True, slots=True)
class Trees:
    """The directories, as they are written, of which a command takes all that is below.

    ``into`` is a directory that gets new entries with the ``names``, or the name that a single one gets there.
    """

    reads: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()
    into: str = ""
    names: tuple[str, ...] = ()
    guessed: bool = False
    """The program is not known: what it does with them is not, either."""
    paired: bool = False
    """It takes what is below only where two of its operands are directories."""


def trees_of(argv: Sequence[str], *, read_only: bool) -> Trees:
    """What a simple command does with whole directories."""
    name = posixpath.basename(argv[0]) if argv else ""
    given = _Given(name, argv[1:])
    if name in _KNOWN:
        return _KNOWN[name](given, read_only)
    passes_on = is_wrapper(name) and (name not in SHELLS or "-c" in argv)
    if not name or name in PLAIN or read_only or passes_on:
        return Trees()
    return Trees(changes=tuple(dict.fromkeys((*given.operands, *given.tails))), guessed=True)


def feeds(argv: Sequence[str]) -> bool:
    """Whether a simple command gives the names that it reads to another program, as ``xargs`` does."""
    return bool(argv) and (posixpath.basename(argv[0]) in FEEDING or any(map(_NAMES.match, argv[1:])))


def listed(argv: Sequence[str]) -> tuple[str, ...]:
    """The directories of which a simple command may list everything below, for another program."""
    name = posixpath.basename(argv[0]) if argv else ""
    given = _Given(name, argv[1:])
    if name == "find":
        return _roots(given)
    if name in LISTING or (name, *given.operands[:1]) == ("git", "ls-files"):
        return (*given.operands, HERE)
    return ()


def takes_names(argv: Sequence[str]) -> bool:
    """Whether a simple command opens the files whose names it reads from its input."""
    name = posixpath.basename(argv[0]) if argv else ""
    given = _Given(name, argv[1:])
    lists = given.after("--files-from", "--files0-from", "--pathspec-from-file", "--null-files-from")
    if name in _TARS:
        lists = (*lists, *loose_values(given.words, "-T"), *_bundled(given.words, "T"))
    if not _INPUT.isdisjoint(lists) or (name == "file" and not _INPUT.isdisjoint(given.after("-f"))):
        return True
    return (
        (name == "cpio" and given.has("op --create --pass-through"))
        or (name == "pax" and given.has("w") and not given.operands)
        or (name == "zip" and "-@" in given.words)
    )


def _bundled(words: Sequence[str], letter: str) -> list[str]:
    """The value of a letter in the first word of ``tar``, whose values follow in the order of the letters."""
    first = "" if not words or words[0].startswith("-") else words[0]
    taking = [one for one in first if one in _TAR_VALUES]
    return [value for one, value in zip(taking, words[1:], strict=False) if one == letter]


class _Given:
    """The words behind a program, roughly told apart: a value of an option counts as an operand."""

    def __init__(self, name: str, words: Sequence[str]) -> None:
        self.name = name
        end = words.index("--") if "--" in words else len(words)
        self.options = tuple(word for word in words[:end] if word.startswith("-") and word != "-")
        plain = (word for word in words[:end] if not word.startswith("-"))
        self.operands = (*plain, *words[end + 1 :])
        self.words = tuple(words)
        self.tails = tuple(word.partition("=")[2] for word in (*self.options, *self.operands) if "=" in word)

    def has(self, wanted: str) -> bool:
        """One of some options, written as in ``rR --recursive``; nothing wanted is always there."""
        letters = {letter for word in wanted.split() if not word.startswith("--") for letter in word}
        longs = [word for word in wanted.split() if word.startswith("--")]
        return not wanted or any(
            any(len(word) > 3 and long.startswith(word.partition("=")[0]) for long in longs)
            if word.startswith("--")
            else not letters.isdisjoint(word[1:])
            for word in self.options
        )

    def after(self, *names: str) -> tuple[str, ...]:
        """The values of an option."""
        apart = [value for name, value in zip(self.words, self.words[1:], strict=False) if name in names]
        joined = [word.partition("=")[2] for word in self.words if word.partition("=")[0] in names and "=" in word]
        short = [name for name in names if not name.startswith("--")]
        stuck = [word[2:] for word in self.options if word[:2] in short and len(word) > 2]
        return (*apart, *joined, *stuck)


def _reading(given: _Given, read_only: bool) -> Trees:
    return Trees(reads=given.operands) if given.has(READING[given.name]) else Trees()


def _changing(given: _Given, read_only: bool) -> Trees:
    return Trees(changes=given.operands) if given.has(CHANGING[given.name]) else Trees()


def _searching(given: _Given, read_only: bool) -> Trees:
    """``rg PATTERN``: without a path it is where one is."""
    if given.name == "rg" and not {"--files", "--type-list"}.isdisjoint(given.words):
        return Trees()  # names only
    return Trees(reads=given.operands if len(given.operands) > 1 else (*given.operands, HERE))


def _comparing(given: _Given, read_only: bool) -> Trees:
    """``diff A B``: of two directories all files in both, and with ``-r`` those below; what is absent may be one."""
    alone = given.has("rN --recursive --new-file --unidirectional-new-file")
    return Trees(reads=given.operands, paired=not alone)


def _grep(given: _Given, read_only: bool) -> Trees:
    actions = given.after("-d", "--directories")  # in its letters, and abbreviated: any beginning of "recurse"
    recurses = given.has("rR --recursive --dereference-recursive") or any(map("recurse".startswith, actions))
    return _searching(given, read_only) if recurses else Trees()


def _copying(given: _Given, read_only: bool) -> Trees:
    """``cp -r A B DIRECTORY``: the copies are in there, under their names, or have its name.

    A program that takes files alone makes no more than the entries that they name, unless nobody knows their names.
    """
    targets = (*given.after("-t", "--target-directory"), *attached_directories(given.name, given.words))
    operands = tuple(word for word in given.operands if word != FED_WORDS)
    sources = tuple(word for word in operands if word not in targets) if targets else operands[:-1]
    into = targets[0] if targets else operands[-1] if len(operands) > 1 or operands != given.operands else ""
    unnamed = operands != given.operands or any(map(_UNKNOWN.search, sources))
    if not given.has(COPYING[given.name]):
        return Trees(changes=(into,)) if into and unnamed else Trees()
    sources = sources or given.operands
    reads = () if given.name in ("ln", "mv", "install") else sources
    changes = sources if given.name == "mv" else ()
    if given.name in REMOTE and ":" in into:
        return Trees(reads=reads, changes=changes)
    names = tuple(posixpath.basename(source.rstrip("/")) for source in sources)
    merges = given.name == "rsync" and (given.has("--files-from") or any(one.endswith("/") for one in sources))
    unsure = unnamed or any(has_wildcard(source) for source in sources)
    if given.has("T --no-target-directory --delete") or merges or unsure or {"", ".", ".."} & set(names):
        return Trees(reads=reads, changes=(*changes, *([into] if into else [])))
    return Trees(reads=reads, changes=changes, into=into, names=names)


def _tar(given: _Given, read_only: bool) -> Trees:
    """``tar x`` writes where it is, or where ``-C`` leads; ``tar c`` reads what it is given."""
    first = given.words[0] if given.words and not given.words[0].startswith("--") else ""
    letters = {*first.removeprefix("-"), *(letter for word in given.options if word[1:2] != "-" for letter in word)}
    places = given.after("-C", "--directory", "--cd")
    if "x" in letters or given.has("--extract --get"):
        return Trees(changes=places or (HERE,))
    if letters & {"c", "r", "u", "A"} or given.has("--create --append --update --concatenate"):
        taken = [word for word in given.operands if word not in places]
        return Trees(reads=tuple(posixpath.join(place, word) for word in taken for place in places or ("",)) or places)
    return Trees()


def _unpacked(given: _Given, read_only: bool) -> Trees:
    """``unzip A -d DIRECTORY``, ``7z x A -oDIRECTORY``, ``cpio -i``."""
    if given.name.startswith("7z") and given.words[:1] in (("a",), ("u",)):
        return Trees(reads=given.operands[1:])
    if read_only or (given.name.startswith("7z") and given.words[:1] not in (("x",), ("e",))):
        return Trees()
    return Trees(changes=given.after("-d", "-o", "-D", "--directory") or (HERE,))


def _patching(given: _Given, read_only: bool) -> Trees:
    """``patch`` changes the files that its input names, where it is or where ``-d`` leads."""
    return Trees(changes=given.after("-d", "--directory") or (HERE,))


def _roots(given: _Given) -> tuple[str, ...]:
    """Where ``find`` begins."""
    roots: list[str] = []
    for word in given.words:
        if word in ("-H", "-L", "-P"):
            continue
        if word.startswith(("-", "(", "!", ",")):
            break
        roots.append(word)
    return tuple(roots) or (HERE,)


def _find(given: _Given, read_only: bool) -> Trees:
    roots = _roots(given)
    run = [after for word, after in zip(given.words, given.words[1:], strict=False) if word in _COMMANDS]
    programs = {posixpath.basename(program) for program in run} - _LOOKS
    changes = bool(programs - _READS) or (not read_only and not programs)
    return Trees(reads=roots if programs else (), changes=roots if changes else ())


def _git(given: _Given, read_only: bool) -> Trees:
    if "diff" in given.operands[:2]:
        return Trees(reads=given.operands, paired=True)
    if "grep" in given.operands[:2] and "--no-index" in given.words:
        limits = given.words[given.words.index("--") + 1 :] if "--" in given.words else ()
        return Trees(reads=limits or (*given.after("-C"), HERE))
    return Trees() if read_only else Trees(changes=tuple(word for word in given.operands if word), guessed=True)


def _containers(given: _Given, read_only: bool) -> Trees:
    """``docker run -v DIRECTORY:/x``, ``docker cp DIRECTORY c:/x``, ``docker build DIRECTORY``."""
    mounts = [mount for mount in container_reach((given.name, *given.words)).mounts if not mount.by_name]
    reads = tuple(mount.source for mount in mounts if mount.reads)
    return Trees(reads=reads, changes=tuple(mount.source for mount in mounts if mount.writes))


_KNOWN: Mapping[str, Callable[[_Given, bool], Trees]] = {
    **dict.fromkeys(SEARCHING, _searching),
    **dict.fromkeys(READING, _reading),
    **dict.fromkeys(CHANGING, _changing),
    **dict.fromkeys(COPYING, _copying),
    "diff": _comparing,
    **dict.fromkeys(("grep", "egrep", "fgrep", "zgrep"), _grep),
    **dict.fromkeys(_TARS, _tar),
    **dict.fromkeys(("unzip", "7z", "7za", "7zr", "cpio"), _unpacked),
    **dict.fromkeys((*ENGINES, *COMPOSERS, "kubectl", "oc", "lxc", "incus", "ctr", "buildah"), _containers),
    **dict.fromkeys(("apptainer", "singularity", "systemd-nspawn", "systemd-run", "machinectl"), _containers),
    "patch": _patching,
    "find": _find,
    "git": _git,
}
