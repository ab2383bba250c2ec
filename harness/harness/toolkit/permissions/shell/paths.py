"""The files and directory trees that a command names, reads or changes."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice, pairwise
from urllib.parse import unquote

from ....patterns.wildcards import has_wildcard
from .container_commands import COMPOSERS, ENGINES
from .container_reach import container_directories, container_reach
from .file_words import files_in_words, near_files
from .words import Input, Word, loose_values
from .wrappers import FED_WORDS, SHELLS, is_wrapper

__all__ = [
    "CHANGING",
    "COPYING",
    "FEEDING",
    "HERE",
    "LISTING",
    "MAX_PATHS",
    "PLAIN",
    "READING",
    "REMOTE",
    "SEARCHING",
    "AffectedDirectories",
    "Directories",
    "TooManyPaths",
    "attached_directories",
    "braced",
    "code_read",
    "feeds",
    "homeward",
    "listed",
    "named_paths",
    "paths_in",
    "paths_in_input",
    "paths_in_values",
    "renamed",
    "renamings",
    "substituted",
    "takes_names",
    "trees_of",
]


# -- The files that a command of any program names, and their paths after an earlier ``cd``.


MAX_PATHS = 256
"""Maximum number of files in one command."""
_KEPT = 4 * MAX_PATHS + 4
"""Paths kept for one command: more than the maximum, even if four of them (``~``, ``$HOME``) are one file."""
_MAX_DIRECTORIES = 64
"""Maximum number of base directories for the relative paths of one text."""
_MAX_FORMS = 64
"""Maximum number of expansions of the braces in one word."""
_MAX_PATH_CHARS = 4096
"""No system opens a longer path."""
_MAX_VALUE_CHARS = 16 << 10
"""Maximum length of a word with the values of its variables."""
_HOME = re.compile(r"^\$(?:HOME|\{HOME\})(?=/|$)")
_HERE = re.compile(r"^(?:~\+|\$(?:PWD|\{PWD\}))(?=/|$)")
_BRACE = re.compile(r"(?<!\$)\{(?:(?P<list>[^{}]*,[^{}]*)|[^{},.]+\.\.[^{},]+)\}")
_VARIABLE = re.compile(r"\$(?:(?P<name>[A-Za-z_]\w*)|\{(?P<braced>[A-Za-z_]\w*)\})")
_FILE_URL = re.compile(r"(?i)file:(?://[^/]*)?(?P<path>/.*)")
_NEAR_URL = re.compile(r"(?i)fileb?://(?P<path>[^/].*)")
"""A relative file in the AWS command line."""
_NO_LIST = re.compile(r"[\s(){}$`'\"]")
_BRACES = 6
"""Maximum number of braces in one word that are expanded one by one."""
_RUNS_CODE = re.compile(
    r"(?:python|pypy|perl|ruby|php|lua|luajit|tclsh|wish|erl|guile|gcc|g\+\+|clang|clang\+\+|cpp)[-\d.]*"
    r"|node|nodejs|deno|bun|[gmn]?awk|sed|ed|ex|n?vim?|view|less|emacs|Rscript|R|julia|octave|gnuplot|cc|c\+\+|make|gmake|m4|[gnt]roff|gdb|lldb|expect"
    r"|psql|mysql|mariadb|sqlite3?|duckdb|mongosh?|redis-cli|lftp|smbclient|sftp|ftp|pwsh"
)
"""Programs whose words or input may be programs that name files."""
_ROOTED = re.compile(r"(?<![\w.~/-])(?:~|\$HOME|\$\{HOME\})?/[\w.@%+~-][\w.@%+~/-]*")
_UNPACKS = re.compile(
    r"gunzip|gzip|pigz|unpigz|bunzip2|bzip2|pbzip2|unxz|xz|unlzma|lzma|unzstd|zstd|lz4|unlz4|lzip|uncompress"
)
_PACKED = frozenset({"gz", "z", "Z", "bz2", "bz", "xz", "lzma", "zst", "lz4", "lz", "tgz", "tbz2", "txz"})
_MANY = "it names too many files to be classified"
_PLACES = frozenset({"-C", "--chdir", "--directory", "--git-dir", "--work-tree"})
_CHANGES = frozenset({"cd", "pushd", "popd", "chdir", "z"})
_GIVES_NAMES = frozenset({"ln", "mv", "cp", "install", "rsync", "mount"})
_INTO = {**dict.fromkeys(("cp", "mv", "ln", "install", "gcp", "gmv", "gln", "ginstall"), "t"), "wget": "P"}
"""The option of a program whose value is the directory for new entries."""


_Used = tuple[str, str]
"""A variable with a value, or a new name with the old name."""


class TooManyPaths(Exception):
    """A text names too many files to be classified."""


def named_paths(words: Sequence[Word]) -> tuple[str, ...]:
    """Return everything in the words of a command that may be a path: operands and parts of options. Pure.

    It may return too many: a rule that protects a file must match it wherever the command names it.
    """
    name = posixpath.basename(words[0].text) if words else ""
    runs = _RUNS_CODE.fullmatch(name) is not None
    code = [Word.of(path) for word in words[1:] for path in _in_program(name, word.text)] if runs else []
    texts = [word.text for word in words[1:]]
    mounted = (mount.source for mount in container_reach((name, *texts)).mounts)
    parts = files_in_words(name, texts)
    derived = (*attached_directories(name, texts), *_unpacked_names(name, texts), *mounted, *parts)
    return paths_in((*words[1:], *code, *map(Word.of, derived)))


def _unpacked_names(name: str, texts: Sequence[str]) -> Iterable[str]:
    """Yield the files that a program writes when it unpacks one: ``unxz FILE.xz`` writes FILE."""
    if _UNPACKS.fullmatch(name):
        for text in texts:
            path, dot, suffix = text.rpartition(".")
            if dot and suffix in _PACKED:
                yield f"{path}.tar" if suffix.startswith("t") else path


def attached_directories(name: str, words: Sequence[str]) -> tuple[str, ...]:
    """Return the directories in the same word as their option: ``cp -tDIRECTORY``. Pure."""
    letter = _INTO.get(posixpath.basename(name))
    if letter is None:
        return ()
    found = (word.partition(letter) for word in words if re.match(r"-[A-Za-z]", word))
    return tuple(directory for before, _, directory in found if directory and re.fullmatch("-[A-Za-z]*", before))


def paths_in_input(words: Sequence[Word], given: Input) -> tuple[str, ...]:
    """Return the paths in a program that an interpreter reads from its input. Pure."""
    name = posixpath.basename(words[0].text) if words else ""
    return tuple(dict.fromkeys(_in_program(name, code_read(words, given))))[:_KEPT]


def code_read(words: Sequence[Word], given: Input) -> str:
    """Return the program that an interpreter reads from its input, if the text contains it; empty otherwise. Pure."""
    if not words or not _RUNS_CODE.fullmatch(posixpath.basename(words[0].text)):
        return ""
    prints = bool(given.source) and given.source[0].text in ("echo", "printf")
    return (" ".join(word.text for word in given.source) if prints else given.text) or ""


def paths_in_values(words: Iterable[Word]) -> tuple[str, ...]:
    """Return the paths in the values of variables set for a command. Pure."""
    values = tuple(words)
    plain = paths_in(word for word in values if not re.search(r"\s", word.text))
    return tuple(dict.fromkeys((*plain, *(path for word in values for path in _in_code(word.text)))))[:_KEPT]


def _in_program(name: str, text: str) -> list[str]:
    """Return what looks like a path in a program for an interpreter."""
    return [*_in_code(text), *near_files(name, text)]


def _in_code(text: str) -> list[str]:
    """Return what looks like a path from the root or the home, anywhere in a text."""
    return list(islice(dict.fromkeys(match[0] for match in _ROOTED.finditer(text)), _KEPT))


def paths_in(words: Iterable[Word]) -> tuple[str, ...]:
    """Return everything in some words that may be a path. Pure."""
    return tuple(dict.fromkeys(text for word in words for text in _candidates(word.text)))[:_KEPT]


def substituted(paths: Iterable[str], values: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """Return the paths, and their forms with the values that the same text gives to variables. Pure.

    Raises:
        TooManyPaths: there are too many paths.
    """

    def step(path: str) -> Iterable[tuple[str, _Used]]:
        match = _VARIABLE.search(path)
        name = (match["name"] or match["braced"]) if match else ""
        for value in values.get(name, ()) if match else ():
            yield _with_value(path, name, value), (name, value)

    return _closure(paths, step)


def _with_value(path: str, name: str, value: str) -> str:
    return _of_variable(name).sub(lambda _: value, path)


@cache
def _of_variable(name: str) -> re.Pattern[str]:
    return re.compile(rf"\$(?:{name}(?!\w)|\{{{name}\}})")


def _closure(paths: Iterable[str], step: Callable[[str], Iterable[tuple[str, _Used]]]) -> tuple[str, ...]:
    """Return the paths and all that repeated steps derive from them, each step at most once per derivation."""
    found = dict.fromkeys(paths)
    waiting: list[tuple[str, frozenset[_Used]]] = [(path, frozenset()) for path in found]
    for path, used in waiting:
        for new, taken in step(path):
            if new in found or taken in used:
                continue
            if len(found) > _KEPT or len(new) > _MAX_VALUE_CHARS:
                raise TooManyPaths(_MANY)
            found[new] = None
            waiting.append((new, used | {taken}))
    return tuple(found)


def renamings(commands: Iterable[Sequence[str]]) -> tuple[tuple[str, str], ...]:
    """Return the new names that commands of one text give to files: pairs of the new and the old name. Pure.

    They come from ``ln``, ``mv``, ``cp``, ``install``, ``rsync``, ``mount`` and container mounts. A destination may be
    a directory, in which the new name is an entry.
    """
    found: dict[tuple[str, str], None] = {}
    for argv in commands:
        mounts = (mount for mount in container_reach(argv).mounts if mount.target)
        found |= dict.fromkeys((posixpath.normpath(mount.target), mount.source) for mount in mounts)
        if not argv or posixpath.basename(argv[0]) not in _GIVES_NAMES:
            continue
        operands = [word.rstrip("/") or "/" for word in argv[1:] if word and not word.startswith("-")]
        *sources, into = operands if len(operands) > 1 else (*operands, ".")
        for old in sources if operands else ():
            names = dict.fromkeys((into, posixpath.join(into, posixpath.basename(old))))
            for new in names:  # a relative link is resolved from its own directory
                olds = (old, posixpath.join(posixpath.dirname(new), old))
                found |= dict.fromkeys((posixpath.normpath(new), one) for one in olds)
    return tuple(found)


def renamed(paths: Iterable[str], names: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    """Return the paths, and their forms with the old names of renamed files. Pure.

    Raises:
        TooManyPaths: there are too many paths.
    """

    def step(path: str) -> Iterable[tuple[str, _Used]]:
        plain = posixpath.normpath(path)
        return ((old, name) for name in names if (old := _renamed(plain, *name)))

    return _closure(paths, step) if names else tuple(dict.fromkeys(paths))


def _renamed(path: str, new: str, old: str) -> str:
    """Return a path with the old name; empty if it is not below the new name."""
    if new == "/":  # another root directory: paths below the old name are meant
        return "" if not path.startswith("/") or path.startswith(f"{old.rstrip('/')}/") else f"{old.rstrip('/')}{path}"
    return old.rstrip("/") + path[len(new) :] or "/" if path == new or path.startswith(f"{new}/") else ""


def braced(paths: Iterable[str]) -> tuple[str, ...]:
    """Return the paths, and their expansions of ``{a,b}`` and ``{1..3}`` in shells that expand braces. Pure.

    Raises:
        TooManyPaths: there are too many paths.
    """
    found: dict[str, None] = {}
    for path in paths:
        found |= dict.fromkeys((path, *_expanded(path)) if "{" in path else (path,))
        if len(found) > _KEPT:
            raise TooManyPaths(_MANY)
    return tuple(found)


def _expanded(path: str) -> list[str]:
    """Return the brace expansions of a word; ranges and too many braces become a wildcard."""
    forms = [path]
    for _ in range(_BRACES):
        match = _BRACE.search(forms[0])
        if match is None:
            return forms if forms != [path] else []
        if not match["list"]:
            forms = [_BRACE.sub("*", form, count=1) for form in forms]
            continue
        forms = [
            f"{form[: here.start()]}{part}{form[here.end() :]}"
            for form in forms
            if (here := _BRACE.search(form)) is not None
            for part in (here["list"] or "").split(",")
        ]
        if len(forms) > _MAX_FORMS:
            break
    if (between := re.search(r"\{.*\}", path, flags=re.DOTALL)) is not None and re.search(r"[./]", between[0]):
        raise TooManyPaths(_MANY)  # a wildcard does not match a path in another directory or a hidden file
    return [re.sub(r"\{.*\}", "*", path, flags=re.DOTALL)]


def _candidates(text: str) -> Iterable[str]:
    return (found for found in _parts(text) if len(found) <= _MAX_PATH_CHARS)


def _parts(text: str) -> Iterable[str]:
    if not text:
        return
    if not text.startswith("-"):
        yield text
    for mark in "=@:":
        head, _, tail = text.partition(mark)
        if tail:
            more = (tail.strip(), text.rpartition(mark)[2])
            yield from dict.fromkeys((tail, *(part for part in more if not re.search(r"\s", part))))
        if tail and mark == ":" and head.startswith(("/", "~", "./", "../")):
            yield head  # docker run -v /etc:/e
    yield from _in_lists(text)
    if url := _FILE_URL.match(text):
        yield unquote(url["path"].replace("{", "").replace("}", ""))
    if url := _NEAR_URL.match(text):
        yield url["path"]
    if text.startswith("-"):
        yield from _attached(text)


def _in_lists(text: str) -> Iterable[str]:
    """Yield the values in a list: ``type=bind,src=/etc``, ``f=<FILE;type=text``, ``f=@A,B``."""
    if _NO_LIST.search(text) or "=" not in text:
        return
    for piece in re.split(r"[,;]", text):
        value = piece.rpartition("=")[2].lstrip("@<")
        if value and value != text:
            yield value


def _attached(text: str) -> Iterable[str]:
    """Yield possible option values in the same word: ``-oFILE``, ``-rf.env``, ``-I/dir``."""
    starts = [at for at in (text.find("/"), text.find("~")) if at > 0]
    if starts:
        yield text[min(starts) :]
    if text.startswith("--") or len(text) < 3:
        return
    yield text[2:]
    letters = re.match(r"-[A-Za-z]{2,}", text)
    for at in range(3, letters.end() + 1 if letters else 0):
        if "." in text[at:] or "/" in text[at:]:
            yield text[at:]


def homeward(word: str) -> str:
    """Replace a leading ``$HOME`` by ``~``, and a leading ``$PWD`` or ``~+`` by ``.``. Pure."""
    return _HERE.sub(".", _HOME.sub("~", word, count=1), count=1)


class Directories:
    """The base directories of relative paths: those of every ``cd`` and of options like ``git -C``.

    ``lost``: one of them is only known at run time or may hold devices. ``_many``: there are too many.
    """

    def __init__(self) -> None:
        self._bases: list[str] = []
        self.lost = False
        self._many = False

    def enter(self, name: str, words: Sequence[Word]) -> None:
        """Record the directories that a command enters or names in its options."""
        if name not in _CHANGES:
            leading = _PLACES | {"-D"} if name in ("sudo", "doas") else _PLACES
            for before, word in pairwise(words):
                if before.known and before.text in leading:
                    self._into(word)
            for directory in container_directories([word.text for word in words]):
                self._into(Word.of(directory))
            return
        places = [word for word in words[1:] if not (word.known and word.text in ("-L", "-P", "--"))]
        if len(places) > 1 or name != "cd":
            self.lost = True
        for place in places or ([Word.of("~")] if name == "cd" else []):
            self._into(place)

    def _into(self, word: Word) -> None:
        if not word.known or word.text.startswith("-") or posixpath.normpath(word.text).startswith(("/dev", "//")):
            self.lost = True
            return
        chained = [posixpath.join(base, word.text) for base in self._bases]
        kept = list(dict.fromkeys([*self._bases, *chained, word.text]))
        self._many = self._many or len(kept) > _MAX_DIRECTORIES
        self._bases = kept[:_MAX_DIRECTORIES]

    def of(self, paths: Iterable[str]) -> tuple[str, ...]:
        """Return the paths, and relative ones joined with those directories.

        Raises:
            TooManyPaths: there are too many paths.
        """
        found: dict[str, None] = {}
        for path in paths:
            found[path] = None
            if not path.startswith(("/", "~")):
                found.update(dict.fromkeys(posixpath.join(base, path) for base in self._bases))
                if self._many or len(found) > _KEPT:
                    raise TooManyPaths(_MANY)
        return tuple(found)


# -- Programs that process whole directories, with the options for it: letters for short ones, words for long ones.


SEARCHING = frozenset({"rg", "ag", "ack", "ugrep", "rgrep", "pt", "sift"})
"""Programs that search the current directory if no other is given."""
READING = {
    "zip": "r --recurse-paths",
    "pax": "w",
    **dict.fromkeys(("mksquashfs", "genisoimage", "mkisofs", "xorriso", "restic", "borg", "rclone", "duplicity"), ""),
}
"""Programs that read everything in their directory operands."""
CHANGING = {
    "rm": "rR --recursive",
    **dict.fromkeys(("chmod", "chown", "chgrp", "setfacl", "chattr", "chcon"), "R --recursive"),
    "restorecon": "rR --recursive",
    "shred": "",
}
"""Programs that change everything in their directory operands."""
COPYING = {
    "cp": "rRa --recursive --archive",
    "scp": "r",
    "rsync": "",
    "mv": "",
    "ln": "",
    "install": "",
}
"""Programs that create entries in their last directory operand."""
REMOTE = frozenset({"scp", "rsync"})
"""Programs for which a word with a colon is on another host."""
FEEDING = frozenset({"xargs", "parallel", "cpio", "pax"})
"""Programs that read file names from their input."""
LISTING = frozenset({"find", "fd", "fdfind", "ls", "rg", "tree", "du"})
"""Programs that may list everything below a directory."""
PLAIN = frozenset(
    [
        *("cd", "pushd", "popd", "chdir", "mkdir", "rmdir", "touch", "test", "[", "[[", "echo", "printf", "export"),
        *("unset", "set", "read", "wait", "exit", "umask", "type", "which", "command", "hash", "trap", "alias", "tee"),
        *("sed", "awk", "gawk", "mawk", "cut", "sort", "cat", "head", "tail", "less", "more", "kill", "systemctl"),
        *("service", "df", "du", "stat", "ls", "tree", "basename", "dirname", "readlink", "realpath", "truncate", "dd"),
        *("date", "sleep", "true", "false", "local", "declare", "typeset", "readonly", "return", "break", "continue"),
        *(
            "source",
            ".",
            "file",
            "wc",
            "md5sum",
            "sha256sum",
            "umount",
            "crontab",
            "logger",
            "return",
            "shift",
            "getopts",
        ),
    ]
)
"""Programs that only enter, create, name or list directories."""


# -- Commands on whole directories: the words below which everything is read or changed. Pure.
#
# It may return too many: the target shows which words are directories, and an unknown program counts as one that may
# change everything in its directory operands.


HERE = "."
"""The directory in which the command runs."""
_LOOKS = frozenset({"ls", "stat", "echo", "printf", "test", "[", "basename", "dirname", "readlink", "realpath", "du"})
_READS = frozenset(
    {"cat", "grep", "egrep", "fgrep", "head", "tail", "wc", "file", "strings", "md5sum", "sha256sum", "jq"}
)
_COMMANDS = frozenset({"-exec", "-execdir", "-ok", "-okdir"})
_NAMES = re.compile(r"--(?:files|null-files|files0)-from|-T$")
"""Options that read file names from a file."""
_UNKNOWN = re.compile(r"[$`]|\{\}")
_TARS = frozenset({"tar", "gtar", "bsdtar"})
_TAR_VALUES = "fTXCbgKNVHIFL"
_INPUT = frozenset({"-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"})


@dataclass(frozen=True, slots=True)
class AffectedDirectories:
    """The directories, as written, below which a command reads or changes everything.

    ``into``: a directory that gets new entries with the ``names``, or the new name of a single source.
    """

    reads: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()
    into: str = ""
    names: tuple[str, ...] = ()
    guessed: bool = False
    """The program is unknown, so its effect on them is unknown, too."""
    paired: bool = False
    """It reads what is below only if two of its operands are directories."""


def trees_of(argv: Sequence[str], *, read_only: bool) -> AffectedDirectories:
    """Return the directories below which a simple command reads or changes everything.

    Args:
        argv: the words of the command.
        read_only: it only reads.
    """
    name = posixpath.basename(argv[0]) if argv else ""
    given = _CommandWords(name, argv[1:])
    if name in _KNOWN:
        return _KNOWN[name](given, read_only)
    passes_on = is_wrapper(name) and (name not in SHELLS or "-c" in argv)
    if not name or name in PLAIN or read_only or passes_on:
        return AffectedDirectories()
    return AffectedDirectories(changes=tuple(dict.fromkeys((*given.operands, *given.tails))), guessed=True)


def feeds(argv: Sequence[str]) -> bool:
    """Return whether a simple command reads file names and opens them or passes them on, as ``xargs`` does."""
    return bool(argv) and (posixpath.basename(argv[0]) in FEEDING or any(map(_NAMES.match, argv[1:])))


def listed(argv: Sequence[str]) -> tuple[str, ...]:
    """Return the directories below which a simple command may list everything for another program."""
    name = posixpath.basename(argv[0]) if argv else ""
    given = _CommandWords(name, argv[1:])
    if name == "find":
        return _roots(given)
    if name in LISTING or (name, *given.operands[:1]) == ("git", "ls-files"):
        return (*given.operands, HERE)
    return ()


def takes_names(argv: Sequence[str]) -> bool:
    """Return whether a simple command opens the files whose names it reads from its input."""
    name = posixpath.basename(argv[0]) if argv else ""
    given = _CommandWords(name, argv[1:])
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
    """Return the values of a letter in the first word of ``tar``; values follow in the order of the letters."""
    first = "" if not words or words[0].startswith("-") else words[0]
    taking = [one for one in first if one in _TAR_VALUES]
    return [value for one, value in zip(taking, words[1:], strict=False) if one == letter]


class _CommandWords:
    """The words after a program, roughly separated: separate option values count as operands."""

    def __init__(self, name: str, words: Sequence[str]) -> None:
        self.name = name
        end = words.index("--") if "--" in words else len(words)
        self.options = tuple(word for word in words[:end] if word.startswith("-") and word != "-")
        plain = (word for word in words[:end] if not word.startswith("-"))
        self.operands = (*plain, *words[end + 1 :])
        self.words = tuple(words)
        self.tails = tuple(word.partition("=")[2] for word in (*self.options, *self.operands) if "=" in word)

    def has(self, wanted: str) -> bool:
        """Return whether one of the options is given, written as ``rR --recursive``; always True for none."""
        letters = {letter for word in wanted.split() if not word.startswith("--") for letter in word}
        longs = [word for word in wanted.split() if word.startswith("--")]
        return not wanted or any(
            any(len(word) > 3 and long.startswith(word.partition("=")[0]) for long in longs)
            if word.startswith("--")
            else not letters.isdisjoint(word[1:])
            for word in self.options
        )

    def after(self, *names: str) -> tuple[str, ...]:
        """Return the values of an option."""
        apart = [value for name, value in zip(self.words, self.words[1:], strict=False) if name in names]
        joined = [word.partition("=")[2] for word in self.words if word.partition("=")[0] in names and "=" in word]
        short = [name for name in names if not name.startswith("--")]
        stuck = [word[2:] for word in self.options if word[:2] in short and len(word) > 2]
        return (*apart, *joined, *stuck)


def _reading(given: _CommandWords, read_only: bool) -> AffectedDirectories:
    return AffectedDirectories(reads=given.operands) if given.has(READING[given.name]) else AffectedDirectories()


def _changing(given: _CommandWords, read_only: bool) -> AffectedDirectories:
    return AffectedDirectories(changes=given.operands) if given.has(CHANGING[given.name]) else AffectedDirectories()


def _searching(given: _CommandWords, read_only: bool) -> AffectedDirectories:
    """Read ``rg PATTERN``: without a path it searches the current directory."""
    if given.name == "rg" and not {"--files", "--type-list"}.isdisjoint(given.words):
        return AffectedDirectories()  # names only
    return AffectedDirectories(reads=given.operands if len(given.operands) > 1 else (*given.operands, HERE))


def _comparing(given: _CommandWords, read_only: bool) -> AffectedDirectories:
    """Read ``diff A B``: of two directories all files, with ``-r`` those below; with ``-N`` one may be absent."""
    alone = given.has("rN --recursive --new-file --unidirectional-new-file")
    return AffectedDirectories(reads=given.operands, paired=not alone)


def _grep(given: _CommandWords, read_only: bool) -> AffectedDirectories:
    actions = given.after("-d", "--directories")  # any abbreviation of "recurse"
    recurses = given.has("rR --recursive --dereference-recursive") or any(map("recurse".startswith, actions))
    return _searching(given, read_only) if recurses else AffectedDirectories()


def _copying(given: _CommandWords, read_only: bool) -> AffectedDirectories:
    """Read ``cp -r A B DIRECTORY``: the copies are entries of DIRECTORY, or a single copy has its name.

    Without a recursive option it creates only the entries named by its operands, unless those are unknown.
    """
    targets = (*given.after("-t", "--target-directory"), *attached_directories(given.name, given.words))
    operands = tuple(word for word in given.operands if word != FED_WORDS)
    sources = tuple(word for word in operands if word not in targets) if targets else operands[:-1]
    into = targets[0] if targets else operands[-1] if len(operands) > 1 or operands != given.operands else ""
    unnamed = operands != given.operands or any(map(_UNKNOWN.search, sources))
    if not given.has(COPYING[given.name]):
        return AffectedDirectories(changes=(into,)) if into and unnamed else AffectedDirectories()
    sources = sources or given.operands
    reads = () if given.name in ("ln", "mv", "install") else sources
    changes = sources if given.name == "mv" else ()
    if given.name in REMOTE and ":" in into:
        return AffectedDirectories(reads=reads, changes=changes)
    names = tuple(posixpath.basename(source.rstrip("/")) for source in sources)
    merges = given.name == "rsync" and (given.has("--files-from") or any(one.endswith("/") for one in sources))
    unsure = unnamed or any(has_wildcard(source) for source in sources)
    if given.has("T --no-target-directory --delete") or merges or unsure or {"", ".", ".."} & set(names):
        return AffectedDirectories(reads=reads, changes=(*changes, *([into] if into else [])))
    return AffectedDirectories(reads=reads, changes=changes, into=into, names=names)


def _tar(given: _CommandWords, read_only: bool) -> AffectedDirectories:
    """Read ``tar``: ``x`` writes to the current directory or to that of ``-C``; ``c`` reads its operands."""
    first = given.words[0] if given.words and not given.words[0].startswith("--") else ""
    letters = {*first.removeprefix("-"), *(letter for word in given.options if word[1:2] != "-" for letter in word)}
    places = given.after("-C", "--directory", "--cd")
    if "x" in letters or given.has("--extract --get"):
        return AffectedDirectories(changes=places or (HERE,))
    if letters & {"c", "r", "u", "A"} or given.has("--create --append --update --concatenate"):
        taken = [word for word in given.operands if word not in places]
        return AffectedDirectories(
            reads=tuple(posixpath.join(place, word) for word in taken for place in places or ("",)) or places
        )
    return AffectedDirectories()


def _unpacked(given: _CommandWords, read_only: bool) -> AffectedDirectories:
    """Read ``unzip A -d DIRECTORY``, ``7z x A -oDIRECTORY``, ``cpio -i``."""
    if given.name.startswith("7z") and given.words[:1] in (("a",), ("u",)):
        return AffectedDirectories(reads=given.operands[1:])
    if read_only or (given.name.startswith("7z") and given.words[:1] not in (("x",), ("e",))):
        return AffectedDirectories()
    return AffectedDirectories(changes=given.after("-d", "-o", "-D", "--directory") or (HERE,))


def _patching(given: _CommandWords, read_only: bool) -> AffectedDirectories:
    """Read ``patch``: it changes files named by its input in the current directory or that of ``-d``."""
    return AffectedDirectories(changes=given.after("-d", "--directory") or (HERE,))


def _roots(given: _CommandWords) -> tuple[str, ...]:
    """Return the directories in which ``find`` starts."""
    roots: list[str] = []
    for word in given.words:
        if word in ("-H", "-L", "-P"):
            continue
        if word.startswith(("-", "(", "!", ",")):
            break
        roots.append(word)
    return tuple(roots) or (HERE,)


def _find(given: _CommandWords, read_only: bool) -> AffectedDirectories:
    roots = _roots(given)
    run = [after for word, after in zip(given.words, given.words[1:], strict=False) if word in _COMMANDS]
    programs = {posixpath.basename(program) for program in run} - _LOOKS
    changes = bool(programs - _READS) or (not read_only and not programs)
    return AffectedDirectories(reads=roots if programs else (), changes=roots if changes else ())


def _git(given: _CommandWords, read_only: bool) -> AffectedDirectories:
    if "diff" in given.operands[:2]:
        return AffectedDirectories(reads=given.operands, paired=True)
    if "grep" in given.operands[:2] and "--no-index" in given.words:
        limits = given.words[given.words.index("--") + 1 :] if "--" in given.words else ()
        return AffectedDirectories(reads=limits or (*given.after("-C"), HERE))
    return (
        AffectedDirectories()
        if read_only
        else AffectedDirectories(changes=tuple(word for word in given.operands if word), guessed=True)
    )


def _containers(given: _CommandWords, read_only: bool) -> AffectedDirectories:
    """Read ``docker run -v DIRECTORY:/x``, ``docker cp DIRECTORY c:/x``, ``docker build DIRECTORY``."""
    mounts = [mount for mount in container_reach((given.name, *given.words)).mounts if not mount.by_name]
    reads = tuple(mount.source for mount in mounts if mount.reads)
    return AffectedDirectories(reads=reads, changes=tuple(mount.source for mount in mounts if mount.writes))


_KNOWN: Mapping[str, Callable[[_CommandWords, bool], AffectedDirectories]] = {
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
