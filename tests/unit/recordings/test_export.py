"""An exported page needs nothing else, and nothing that was recorded can act in it."""

from __future__ import annotations

import re
from pathlib import Path

from harness.recordings.asciicast import CastEvent, CastHeader
from harness.recordings.directory import Recording
from harness.recordings.export import PLAYER, as_html, as_text
from harness.recordings.player import play_times

EVIL = "</script><script>alert(1)</script><!-- \u2028 \x1b]52;c;aGk=\x07"
EVENTS = (
    CastEvent(0.0, "o", "\x1b[1;1H$ ls\r\n"),
    CastEvent(1.0, "m", f"job 7: {EVIL}"),
    CastEvent(9.0, "o", f"{EVIL}\r\nfile"),
    CastEvent(9.5, "i", "secret input"),
    CastEvent(10.0, "m", "job 7 ended: completed, exit code 0"),
)
RECORDING = Recording(Path("name.cast"), CastHeader(80, 24, title=f"pane {EVIL}"), EVENTS)


def test_the_page_names_no_other_file_and_no_other_place() -> None:
    page = as_html(RECORDING)
    own = page.replace((PLAYER / "asciinema-player.min.js").read_text(), "")
    assert re.findall(r"""(?:src|href)\s*=|url\((?!["']?data:)|@import""", own) == []
    assert "default-src 'none'" in page


def test_recorded_text_cannot_leave_its_script() -> None:
    page = as_html(RECORDING)
    assert page.count("<script>") == page.count("</script>") == 2
    assert "alert(1)</script>" not in page
    assert "u001b]52;" not in page
    assert "\x1b" not in page.replace((PLAYER / "asciinema-player.min.js").read_text(), "")
    assert "secret input" not in page


def test_plain_text_has_the_jobs_and_no_sequences() -> None:
    text = as_text(RECORDING)
    assert "\x1b" not in text
    assert text.startswith("$ ls\n")
    assert "[job 7 ended: completed, exit code 0]" in text
    assert "secret input" not in text


def test_pauses_are_shortened_and_what_was_before_a_job_is_shown_at_once() -> None:
    waits = [wait for wait, _ in play_times(EVENTS, speed=2.0, idle_limit=3.0, start=1.0)]
    assert waits == [0.0, 0.0, 1.5, 0.25, 0.25]
    assert [wait for wait, _ in play_times(EVENTS, speed=1.0, idle_limit=None, start=0.0)] == [0.0, 1.0, 8.0, 0.5, 0.5]
