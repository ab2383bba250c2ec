"""Recordings are asciicast files of both versions, within their size, with a marker for each gap and job."""

from __future__ import annotations

import json
import os
import stat
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import HarnessError
from harness.pane_events import Closed, JobEnded, JobStarted, Output, PaneEvent, Resized, Screen, Typed
from harness.recordings.asciicast import CastEvent, event_line, read_events
from harness.recordings.directory import (
    delete_old,
    find_recording,
    list_recordings,
    new_path,
    read_recording,
    unfinished_recordings,
)
from harness.recordings.writer import CLEARED, GAP, RecordingOptions, RecordingWriter

SCREEN = Screen(1000.0, 80, 24, b"\x1b[1;1H$ ")


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path / "harness" / "recordings"


def written(events: Iterable[PaneEvent], *, finish: bool = True, **options: Any) -> Path:
    path = new_path("main")
    with RecordingWriter(path, {"target": "local:", "pane": "main"}, "title", RecordingOptions(**options)) as writer:
        for event in events:
            writer.write(event)
        if finish:
            writer.finish()
    return path


def lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()]


EVENTS = [
    JobStarted(999.0, "6", "before the first screen"),
    SCREEN,
    JobStarted(1000.5, "7", "make\nsecond line"),
    Output(1001.0, "漢".encode()[:2]),
    Output(1001.25, "漢".encode()[2:] + b"\xff\r\n"),
    Resized(1002.0, 100, 30),
    Screen(1002.0, 100, 30, b"wide"),
    JobEnded(1003.0, "7", 2, "completed"),
    Screen(1004.0, 100, 30, b"after a gap"),
    JobStarted(1004.0, "8", "sleep"),
    JobEnded(1005.0, "8", None, "unknown"),
    Closed(1006.0),
]
EXPECTED = [
    [0.0, "o", "\x1b[1;1H$ "],
    [0.5, "m", "job 7: make"],
    [1.25, "o", "漢\ufffd\r\n"],
    [2.0, "r", "100x30"],
    [2.0, "o", f"{CLEARED}wide"],
    [3.0, "m", "job 7 ended: completed, exit code 2"],
    [4.0, "m", GAP],
    [4.0, "o", f"{CLEARED}after a gap"],
    [4.0, "m", "job 8: sleep"],
    [5.0, "m", "job 8 ended: unknown"],
    [6.0, "m", "recording ended: the pane was closed (6.0 s, jobs: 2)"],
]


def test_version_2_has_the_times_since_the_start(state: Path) -> None:
    path = written(EVENTS)
    header, *events = lines(path)
    assert (header["version"], header["width"], header["height"]) == (2, 80, 24)
    assert (header["timestamp"], header["title"]) == (1000, "title")
    assert events == EXPECTED
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(state.stat().st_mode) == 0o700


def test_version_3_has_the_times_since_the_last_event() -> None:
    path = written(EVENTS, version=3)
    header, *events = lines(path)
    assert header["term"] == {"cols": 80, "rows": 24, "type": "xterm-256color"}
    assert [event[0] for event in events] == [0, 0.5, 0.75, 0.75, 0, 1.0, 1.0, 0, 0, 1.0, 1.0]
    assert [(event.time, event.code, event.data) for event in read_recording(path).events] == list(map(tuple, EXPECTED))


def test_jobs_are_found_with_their_ends() -> None:
    jobs = read_recording(written(EVENTS)).jobs
    assert [(job.job_id, job.command, job.started, job.ended, job.status, job.exit_code) for job in jobs] == [
        ("7", "make", 0.5, 3.0, "completed", 2),
        ("8", "sleep", 4.0, 5.0, "unknown", None),
    ]


def test_input_is_recorded_only_when_it_is_asked_for() -> None:
    events = [SCREEN, JobStarted(1001.0, "1", "ls"), Typed(1002.0, b"y\r")]
    assert [event for event in lines(written(events))[1:] if event[1] == "i"] == []
    found = [event for event in lines(written(events, with_input=True))[1:] if event[1] == "i"]
    assert found == [[1.0, "i", "ls\r"], [2.0, "i", "y\r"]]


def test_a_recording_ends_at_its_maximum_size() -> None:
    path = written([SCREEN, *[Output(1001.0, b"x" * 1000)] * 100], max_bytes=10_000)
    assert path.stat().st_size < 11_000
    assert lines(path)[-1][2] == "recording ended: record_max_bytes (1.0 s, jobs: 0)"


def test_nothing_is_left_of_a_pane_without_a_screen(state: Path) -> None:
    written([Output(1.0, b"lost"), Closed(2.0)])
    assert list(state.iterdir()) == []


def test_a_list_tells_what_is_written_what_is_over_and_what_was_cut_short() -> None:
    finished, cut = written(EVENTS), written([SCREEN], finish=False)
    with cut.open("a") as file:
        file.write('[5.0, "o", "half')
    writing = new_path("bg-1")
    with RecordingWriter(writing, {"target": "local:"}, "", RecordingOptions()) as writer:
        writer.write(SCREEN)
        states = {Path(item.path): item.state for item in list_recordings()}
        assert unfinished_recordings("local:") == [cut]
        assert unfinished_recordings("ssh://web1") == []
    assert states == {finished: "finished", cut: "unfinished", writing: "recording"}


def test_old_recordings_are_deleted_and_never_one_that_is_written() -> None:
    old, large, new = (written([SCREEN, Output(1001.0, b"x" * 5000)]) for _ in range(3))
    os.utime(old, (time.time() - 100, time.time() - 100))
    os.utime(large, (time.time() - 10, time.time() - 10))
    writing = new_path("main")
    with RecordingWriter(writing, {}, "", RecordingOptions()) as writer:
        writer.write(SCREEN)
        os.utime(writing, (0, 0))
        assert delete_old(50, 1 << 20) == [old]
        assert delete_old(50, 7000) == [large]
    assert new.exists()
    assert writing.exists()


def test_a_recording_is_found_by_the_start_of_its_id(state: Path) -> None:
    path = written(EVENTS)
    assert find_recording(path.stem) == find_recording(path.stem[:-1]) == find_recording(str(path)) == path
    with pytest.raises(HarnessError, match="no recording 'x'"):
        find_recording("x")
    written(EVENTS)
    with pytest.raises(HarnessError, match="2 recordings start with"):
        find_recording("2")
    (state / "other.cast").write_text("text\n")
    with pytest.raises(HarnessError, match="is not an asciicast recording"):
        read_recording(state / "other.cast")


def test_other_users_may_not_look_into_the_directory(state: Path) -> None:
    state.mkdir(parents=True)
    state.chmod(0o755)
    with pytest.raises(HarnessError, match="other users may look into it"):
        new_path("main")


@given(st.lists(st.tuples(st.floats(0, 1e6), st.sampled_from("oirm"), st.text()), max_size=10), st.sampled_from([2, 3]))
def test_what_is_written_is_read_again(events: list[tuple[float, str, str]], version: int) -> None:
    made = [CastEvent(round(seconds, 3), code, text) for seconds, code, text in sorted(events)]
    before, text = 0.0, []
    for event in made:
        text.append(event_line(event, before, version))
        before = event.time
    found = list(read_events(["# a comment\n", "[1]\n", *text, '[3, "o'], version))
    assert [(event.code, event.data) for event in found] == [(event.code, event.data) for event in made]
    assert [event.time for event in found] == pytest.approx([event.time for event in made], abs=1e-3)
