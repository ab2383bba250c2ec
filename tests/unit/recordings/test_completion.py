"""What of a job's output was not read is marked as a gap, and a lost connection completes nothing."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from harness.errors import ConnectionLost, HarnessError, UnsupportedOperation
from harness.pane_events import Screen
from harness.recordings.asciicast import CastEvent, CastHeader
from harness.recordings.completion import _output, complete_recording
from harness.recordings.directory import Recording, new_path, read_recording
from harness.recordings.writer import RecordingOptions, RecordingWriter
from harness.toolkit.redaction.redactor import PatternRedactor

RECORDING = Recording(Path("name.cast"), CastHeader(80, 24), (CastEvent(1.0, "m", "job 7: make"),))


class Context:
    """A target that fails after a part of the output."""

    def __init__(self, failure: HarnessError) -> None:
        self._failure = failure

    async def read_job(self, job_id: str, *, stdout: int, limit: int) -> Any:
        if stdout:
            raise self._failure
        return SimpleNamespace(stdout=SimpleNamespace(data=b"first\n", lost=0, end=6, size=12))


async def added(failure: HarnessError) -> list[str]:
    (job,) = RECORDING.jobs
    return [event.data for event in await _output(cast(Any, Context(failure)), RECORDING, job, PatternRedactor())]


async def test_what_cannot_be_read_is_a_gap() -> None:
    *_, output, gap = await added(UnsupportedOperation("it is stored elsewhere"))
    assert output == "first\r\n"
    assert gap == "gap: the rest of the output of job 7: it is stored elsewhere"


async def test_a_lost_connection_leaves_the_recording_unfinished() -> None:
    with pytest.raises(ConnectionLost):
        await added(ConnectionLost("the connection was lost"))


async def test_what_another_process_has_completed_is_left_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    path = new_path("main")
    with RecordingWriter(path, {"target": "local:"}, "", RecordingOptions()) as writer:
        writer.write(Screen(1000.0, 80, 24, b"$ "))
    assert await complete_recording(path, cast(Any, None), PatternRedactor())
    completed = read_recording(path).events
    assert completed[-1].data.startswith("recording ended")
    assert not await complete_recording(path, cast(Any, None), PatternRedactor())
    assert read_recording(path).events == completed
