"""The directory of recordings holds files only: nothing else in it is opened."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from harness.recordings.asciicast import CastEvent, CastHeader, event_line, header_line
from harness.recordings.directory import delete_old, list_recordings, new_path


@pytest.mark.timeout(20)
def test_links_and_named_pipes_are_not_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
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
