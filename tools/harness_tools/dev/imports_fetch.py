"""The sources of a tree, in three questions to the target: is it a directory, what is in it, and all contents at once.

The contents come as one stream, each between marks that no file can know, so that a file which changes meanwhile cannot
be taken for its neighbour. A few files alone are read one by one: then it is known when they change.
"""

from __future__ import annotations

import posixpath
import secrets
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import anyio

from harness.errors import FileError, ToolError
from harness.results import FileContent, ShellResult, Status
from harness.toolkit import ToolContext

__all__ = ["FEW", "SKIPPED", "Fetched", "Listing", "TooSlow", "fetch", "list_sources", "parse_listing", "parse_stream"]

FEW = 6
"""Files that are read one by one."""
FILE_LIMIT = 256 << 10
"""Bytes of one file that are looked at."""
TOTAL_LIMIT = 16 << 20
LISTING_LIMIT = 8 << 20
SECONDS = 60.0
SKIPPED = (
    *("node_modules", "bower_components", "jspm_packages", "vendor", "third_party", "__pycache__", "venv"),
    *("virtualenv", "site-packages", "dist", "build", "target", "obj", "Pods", "Carthage", "DerivedData"),
)
"""Directories that hold copies of what others wrote, or what was built; hidden ones are skipped, too."""
# Where head knows no -c, what is too long is cut by the limit of the job's own log.
_HEAD = """if (printf x | head -c 1) >/dev/null 2>&1; then hx_all() { head -c "$1"; }; else hx_all() { cat; }; fi; """
_READ = (
    """if (printf x | head -c 1) >/dev/null 2>&1; then hx_head() { head -c "$1"; }; """
    """else hx_head() { dd bs="$1" count=1; }; fi 2>/dev/null\n"""
)
_PRINT = 'for f do printf "%s%s\\0" "$0" "$f"; done'


class TooSlow(Exception):
    """The target had not done it in time."""


@dataclass(frozen=True, slots=True)
class Listing:
    """What is in a tree, relative to it and sorted. ``complaints`` are the target's: what may
    not be looked into.

    ``complete`` is False when there was more than a listing may hold.
    """

    files: tuple[str, ...]
    skipped: tuple[str, ...] = ()
    complaints: tuple[str, ...] = ()
    complete: bool = True


@dataclass(frozen=True, slots=True)
class Fetched:
    """Contents by name, of long files the beginning. ``unreadable`` could not be read; ``late`` did not fit any more.

    ``versions`` are the same as they were read, when they were few.
    """

    contents: dict[str, bytes]
    unreadable: tuple[str, ...] = ()
    late: tuple[str, ...] = ()
    versions: tuple[FileContent, ...] = ()


async def list_sources(ctx: ToolContext, root: str, patterns: Sequence[str], *, recursive: bool) -> Listing:
    """The files below ``root`` (a real path) whose names match one of the patterns of ``find -name``.

    Raises:
        TooSlow: it was not done in time.
        ToolError: its end is not known.
    """
    command = listing_command(root, patterns, recursive=recursive)
    done = await _run(ctx, command, "listing", LISTING_LIMIT + 4096)
    return parse_listing(done.stdout_bytes, done.stderr)


def listing_command(root: str, patterns: Sequence[str], *, recursive: bool) -> str:
    """The command that lists. Pure."""
    names = " -o ".join(f"-name {shlex.quote(pattern)}" for pattern in patterns)
    files = f"-type f \\( {names} \\) -exec sh -c {shlex.quote(_PRINT)} F {{}} +"
    pruned = " -o ".join(f"-name {shlex.quote(name)}" for name in (".?*", *SKIPPED))
    skip = f"-type d \\( {pruned} \\) -prune -exec sh -c {shlex.quote(_PRINT)} S {{}} +"
    what = f"{skip} -o {files}" if recursive else f"! -name . -prune {files}"
    return f"{_enter(root)}{_HEAD}find . {what} | hx_all {LISTING_LIMIT}"


def _enter(root: str) -> str:
    return f"LC_ALL=C; export LC_ALL; cd -- {shlex.quote(root)} || exit 71; "


def parse_listing(data: bytes, complaints: str) -> Listing:
    """The listing of what the target wrote. Pure."""
    *records, rest = data.split(b"\0")
    names: dict[bytes, list[str]] = {b"F": [], b"S": []}
    for record in records:
        if record[:1] in names:
            path = record[1:].decode("utf-8", "surrogateescape")
            names[record[:1]].append(posixpath.normpath(path))
    said = tuple(line for line in complaints.splitlines() if line.strip())
    complete = not rest and len(data) < LISTING_LIMIT
    return Listing(tuple(sorted(names[b"F"])), tuple(sorted(names[b"S"])), said, complete)


async def fetch(ctx: ToolContext, root: str, names: Sequence[str]) -> Fetched:
    """The contents of files of a tree.

    Raises:
        TooSlow: it was not done in time.
        ToolError: its end is not known.
    """
    if len(names) <= FEW:
        return await _fetch_few(ctx, root, names)
    mark = secrets.token_hex(12)
    command = f"{_enter(root)}{_HEAD}sh | hx_all {TOTAL_LIMIT}"
    done = await _run(ctx, command, "reading", TOTAL_LIMIT + 4096, stdin=stream_script(names, mark))
    return parse_stream(done.stdout_bytes, mark, names)


def stream_script(names: Iterable[str], mark: str) -> bytes:
    """What the shell is given to write the files one after the other. Pure."""
    show = (
        f"""hx_file() {{ printf '%sF%s\\0' {mark} "$1"; if [ -f "$1" ] && hx_head {FILE_LIMIT + 1} <"$1"; """
        f"""then printf '%s+' {mark}; else printf '%s-' {mark}; fi; }} 2>/dev/null\n"""
    )
    calls = "".join(f"hx_file {shlex.quote('./' + name)}\n" for name in names)
    return (_READ + show + calls).encode("utf-8", "surrogateescape")


def parse_stream(data: bytes, mark: str, names: Sequence[str]) -> Fetched:
    """The files of what the target wrote. Pure."""
    contents: dict[str, bytes] = {}
    unreadable: list[str] = []
    pieces = data.split(mark.encode())[1:]
    for piece, end in zip(pieces[::2], pieces[1::2], strict=False):
        name, _, content = piece[1:].partition(b"\0")
        path = posixpath.normpath(name.decode("utf-8", "surrogateescape"))
        if end == b"+":
            contents[path] = content
        elif end == b"-":
            unreadable.append(path)
    known = contents.keys() | set(unreadable)
    return Fetched(contents, tuple(unreadable), tuple(name for name in names if name not in known))


async def _fetch_few(ctx: ToolContext, root: str, names: Sequence[str]) -> Fetched:
    found: dict[str, FileContent | None] = {}

    async def read(name: str) -> None:
        try:
            found[name] = await ctx.execution.read_file(posixpath.join(root, name), limit=FILE_LIMIT + 1)
        except FileError:
            found[name] = None

    async with anyio.create_task_group() as group:
        for name in names:
            group.start_soon(read, name)
    contents = {name: content.data for name in names if (content := found[name]) is not None}
    unreadable = tuple(name for name in names if found[name] is None)
    return Fetched(contents, unreadable, (), tuple(content for content in found.values() if content is not None))


async def _run(ctx: ToolContext, command: str, what: str, room: int, *, stdin: bytes | None = None) -> ShellResult:
    done = await ctx.execution.run_beside(command, stdin=stdin, timeout=SECONDS, max_output=room)
    if done.status is Status.TIMED_OUT:
        raise TooSlow(f"{what} the sources took more than {SECONDS:g} s")
    if done.status is not Status.COMPLETED or done.truncated:
        raise ToolError(f"{what} the sources ended as {done.status}", target=ctx.execution.target)
    if done.exit_code == 71:
        raise FileError(done.stderr.strip() or "the directory cannot be entered", target=ctx.execution.target)
    return done
