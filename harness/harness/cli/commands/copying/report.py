"""The report of a copy: a bar while it runs, problems as they come, JSON lines, and a summary."""

from __future__ import annotations

import os
import sys
import time
from types import TracebackType
from typing import Self

from ....copying.results import CopyObserver, CopySummary, FileCopy
from ....errors import HarnessError
from ...output import as_json, error_json, note, readable, with_base64
from ...progress_bar import ProgressBar
from ...runtime import CliSession
from ...streams import StreamWriter

__all__ = ["CopyReport", "copy_json", "problem_text", "summary_json"]


def copy_json(ended: FileCopy) -> dict[str, object]:
    """Return a file as a JSON object."""
    facts: dict[str, object] = {
        **with_base64("source", os.fsencode(ended.path)),
        **(with_base64("destination", os.fsencode(ended.destination)) if ended.destination else {}),
        "status": ended.status,
        "size": ended.size,
        "resumed_at": ended.resumed_at,
    }
    if ended.error is None:
        return facts
    error = ended.error
    return facts | error_json(type(error).__name__, error.message, error.target, error.hint)


def summary_json(summary: CopySummary) -> dict[str, object]:
    """Return the counts of a copy as a JSON object."""
    kinds = ("copied", "unchanged", "skipped", "failed")
    return {**{kind: summary.counts[kind] for kind in kinds}, "transferred": summary.transferred}


def problem_text(ended: FileCopy) -> str:
    """Return one line about a file that was not copied."""
    error = str(ended.error) if ended.error is not None else "failed"
    return f"skipped: {error}" if ended.status == "skipped" else error


class CopyReport(CopyObserver):
    """Shows one copy. On a terminal, a bar for all files; elsewhere only problems and the summary of a failure."""

    def __init__(self, session: CliSession, output: StreamWriter) -> None:
        self._json = session.json
        self._output = output
        self._bar = _CopyBar() if sys.stderr.isatty() and not self._json and os.environ.get("TERM") != "dumb" else None
        self._started = time.monotonic()
        self._is_lost = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.close()

    # -- what happens

    def planned(self, files: int, size: int) -> None:
        if self._bar is not None:
            self._bar.plan(files, size)

    def started(self, name: str) -> None:
        if self._bar is not None:
            self._bar.name = name

    def advanced(self, size: int) -> None:
        self._is_lost = False
        if self._bar is not None:
            self._bar.advance(size)

    def left_out(self, size: int) -> None:
        if self._bar is not None:
            self._bar.leave_out(size)

    def ended(self, ended: FileCopy) -> None:
        if self._json:
            self._write_json(copy_json(ended))
        elif ended.error is not None and not ended.consequence:
            self._note(problem_text(ended))
        if self._bar is not None:
            self._bar.end_file()

    def reconnecting(self, error: HarnessError) -> None:
        if not self._is_lost:
            self._note(f"{error}; reconnecting")
        self._is_lost = True

    # -- the end

    def finish(self, summary: CopySummary) -> None:
        """Print the summary: as JSON, on a terminal, or if something failed."""
        if self._json:
            self._write_json({"summary": summary_json(summary)})
            return
        if self._bar is not None:
            self._bar.close()
        if self._bar is not None or summary.failed:
            note(self._summary_text(summary))

    def interrupted(self) -> None:
        """Say what remains after an interrupt."""
        self._note("interrupted; run the same command again to resume")

    def _summary_text(self, summary: CopySummary) -> str:
        shown = [f"{count} {kind}" for kind, count in summary.counts.items() if count] or ["nothing to copy"]
        seconds = time.monotonic() - self._started
        return f"{', '.join(shown)}, {summary.transferred / 1e6:.1f} MB in {seconds:.1f} s"

    def _note(self, text: str) -> None:
        if self._bar is not None:
            self._bar.clear()
        note(text)

    def _write_json(self, value: object) -> None:
        self._output.write(as_json(value).encode() + b"\n")


class _CopyBar:
    """A bar for all files of a copy."""

    def __init__(self) -> None:
        self.name = ""
        self._files = 0
        self._ended = 0
        self._size = 0
        self._done = 0
        self._bar = ProgressBar(transient=True)
        self.clear = self._bar.clear
        self.close = self._bar.remove

    def plan(self, files: int, size: int) -> None:
        self._files, self._size = files, size
        self._bar.restart()

    def advance(self, size: int) -> None:
        self._done += size
        self._draw()

    def leave_out(self, size: int) -> None:
        self._size -= size
        self._draw()

    def end_file(self) -> None:
        self._ended += 1
        self._draw()

    def _draw(self) -> None:
        self._bar.title = self._title()
        self._bar.update(self._done, self._size)

    def _title(self) -> str:
        name = readable(self.name.rpartition("/")[2])
        name = name if len(name) <= 30 else f"{name[:27]}..."
        return name if self._files == 1 else f"{min(self._ended + 1, self._files)}/{self._files} {name}"
