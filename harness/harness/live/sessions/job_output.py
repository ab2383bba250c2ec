"""The output of a job, and of a command that has ended, as redacted items of a stream for dashboards."""

from __future__ import annotations

import codecs
from collections.abc import AsyncGenerator, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ...context import ExecutionContext
from ...results import OutputPart, Status
from ...toolkit.redaction.redactor import CONTEXT, Redactor
from ...toolkit.redaction.stream import StreamRedactor

__all__ = ["StoredOutput", "job_items", "stored_items"]

READ_BYTES = 48 << 10
"""Bytes of each stream of a job in one item."""
READ_WAIT = 30.0
"""Seconds of one wait for a job's output; the target reports it, so that a longer wait costs nothing."""


@dataclass(frozen=True, slots=True)
class StoredOutput:
    """The output of a command that has ended, and how it ended in a few words; those are empty for a success.

    A gap is the position of bytes that are left out of a stream, and their number.
    """

    stdout: bytes = b""
    stderr: bytes = b""
    ending: str = ""
    stdout_gap: tuple[int, int] | None = None
    stderr_gap: tuple[int, int] | None = None


async def job_items(execution: ExecutionContext, job_id: str, redactor: Redactor) -> AsyncGenerator[Mapping[str, Any]]:
    """Yield the output of a job, from its start to its end.

    Raises:
        HarnessError: The target cannot be asked.
    """
    streams = {name: _OutputText(redactor) for name in ("stdout", "stderr")}
    ended = False
    while not ended:
        output = await execution.read_job(
            job_id, stdout=streams["stdout"].end, stderr=streams["stderr"].end, limit=READ_BYTES, wait=READ_WAIT
        )
        parts = {"stdout": output.stdout, "stderr": output.stderr}
        ended = output.job.status is not Status.RUNNING and all(part.end >= part.size for part in parts.values())
        for name, part in parts.items():
            if text := streams[name].feed_part(part, last=ended):
                yield {"stream": name, "text": text}


async def stored_items(output: StoredOutput, redactor: Redactor) -> AsyncGenerator[Mapping[str, Any]]:
    """Yield an output that is known, then how the command ended."""
    streams = ("stdout", output.stdout, output.stdout_gap), ("stderr", output.stderr, output.stderr_gap)
    for name, data, gap in streams:
        for text in _stored_texts(data, gap, _OutputText(redactor)):
            if text:
                yield {"stream": name, "text": text}
    if output.ending:
        yield {"stream": "stderr", "text": f"[{redactor.text(output.ending)}]\n"}


def _stored_texts(data: bytes, gap: tuple[int, int] | None, stream: _OutputText) -> Iterator[str]:
    end = len(data) if gap is None else gap[0]
    yield from map(stream.feed, _pieces(data[:end]))
    if gap is not None:
        yield stream.skip(f"[... {gap[1]:,} bytes are not shown ...]")
        yield from map(stream.feed, _pieces(data[end:]))
    yield stream.feed(b"", last=True)


def _pieces(data: bytes) -> Iterator[bytes]:
    return (data[start : start + READ_BYTES] for start in range(0, len(data), READ_BYTES))


class _OutputText:
    """One stream of an output, as redacted text; ``end`` is the byte up to which it was read.

    Around a gap, a secret that is cut there is not recognized, so that the words before it and the line after it are
    not shown.
    """

    def __init__(self, redactor: Redactor) -> None:
        self.end = 0
        self._redactor = redactor
        self._is_cut = False
        self._start()

    def _start(self) -> None:
        self._stream = StreamRedactor(self._redactor)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed_part(self, part: OutputPart, *, last: bool) -> str:
        """Add what was read, and return what can be shown now."""
        self.end = part.end
        gap = self.skip(f"[{part.lost} bytes were not kept]") if part.lost else ""
        return gap + self.feed(part.data, last=last)

    def feed(self, data: bytes, *, last: bool = False) -> str:
        """Add output, and return what can be shown now."""
        text = self._decoder.decode(data, final=last)
        shown = self._stream.feed(self._after_cut(text) if self._is_cut else text)
        return shown + self._stream.flush() if last else shown

    def skip(self, note: str) -> str:
        """Start a gap, and return a note about it after the text before it, of which no secret can be a part."""
        shown = self._stream.release(self._redactor.complete)
        self._start()
        self._is_cut = True
        return f"{shown}\n{note}\n"

    def _after_cut(self, text: str) -> str:
        """Return the text after the first line end, and after the end of a private key that has no start."""
        key_end = text.find("-----END")
        is_key = key_end >= 0 and "-----BEGIN" not in text[:key_end]
        start = text.find("\n", key_end if is_key else 0) + 1
        self._is_cut = start == 0
        if self._is_cut:
            return ""
        self._stream.follow(text[max(0, start - CONTEXT) : start])  # it may announce a secret on the next line
        return text[start:]
