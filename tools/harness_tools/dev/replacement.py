"""A replacement in many files: candidates, the plan, and the writing once all of it may be written."""

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


# -- The files below a directory that may hold a text: one script on the target, or its files one by one.


NOT_ENTERED = (".git", ".hg", ".svn", ".bzr", ".jj", "_darcs", "CVS", "node_modules")
"""Directories below the one that is named whose files are never changed: they belong to programs."""
FILE_LIMIT = 16 << 20
"""Bytes of a file that is changed."""
SECONDS = 120.0
ANSWER = 24 << 20
"""Bytes of names and contents."""
INLINE = 256 << 10
"""Bytes of a file that comes with its name."""
_CLASSES = (
    'for f do s=$(wc -c <"$f") 2>/dev/null || { printf "U%s\\0" "$f"; continue; }; '
    'if [ "$s" -le "$I" ]; then printf "T%s\\0%s\\0" "$f" "$s"; tr -d "\\000" <"$f"; printf "\\0"; '
    f'elif [ "$s" -gt {FILE_LIMIT} ]; then printf "Z%s\\0" "$f"; '
    'elif [ "$(tr -dc "\\000" <"$f" | head -c 1 | wc -c)" -gt 0 ]; then printf "B%s\\0" "$f"; '
    'else printf "F%s\\0" "$f"; fi; done'
)
"""A content comes without its NULs, so that one ends it; when it had some it is shorter than its size, which comes
before it. What was changed at this moment is another version when it is written."""


@dataclass(frozen=True, slots=True)
class Candidates:
    """Names relative to the directory. ``unreadable`` counts what could not be looked into.

    ``texts`` are the contents of small files, where they came with the names.
    """

    names: tuple[str, ...]
    binary: tuple[str, ...] = ()
    large: tuple[str, ...] = ()
    unreadable: int = 0
    texts: Mapping[str, bytes] = field(default_factory=dict)


def candidates_script(part: bytes, ending: str, *, folds: bool, recursive: bool, inline: int = 0) -> str:
    """The script, for the directory in which it runs: names behind a letter, and ``E`` at the end. Pure.

    Args:
        part: a text of one line that the files hold, empty for any.
        ending: how their names end.
        inline: files of up to so many bytes come with their content, but for empty ones.
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
    """What the script told; None when it did not come to its end. Pure."""
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
    """The files of a directory, by its real path.

    Raises:
        FileError: without programs for it on the target, the directory cannot be read.
        ToolError: it took too long, or there are too many.
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
    why = "took too long" if done.status is Status.TIMED_OUT else "did not come to its end"
    why = "found too many files" if done.truncated else why
    raise ToolError(f"the search of {directory} {why}; nothing was changed", hint="name a smaller directory, or files")


async def _listed(ctx: ToolContext, directory: str, ending: str, *, recursive: bool) -> Candidates:
    """All files, whatever is in them."""
    if recursive:
        entries = await ctx.execution.walk(directory)
    else:
        entries = await ctx.execution.list_dir(directory)
    names = (entry.name for entry in entries if entry.type == "file" and entry.name.endswith(ending))
    return Candidates(tuple(name for name in names if not _is_inside(name.split("/")[:-1])))


def _is_inside(parents: Iterable[str]) -> bool:
    return any(posixpath.basename(parent) in NOT_ENTERED for parent in parents)


# -- One replacement in the content of one file: which places, and what is written there. Pure.


MOST = 100_000
"""Places of one file that are replaced."""
MADE = 64 << 20
"""Bytes of a file after the change."""


@dataclass(frozen=True, slots=True)
class ReplacementMatches:
    """The changes of one content, the lines that they touch, and how many places were left out by ``exclude``.

    ``size`` is what the content comes to, in bytes; there are no changes when that is too much.
    """

    changes: tuple[Change, ...]
    lines: int
    excluded: int = 0
    size: int = 0

    @property
    def too_many(self) -> bool:
        """There are more than can be replaced."""
        return len(self.changes) > MOST

    @property
    def too_big(self) -> bool:
        """The file would be too large afterwards."""
        return self.size > MADE


@dataclass(frozen=True, slots=True)
class Replacement:
    """A literal text, and what is written in its place.

    ``folds``: letters of either case are the same. ``words``: no ASCII letter, digit or ``_`` on either side.
    ``exclude``: nothing is replaced in lines that hold one of these texts.
    """

    search: bytes
    replace: bytes
    folds: bool = False
    words: bool = False
    exclude: tuple[bytes, ...] = ()

    @property
    def name(self) -> str:
        """The same for equal replacements."""
        parts = [self.search.hex(), self.replace.hex(), self.folds, self.words, [text.hex() for text in self.exclude]]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]

    @property
    def part(self) -> bytes:
        """A text of one line that is in every file that is changed, for ``grep -F``; empty when there is none."""
        lines = self.search.split(b"\n")
        if self.folds:
            lines = [run for line in lines for run in _ascii_runs(line)]
        return max(lines, key=len)

    def find(self, data: bytes) -> ReplacementMatches:
        """What it changes in a content."""
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
    """A content of the same length, in small letters; those that are longer or shorter when small stay as they are."""
    text = data.decode("utf-8", "surrogateescape")
    small = {letter: letter.lower() for letter in set(text)}
    table = {
        ord(letter): lower
        for letter, lower in small.items()
        if lower != letter and len(lower.encode()) == len(letter.encode())
    }
    return text.translate(table).encode("utf-8", "surrogateescape")


def _allowed(data: bytes, spans: Sequence[Span], exclude: Sequence[bytes]) -> Iterator[Span]:
    """The places in lines that hold none of the texts."""
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
    """How many lines the places are in."""
    lines, last = 0, 0
    for (start, end), first in zip(spans, line_numbers(data, [start for start, _ in spans]), strict=True):
        to = first + data.count(b"\n", start, max(start, end - 1))
        lines += max(0, to - max(first, last + 1) + 1)
        last = max(last, to)
    return lines


# -- Which files a replacement changes: they are found and read first, and nothing is written until all of them may
# be.


FILES = 500
"""Files that one call changes."""
CANDIDATES = 5_000
"""Files that one call fetches."""
SCHEME = "sha256:"
"""What the versions of most targets begin with."""
ALL_BYTES = 64 << 20
"""Bytes of all of them together, which are held here."""


@dataclass(frozen=True, slots=True)
class PlannedFile:
    """A file that changes, and what changes in it. ``named``: it was named, and not found in a directory."""

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
    """What a call would change. Counters are files, but for ``excluded``, which counts places."""

    targets: list[PlannedFile] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    searched: int = 0
    binary: int = 0
    large: int = 0
    unreadable: int = 0
    excluded: int = 0

    def add(self, candidates: Candidates, kept_back: Collection[str]) -> None:
        """Count what a search left out, but for what the policy keeps back: that would say what is in it."""
        self.binary += sum(name not in kept_back for name in candidates.binary)
        self.large += sum(name not in kept_back for name in candidates.large)
        self.unreadable += candidates.unreadable

    def add_problem(self, path: str, error: Exception) -> None:
        """Note a file that could not be read."""
        self.problems.append(problem_of(path, error))


def problem_of(path: str, error: Exception) -> Problem:
    """A file of which the target says why it cannot be read or written."""
    result, _ = failure_of(error, "repfor")
    return Problem(path, result.error_code, result.text)


def ending_of(ext: str) -> str:
    """How names end with this extension: the dot may be left out."""
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
    """Find and read what would change; or the refusal, when that is too much for one call.

    Raises:
        FileError: a directory cannot be read.
        ToolError: a search did not come to its end.
    """
    plan = Plan()
    found = await _found(ctx, plan, change, directories, ending_of(ext), recursive=recursive)
    names, texts = list(found), {path: text for path, text in found.items() if text is not None}
    if len(names) > CANDIDATES:
        text = (
            f"{len(names)} files hold the text, more than {CANDIDATES}: name a smaller directory. Nothing was changed"
        )
        return ToolResult.failure("too_many", text, data={"files": len(names)})
    named = [(target_path(ctx, path), path, True) for path in files if path.endswith(ending_of(ext))]
    reader = _Reader(ctx, texts)
    return await _read(reader, plan, change, [*named, *((path, path, False) for path in names)])


@dataclass(slots=True)
class _Reader:
    """Reads files; what came with the search is not fetched again, once it is known how the target makes versions."""

    ctx: ToolContext
    texts: dict[str, bytes]
    hashes: bool = False

    async def read(self, path: str) -> FileContent:
        """All of a file, if it is not too long to be changed."""
        text = self.texts.get(path) if self.hashes else None
        if text is not None:
            return FileContent(text, len(text), 0, f"{SCHEME}{hashlib.sha256(text).hexdigest()}", path)
        content = await self.ctx.execution.read_file(path, limit=FILE_LIMIT + 1)
        self.hashes = content.version.startswith(SCHEME)
        return content


async def _found(
    ctx: ToolContext, plan: Plan, change: Replacement, directories: tuple[str, ...], ending: str, *, recursive: bool
) -> dict[str, bytes | None]:
    """The files of the directories that may change, by their real paths, without those that the policy keeps back.

    With each its content, where it came with the search.
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
            plan.problems.append(Problem(given, "too_big", f"{given} holds more than {FILE_LIMIT >> 20} MiB"))
        return None
    if b"\0" in content.data:
        plan.binary += 1
        if named:
            plan.problems.append(Problem(given, "binary", f"{given} is no text: it holds NUL bytes"))
        return None
    found = await to_thread.run_sync(change.find, content.data)
    plan.excluded += found.excluded
    if found.too_big:
        plan.problems.append(Problem(given, "too_big", f"{given} would grow to {found.size} bytes"))
        return None
    if found.too_many:
        plan.problems.append(Problem(given, "too_many", f"{given} holds the text too often"))
        return None
    return replace(PlannedFile(content, found), named=named) if found.changes else None


# -- Writing what a replacement makes of files: each atomically and by itself, several of them on their way at once.


AT_ONCE = 8
"""Files that are on their way: the target writes one after the other, and need not wait for the link in between."""
NAMED = 20
"""Files that a message names."""


@dataclass(frozen=True, slots=True)
class WriteReport:
    """The files that were changed, and those that were not, in the order of the plan."""

    targets: list[PlannedFile] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)


async def write_all(ctx: ToolContext, plan: Plan) -> WriteReport:
    """Write each file that is still what the plan says.

    Raises:
        ToolError: the link was lost; the message names the files that were changed, and that may have been.
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
    """Writes files, and keeps what became of each by its number in the plan."""

    def __init__(self, ctx: ToolContext) -> None:
        self._ctx = ctx
        self.done: set[int] = set()
        self.unknown: set[int] = set()
        self.problems: dict[int, Problem] = {}
        self.lost: ConnectionLost | ConnectError | None = None

    async def write(self, number: int, target: PlannedFile) -> None:
        """Write one, unless the link was lost: then nothing more is begun."""
        if self.lost is not None:
            return
        content, reads = target.content, self._ctx.reads
        made = apply_changes(content.data, target.found.changes)
        try:
            result = await self._ctx.execution.write_file(content.path, made, expect=content.version, parents=False)
        except StaleFileError:
            problem = f"{readable_name(content.path)} was changed meanwhile, and was left as it is"
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
    """What is known of the files after the link was lost."""
    assert writer.lost is not None
    unknown = [plan.targets[number].content.path for number in sorted(writer.unknown)]
    left = len(plan.targets) - len(done) - len(unknown)
    parts = [
        f"changed: {named([target.content.path for target in done]) or 'none'}",
        f"may have been changed, so look before you repeat it: {named(unknown) or 'none'}",
        f"not changed: {left} more",
    ]
    message = f"{writer.lost.message}; {'; '.join(parts)}"
    return ToolError(message, code="backend_lost", target=writer.lost.target, hint=writer.lost.hint)


def named(paths: list[str]) -> str:
    """Paths for a message, not too many of them."""
    more = len(paths) - NAMED
    return ", ".join(map(readable_name, paths[:NAMED])) + (f" and {more} more" if more > 0 else "")
