"""A replacement in many files: candidates, the plan, and writing once everything may be written."""

from __future__ import annotations

import hashlib
import json
import posixpath
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import anyio
from anyio import to_thread

from harness.errors import ConnectError, ConnectionLost, FileError, StaleFileError, ToolError
from harness.results import FileContent, Status
from harness.toolkit import ToolContext, ToolResult
from harness.toolkit.pipeline import failure_of
from harness.toolkit.session.file_versions import target_path

from ..text_changes import Change, Span, apply_changes, changes_at, find_spans, line_numbers, size_after
from ..texts import readable_name

__all__ = [
    "FILE_LIMIT",
    "Plan",
    "PlannedFile",
    "Replacement",
    "WriteReport",
    "candidates_script",
    "folded",
    "named",
    "plan_for",
    "read_candidates",
    "write_all",
]


# -- Listing the files below a directory that may contain a text: one script on the target, or file by file.


NOT_ENTERED = (".git", ".hg", ".svn", ".bzr", ".jj", "_darcs", "CVS", "node_modules")
"""Subdirectories whose files are never changed, because programs manage them."""
FILE_LIMIT = 16 << 20
"""Maximum bytes of a file to change."""
SECONDS = 120.0
ANSWER = 24 << 20
"""Maximum bytes of names and contents."""
INLINE = 256 << 10
"""Maximum bytes of a file whose content is sent with its name."""
_CLASSES = (
    'for f do s=$(wc -c <"$f") 2>/dev/null || { printf "U%s\\0" "$f"; continue; }; '
    'if [ "$s" -le "$I" ]; then printf "T%s\\0%s\\0" "$f" "$s"; tr -d "\\000" <"$f"; printf "\\0"; '
    f'elif [ "$s" -gt {FILE_LIMIT} ]; then printf "Z%s\\0" "$f"; '
    'elif [ "$(tr -dc "\\000" <"$f" | head -c 1 | wc -c)" -gt 0 ]; then printf "B%s\\0" "$f"; '
    'else printf "F%s\\0" "$f"; fi; done'
)
"""A content is sent without NULs, because a NUL ends it; it is binary if shorter than its size, which precedes it.
A file that changes meanwhile has another version when it is written."""


@dataclass(frozen=True, slots=True)
class Candidates:
    """File names relative to the directory; ``unreadable`` counts unreadable files and directories.

    ``texts`` are the contents of small files, if they were sent with the names.
    """

    names: tuple[str, ...]
    binary: tuple[str, ...] = ()
    large: tuple[str, ...] = ()
    unreadable: int = 0
    texts: Mapping[str, bytes] = field(default_factory=dict)


def candidates_script(part: bytes, ending: str, *, folds: bool, recursive: bool, inline: int = 0) -> str:
    """Return the script for its working directory: it prints names after a letter, and ``E`` at the end. Pure.

    Args:
        part: A text of one line that the files must contain; empty for any.
        ending: The ending of their names.
        inline: Maximum bytes of a file whose content is sent, unless it is empty.
    """
    flags = "-F -i" if folds else "-F"
    names = " -o ".join(f"-name {shlex.quote(name)}" for name in NOT_ENTERED)
    rough = "".join("?" if char in "*?[]\\" else char for char in ending)
    files = f"-type f -name {shlex.quote('*' + rough)}" if ending else "-type f"
    tree = f"\\( -type d \\( {names} \\) -prune \\) -o {files} -print0" if recursive else f"-prune {files} -print0"
    one = f'for f do if grep -q {flags} -e "$L" -- "$f"; then printf "%s\\0" "$f"; fi; done'
    text = part.decode("utf-8", "surrogateescape")
    return f"""\
LC_ALL=C; export LC_ALL; unset GREP_OPTIONS CDPATH
L={shlex.quote(text)} I={inline}; export L I
null=; grep -c --null -e x -- /dev/null >/dev/null 2>&1; [ $? -eq 1 ] && null=1
holding() {{
  if [ -z "$L" ]; then cat
  elif [ -n "$null" ]; then xargs -0 grep -l --null {flags} -e "$L" -- /dev/null
  else xargs -0 sh -c {shlex.quote(one)} sh; fi
}}
find . ! -name . {tree} | holding | xargs -0 sh -c {shlex.quote(_CLASSES)} sh
printf 'E\\0'"""


def read_candidates(output: bytes, complaints: bytes, ending: str) -> Candidates | None:
    """Parse the output of the script; None if it is incomplete. Pure."""
    frames = output.split(b"\0")
    if len(frames) < 2 or frames[-2:] != [b"E", b""]:
        return None
    kinds: dict[bytes, list[str]] = {b"F": [], b"B": [], b"Z": [], b"U": [], b"T": []}
    texts: dict[str, bytes] = {}
    following = iter(frames[:-2])
    for frame in following:
        kind, name = frame[:1], frame[1:].removeprefix(b"./").decode("utf-8", "surrogateescape")
        if kind == b"T":
            size, text = next(following, b"").strip(), next(following, b"")
            kind = b"B" if size.isdigit() and len(text) < int(size) else kind
            texts |= {name: text} if kind == b"T" and name.endswith(ending) else {}
        if name.endswith(ending):
            kinds.setdefault(kind, []).append(name)
    unreadable = len(kinds[b"U"]) + complaints.count(b"ermission denied")
    names = sorted([*kinds[b"F"], *kinds[b"T"]])
    return Candidates(tuple(names), tuple(sorted(kinds[b"B"])), tuple(sorted(kinds[b"Z"])), unreadable, texts)


async def candidates_in(
    ctx: ToolContext, directory: str, part: bytes, ending: str, *, folds: bool, recursive: bool
) -> Candidates:
    """Return the files of a directory, by its real path.

    Raises:
        FileError: Without suitable programs on the target: the directory cannot be read.
        ToolError: The search timed out, or found too many files.
    """
    if not all(ctx.execution.capabilities.has(program) for program in ("find", "grep")):
        return await _listed(ctx, directory, ending, recursive=recursive)
    for inline in (INLINE, 0):
        script = candidates_script(part, ending, folds=folds, recursive=recursive, inline=inline)
        done = await ctx.execution.run_helper(script, cwd=directory, timeout=SECONDS, max_output=ANSWER)
        if not done.truncated:
            break
    if done.status is Status.COMPLETED and not done.truncated:
        found = read_candidates(done.stdout_bytes, done.stderr_bytes, ending)
        if found is not None:
            return found
    why = "took too long" if done.status is Status.TIMED_OUT else "did not complete"
    why = "found too many files" if done.truncated else why
    raise ToolError(f"the search of {directory} {why}; nothing was changed", hint="name a smaller directory, or files")


async def _listed(ctx: ToolContext, directory: str, ending: str, *, recursive: bool) -> Candidates:
    """List all files, regardless of their content."""
    if recursive:
        entries = await ctx.execution.walk(directory)
    else:
        entries = await ctx.execution.list_dir(directory)
    names = (entry.name for entry in entries if entry.type == "file" and entry.name.endswith(ending))
    return Candidates(tuple(name for name in names if not _is_inside(name.split("/")[:-1])))


def _is_inside(parents: Iterable[str]) -> bool:
    return any(posixpath.basename(parent) in NOT_ENTERED for parent in parents)


# -- The replacement in the content of one file. Pure.


MOST = 100_000
"""Maximum replacements in one file."""
MADE = 64 << 20
"""Maximum bytes of a file after the change."""


@dataclass(frozen=True, slots=True)
class ReplacementMatches:
    """The changes of one content, the number of lines that they touch, and the number of excluded matches.

    ``size`` is the size of the new content in bytes; there are no changes if that is too large.
    """

    changes: tuple[Change, ...]
    lines: int
    excluded: int = 0
    size: int = 0

    @property
    def too_many(self) -> bool:
        """Whether there are more than can be replaced."""
        return len(self.changes) > MOST

    @property
    def too_big(self) -> bool:
        """Whether the file would become too large."""
        return self.size > MADE


@dataclass(frozen=True, slots=True)
class Replacement:
    """A literal text and its replacement.

    ``folds``: ignore case. ``words``: no ASCII letter, digit or ``_`` on either side. ``exclude``: skip lines that
    contain one of these texts.
    """

    search: bytes
    replace: bytes
    folds: bool = False
    words: bool = False
    exclude: tuple[bytes, ...] = ()

    @property
    def name(self) -> str:
        """A name that is the same for equal replacements."""
        parts = [self.search.hex(), self.replace.hex(), self.folds, self.words, [text.hex() for text in self.exclude]]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]

    @property
    def part(self) -> bytes:
        """A text of one line that each changed file contains, for ``grep -F``; empty without one."""
        lines = self.search.split(b"\n")
        if self.folds:
            lines = [run for line in lines for run in _ascii_runs(line)]
        return max(lines, key=len)

    def find(self, data: bytes) -> ReplacementMatches:
        """Return the changes in a content."""
        if self.folds:
            plain = data.lower() if self.search.isascii() else folded(data)
            text = self.search.lower() if self.search.isascii() else folded(self.search)
            spans = find_spans(plain, text, MOST, words=self.words)
        else:
            spans = find_spans(data, self.search, MOST, words=self.words)
        kept = list(_allowed(data, spans, self.exclude)) if self.exclude else spans
        size, excluded = size_after(len(data), kept, self.replace), len(spans) - len(kept)
        if size > MADE:
            return ReplacementMatches((), 0, excluded, size)
        changes = changes_at(data, kept, self.search, self.replace)
        return ReplacementMatches(tuple(changes), _touched(data, kept), excluded, size)


def _ascii_runs(line: bytes) -> list[bytes]:
    return bytes(byte if byte < 0x80 else 0x0A for byte in line).split(b"\n")


def folded(data: bytes) -> bytes:
    """Return a lower-case content of the same length; letters whose size would change are kept."""
    text = data.decode("utf-8", "surrogateescape")
    small = {letter: letter.lower() for letter in set(text)}
    table = {
        ord(letter): lower
        for letter, lower in small.items()
        if lower != letter and len(lower.encode()) == len(letter.encode())
    }
    return text.translate(table).encode("utf-8", "surrogateescape")


def _allowed(data: bytes, spans: Sequence[Span], exclude: Sequence[bytes]) -> Iterator[Span]:
    """Yield the matches in lines that contain none of the texts."""
    end, refused = -1, False
    for span in spans:
        if span[1] > end or span[0] >= end:
            start = data.rfind(b"\n", 0, span[0]) + 1
            end = data.find(b"\n", max(span[0], span[1] - 1)) + 1 or len(data)
            line = data[start:end]
            refused = any(text in line for text in exclude)
        if not refused:
            yield span


def _touched(data: bytes, spans: Sequence[Span]) -> int:
    """Return the number of lines with matches."""
    lines, last = 0, 0
    for (start, end), first in zip(spans, line_numbers(data, [start for start, _ in spans]), strict=True):
        to = first + data.count(b"\n", start, max(start, end - 1))
        lines += max(0, to - max(first, last + 1) + 1)
        last = max(last, to)
    return lines


# -- The plan: all files are found and read before the first one is written.


FILES = 500
"""Maximum files that one call changes."""
CANDIDATES = 5_000
"""Maximum files that one call fetches."""
SCHEME = "sha256:"
"""Prefix of the versions on most targets."""
ALL_BYTES = 64 << 20
"""Maximum bytes of all files together, which are held in memory."""


@dataclass(frozen=True, slots=True)
class PlannedFile:
    """A file with its changes; ``named``: it was given by name instead of found in a directory."""

    content: FileContent
    found: ReplacementMatches
    named: bool = False


@dataclass(frozen=True, slots=True)
class Problem:
    """A file that could not be read or written."""

    path: str
    code: str
    message: str


@dataclass(slots=True)
class Plan:
    """What a call would change; counters are files, except ``excluded``, which counts matches."""

    targets: list[PlannedFile] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    searched: int = 0
    binary: int = 0
    large: int = 0
    unreadable: int = 0
    excluded: int = 0

    def add(self, candidates: Candidates, kept_back: Collection[str]) -> None:
        """Count skipped files, except those that the policy denies, because their number would tell their content."""
        self.binary += sum(name not in kept_back for name in candidates.binary)
        self.large += sum(name not in kept_back for name in candidates.large)
        self.unreadable += candidates.unreadable

    def add_problem(self, path: str, error: Exception) -> None:
        """Record a file that could not be read."""
        self.problems.append(problem_of(path, error))


def problem_of(path: str, error: Exception) -> Problem:
    """Return a problem from the target's error."""
    result, _ = failure_of(error, "repfor")
    return Problem(path, result.error_code, result.text)


def ending_of(ext: str) -> str:
    """Return the name ending for an extension, whose dot may be omitted."""
    return ext if not ext or ext.startswith(".") else f".{ext}"


async def plan_for(
    ctx: ToolContext,
    change: Replacement,
    *,
    files: tuple[str, ...],
    directories: tuple[str, ...],
    ext: str,
    recursive: bool,
) -> Plan | ToolResult:
    """Find and read what would change, or return a refusal if it is too much for one call.

    Raises:
        FileError: A directory cannot be read.
        ToolError: A search did not complete.
    """
    plan = Plan()
    found = await _found(ctx, plan, change, directories, ending_of(ext), recursive=recursive)
    names, texts = list(found), {path: text for path, text in found.items() if text is not None}
    if len(names) > CANDIDATES:
        text = f"more than {CANDIDATES} files contain the text: name a smaller directory. Nothing was changed"
        return ToolResult.failure("too_many", text, data={"files": len(names)})
    named = [(target_path(ctx, path), path, True) for path in files if path.endswith(ending_of(ext))]
    reader = _Reader(ctx, texts)
    return await _read(reader, plan, change, [*named, *((path, path, False) for path in names)])


@dataclass(slots=True)
class _Reader:
    """Reads files; contents that the search sent are reused once the target's version format is known."""

    ctx: ToolContext
    texts: dict[str, bytes]
    hashes: bool = False

    async def read(self, path: str) -> FileContent:
        """Return a whole file, if it is not too large to be changed."""
        text = self.texts.get(path) if self.hashes else None
        if text is not None:
            return FileContent(text, len(text), 0, f"{SCHEME}{hashlib.sha256(text).hexdigest()}", path)
        content = await self.ctx.execution.read_file(path, limit=FILE_LIMIT + 1)
        self.hashes = content.version.startswith(SCHEME)
        return content


async def _found(
    ctx: ToolContext, plan: Plan, change: Replacement, directories: tuple[str, ...], ending: str, *, recursive: bool
) -> dict[str, bytes | None]:
    """Return the files of the directories by their real paths, without those that the policy denies.

    The value is the content, if the search sent it.
    """
    names: dict[str, bytes | None] = {}
    for directory in directories:
        real = (await ctx.execution.stat(target_path(ctx, directory))).path
        found = await candidates_in(ctx, real, change.part, ending, folds=change.folds, recursive=recursive)
        paths = {posixpath.join(real, name): name for name in (*found.names, *found.binary, *found.large)}
        kept_back = {paths[path] for path in await ctx.unreadable_paths(list(paths), top=real)}
        plan.add(found, kept_back)
        names |= {posixpath.join(real, name): found.texts.get(name) for name in found.names if name not in kept_back}
    return names


async def _read(
    reader: _Reader, plan: Plan, change: Replacement, paths: list[tuple[str, str, bool]]
) -> Plan | ToolResult:
    known: set[str] = set()
    room = ALL_BYTES
    for path, given, named in paths:
        try:
            content = await reader.read(path)
        except FileError as error:
            plan.add_problem(given, error)
            continue
        if content.path in known:
            continue
        known.add(content.path)
        plan.searched += 1
        target = await _target(plan, change, given, content, named=named)
        if target is None:
            continue
        plan.targets.append(target)
        room -= max(content.size, target.found.size)
        if room < 0 or len(plan.targets) > FILES:
            text = (
                f"more than {FILES} files, or {ALL_BYTES >> 20} MiB, would change: name fewer files, or a smaller "
                "directory. Nothing was changed"
            )
            return ToolResult.failure("too_many", text)
    return plan


async def _target(
    plan: Plan, change: Replacement, given: str, content: FileContent, *, named: bool
) -> PlannedFile | None:
    if content.size > FILE_LIMIT:
        plan.large += 1
        if named:
            plan.problems.append(Problem(given, "too_big", f"{given} is larger than {FILE_LIMIT >> 20} MiB"))
        return None
    if b"\0" in content.data:
        plan.binary += 1
        if named:
            plan.problems.append(Problem(given, "binary", f"{given} is not a text file (contains NUL bytes)"))
        return None
    found = await to_thread.run_sync(change.find, content.data)
    plan.excluded += found.excluded
    if found.too_big:
        plan.problems.append(Problem(given, "too_big", f"{given} would grow to {found.size} bytes"))
        return None
    if found.too_many:
        plan.problems.append(Problem(given, "too_many", f"{given} contains the text too often"))
        return None
    return replace(PlannedFile(content, found), named=named) if found.changes else None


# -- Writing: each file atomically and independently, several concurrently.


AT_ONCE = 8
"""Maximum concurrent writes: the target writes one after the other, without waiting for the connection."""
NAMED = 20
"""Maximum files that a message names."""


@dataclass(frozen=True, slots=True)
class WriteReport:
    """The files that were changed, and those that were not, in the order of the plan."""

    targets: list[PlannedFile] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)


async def write_all(ctx: ToolContext, plan: Plan) -> WriteReport:
    """Write each file that is unchanged since the plan.

    Raises:
        ToolError: The connection was lost; the message names the files that were changed, and that may have been.
    """
    writer = _Writer(ctx)
    limiter = anyio.CapacityLimiter(AT_ONCE)

    async def one(number: int, target: PlannedFile) -> None:
        async with limiter:
            await writer.write(number, target)

    async with anyio.create_task_group() as tasks:
        for number, target in enumerate(plan.targets):
            tasks.start_soon(one, number, target)
    done = [target for number, target in enumerate(plan.targets) if number in writer.done]
    if writer.lost is not None:
        raise _broken(writer, plan, done)
    return WriteReport(done, [*plan.problems, *(writer.problems[number] for number in sorted(writer.problems))])


class _Writer:
    """Writes files, and records each outcome by its number in the plan."""

    def __init__(self, ctx: ToolContext) -> None:
        self._ctx = ctx
        self.done: set[int] = set()
        self.unknown: set[int] = set()
        self.problems: dict[int, Problem] = {}
        self.lost: ConnectionLost | ConnectError | None = None

    async def write(self, number: int, target: PlannedFile) -> None:
        """Write one file, unless the connection was lost."""
        if self.lost is not None:
            return
        content, reads = target.content, self._ctx.reads
        made = apply_changes(content.data, target.found.changes)
        try:
            result = await self._ctx.execution.write_file(content.path, made, expect=content.version, parents=False)
        except StaleFileError:
            problem = f"{readable_name(content.path)} was changed meanwhile, and was not written"
            self.problems[number] = Problem(content.path, "stale", problem)
        except FileError as error:
            self.problems[number] = problem_of(content.path, error)
        except ConnectionLost as error:
            self.lost = error
            self.unknown.add(number)
        except ConnectError as error:
            self.lost = error
        else:
            reads.record_read(
                content.path, result.version, whole=reads.last_read_version(content.path, whole=True) == content.version
            )
            self.done.add(number)


def _broken(writer: _Writer, plan: Plan, done: list[PlannedFile]) -> ToolError:
    """Return the error about a lost connection, with the known outcomes."""
    assert writer.lost is not None
    unknown = [plan.targets[number].content.path for number in sorted(writer.unknown)]
    left = len(plan.targets) - len(done) - len(unknown)
    parts = [
        f"changed: {named([target.content.path for target in done]) or 'none'}",
        f"may have been changed, so check before you retry: {named(unknown) or 'none'}",
        f"not changed: {left} more",
    ]
    message = f"{writer.lost.message}; {'; '.join(parts)}"
    return ToolError(message, code="backend_lost", target=writer.lost.target, hint=writer.lost.hint)


def named(paths: list[str]) -> str:
    """Return paths for a message, limited in number."""
    more = len(paths) - NAMED
    return ", ".join(map(readable_name, paths[:NAMED])) + (f" and {more} more" if more > 0 else "")
