"""The files that a command names, whatever program it is, and where a ``cd`` before it leads them."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from itertools import islice, pairwise
from urllib.parse import unquote

from .container_reach import container_directories, container_reach
from .file_words import files_in_words, near_files
from .shelltypes import Input, Word

__all__ = [
    "MAX_PATHS",
    "Directories",
    "TooManyPaths",
    "attached_directories",
    "braced",
    "code_read",
    "homeward",
    "named_paths",
    "paths_in",
    "paths_in_input",
    "paths_in_values",
    "renamed",
    "renamings",
    "substituted",
]

MAX_PATHS = 256
"""Files that one command may name and still be judged."""
_KEPT = 4 * MAX_PATHS + 4
"""Paths of one command that are kept: more than are judged, also when four of them (``~``, ``$HOME``) are one file."""
_MAX_DIRECTORIES = 64
"""Directories in which relative paths of one text may be meant."""
_MAX_FORMS = 64
"""What braces in one word may become."""
_MAX_PATH_CHARS = 4096
"""No system opens a longer path."""
_MAX_VALUE_CHARS = 16 << 10
"""Of a word with the values of its variables."""
_HOME = re.compile(r"^\$(?:HOME|\{HOME\})(?=/|$)")
_HERE = re.compile(r"^(?:~\+|\$(?:PWD|\{PWD\}))(?=/|$)")
_BRACE = re.compile(r"(?<!\$)\{(?:(?P<list>[^{}]*,[^{}]*)|[^{},.]+\.\.[^{},]+)\}")
_VARIABLE = re.compile(r"\$(?:(?P<name>[A-Za-z_]\w*)|\{(?P<braced>[A-Za-z_]\w*)\})")
_FILE_URL = re.compile(r"(?i)file:(?://[^/]*)?(?P<path>/.*)")
_NEAR_URL = re.compile(r"(?i)fileb?://(?P<path>[^/].*)")
"""Of the AWS command line: a file where it runs."""
_NO_LIST = re.compile(r"[\s(){}$`'\"]")
_BRACES = 6
"""Braces in one word that are expanded one by one."""
_RUNS_CODE = re.compile(
    r"(?:python|pypy|perl|ruby|php|lua|luajit|tclsh|wish|erl|guile|gcc|g\+\+|clang|clang\+\+|cpp)[-\d.]*"
    r"|node|nodejs|deno|bun|[gmn]?awk|sed|ed|ex|n?vim?|view|less|emacs|Rscript|R|julia|octave|gnuplot|cc|c\+\+|make|gmake|m4|[gnt]roff|gdb|lldb|expect"
    r"|psql|mysql|mariadb|sqlite3?|duckdb|mongosh?|redis-cli|lftp|smbclient|sftp|ftp|pwsh"
)
"""Programs whose words, and what they read, may be programs that name files."""
_ROOTED = re.compile(r"(?<![\w.~/-])(?:~|\$HOME|\$\{HOME\})?/[\w.@%+~-][\w.@%+~/-]*")
_UNPACKS = re.compile(
    r"gunzip|gzip|pigz|unpigz|bunzip2|bzip2|pbzip2|unxz|xz|unlzma|lzma|unzstd|zstd|lz4|unlz4|lzip|uncompress"
)
_PACKED = frozenset({"gz", "z", "Z", "bz2", "bz", "xz", "lzma", "zst", "lz4", "lz", "tgz", "tbz2", "txz"})
_MANY = "it names more files than can be judged"
_PLACES = frozenset({"-C", "--chdir", "--directory", "--git-dir", "--work-tree"})
_CHANGES = frozenset({"cd", "pushd", "popd", "chdir", "z"})
_GIVES_NAMES = frozenset({"ln", "mv", "cp", "install", "rsync", "mount"})
_INTO = {**dict.fromkeys(("cp", "mv", "ln", "install", "gcp", "gmv", "gln", "ginstall"), "t"), "wget": "P"}
"""The option of a program whose value is the directory that gets new entries."""


_Used = tuple[str, str]
"""A variable with a value, or a new name with the old one."""


class TooManyPaths(Exception):
    """A text names more files than are judged."""


def named_paths(words: Sequence[Word]) -> tuple[str, ...]:
    """Everything in the words of a command that may be a path: operands, and the tails of options. Pure.

    It takes more than there is: a rule that protects a file must see it in whatever place it stands.
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
    """The files that a program writes when it unpacks one: ``unxz FILE.xz`` writes FILE."""
    if _UNPACKS.fullmatch(name):
        for text in texts:
            path, dot, suffix = text.rpartition(".")
            if dot and suffix in _PACKED:
                yield f"{path}.tar" if suffix.startswith("t") else path


def attached_directories(name: str, words: Sequence[str]) -> tuple[str, ...]:
    """The directories that stand in one word with their option: ``cp -tDIRECTORY``. Pure."""
    letter = _INTO.get(posixpath.basename(name))
    if letter is None:
        return ()
    found = (word.partition(letter) for word in words if re.match(r"-[A-Za-z]", word))
    return tuple(directory for before, _, directory in found if directory and re.fullmatch("-[A-Za-z]*", before))


def paths_in_input(words: Sequence[Word], given: Input) -> tuple[str, ...]:
    """The paths that stand in a program for an interpreter, which it reads. Pure."""
    name = posixpath.basename(words[0].text) if words else ""
    return tuple(dict.fromkeys(_in_program(name, code_read(words, given))))[:_KEPT]


def code_read(words: Sequence[Word], given: Input) -> str:
    """The program that an interpreter reads, as far as it stands in the text; empty for other programs. Pure."""
    if not words or not _RUNS_CODE.fullmatch(posixpath.basename(words[0].text)):
        return ""
    prints = bool(given.source) and given.source[0].text in ("echo", "printf")
    return (" ".join(word.text for word in given.source) if prints else given.text) or ""


def paths_in_values(words: Iterable[Word]) -> tuple[str, ...]:
    """The paths that stand in variables which are set for a command. Pure."""
    values = tuple(words)
    plain = paths_in(word for word in values if not re.search(r"\s", word.text))
    return tuple(dict.fromkeys((*plain, *(path for word in values for path in _in_code(word.text)))))[:_KEPT]


def _in_program(name: str, text: str) -> list[str]:
    """What looks like a path in a program for an interpreter."""
    return [*_in_code(text), *near_files(name, text)]


def _in_code(text: str) -> list[str]:
    """What looks like a path from the root or the home, anywhere in a text."""
    return list(islice(dict.fromkeys(match[0] for match in _ROOTED.finditer(text)), _KEPT))


def paths_in(words: Iterable[Word]) -> tuple[str, ...]:
    """Everything in some words that may be a path, such as in the values of variables. Pure."""
    return tuple(dict.fromkeys(text for word in words for text in _candidates(word.text)))[:_KEPT]


def substituted(paths: Iterable[str], values: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """The paths, and what they are with the values that variables get in the same text. Pure.

    Raises:
        TooManyPaths: that are too many to be judged.
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
    """All that steps make of some paths, when each step is taken once at most on the way to a path."""
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
    """The names that commands of one text give to what is there: pairs of the new name and the old one. Pure.

    Those of ``ln``, ``mv``, ``cp``, ``install``, ``rsync`` and ``mount``, and of what a container gets. A destination
    may be a directory, which gets a name below it.
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
            for new in names:  # a link is followed from where it is
                olds = (old, posixpath.join(posixpath.dirname(new), old))
                found |= dict.fromkeys((posixpath.normpath(new), one) for one in olds)
    return tuple(found)


def renamed(paths: Iterable[str], names: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    """The paths, and what they are by the names that things had before. Pure.

    Raises:
        TooManyPaths: that are too many to be judged.
    """

    def step(path: str) -> Iterable[tuple[str, _Used]]:
        plain = posixpath.normpath(path)
        return ((old, name) for name in names if (old := _renamed(plain, *name)))

    return _closure(paths, step) if names else tuple(dict.fromkeys(paths))


def _renamed(path: str, new: str, old: str) -> str:
    """What a path was before; empty when it is not below the new name."""
    if new == "/":  # another root: what is below the old one was meant
        return "" if not path.startswith("/") or path.startswith(f"{old.rstrip('/')}/") else f"{old.rstrip('/')}{path}"
    return old.rstrip("/") + path[len(new) :] or "/" if path == new or path.startswith(f"{new}/") else ""


def braced(paths: Iterable[str]) -> tuple[str, ...]:
    """The paths, and what ``{a,b}`` and ``{1..3}`` in them become where the shell expands that. Pure.

    Raises:
        TooManyPaths: that are too many to be judged.
    """
    found: dict[str, None] = {}
    for path in paths:
        found |= dict.fromkeys((path, *_expanded(path)) if "{" in path else (path,))
        if len(found) > _KEPT:
            raise TooManyPaths(_MANY)
    return tuple(found)


def _expanded(path: str) -> list[str]:
    """What braces make of a word; of many, or of a range, a wildcard: what is between them counts as anything."""
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
        raise TooManyPaths(_MANY)  # no wildcard is a path below another directory, or a hidden file
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
    """The values in a list: ``type=bind,src=/etc``, ``f=<FILE;type=text``, ``f=@A,B``."""
    if _NO_LIST.search(text) or "=" not in text:
        return
    for piece in re.split(r"[,;]", text):
        value = piece.rpartition("=")[2].lstrip("@<")
        if value and value != text:
            yield value


def _attached(text: str) -> Iterable[str]:
    """What may be the value of an option in the same word: ``-oFILE``, ``-rf.env``, ``-I/dir``."""
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
    """A word that names the home, or where it runs, by a variable names it by ``~`` and ``.``, too. Pure."""
    return _HERE.sub(".", _HOME.sub("~", word, count=1), count=1)


class Directories:
    """The directories in which relative paths may be meant: those of every ``cd``, and of options like ``git -C``.

    ``lost``: one of them is only known at run time, or what is read there are devices. ``_many``: there are more than
    are judged.
    """

    def __init__(self) -> None:
        self._bases: list[str] = []
        self.lost = False
        self._many = False

    def enter(self, name: str, words: Sequence[Word]) -> None:
        """Follow what a command says of directories."""
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
        """The paths, and what they are in those directories.

        Raises:
            TooManyPaths: that are too many to be judged.
        """
        found: dict[str, None] = {}
        for path in paths:
            found[path] = None
            if not path.startswith(("/", "~")):
                found.update(dict.fromkeys(posixpath.join(base, path) for base in self._bases))
                if self._many or len(found) > _KEPT:
                    raise TooManyPaths(_MANY)
        return tuple(found)
