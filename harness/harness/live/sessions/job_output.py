"""The output of a job, and of a command that has ended, as redacted items of a stream for dashboards."""

from __future__ import annotations

import codecs
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from typing import Any

from ...context import ExecutionContext
from ...results import OutputPart, Status
from ...toolkit.redaction.redactor import Redactor
from ...toolkit.redaction.stream import StreamRedactor

__all__ = ["StoredOutput", "job_items", "stored_items"]

READ_BYTES = 48 << 10
"""Bytes of each stream of a job in one item."""
READ_WAIT = 30.0
"""Seconds of one wait for a job's output; the target reports it, so that a longer wait costs nothing."""


@dataclass(frozen=True, slots=True)
class StoredOutput:
    """The output of a command that has ended, and how it ended in a few words; those are empty for a success."""

    stdout: bytes = b""
    stderr: bytes = b""
    ending: str = ""


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
            if text := streams[name].feed(part, last=ended):
                yield {"stream": name, "text": text}


async def stored_items(output: StoredOutput, redactor: Redactor) -> AsyncGenerator[Mapping[str, Any]]:
    """Yield an output that is known, then how the command ended."""
    for name, data in (("stdout", output.stdout), ("stderr", output.stderr)):
        stream, decoder = StreamRedactor(redactor), codecs.getincrementaldecoder("utf-8")("replace")
        for start in range(0, len(data), READ_BYTES):
            if text := stream.feed(decoder.decode(data[start : start + READ_BYTES])):
                yield {"stream": name, "text": text}
        if text := stream.feed(decoder.decode(b"", final=True)) + stream.flush():
            yield {"stream": name, "text": text}
    if output.ending:
        yield {"stream": "stderr", "text": f"[{redactor.text(output.ending)}]\n"}


class _OutputText:
    """One stream of a job, as redacted text; ``end`` is the byte up to which it was read."""

    def __init__(self, redactor: Redactor) -> None:
        self.end = 0
        self._stream = StreamRedactor(redactor)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, part: OutputPart, *, last: bool) -> str:
        """Add what was read, and return what can be shown now."""
        self.end = part.end
        gap = f"\n[{part.lost} bytes were not kept]\n" if part.lost else ""
        text = self._stream.feed(gap + self._decoder.decode(part.data, final=last))
        return text + self._stream.flush() if last else text
