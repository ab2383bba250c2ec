"""The search of ``grep``: on the target, or locally in fetched files."""

from __future__ import annotations

import bisect
import posixpath
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from anyio import to_thread

from harness.toolkit import ToolContext, ToolResult

from .entries import Contents, Listing, fetch, list_tree
from .grep_scripts import LISTED, GrepQuery, grep_script, lines_limit
from .linear_matcher import Matcher
from .replies import Tree, ask, can_search, plain, read_tree, text_of

__all__ = [
    "FileMatchCount",
    "GrepResult",
    "Line",
    "Wanted",
    "counts_of",
    "find_lines",
    "grep_locally",
    "lines_of",
    "stdin_of",
]


# -- Parsing the output of the scripts as counts and lines. Pure.


_NUMBERED = re.compile(rb"(\d+)([:-])(.*)", re.DOTALL)
SEPARATOR = b"--"
TEXT = 2_000
"""Maximum bytes of a line that are kept, whatever program searches."""


@dataclass(frozen=True, slots=True)
class FileMatchCount:
    """A file and its number of matches; ``name`` is in the format of the scripts."""

    path: str
    count: int
    name: bytes


@dataclass(frozen=True, slots=True)
class Line:
    """A matching line, or a context line; ``text`` is the start of a long one (``is_cut``)."""

    number: int
    text: bytes
    is_match: bool
    is_cut: bool = False

    @classmethod
    def of(cls, number: int, text: bytes, *, is_match: bool) -> Line:
        """Create a line, truncating a long one."""
        return cls(number, text[:TEXT], is_match, len(text) > TEXT)


def counts_of(tree: Tree, limit: int) -> tuple[list[FileMatchCount], bool]:
    """Return the files, by path, and whether the list was truncated."""
    data = tree.other.get("L", [b""])[0]
    is_cut = len(data) > limit  # the shell ends it with one more newline
    lines = data.split(b"\n")
    if is_cut:
        lines = lines[:-2]
    found = []
    for line in lines:
        name, mark, count = line.rpartition(b"\x01")
        if mark and count.isdigit() and count != b"0":
            path = text_of(name.replace(b"\x02", b"\n").removeprefix(b"./"))
            found.append(FileMatchCount(path, int(count), name))
    return sorted(found, key=lambda file: file.path.encode("utf-8", "surrogateescape")), is_cut


def stdin_of(files: list[FileMatchCount]) -> bytes:
    """Return the files as standard input of the script that prints their lines."""
    return b"".join(b"%s\x01%d\n" % (file.name, file.count) for file in files)


def lines_of(data: bytes, limit: int) -> dict[str, list[Line]]:
    """Return the lines by path; the last one is dropped if it may be incomplete."""
    if len(data) >= limit:
        data = data[: data.rfind(b"\n") + 1]
    found: dict[str, list[Line]] = {}
    for name, line in _records(data):
        match = _NUMBERED.match(line)
        if match:
            path = text_of(name.removeprefix(b"./"))
            found.setdefault(path, []).append(Line.of(int(match[1]), match[3], is_match=match[2] == b":"))
    return found


def _records(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield name and line; names, which may contain newlines, precede each line or all lines of the file."""
    waiting: list[bytes] = []
    heading: bytes | None = None
    for line in data.split(b"\n"):
        if line.startswith(b"\x01"):
            heading, waiting = line[1:].replace(b"\x02", b"\n"), []
        elif heading is not None:
            yield heading, line
        elif b"\x01" in line:
            name, _, rest = line.partition(b"\x01")
            yield b"\n".join([*waiting, name]), rest
            waiting = []
        elif line != SEPARATOR or waiting:
            waiting.append(line)


# -- Finding lines: with programs of the target, or locally; files that the policy denies are omitted.


Wanted = Callable[[str], bool]
"""Whether a path, relative to the top, is requested."""


@dataclass(slots=True)
class GrepResult:
    """The result of a search: every file with its count, and the lines of the first ones.

    Files that the policy denies are not even counted, because that would tell whether they contain a match. ``is_cut``:
    the list of files was truncated.
    """

    engine: str
    tree: Tree
    files: list[FileMatchCount]
    lines: dict[str, list[Line]]
    is_cut: bool = False

    @property
    def is_file(self) -> bool:
        """Whether a single file was searched."""
        return "O" in self.tree.other

    @property
    def is_binary(self) -> bool:
        """Whether that file is not text."""
        return "B" in self.tree.other


async def find_lines(ctx: ToolContext, query: GrepQuery, wanted: Wanted) -> GrepResult | None:
    """Search on the target; None if it has no suitable program.

    Raises:
        ToolError: The search timed out.
    """
    if not can_search(ctx, "rg") and not can_search(ctx, "find", "grep"):
        return None
    tree = read_tree(await ask(ctx, grep_script(query)))
    if tree.refusal == "engine":
        return None
    engine = text_of(tree.other.get("V", [b""])[0])
    counted, is_cut = counts_of(tree, LISTED)
    files = await _kept(ctx, tree, _chosen(tree, counted, wanted, engine, query.tree.start))
    limit = lines_limit(query)
    lines = lines_of(tree.other.get("C", [b""])[0], limit)
    found = GrepResult(engine, tree, files, {}, is_cut)
    missing = [file for file in _needed(files, query) if file.path not in lines] if query.lines else []
    if missing:  # files that are omitted now filled the output
        again = replace(query, most=query.most)
        second = read_tree(await ask(ctx, grep_script(again, named=True), stdin_of(missing)))
        lines |= lines_of(second.other.get("C", [b""])[0], limit)
    found.lines = {file.path: lines.get(file.path, []) for file in _needed(files, query)}
    return found


def _chosen(
    tree: Tree, counted: list[FileMatchCount], wanted: Wanted, engine: str, start: Sequence[str]
) -> list[FileMatchCount]:
    if "O" in tree.other:
        return counted
    ignored = tree.ignored
    if start and ignored.leaves_out("/".join(start), is_dir=True):
        return []
    if engine == "rg":  # rg applied the ignore files itself
        return [file for file in counted if wanted(file.path)]
    return [file for file in counted if wanted(file.path) and not ignored.leaves_out(file.path)]


def _needed(files: list[FileMatchCount], query: GrepQuery) -> list[FileMatchCount]:
    """Return the first files, as many as can have shown lines."""
    taken, total = [], 0
    for file in files:
        if total >= query.most:
            break
        taken.append(file)
        total += file.count
    return taken


async def _kept(ctx: ToolContext, tree: Tree, files: list[FileMatchCount]) -> list[FileMatchCount]:
    holders = {posixpath.normpath(posixpath.join(tree.real, plain(name))) for name in tree.other.get("A", [])}
    real = {posixpath.join(tree.real, file.path): file for file in files}
    kept_back = await ctx.unreadable_paths(list(real), top=tree.real, holders=_certain(holders, files))
    return [file for path, file in real.items() if path not in kept_back]


def _certain(holders: set[str], files: list[FileMatchCount]) -> set[str] | None:
    """Return the directories; None if a directory name with a newline may have hidden one from the script."""
    return None if any("\n" in posixpath.dirname(file.path) for file in files) else holders


# -- Searching fetched files locally: if the target has no suitable program, and for multiline matches.


MAX_FILES = 5_000
"""Maximum files that are fetched."""
UNALIKE = "no_default_excludes (the target's ripgrep would read an ignore file differently than git)"


async def grep_locally(ctx: ToolContext, query: GrepQuery, wanted: Wanted) -> GrepResult | ToolResult:
    """Find lines as the programs of the target would.

    Raises:
        FileError: The directory cannot be read.
        ToolError: The search timed out.
    """
    listing = await list_tree(ctx, query.tree, "f")
    if listing.tree.refusal:
        return GrepResult("here", listing.tree, [], {})
    paths = [entry.path for entry in listing.entries if listing.is_file or wanted(entry.path)]
    if len(paths) > MAX_FILES:
        text = (
            f"{len(paths)} files would have to be fetched and searched locally, more than {MAX_FILES}: give a smaller "
        )
        more = UNALIKE if can_search(ctx, "rg") else "install ripgrep on the target"
        return ToolResult.failure("too_many_files", f"{text}path, an include or a type, or {more}")
    holders = [posixpath.join(listing.tree.real, path) for path in paths]
    kept_back = await ctx.unreadable_paths(holders, top=listing.tree.real)
    kept = [path for path, real in zip(paths, holders, strict=True) if real not in kept_back]
    contents = await fetch(ctx, listing.tree.real, [_encoded(path) for path in kept])
    return await to_thread.run_sync(_search, query, listing, contents)


def _encoded(path: str) -> bytes:
    return b"./" + path.encode("utf-8", "surrogateescape")


def _search(query: GrepQuery, listing: Listing, contents: Contents) -> GrepResult:
    matcher = Matcher(query.expression)
    files: list[FileMatchCount] = []
    lines: dict[str, list[Line]] = {}
    total = 0
    for name in sorted(contents.texts):
        count, numbers = matching_lines(matcher, contents.texts[name], multiline=query.expression.multiline)
        if not count:
            continue
        path = name.removeprefix(b"./").decode("utf-8", "surrogateescape")
        files.append(FileMatchCount(path, count, name))
        if total < query.most:
            lines[path] = _beside(contents.texts[name], numbers, query.before, query.after)
        total += count
    return GrepResult("here", _tree(listing, contents), files, lines, contents.is_cut)


def _tree(listing: Listing, contents: Contents) -> Tree:
    tree = listing.tree
    tree.unreadable += len(contents.unreadable) + len(contents.large)
    if listing.is_file:
        tree.other["O"] = [b""]
        if contents.binary:
            tree.other["B"] = [b""]
    return tree


def matching_lines(matcher: Matcher, text: bytes, *, multiline: bool) -> tuple[int, list[int]]:
    """Return the number of matches, or of matching lines, and the numbers of the lines that contain them. Pure."""
    if not multiline:
        found = [number for number, line in enumerate(_split(text), 1) if matcher.found_in(line)]
        return len(found), found
    ends = [at for at, byte in enumerate(text) if byte == 10]
    spans = list(matcher.spans(text)) if _anywhere(matcher, text) else []
    numbers: set[int] = set()
    for start, end in spans:
        numbers.update(range(bisect.bisect_left(ends, start) + 1, bisect.bisect_left(ends, max(end - 1, start)) + 2))
    return len(spans), sorted(numbers)


def _anywhere(matcher: Matcher, text: bytes) -> bool:
    search: Callable[[bytes], bool] = matcher.found_in
    return search(text)


def _split(text: bytes) -> list[bytes]:
    lines = text.split(b"\n")
    return lines[:-1] if lines[-1] == b"" else lines


def _beside(text: bytes, numbers: list[int], before: int, after: int) -> list[Line]:
    lines = _split(text)
    hits = set(numbers)
    shown = sorted(
        {at for number in numbers for at in range(max(1, number - before), min(len(lines), number + after) + 1)}
    )
    return [Line.of(at, lines[at - 1], is_match=at in hits) for at in shown]
