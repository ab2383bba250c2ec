"""Entries of a tree on the target: names, kinds, sizes, times and contents, in one round trip."""

from __future__ import annotations

import contextlib
import posixpath
import shlex
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from anyio import to_thread

from harness.errors import FileError
from harness.patterns.ignore_rules import IGNORE_LIMIT, Ignored
from harness.results import DirEntry, FileStat
from harness.toolkit import ToolContext

from .replies import (
    Tree,
    ask,
    can_search,
    count_of,
    frames_of,
    learn_rules,
    plain,
    read_tree,
    text_of,
    unreadable_answer,
)
from .tree_scripts import (
    EXCLUDED,
    NO_ENGINE,
    TreeQuery,
    descend,
    enter,
    find_expression,
    find_words,
    framed_errors,
    ignore_above,
    needs,
    parallel_find,
)

__all__ = [
    "ALL_BYTES",
    "FILE_BYTES",
    "Contents",
    "Entry",
    "Listing",
    "entries_script",
    "fetch",
    "fetch_words",
    "known_size",
    "list_tree",
    "owner_of",
    "read_contents",
    "read_entries",
    "take_frame",
]


# -- Contents of many files of the target, fetched to be searched locally.


FILE_BYTES = 4 << 20
"""Maximum size of a file; a larger one is not searched."""
ALL_BYTES = 24 << 20
"""Maximum size of all fetched files."""


@dataclass(slots=True)
class Contents:
    """Fetched contents, by path as the target printed it; ``is_cut``: the size limit was reached."""

    texts: dict[bytes, bytes] = field(default_factory=dict)
    binary: list[bytes] = field(default_factory=list)
    large: list[bytes] = field(default_factory=list)
    unreadable: list[bytes] = field(default_factory=list)
    is_cut: bool = False

    def without(self, names: Collection[bytes]) -> Contents:
        """Return the contents without these files."""

        def kept(kind: list[bytes]) -> list[bytes]:
            return [name for name in kind if name not in names]

        texts = {name: text for name, text in self.texts.items() if name not in names}
        return Contents(texts, kept(self.binary), kept(self.large), kept(self.unreadable), self.is_cut)


def fetch_words() -> str:
    """Return a command that prints the contents of the files that are its arguments."""
    script = (
        'for f do s=$(wc -c <"$f") 2>/dev/null || { printf "U%s\\0" "$f"; continue; }; '
        f'if [ "$s" -gt {FILE_BYTES} ]; then printf "Z%s\\0" "$f"; '
        'elif [ "$(tr -dc "\\000" <"$f" | head -c 1 | wc -c)" -gt 0 ]; then printf "B%s\\0" "$f"; '
        f'else printf "F%s\\0" "$f"; head -c {FILE_BYTES} <"$f" | tr -d "\\000"; printf "\\0"; fi; done'
    )
    return f"sh -c {shlex.quote(script)} sh"


def read_contents(output: bytes) -> Contents:
    """Parse the output of such a command. Pure."""
    found = Contents(is_cut=len(output) >= ALL_BYTES)
    frames = frames_of(output)
    for frame in frames:
        take_frame(found, frame, frames)
    return found


def take_frame(found: Contents, frame: bytes, following: Iterator[bytes]) -> bool:
    """Take one frame, and the following one with the text; return False if it is not a frame of contents."""
    letter, name = frame[:1], frame[1:]
    if letter == b"F":
        text = next(following, None)
        if text is not None:
            found.texts[name] = text
        return True
    kinds = {b"B": found.binary, b"Z": found.large, b"U": found.unreadable}
    if letter in kinds:
        kinds[letter].append(name)
    return letter in kinds


async def fetch(ctx: ToolContext, directory: str, names: Sequence[bytes]) -> Contents:
    """Return the contents of files below a directory, by relative names: in one round trip if the target has a shell.

    Raises:
        ToolError: The search timed out.
    """
    if not names:
        return Contents()
    if can_search(ctx, "find"):
        script = (
            f"{needs('xargs', 'head', 'tr', 'wc')}LC_ALL=C; export LC_ALL; cd {shlex.quote(directory)} || exit 0; "
            f"xargs -0 {fetch_words()} 2>/dev/null | head -c {ALL_BYTES}"
        )
        output = await ask(ctx, script, b"".join(name + b"\0" for name in names))
        if output != NO_ENGINE:
            return read_contents(output)
    return await _one_by_one(ctx, directory, names)


async def _one_by_one(ctx: ToolContext, directory: str, names: Sequence[bytes]) -> Contents:
    found, room = Contents(), ALL_BYTES
    for name in names:
        path = f"{directory.rstrip('/')}/{name.decode('utf-8', 'surrogateescape').removeprefix('./')}"
        try:
            content = await ctx.execution.read_file(path, limit=FILE_BYTES + 1)
        except FileError:
            found.unreadable.append(name)
            continue
        room -= len(content.data)
        if room < 0:
            found.is_cut = True
            break
        if content.size > FILE_BYTES:
            found.large.append(name)
        elif b"\0" in content.data:
            found.binary.append(name)
        else:
            found.texts[name] = content.data
    return found


# -- Entries of a tree on the target: names, kinds, sizes and times, in one round trip.


MAX_ENTRIES = 16 << 20
"""Maximum bytes of names of one tree."""
AT_ONCE = 256 << 10
"""Maximum bytes of names that are parsed without a thread."""
Kind = Literal["f", "d", "l", "o"]
KINDS = "fdlbcps"
"""The letters of ``find`` for kinds."""
_LETTERS = frozenset((*KINDS, "L", ">", "O"))
"""The letters of the frames that :func:`entries_script` prints."""
FACTS = 5


def _stat_words(owner: str, owner_bsd: str) -> str:
    return (
        f"k=$1; shift; s=$(stat -c '%s:%Y:%a:{owner}' -- \"$@\" 2>/dev/null) || "
        f"s=$(stat -f '%z:%m:%Lp:{owner_bsd}' -- \"$@\" 2>/dev/null); "
        'printf \'T%s:%s\\0\' "$k" "$s"; printf \'%s\\0\' "$@"'
    )


_LINKS = 'for f do printf \'L%s\\0>%s\\0\' "$f" "$(readlink "$f")"; done'


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry of a tree; ``mtime`` is in whole seconds since the epoch, or None if the target has no ``stat``."""

    path: str
    kind: Kind
    size: int | None = None
    mtime: int | None = None
    mode: str = ""
    owner: str = ""
    target: str | None = None


@dataclass(frozen=True, slots=True)
class Listing:
    """The entries of a tree, unordered; ``ignored`` are those that its ignore files exclude.

    ``is_file``: the path is a file, which is the only entry.
    """

    tree: Tree
    entries: list[Entry]
    ignored: list[Entry] = field(default_factory=list)
    engine: str = "find"
    is_file: bool = False


def entries_script(query: TreeQuery, kinds: str, *, details: bool = False) -> str:
    """Return the script; ``kinds`` are letters: ``f``, ``d``, ``l``; ``details``: also owners and link targets.

    Looking up the name of an owner takes longer than everything else.
    """
    stat = _stat_words("%U:%G", "%Su:%Sg") if details else _stat_words("-:-", "-:-")
    printf = r"%y:%s:%T@:%m:%u:%g:%p\0" if details else r"%y:%s:%T@:%m:-:-:%p\0"
    types = " -o ".join(f"-type {kind}" for kind in kinds)
    below = "! -name . " if "d" in kinds else ""  # the top itself is a directory
    described = [(f"{below}\\( {types} \\)", f"-printf {shlex.quote(printf)}")]
    whole = find_expression(query, described)
    words = parallel_find(whole, query.origin) if query.depth is None else find_words(query, described)
    stats = [(f"{below}-type {kind}", f"-exec sh -c {shlex.quote(stat)} sh {kind} {{}} +") for kind in kinds]
    portable = find_words(query, stats)
    links = f"\n  find . ! -name . -prune -type l -exec sh -c {shlex.quote(_LINKS)} sh {{}} +" if details else ""
    body = f"""
if find . -prune -printf '%y%s%T@%mx\\n' 2>/dev/null | {{ read -r k && [ -z "${{k##d*x}}" ]; }}; then
  {words}
else
  {portable}
fi{links}"""
    above = ignore_above() if query.excludes else ""
    only = f"""\
if [ -n "$only" ]; then
  printf 'O\\0'; sh -c {shlex.quote(stat)} sh f "$only"; printf '\\0E0\\0'; exit 0
fi
"""
    start = f"{descend(query)}[ -z \"$nowhere\" ] || {{ printf '\\0E0\\0'; exit 0; }}\n" if query.start else ""
    begin = needs("find", "head", "tr") + enter(query)
    return begin + only + above + start + framed_errors(f"{{ {body}\n}} | head -c {MAX_ENTRIES}")


def read_entries(output: bytes, query: TreeQuery) -> Listing:
    """Parse the entries that the script printed. Pure.

    Raises:
        ValueError: The output contains something other than entries.
    """
    tree = read_tree(output, MAX_ENTRIES)
    found = [*_printed(tree), *_batched(tree)]
    if set(tree.other) - _LETTERS or (tree.is_cut and not found):
        raise ValueError("find or stat wrote something else than entries")
    links = _links(tree)
    found = [replace(entry, target=links.get(entry.path)) if entry.kind == "l" else entry for entry in found]
    ignored = tree.ignored if query.excludes else None
    return _listing(tree, found, ignored, is_file="O" in tree.other)


def _listing(
    tree: Tree, found: Iterable[Entry], ignored: Ignored | None, *, engine: str = "find", is_file: bool = False
) -> Listing:
    listing = Listing(tree, [], engine=engine, is_file=is_file)
    for entry in found:
        out = ignored is not None and ignored.leaves_out(entry.path, is_dir=entry.kind == "d")
        (listing.ignored if out else listing.entries).append(entry)
    return listing


def _printed(tree: Tree) -> Iterator[Entry]:
    """Yield entries that ``find`` itself described."""
    for letter, frames in tree.other.items():
        if letter not in KINDS:
            continue
        for frame in frames:
            _, size, mtime, mode, user, group, path = frame.split(b":", 6)
            yield _entry(letter, plain(path), [size, mtime.partition(b".")[0], mode, user, group])


def _batched(tree: Tree) -> Iterator[Entry]:
    """Yield entries that ``stat`` described in batches; if one was deleted meanwhile, the others have no details."""
    ends = [*(start for start, _ in tree.batches[1:]), len(tree.paths)][: len(tree.batches)]
    for (start, said), end in zip(tree.batches, ends, strict=True):
        paths = tree.paths[start:end]
        lines = said[2:].split(b"\n")
        described = [line.split(b":") for line in lines] if len(lines) == len(paths) else [[] for _ in paths]
        for path, facts in zip(paths, described, strict=True):
            yield _entry(text_of(said[:1]), plain(path), facts)


def _entry(letter: str, path: str, facts: list[bytes]) -> Entry:
    kind: Kind = "f" if letter == "f" else "d" if letter == "d" else "l" if letter == "l" else "o"
    if len(facts) != FACTS:
        return Entry(path, kind)
    size, mtime, mode, user, group = facts
    owner = f"{text_of(user)}:{text_of(group)}"
    return Entry(path, kind, count_of(size), int(mtime or b"0"), text_of(mode), owner)


def _links(tree: Tree) -> dict[str, str]:
    names, leads = tree.other.get("L", []), tree.other.get(">", [])
    return {plain(name): text_of(where) for name, where in zip(names, leads, strict=False)}


def known_size(found: DirEntry | FileStat) -> int | None:
    """Return the size in bytes; None if the target cannot report it."""
    return found.size if found.size >= 0 else None


def owner_of(stat: FileStat) -> str:
    """Return ``UID:GID``; empty if the target cannot report it."""
    return f"{stat.uid}:{stat.gid}" if stat.uid >= 0 else ""


async def list_tree(ctx: ToolContext, query: TreeQuery, kinds: str, *, details: bool = False) -> Listing:
    """List a tree; if the target has no suitable ``find``, only its names are listed, and filtered locally.

    Raises:
        FileError: Without ``find``: the directory cannot be read.
        ToolError: The search timed out.
    """
    if can_search(ctx, "find"):
        output = await ask(ctx, entries_script(query, kinds, details=details))
        large = len(output) >= AT_ONCE
        try:
            listing = await to_thread.run_sync(read_entries, output, query) if large else read_entries(output, query)
        except (ValueError, IndexError) as error:
            raise unreadable_answer(ctx) from error
        if listing.tree.refusal != "engine":
            return listing
    return await _walked(ctx, query, kinds)


async def _walked(ctx: ToolContext, query: TreeQuery, kinds: str) -> Listing:
    top = await ctx.execution.stat(query.directory)
    if top.type == "file":
        directory, name = posixpath.split(top.path)
        entry = Entry(name, "f", known_size(top), int(top.mtime), f"{top.mode:o}", owner_of(top))
        return Listing(Tree(real=directory, is_whole=True), [entry], engine="walk", is_file=True)
    if top.type != "dir":
        return Listing(Tree(refusal="special"), [], engine="walk")
    walked = await ctx.execution.walk(top.path)
    tree = Tree(real=top.path, is_whole=True)
    if query.excludes:
        await _learn_above(ctx, tree)
        await _learn_rules(ctx, walked, tree)
    return _listing(tree, _chosen(walked, query, kinds, tree), tree.ignored, engine="walk")


async def _learn_rules(ctx: ToolContext, walked: list[DirEntry], tree: Tree) -> None:
    for entry in walked:
        directory, name = posixpath.split(entry.name)
        if name == ".git" and directory:
            tree.repositories.add(directory)
        elif name == ".gitignore" and entry.type == "file":
            await _learn_file(ctx, tree, directory, posixpath.join(tree.real, entry.name))


async def _learn_file(ctx: ToolContext, tree: Tree, directory: str, path: str) -> None:
    with contextlib.suppress(FileError):  # an unreadable ignore file excludes nothing
        if (await ctx.execution.stat(path, follow=False)).type == "file":
            learn_rules(tree, directory, (await ctx.execution.read_file(path, limit=IGNORE_LIMIT)).data)


async def _learn_above(ctx: ToolContext, tree: Tree) -> None:
    """Read the ignore files of the directories above, up to the root of the repository that contains the tree."""
    above = [tree.real]
    while above[-1] != "/":
        if await _is_there(ctx, posixpath.join(above[-1], ".git")):
            for directory in above[1:]:
                await _learn_file(ctx, tree, directory, posixpath.join(directory, ".gitignore"))
            return
        above.append(posixpath.dirname(above[-1]))


async def _is_there(ctx: ToolContext, path: str) -> bool:
    try:
        await ctx.execution.stat(path)
    except FileError:
        return False
    return True


def _chosen(walked: list[DirEntry], query: TreeQuery, kinds: str, tree: Tree) -> Iterator[Entry]:
    letters: dict[str, Kind] = {"file": "f", "dir": "d", "link": "l"}
    skipped: set[str] = set()
    directories = {entry.name for entry in walked if entry.type == "dir"}
    for entry in walked:
        names = entry.name.split("/")
        above = ["/".join(names[:count]) for count in range(1, len(names) + 1)]
        out = next(
            (path for path in above if query.excludes and path in directories and _is_excluded(path, query)), None
        )
        if query.depth is not None and (out or entry.name).count("/") >= query.depth:
            continue
        if out is not None:
            skipped.add(out)
        elif query.hidden or not any(name.startswith(".") for name in names):
            kind = letters.get(entry.type, "o")
            if kind in kinds:
                yield Entry(entry.name, kind, known_size(entry))
    tree.skipped = sorted(skipped)


def _is_excluded(path: str, query: TreeQuery) -> bool:
    return posixpath.basename(path) in EXCLUDED or path in query.kernel
