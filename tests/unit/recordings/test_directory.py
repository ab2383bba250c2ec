"""The directory of recordings: what is read of its files, and that nothing else in it is opened."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

import pytest

from harness.pane_events import Closed, JobStarted, Output, Screen
from harness.recordings import directory
from harness.recordings.asciicast import CastEvent, CastHeader, event_line, header_line
from harness.recordings.directory import delete_old, list_recordings, new_path, summary_of
from harness.recordings.writer import RecordingOptions, RecordingWriter
from harness.system.private_files import is_locked


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


@pytest.mark.timeout(20)
def test_links_and_named_pipes_are_not_opened(tmp_path: Path) -> None:
    path = new_path("main")
    text = header_line(CastHeader(80, 24)) + event_line(CastEvent(1.0, "o", "text"), 0.0, 2)
    path.write_text(text)
    elsewhere = tmp_path / "elsewhere.cast"
    elsewhere.write_text(text)
    path.with_name("link.cast").symlink_to(elsewhere)
    os.mkfifo(path.with_name("pipe.cast"))
    assert [found.path for found in list_recordings()] == [str(path)]
    assert delete_old(0.0, 0) == [path]
    assert elsewhere.exists()


@pytest.mark.parametrize("version", [2, 3])
def test_of_a_finished_recording_a_list_reads_only_the_ends(version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    path = new_path("main")
    events = [Screen(1000.0, 80, 24, b"$ "), JobStarted(1001.0, "7", "make"), *[Output(1002.0, b"x" * 1000)] * 1000]
    with RecordingWriter(path, {"target": "local:"}, "", RecordingOptions(version=version)) as writer:
        for event in [*events, JobStarted(1003.5, "8", "ls (9 s, jobs: 5)"), Closed(1004.25)]:
            writer.write(event)
    whole = directory._scan(path, version)
    monkeypatch.setattr(directory, "_scan", None)
    found = summary_of(path)
    assert (found.state, found.seconds, found.jobs) == ("finished", *whole) == ("finished", 4.25, 2)


def test_a_recording_that_is_not_finished_is_counted() -> None:
    path = new_path("main")
    with RecordingWriter(path, {"target": "local:"}, "", RecordingOptions()) as writer:
        for event in (Screen(1000.0, 80, 24, b"$ "), JobStarted(1001.0, "7", "recording ended (9 s, jobs: 5)")):
            writer.write(event)
    found = summary_of(path)
    assert (found.state, found.seconds, found.jobs) == ("unfinished", 1.0, 1)


def test_a_lock_that_cannot_be_tried_may_be_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    assert not is_locked(path)
    path.touch()
    assert not is_locked(path)
    with path.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert is_locked(path)

    def without_locks(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", without_locks)
    assert is_locked(path)
