"""Reading the output of a job from the last position: each session gets every byte once."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import anyio

from harness.extras import install_extra
from harness.results import Job, JobOutput, OutputPart, Status
from harness.toolkit import OutputLimit, ToolContext
from harness.toolkit.results import cut

__all__ = [
    "PAGE",
    "SCAN",
    "BadPattern",
    "JobReadRequest",
    "OutputChunk",
    "Position",
    "ReadPositions",
    "choose",
    "continued",
    "line_matcher",
    "parse_position",
    "read_on",
    "shown_length",
]


# -- A piece of a job's output as text: whole characters, and no truncated secret. Pure.


CONTEXT = 2 << 10
"""Bytes of the line before a piece that are examined again, for a secret that starts there."""
_POSITION = re.compile(r"([0-9]{1,15})(?:\+([0-9]{1,15}))?")
_ASKS = re.compile(r"[?:>#$%\])][ \t]*\Z")
"""The end of a line that waits for an answer."""


@dataclass(frozen=True, slots=True)
class Position:
    """How far the two streams of a job were read, in bytes; written ``120``, or ``120+45`` with standard error."""

    stdout: int = 0
    stderr: int = 0

    def __str__(self) -> str:
        return f"{self.stdout}+{self.stderr}" if self.stderr else str(self.stdout)

    def later(self, other: Position) -> Position:
        """Return the later position of each stream."""
        return Position(max(self.stdout, other.stdout), max(self.stderr, other.stderr))


def parse_position(text: str) -> Position:
    """Parse a position.

    Raises:
        ValueError: The text is not a position.
    """
    match = _POSITION.fullmatch(text.strip())
    if match is None:
        raise ValueError("it must be a position of an earlier result, such as 120 or 120+45; 0 is the start")
    return Position(int(match[1]), int(match[2] or 0))


def shown_length(data: bytes, complete: Callable[[str], int], *, ended: bool) -> int:
    """Return how many bytes of a piece can be shown if more may follow: whole characters, and no part of a secret.

    Args:
        complete: Returns how many characters of a text can be shown, as :meth:`~harness.toolkit.Redactor.complete`.
        ended: Whether nothing follows.
    """
    if ended:
        return len(data)
    data = data[: whole_characters(data)]
    text = data.decode("utf-8", "surrogateescape")
    if _ASKS.search(text):
        return len(data)
    return len(text[: complete(text)].encode("utf-8", "surrogateescape"))


def whole_characters(data: bytes) -> int:
    """Return the length without an incomplete UTF-8 character at the end."""
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte & 0xC0 != 0x80:
            length = 2 if byte & 0xE0 == 0xC0 else 3 if byte & 0xF0 == 0xE0 else 4 if byte & 0xF8 == 0xF0 else 1
            return len(data) - back if length > back else len(data)
    return len(data)


def line_before(data: bytes) -> bytes:
    """Return the unfinished line at the end of a piece, limited to :data:`CONTEXT`."""
    return data[max(data.rfind(b"\n") + 1, len(data) - CONTEXT) :]


def continued(before: bytes, data: bytes, redact: Callable[[str], str]) -> str:
    """Return a piece redacted as the continuation of a line that was already shown."""
    text = data.decode("utf-8", "surrogateescape")
    if not before:
        return redact(text)
    start = before.decode("utf-8", "surrogateescape")
    whole, old = redact(start + text), redact(start)
    alike = next((at for at, pair in enumerate(zip(whole, old, strict=False)) if pair[0] != pair[1]), len(old))
    return whole[alike:]


# -- Matching lines with a model's regular expression, in linear time.
#
# RE2 (the extra ``tools``) never backtracks. Without it, only a literal text without special characters is accepted.


MAX_PATTERN_CHARS = 1_000
MEMORY = 8 << 20
"""Maximum bytes that RE2 may use for one pattern."""
_SPECIAL = re.compile(r"[\\^$.|?*+()\[\]{}]")
REDACTED = "[redacted]"

Matcher = Callable[[bytes], bool]


class BadPattern(ValueError):  # invalid input, not a failure of harness
    """An invalid or unsupported regular expression."""


@dataclass(frozen=True, slots=True)
class FilteredLines:
    """The matching lines, with their newlines, and the number of bytes and lines that were examined."""

    data: bytes
    used: int
    lines: int
    matched: int


def line_matcher(pattern: str) -> Matcher:
    """Return a function that tells whether a line, without its newline, matches anywhere.

    Raises:
        BadPattern: The pattern is invalid; the message says why.
    """
    if len(pattern) > MAX_PATTERN_CHARS:
        raise BadPattern(f"it is longer than {MAX_PATTERN_CHARS} characters")
    try:
        wanted = pattern.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise BadPattern("it is not valid text") from None
    if not _SPECIAL.search(pattern):
        return lambda line: wanted in line
    return _compiled(wanted)


def _compiled(pattern: bytes) -> Matcher:
    try:
        import re2  # type: ignore[import-untyped]  # it has no type information
    except ImportError:
        raise BadPattern(
            f"regular expressions need a library ({install_extra('tools')}); "
            "without it, use a text without special characters"
        ) from None
    options: Any = re2.Options()
    options.max_mem, options.log_errors = MEMORY, False
    try:
        found: Any = re2.compile(pattern, options)
    except re2.error as error:
        raise BadPattern(_reason(error)) from None
    return lambda line: found.search(line) is not None


def _reason(error: Exception) -> str:
    said = error.args[0] if error.args else ""
    text = said.decode("utf-8", "replace") if isinstance(said, bytes) else str(said)
    return f"{text} (RE2 supports neither lookaround nor backreferences)"


def choose(
    data: bytes,
    matches: Matcher,
    room: int,
    *,
    ended: bool,
    full: bool = False,
    redact: Callable[[str], str] = str,
) -> FilteredLines:
    """Return the matching lines of a piece: up to ``room`` bytes, but at least one line. Pure.

    An unfinished last line is left for the next call, unless nothing follows (``ended``) or it fills a piece that
    cannot grow (``full``). ``redact`` removes secrets from the whole piece, because a line of a private key
    is recognized only among the others.
    """
    known = _known(data, redact)
    shown, used, lines, matched = bytearray(), 0, 0, 0
    for line in _lines(data, ended=ended, full=full):
        hit = matches(line.rstrip(b"\r\n"))
        if hit and shown and len(shown) + len(line) > room:
            break
        used, lines = used + len(line), lines + 1
        if hit:
            shown += line if known is None else _clean(line, known, redact)
            matched += 1
    return FilteredLines(bytes(shown), used, lines, matched)


def _known(data: bytes, redact: Callable[[str], str]) -> frozenset[str] | None:
    """Return the lines of the redacted piece; None if it contains no secrets."""
    text = data.decode("utf-8", "surrogateescape")
    clean = redact(text)
    return None if clean == text else frozenset(clean.split("\n"))


def _clean(line: bytes, known: frozenset[str], redact: Callable[[str], str]) -> bytes:
    """Return a redacted line; a line that is not in the redacted piece was part of a secret."""
    clean = redact(line.decode("utf-8", "surrogateescape"))
    text = clean if clean.rstrip("\n") in known else REDACTED + "\n"
    return text.encode("utf-8", "surrogateescape")


def _lines(data: bytes, *, ended: bool, full: bool) -> Iterable[bytes]:
    lines = data.split(b"\n")
    last = lines.pop()
    yield from (line + b"\n" for line in lines)
    if last and (ended or (full and not lines)):
        yield last


# -- Reading on in the output of a job: each session gets every byte once, in pieces for a model.


PAGE = 12_000
"""Maximum bytes of both streams in one result."""
SCAN = 256 << 10
"""Bytes of each stream that are searched for its last lines; a target returns at most that much of one at a time."""
MAX_SCANNED_BYTES = 4 << 20
"""Maximum bytes that a filter examines for one result; the next call continues after them."""
PAUSE = 0.1
"""Seconds between two reads of a job that keeps writing while nothing matches."""
ONE_LINE = OutputLimit(2 * PAGE, PAGE)
"""How much is shown of a matching line that is longer than a page."""
READERS = 1_000
"""Maximum remembered positions of all sessions; the least recently used one is dropped first."""

Key = tuple[str, str, str, str]


@dataclass(slots=True)
class ReadPosition:
    """How far a session has read a job."""

    position: Position = field(default_factory=Position)
    seen: Position = field(default_factory=Position)
    """The sizes at the last read: output that was held back then and has not grown since is shown."""
    stdout_line: bytes = b""
    """The unfinished line as far as it was shown, because a secret in it may continue."""
    stderr_line: bytes = b""
    command: str | None = None
    lock: anyio.Lock = field(default_factory=anyio.Lock)

    def is_of(self, found: JobOutput) -> bool:
        """Return whether it is the job that was read before: ids restart if a target's state was removed."""
        known = self.command in (None, _named(found.job))
        return known and found.stdout.size >= self.position.stdout and found.stderr.size >= self.position.stderr

    def begin(self) -> None:
        """Reset to the start: nothing of this job was read."""
        self.position = self.seen = Position()
        self.stdout_line, self.stderr_line, self.command = b"", b"", None


class ReadPositions:
    """How far each session of this process has read each job."""

    def __init__(self) -> None:
        self._known: OrderedDict[Key, ReadPosition] = OrderedDict()

    @asynccontextmanager
    async def of(self, ctx: ToolContext, job_id: str) -> AsyncIterator[ReadPosition]:
        """Yield a session's position in a job, to one caller at a time: concurrent calls get different parts."""
        key = (ctx.session_id, ctx.agent_id, ctx.execution.identity, job_id.lstrip("0"))
        reading = self._known.pop(key, None) or ReadPosition()
        self._known[key] = reading
        if len(self._known) > READERS:
            self._known.popitem(last=False)
        async with reading.lock:
            yield reading


@dataclass(frozen=True, slots=True)
class JobReadRequest:
    """What to read: from where, which lines, how many of the last ones, and how long to wait for new output."""

    since: Position | None = None
    matches: Matcher | None = None
    tail: int | None = None
    wait: float = 0.0


@dataclass(frozen=True, slots=True)
class OutputChunk:
    """The output between two positions, and counts of omitted parts; ``unread`` and ``lost`` are bytes."""

    job: Job
    start: Position
    end: Position
    stdout: str = ""
    stderr: str = ""
    unread: int = 0
    lost: int = 0
    skipped: int = 0
    """Bytes before the requested last lines."""
    lines: int = 0
    """Lines that a filter examined."""
    matched: int = 0
    gone: bool = False
    """Whether the target no longer has all of the output."""

    @property
    def ended(self) -> bool:
        """Whether the job has ended."""
        return self.job.status is not Status.RUNNING


@dataclass(frozen=True, slots=True)
class _Stream:
    """One stream of an output chunk."""

    shown: bytes = b""
    start: int = 0
    end: int = 0
    size: int = 0
    lost: int = 0
    skipped: int = 0
    lines: int = 0
    matched: int = 0
    gone: bool = False

    def plus(self, later: _Stream) -> _Stream:
        """Return this part joined with the following one."""
        return replace(
            later,
            shown=self.shown + later.shown,
            start=self.start,
            lost=self.lost + later.lost,
            lines=self.lines + later.lines,
            matched=self.matched + later.matched,
        )


async def read_on(job_id: str, asked: JobReadRequest, reading: ReadPosition, ctx: ToolContext) -> OutputChunk:
    """Return the new output of a job and record it as read; ``asked.since`` reads earlier output again.

    Raises:
        JobNotFound: unknown job.
    """
    until = anyio.current_time() + asked.wait
    start = asked.since if asked.since is not None else reading.position
    first = await _read(job_id, start, PAGE, 0, ctx)
    shrunk = False
    if not reading.is_of(first):
        shrunk = reading.command == _named(first.job)
        reading.begin()
        start = asked.since or reading.position
        first = await _read(job_id, start, PAGE, 0, ctx)
    if asked.matches is not None:
        job, out, err = await _chosen(job_id, asked, start, until, ctx)
    elif asked.tail is not None:
        job, out, err = await _last(job_id, asked, start, until, reading, ctx)
    else:
        job, out, err = await _next_page(first, start, until, reading, ctx)
    piece = _remembered(job, out, err, start, asked, reading, ctx)
    return replace(piece, gone=True) if shrunk else piece


def _named(job: Job) -> str:
    """Return the text that identifies a job; records keep only the start of a long command."""
    return job.command[:1000].strip()


async def _next_page(
    found: JobOutput, start: Position, until: float, reading: ReadPosition, ctx: ToolContext
) -> tuple[Job, _Stream, _Stream]:
    """Return the next page; output that is held back is waited for, and shown if nothing follows."""
    while True:
        out, err = _page(found, reading, ctx)
        if out.shown or err.shown or _is_over(found.job, until):
            return found.job, out, err
        reading.seen = Position(out.size, err.size)
        await _read(found.job.job_id, Position(found.stdout.end, found.stderr.end), 1, until, ctx)
        found = await _read(found.job.job_id, start, PAGE, 0, ctx)


async def _read(job_id: str, start: Position, limit: int, until: float, ctx: ToolContext) -> JobOutput:
    wait = max(0.0, until - anyio.current_time())
    return await ctx.execution.read_job(job_id, stdout=start.stdout, stderr=start.stderr, limit=limit, wait=wait)


def _is_over(job: Job, until: float) -> bool:
    return job.status is not Status.RUNNING or anyio.current_time() >= until


def _page(found: JobOutput, reading: ReadPosition, ctx: ToolContext) -> tuple[_Stream, _Stream]:
    """Return the next page, of which standard error gets up to half."""
    errors = min(len(found.stderr.data), max(PAGE // 2, PAGE - len(found.stdout.data)))
    ended = found.job.status is not Status.RUNNING
    out = _shown(found.stdout, PAGE - errors, reading.seen.stdout, ctx, ended=ended)
    return out, _shown(found.stderr, errors, reading.seen.stderr, ctx, ended=ended)


def _shown(part: OutputPart, room: int, seen: int, ctx: ToolContext, *, ended: bool) -> _Stream:
    data = part.data[:room]
    last = len(data) == len(part.data) and part.end >= part.size
    settled = last and (ended or part.size <= seen)
    length = shown_length(data, ctx.redactor.complete, ended=settled)
    if not length and not last:  # a secret may be longer than a page: reading must progress
        length = len(data)
    return _Stream(data[:length], part.start - part.lost, part.start + length, part.size, part.lost, gone=part.gone)


async def _chosen(
    job_id: str, asked: JobReadRequest, start: Position, until: float, ctx: ToolContext
) -> tuple[Job, _Stream, _Stream]:
    """Return the matching lines, waiting until there is one."""
    assert asked.matches is not None
    out, err = _Stream(start=start.stdout, end=start.stdout), _Stream(start=start.stderr, end=start.stderr)
    room = SCAN if asked.tail is not None else PAGE
    looked = 0
    while True:
        found = await ctx.execution.read_job(job_id, stdout=out.end, stderr=err.end, limit=MAX_SCANNED_BYTES)
        ended = found.job.status is not Status.RUNNING
        out = out.plus(_matching(found.stdout, asked.matches, room - len(out.shown), ctx, ended=ended))
        err = err.plus(_matching(found.stderr, asked.matches, room - len(err.shown), ctx, ended=ended))
        looked += len(found.stdout.data) + len(found.stderr.data)
        if max(len(out.shown), len(err.shown)) >= room or looked >= MAX_SCANNED_BYTES:
            break
        if found.stdout.end < found.stdout.size or found.stderr.end < found.stderr.size:
            continue
        if out.matched or err.matched or _is_over(found.job, until):
            break
        await _read(job_id, Position(found.stdout.end, found.stderr.end), 1, until, ctx)
        await anyio.sleep(PAUSE)
    if asked.tail is not None:
        out, err = _last_lines(out, asked.tail), _last_lines(err, asked.tail)
    return found.job, out, err


def _matching(part: OutputPart, matches: Matcher, room: int, ctx: ToolContext, *, ended: bool) -> _Stream:
    last, full = ended and part.end >= part.size, len(part.data) >= SCAN
    chosen = choose(part.data, matches, room, ended=last, full=full, redact=ctx.redactor.text)
    used = _Stream(chosen.data, part.start - part.lost, part.start + chosen.used, part.size, part.lost)
    return replace(used, lines=chosen.lines, matched=chosen.matched, gone=part.gone)


async def _last(
    job_id: str, asked: JobReadRequest, start: Position, until: float, reading: ReadPosition, ctx: ToolContext
) -> tuple[Job, _Stream, _Stream]:
    """Return the last lines of the new output; the bytes before them are counted as skipped."""
    assert asked.tail is not None
    probe = await _read(job_id, start, 1, until, ctx)
    near = Position(max(start.stdout, probe.stdout.size - SCAN), max(start.stderr, probe.stderr.size - SCAN))
    found = await ctx.execution.read_job(job_id, stdout=near.stdout, stderr=near.stderr, limit=2 * SCAN)
    parts = ((found.stdout, start.stdout), (found.stderr, start.stderr))
    ended = found.job.status is not Status.RUNNING
    seen = (reading.seen.stdout, reading.seen.stderr)
    out, err = (
        _last_lines(_after_gap(part, begin, ctx, settled=ended or part.size <= old), asked.tail)
        for (part, begin), old in zip(parts, seen, strict=True)
    )
    return found.job, out, err


def _after_gap(part: OutputPart, begin: int, ctx: ToolContext, *, settled: bool) -> _Stream:
    """Return a part that starts after ``begin``, from its first whole line on."""
    length = shown_length(part.data, ctx.redactor.complete, ended=settled)
    if not length and len(part.data) > PAGE:  # a secret may be longer than a page
        length = len(part.data)
    passed, first = part.start - part.lost - begin, 0
    if passed:
        first = part.data.find(b"\n", 0, length) + 1
    shown = part.data[first:length]
    return _Stream(shown, begin, part.start + length, part.size, part.lost, passed + first, gone=part.gone)


def _last_lines(stream: _Stream, count: int) -> _Stream:
    """Return the last lines, as many as fit on a page."""
    lines = stream.shown.split(b"\n")
    last = lines.pop()
    whole = [line + b"\n" for line in lines] + ([last] if last else [])
    kept = b"".join(whole[-count:])
    for line in whole[-count:-1]:
        if len(kept) <= PAGE:
            break
        kept = kept[len(line) :]
    return replace(stream, shown=kept, skipped=stream.skipped + len(stream.shown) - len(kept))


def _remembered(
    job: Job,
    out: _Stream,
    err: _Stream,
    start: Position,
    asked: JobReadRequest,
    reading: ReadPosition,
    ctx: ToolContext,
) -> OutputChunk:
    end, reading.command = Position(out.end, err.end), _named(job)
    goes_on = asked.since is None and asked.matches is None and asked.tail is None
    redact = ctx.redactor.text
    texts = (
        continued(reading.stdout_line if goes_on else b"", out.shown, redact),
        continued(reading.stderr_line if goes_on else b"", err.shown, redact),
    )
    if reading.position.later(end) == end:
        reading.stdout_line = line_before((reading.stdout_line if goes_on else b"") + out.shown)
        reading.stderr_line = line_before((reading.stderr_line if goes_on else b"") + err.shown)
        reading.seen = Position(out.size, err.size)
    reading.position = reading.position.later(end)
    return OutputChunk(
        job=job,
        start=start,
        end=end,
        stdout=cut(texts[0], ONE_LINE),
        stderr=cut(texts[1], ONE_LINE),
        unread=max(0, out.size - out.end) + max(0, err.size - err.end),
        lost=out.lost + err.lost,
        skipped=out.skipped + err.skipped,
        lines=out.lines + err.lines,
        matched=out.matched + err.matched,
        gone=out.gone or err.gone,
    )
