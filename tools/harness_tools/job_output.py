"""The output of a job, read on from the last place: each session gets every byte once."""

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


# -- A piece of a job's output as text: whole characters, and no secret cut in two. Pure.


CONTEXT = 2 << 10
"""Bytes of the line before a piece that are looked at again, for a secret that began there."""
_POSITION = re.compile(r"([0-9]{1,15})(?:\+([0-9]{1,15}))?")
_ASKS = re.compile(r"[?:>#$%\])][ \t]*\Z")
"""The end of a line that waits for an answer."""


@dataclass(frozen=True, slots=True)
class Position:
    """How far the two streams of a job were read, in bytes. Written ``120``, or ``120+45`` with standard error."""

    stdout: int = 0
    stderr: int = 0

    def __str__(self) -> str:
        return f"{self.stdout}+{self.stderr}" if self.stderr else str(self.stdout)

    def later(self, other: Position) -> Position:
        """The later one of each stream."""
        return Position(max(self.stdout, other.stdout), max(self.stderr, other.stderr))


def parse_position(text: str) -> Position:
    """Read one.

    Raises:
        ValueError: it is none.
    """
    match = _POSITION.fullmatch(text.strip())
    if match is None:
        raise ValueError("it is a position that an answer gave, such as 120 or 120+45; 0 is the beginning")
    return Position(int(match[1]), int(match[2] or 0))


def shown_length(data: bytes, complete: Callable[[str], int], *, ended: bool) -> int:
    """How many bytes of a piece can be shown now, when more may follow: whole characters, and no part of a secret.

    Args:
        complete: how many characters of a text can be shown, as :meth:`~harness.toolkit.Redactor.complete` says.
        ended: nothing follows.
    """
    if ended:
        return len(data)
    data = data[: whole_characters(data)]
    text = data.decode("utf-8", "surrogateescape")
    if _ASKS.search(text):
        return len(data)
    return len(text[: complete(text)].encode("utf-8", "surrogateescape"))


def whole_characters(data: bytes) -> int:
    """The length without the beginning of a character at the end that the rest is missing of."""
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte & 0xC0 != 0x80:
            length = 2 if byte & 0xE0 == 0xC0 else 3 if byte & 0xF0 == 0xE0 else 4 if byte & 0xF8 == 0xF0 else 1
            return len(data) - back if length > back else len(data)
    return len(data)


def line_before(data: bytes) -> bytes:
    """The line that has begun at the end of a piece, as far as it is looked at again."""
    return data[max(data.rfind(b"\n") + 1, len(data) - CONTEXT) :]


def continued(before: bytes, data: bytes, redact: Callable[[str], str]) -> str:
    """A piece, redacted as what it is: the continuation of a line that was shown already."""
    text = data.decode("utf-8", "surrogateescape")
    if not before:
        return redact(text)
    start = before.decode("utf-8", "surrogateescape")
    whole, old = redact(start + text), redact(start)
    alike = next((at for at, pair in enumerate(zip(whole, old, strict=False)) if pair[0] != pair[1]), len(old))
    return whole[alike:]


# -- Which lines match a regular expression that a model wrote, in time that grows with the text and no faster.
#
# RE2 (the extra ``tools``) never backtracks. Without it only a text without special characters is taken, as it
# stands.


MAX_PATTERN_CHARS = 1_000
MEMORY = 8 << 20
"""Bytes that RE2 may use for one pattern."""
_SPECIAL = re.compile(r"[\\^$.|?*+()\[\]{}]")
REDACTED = "[redacted]"

Matcher = Callable[[bytes], bool]


class BadPattern(ValueError):  # it is no failure of ours
    """It is no regular expression, or one that is not supported."""


@dataclass(frozen=True, slots=True)
class FilteredLines:
    """The lines that match, with their newlines, and how many bytes and lines were looked at for them."""

    data: bytes
    used: int
    lines: int
    matched: int


def line_matcher(pattern: str) -> Matcher:
    """Whether a line, without its newline, matches anywhere.

    Raises:
        BadPattern: it is none; the message says why.
    """
    if len(pattern) > MAX_PATTERN_CHARS:
        raise BadPattern(f"it is longer than {MAX_PATTERN_CHARS} characters")
    try:
        wanted = pattern.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise BadPattern("it is no text") from None
    if not _SPECIAL.search(pattern):
        return lambda line: wanted in line
    return _compiled(wanted)


def _compiled(pattern: bytes) -> Matcher:
    try:
        import re2  # type: ignore[import-untyped]  # it brings no types
    except ImportError:
        raise BadPattern(
            f"regular expressions need a library ({install_extra('tools')}); "
            "without it give a text without special characters"
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
    return f"{text} (RE2 knows no lookaround and no backreferences)"


def choose(
    data: bytes,
    matches: Matcher,
    room: int,
    *,
    ended: bool,
    full: bool = False,
    redact: Callable[[str], str] = str,
) -> FilteredLines:
    """The lines of a piece that match, up to ``room`` bytes of them, but one at least. Pure.

    A last line without newline is left until its rest comes, unless nothing follows it (``ended``), or it is alone in a
    piece that can hold no more (``full``). ``redact`` takes out secrets: a line of a private key is known as a part of
    one only among the others.
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
    """The lines that are left of a piece without its secrets; None when it has none."""
    text = data.decode("utf-8", "surrogateescape")
    clean = redact(text)
    return None if clean == text else frozenset(clean.split("\n"))


def _clean(line: bytes, known: frozenset[str], redact: Callable[[str], str]) -> bytes:
    """A line without its secrets; one that is not left of the piece was inside of one."""
    clean = redact(line.decode("utf-8", "surrogateescape"))
    text = clean if clean.rstrip("\n") in known else REDACTED + "\n"
    return text.encode("utf-8", "surrogateescape")


def _lines(data: bytes, *, ended: bool, full: bool) -> Iterable[bytes]:
    lines = data.split(b"\n")
    last = lines.pop()
    yield from (line + b"\n" for line in lines)
    if last and (ended or (full and not lines)):
        yield last


# -- Reading on in the output of a job: each session gets every byte once, in pieces that a model can take.


PAGE = 12_000
"""Bytes of both streams in one answer."""
SCAN = 256 << 10
"""Bytes of each stream that are looked at for its last lines; a target gives no more than that of one at a time."""
MAX_SCANNED_BYTES = 4 << 20
"""Bytes that a filter looks at for one answer: what is beyond them is for the next one."""
PAUSE = 0.1
"""Seconds between two looks at a job that writes and writes, while nothing in it matches."""
ONE_LINE = OutputLimit(2 * PAGE, PAGE)
"""How much is shown of a line that is longer than a page and matches."""
READERS = 1_000
"""Places in jobs that are remembered, of all sessions; the one that was used longest ago is forgotten first."""

Key = tuple[str, str, str, str]


@dataclass(slots=True)
class ReadPosition:
    """How far a session has read a job."""

    position: Position = field(default_factory=Position)
    seen: Position = field(default_factory=Position)
    """How much there was the last time: what was held back then and did not grow since is shown."""
    stdout_line: bytes = b""
    """The line that has begun, as far as it was shown: a secret in it may go on."""
    stderr_line: bytes = b""
    command: str | None = None
    lock: anyio.Lock = field(default_factory=anyio.Lock)

    def is_of(self, found: JobOutput) -> bool:
        """It is the job that was read before: ids begin anew where a target's state was removed."""
        known = self.command in (None, _named(found.job))
        return known and found.stdout.size >= self.position.stdout and found.stderr.size >= self.position.stderr

    def begin(self) -> None:
        """Nothing was read of this job."""
        self.position = self.seen = Position()
        self.stdout_line, self.stderr_line, self.command = b"", b"", None


class ReadPositions:
    """How far every session of this process has read each job."""

    def __init__(self) -> None:
        self._known: OrderedDict[Key, ReadPosition] = OrderedDict()

    @asynccontextmanager
    async def of(self, ctx: ToolContext, job_id: str) -> AsyncIterator[ReadPosition]:
        """One session's place in a job, for one caller at a time: two that ask at once get different parts."""
        key = (ctx.session_id, ctx.agent_id, ctx.execution.identity, job_id.lstrip("0"))
        reading = self._known.pop(key, None) or ReadPosition()
        self._known[key] = reading
        if len(self._known) > READERS:
            self._known.popitem(last=False)
        async with reading.lock:
            yield reading


@dataclass(frozen=True, slots=True)
class JobReadRequest:
    """What to read: from where, which lines, how many of the last ones, and how long to wait for something new."""

    since: Position | None = None
    matches: Matcher | None = None
    tail: int | None = None
    wait: float = 0.0


@dataclass(frozen=True, slots=True)
class OutputChunk:
    """What is shown, between two positions, and what was left out. ``unread`` and ``lost`` are bytes."""

    job: Job
    start: Position
    end: Position
    stdout: str = ""
    stderr: str = ""
    unread: int = 0
    lost: int = 0
    skipped: int = 0
    """Bytes before the last lines that were asked for."""
    lines: int = 0
    """Lines that a filter looked at."""
    matched: int = 0
    gone: bool = False
    """The target no longer has all of it."""

    @property
    def ended(self) -> bool:
        """The job does not run any more."""
        return self.job.status is not Status.RUNNING


@dataclass(frozen=True, slots=True)
class _Stream:
    """One stream of a piece."""

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
        """This and what follows it."""
        return replace(
            later,
            shown=self.shown + later.shown,
            start=self.start,
            lost=self.lost + later.lost,
            lines=self.lines + later.lines,
            matched=self.matched + later.matched,
        )


async def read_on(job_id: str, asked: JobReadRequest, reading: ReadPosition, ctx: ToolContext) -> OutputChunk:
    """What is new of a job for this session, which has then read it. ``asked.since`` reads again what was read before.

    Raises:
        JobNotFound: there is none of that id.
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
    """By what a job is known again; records keep the beginning of a long command."""
    return job.command[:1000].strip()


async def _next_page(
    found: JobOutput, start: Position, until: float, reading: ReadPosition, ctx: ToolContext
) -> tuple[Job, _Stream, _Stream]:
    """The next page; what is held back is waited for, and shown when nothing follows."""
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
    """The next page: standard error gets up to half of it."""
    errors = min(len(found.stderr.data), max(PAGE // 2, PAGE - len(found.stdout.data)))
    ended = found.job.status is not Status.RUNNING
    out = _shown(found.stdout, PAGE - errors, reading.seen.stdout, ctx, ended=ended)
    return out, _shown(found.stderr, errors, reading.seen.stderr, ctx, ended=ended)


def _shown(part: OutputPart, room: int, seen: int, ctx: ToolContext, *, ended: bool) -> _Stream:
    data = part.data[:room]
    last = len(data) == len(part.data) and part.end >= part.size
    settled = last and (ended or part.size <= seen)
    length = shown_length(data, ctx.redactor.complete, ended=settled)
    if not length and not last:  # one thing that is longer than a page: it has to go on
        length = len(data)
    return _Stream(data[:length], part.start - part.lost, part.start + length, part.size, part.lost, gone=part.gone)


async def _chosen(
    job_id: str, asked: JobReadRequest, start: Position, until: float, ctx: ToolContext
) -> tuple[Job, _Stream, _Stream]:
    """The lines that match; it is waited until there is one."""
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
    """The last lines of what is new: what stands before them is passed over, and said to be."""
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
    """A part that begins somewhere behind ``begin``, from its first whole line on."""
    length = shown_length(part.data, ctx.redactor.complete, ended=settled)
    if not length and len(part.data) > PAGE:  # one thing that is longer than a page
        length = len(part.data)
    passed, first = part.start - part.lost - begin, 0
    if passed:
        first = part.data.find(b"\n", 0, length) + 1
    shown = part.data[first:length]
    return _Stream(shown, begin, part.start + length, part.size, part.lost, passed + first, gone=part.gone)


def _last_lines(stream: _Stream, count: int) -> _Stream:
    """The last lines, as many of them as a page can take."""
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
