"""Results within the model's limits, and results of commands."""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from typing import Literal, TypeVar

from anyio import to_thread

from ..command import LiveView
from ..results import ShellResult, Status
from .contract import OutputLimit, ToolContext
from .events import JobStarted
from .interfaces import OutputStoreBase
from .values import BLOCK_LIMIT, Advice, Block, Cut, Json, Omitted, ShownForm, Text, ToolResult

__all__ = [
    "BLOCK_LIMIT",
    "cut",
    "cut_again",
    "cut_ends",
    "cut_result",
    "fit_items",
    "fit_streams",
    "note_job",
    "progress_of",
    "shell_result",
    "shell_result_for",
    "size_of",
]


# -- How much of a result a model receives: head and tail of each text, with the number of omitted characters between.


ESCAPE = 64
"""Maximum length of an escape sequence."""
_ESCAPE = re.compile(
    rf"\x1b(?:\[[0-?]{{0,{ESCAPE}}}[ -/]?[@-~]?|[\]PX^_][^\x07\x1b\n]{{0,{ESCAPE}}}(?:\x07|\x1b\\)?|[ -/]?.)?"
)
_NOTICE = re.compile(r"\[\.\.\. \d+ of \d+ (?:characters|bytes) left out[^\n]* \.\.\.\]")
Item = TypeVar("Item")
LINE_SEARCH = 200
"""How far from the cut a line end is searched for, in characters."""


def cut(text: str, limit: OutputLimit, handle: str = "", omitted: Omitted | None = None) -> str:
    """Return the text, or its head and tail with a notice between them that gives the omitted amount. Pure.

    Args:
        text: the text.
        limit: the size of head and tail.
        handle: names the stored complete text in the notice.
        omitted: what the text already lacks: the notice includes it; a text that fits gets a notice at its end.
    """
    ends = cut_ends(text, limit)
    if ends is None:
        return text if omitted is None else f"{text}\n[{_amounts(text, 0, 0, omitted)}]"
    head, start = ends
    amounts = _amounts(text, head, start, omitted)
    notice = f"[... {amounts}{_whole_by_handle(handle) if omitted is None else ''} ...]"
    joined = "\n" if head and not text[:head].endswith("\n") else ""
    return f"{text[:head]}{joined}{notice}" + (f"\n{text[start:]}" if min(limit.tail, limit.characters) else "")


def cut_ends(text: str, limit: OutputLimit) -> tuple[int, int] | None:
    """Return where the head ends and the tail starts in a text that is too long; None if it fits. Pure."""
    room = min(limit.characters, BLOCK_LIMIT)
    if len(text) <= room:
        return None
    tail = min(limit.tail, room)
    return _head_end(text, room - tail), _tail_start(text, len(text) - tail)


def _amounts(text: str, head: int, start: int, omitted: Omitted | None) -> str:
    """Return the omitted amount: in characters, or in bytes if the target has already omitted some. Pure."""
    if omitted is None:
        return f"{start - head} of {len(text)} characters left out"
    missing, total = (size_of(part) + omitted.count for part in (text[head:start], text))
    return f"{missing} of {total} bytes left out{omitted.whole}"


def size_of(text: str) -> int:
    """Return the number of bytes of a text, as programs write it."""
    return len(text.encode("utf-8", "surrogatepass"))


def _head_end(text: str, end: int) -> int:
    line = text.rfind("\n", max(0, end - LINE_SEARCH), end)
    return line + 1 if line >= 0 else _unbroken(text, end)[0]


def _tail_start(text: str, start: int) -> int:
    line = text.find("\n", start, start + LINE_SEARCH)
    return line + 1 if line >= 0 else _unbroken(text, start)[1]


def _unbroken(text: str, at: int) -> tuple[int, int]:
    """Return the nearest positions around ``at`` that split no surrogate pair and no escape sequence."""
    if 0 < at < len(text) and "\ud800" <= text[at - 1] < "\udc00" <= text[at] <= "\udfff":
        return at - 1, at + 1
    escape = text.rfind("\x1b", max(0, at - ESCAPE), at)
    match = _ESCAPE.match(text, escape) if escape >= 0 else None
    return (escape, match.end()) if match and match.end() > at else (at, at)


def cut_again(text: str, limit: OutputLimit, before: Cut) -> str:
    """Shorten a truncated text further, with one notice for both cuts. Pure."""
    end = len(text) - before.tail
    notice = text[before.head : end].strip("\n")
    if end < before.head or not _NOTICE.fullmatch(notice):  # the text was changed since
        return cut(text, limit)
    room = min(limit.characters, BLOCK_LIMIT)
    tail = min(limit.tail, room, before.tail)
    head = min(room - tail, before.head)
    if (head, tail) == (before.head, before.tail):
        return text
    head = head if head == before.head else _head_end(text, head)
    start = end if tail == before.tail else _tail_start(text, len(text) - tail)
    kept = text[:head] + text[start:]
    missing = before.total - (len(kept) if before.unit == "characters" else size_of(kept))
    whole = before.whole if before.whole in notice else ""  # a profile may have removed it
    joined = "\n" if head and not text[:head].endswith("\n") else ""
    gap = f"{joined}[... {missing} of {before.total} {before.unit} left out{whole} ...]"
    return f"{text[:head]}{gap}" + (f"\n{text[start:]}" if tail else "")


def _how_cut(text: str, limit: OutputLimit, handle: str, omitted: Omitted | None) -> Cut | None:
    """Return how :func:`cut` truncates a text; None if it does not."""
    head, start = cut_ends(text, limit) or (len(text), len(text))
    if head == start:
        return None
    tail = len(text) - start if min(limit.tail, limit.characters) else 0
    if omitted is None:
        return Cut(head, tail, len(text), whole=_whole_by_handle(handle))
    return Cut(head, tail, size_of(text) + omitted.count, "bytes", omitted.whole)


async def cut_result(
    result: ToolResult, limit: OutputLimit, outputs: OutputStoreBase | None, call_id: str
) -> ToolResult:
    """Truncate a result to the limit; the complete text is stored under the handle ``metadata["full_output"]``."""
    if result.omitted is not None:
        return await _cut_further(result, result.omitted, limit, outputs, call_id)
    room = min(limit.characters, BLOCK_LIMIT)
    if result.cut is not None and len(result.text) > room:
        return replace(result, content=_with_text(result, cut_again(result.text, limit, result.cut)), cut=None)
    long = [block.text for block in result.content if isinstance(block, Text) and len(block.text) > room]
    if not long:
        return result
    handle = await outputs.keep(call_id, "\n".join(long)) if outputs is not None else ""
    content: tuple[Block, ...] = tuple(
        Text(cut(block.text, limit, handle)) if isinstance(block, Text) else block for block in result.content
    )
    whole = Advice(_whole_by_handle(handle), tools=("read_output",))
    metadata = {**result.metadata, "truncated": True, "full_output": handle}
    texts = [block.text for block in result.content if isinstance(block, Text)]
    how = _how_cut(texts[0], limit, handle, None) if len(texts) == 1 else None
    return replace(result, content=content, metadata=metadata, advice=(*result.advice, *[whole] * len(long)), cut=how)


async def _cut_further(
    result: ToolResult, omitted: Omitted, limit: OutputLimit, outputs: OutputStoreBase | None, call_id: str
) -> ToolResult:
    """Truncate a result whose text is already incomplete, with one notice for both."""
    handle = await outputs.keep(call_id, result.text) if outputs is not None else ""
    metadata = {**result.metadata, "truncated": True, "full_output": handle}
    content = _with_text(result, cut(result.text, limit, omitted=omitted))
    how = _how_cut(result.text, limit, "", omitted)
    return replace(result, content=content, metadata=metadata, omitted=None, cut=how)


def _with_text(result: ToolResult, text: str) -> tuple[Block, ...]:
    others = (block for block in result.content if not isinstance(block, Text))
    return (Text(text), *others)


def _whole_by_handle(handle: str) -> str:
    return f"; the whole is {handle}" if handle else ""


def fit_items(
    items: Sequence[Item], render: Callable[[Sequence[Item]], str], limit: OutputLimit
) -> tuple[list[Item], int]:
    """Return the first items whose combined rendering is within the limit, and the number of dropped ones. Pure.

    For JSON and tables, which a cut in the middle would break. ``render`` must not return less text for more items;
    it is called about log2(n) times.
    """
    room = min(limit.characters, BLOCK_LIMIT)
    if len(render(items)) <= room:
        return list(items), 0
    fits, too_many = 0, len(items)
    while too_many - fits > 1:
        middle = (fits + too_many) // 2
        if len(render(items[:middle])) <= room:
            fits = middle
        else:
            too_many = middle
    return list(items[:fits]), len(items) - fits


# -- A command's outcome as a result for a model: the outcome first, then the output.


CODES = {
    Status.TIMED_OUT: "timed_out",
    Status.INTERRUPTED: "interrupted",
    Status.UNKNOWN: "unknown",
}
"""The error codes of commands that did not end by themselves."""
SHOWN = ShownForm(stream=(BLOCK_LIMIT, BLOCK_LIMIT // 2))
"""How much of each stream is in the data, which some clients receive completely."""
AROUND = 1_000
"""Characters of a result in addition to the streams: how the command ended, and notices."""
LARGE = 128 << 10
"""Output size in bytes from which results are built in a thread, so that the event loop is not blocked."""


def shell_result(done: ShellResult, *, success: Collection[int] = (0,), ctx: ToolContext | None = None) -> ToolResult:
    """Return the result for a command. A command that is still running is not an error.

    Args:
        done: the command's result.
        success: the exit codes that are not errors.
        ctx: the call's context. If a profile presents the result, the streams are truncated for the profile, once,
            with secrets redacted first.
    """
    streams = fit_streams(done, _form(ctx), ctx.redactor.text if ctx is not None else str)
    in_profile = ctx is not None and ctx.notes.faced is not None
    shown = streams if in_profile else (done.stdout, done.stderr)
    text = "\n".join([_headline(done), *_sections(*shown), *(f"notice: {notice}" for notice in done.notices)])
    code = CODES.get(done.status, "" if done.exit_code is None or done.exit_code in success else "exit_code")
    data = _data(done, *streams)
    result = ToolResult.failure(code, text, data=data) if code else ToolResult.of(text, data=data)
    return (
        replace(result, omitted=Omitted(done.truncated, _whole_by_job(done)))
        if done.truncated and not in_profile
        else result
    )


async def shell_result_for(done: ShellResult, ctx: ToolContext) -> ToolResult:
    """Return the result for one call as :func:`shell_result` with ``ctx``; a large one is built in a thread."""
    if len(done.stdout_bytes) + len(done.stderr_bytes) < LARGE:
        return shell_result(done, ctx=ctx)
    return await to_thread.run_sync(partial(shell_result, done, ctx=ctx))


def _form(ctx: ToolContext | None) -> ShownForm:
    return SHOWN if ctx is None or ctx.notes.faced is None else ctx.shown


def fit_streams(done: ShellResult, form: ShownForm, redact: Callable[[str], str]) -> tuple[str, str]:
    """Return standard output and standard error, truncated to the form.

    The omitted amount is stated once, at the last cut: for both streams together, including what the target has
    omitted. An earlier cut only has a mark.
    """
    out, err = (_redacted(text, form, redact) for text in (done.stdout, done.stderr))
    total = len(done.stdout_bytes) + len(done.stderr_bytes) + done.truncated
    room = max(0, form.room - AROUND)
    while True:
        limits = _stream_limits(out, err, form, room)
        ends = [cut_ends(text, limit) for text, limit in zip((out, err), limits, strict=True)]
        shown = _with_gaps((out, err), ends, form, total, done)
        if form.stream is not None or sum(map(form.measure, shown)) <= form.room - AROUND // 2 or room < AROUND:
            return shown
        room = room * 3 // 4


def _redacted(text: str, form: ShownForm, redact: Callable[[str], str]) -> str:
    """Return the text, redacted if it may be truncated: half a secret would not be recognized."""
    longest = form.room - AROUND if form.stream is None else form.stream[0]
    return text if form.measure(text) <= longest // 2 else redact(text)


def _stream_limits(out: str, err: str, form: ShownForm, room: int) -> tuple[OutputLimit, OutputLimit]:
    if form.stream is not None:
        return OutputLimit(*form.stream), OutputLimit(*form.stream)
    errors = min(len(err), max(room // 2, room - len(out)))
    share = form.tail / max(1, form.room)
    first, second = (OutputLimit(size, int(size * share)) for size in (room - errors, errors))
    return first, second


def _with_gaps(
    texts: tuple[str, str], ends: Sequence[tuple[int, int] | None], form: ShownForm, total: int, done: ShellResult
) -> tuple[str, str]:
    cuts = [number for number, found in enumerate(ends) if found is not None]
    if not cuts:
        note = form.gap.format(_left_out(done.truncated, total, done)) if done.truncated else ""
        return (texts[0] + note, texts[1]) if texts[0] or not texts[1] else (texts[0], texts[1] + note)
    missing = done.truncated + sum(size_of(texts[number][slice(*(ends[number] or (0, 0)))]) for number in cuts)
    shown = list(texts)
    for number in cuts:
        head, start = ends[number] or (0, 0)
        told = _left_out(missing, total, done) if number == cuts[-1] else "see below"
        shown[number] = _joined(texts[number][:head], form.gap.format(told), texts[number][start:])
    return shown[0], shown[1]


def _joined(head: str, gap: str, tail: str) -> str:
    gap = gap.removeprefix("\n") if not head or head.endswith("\n") else gap
    return head + (gap if tail else gap.removesuffix("\n")) + tail


def _left_out(missing: int, total: int, done: ShellResult) -> str:
    return f"{missing} of {total} bytes of output left out{_whole_by_job(done)}"


def _whole_by_job(done: ShellResult) -> str:
    return f"; job {done.job_id} has all of it" if done.job_id else ""


def _headline(done: ShellResult) -> str:
    if done.exit_code is not None and done.status not in CODES:
        return f"exit code: {done.exit_code}"
    job = f"job {done.job_id}" if done.job_id else "the command"
    return {
        Status.RUNNING: f"{job} is still running",
        Status.TIMED_OUT: f"ended at its time limit, after {done.duration:.0f} s",
        Status.INTERRUPTED: "interrupted",
    }.get(done.status, f"the outcome of {job} is unknown: it may have run; look before you repeat it")


def _sections(stdout: str, stderr: str) -> list[str]:
    named = (("stdout", stdout), ("stderr", stderr))
    return [f"{name}:\n{text.removesuffix(chr(10))}" for name, text in named if text] or ["(no output)"]


def _data(done: ShellResult, stdout: str, stderr: str) -> Json:
    return {
        "status": str(done.status),
        "exit_code": done.exit_code,
        "stdout": stdout,
        "stderr": stderr,
        "truncated": done.truncated,
        "seconds": round(done.duration, 3),
        "job_id": done.job_id,
        "pane": done.pane,
        "notices": list(done.notices),
    }


def note_job(done: ShellResult, ctx: ToolContext) -> None:
    """Record which job ran the command, and publish an event if it is still running."""
    if done.job_id:
        ctx.started_job(done.job_id)
    if done.job_id and done.status in (Status.RUNNING, Status.UNKNOWN):
        ctx.publish(JobStarted(job_id=done.job_id, command=ctx.redactor.text(done.command)))


def progress_of(ctx: ToolContext, stream: Literal["stdout", "stderr"] = "stdout") -> LiveView:
    """Return a live view that publishes a command's output as progress: for ``on_output`` or ``on_stderr``."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def show(chunk: bytes) -> None:
        if text := decoder.decode(chunk):
            ctx.progress(text, stream)

    def skipped(_count: int) -> None:
        decoder.reset()
        ctx.skip_progress(stream)

    return LiveView(show, skipped)
