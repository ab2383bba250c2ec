"""Exports a recording: one HTML file with asciinema's player inside, or plain text."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from .asciicast import CastEvent, CastHeader, event_line, header_line
from .directory import Recording
from .inert_output import InertOutput, plain_lines

__all__ = ["PLAYER", "as_html", "as_text", "inert_events"]

PLAYER = Path(__file__).with_name("asciinema_player")
"""asciinema-player 3.18.0 with its license; ``scripts/web-assets`` makes it."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; \
script-src 'unsafe-inline' 'wasm-unsafe-eval'; font-src data:; img-src data:">
<title>{title}</title>
<style>{css}</style>
<style>body {{ margin: 1rem; font-family: sans-serif; }} #player {{ max-width: 100%; }}</style>
</head>
<body>
<h1>{title}</h1>
<div id="player"></div>
<script>{script}</script>
<script>
AsciinemaPlayer.create({{ data: {data} }}, document.getElementById("player"), {options});
</script>
<!--
{license}
-->
</body>
</html>
"""


def inert_events(events: Iterable[CastEvent]) -> Iterator[CastEvent]:
    """Yield the events with output that only draws, and other texts without control characters."""
    output = InertOutput()
    for event in events:
        if event.code != "o":
            yield CastEvent(event.time, event.code, _CONTROL.sub("?", event.data))
        elif text := output.feed(event.data):
            yield CastEvent(event.time, "o", text)


def as_html(recording: Recording, *, idle_limit: float | None = None) -> str:
    """Return the recording as a page that needs nothing else, also without a network."""
    title = _CONTROL.sub("", recording.header.title) or recording.path.stem
    end = recording.events[-1].time if recording.events else 0.0
    options = {"fit": "width", "idleTimeLimit": idle_limit, "poster": f"npt:{end:g}"}
    return _PAGE.format(
        title=html.escape(title),
        css=(PLAYER / "asciinema-player.css").read_text("utf-8"),
        script=(PLAYER / "asciinema-player.min.js").read_text("utf-8").replace("</script", "<\\/script"),
        data=_in_script(_cast(recording, title)),
        options=_in_script({name: value for name, value in options.items() if value is not None}),
        license=(PLAYER / "LICENSE").read_text("utf-8").replace("--", "- -"),
    )


def _cast(recording: Recording, title: str) -> str:
    header = recording.header
    lines = [header_line(CastHeader(header.columns, header.rows, 2, header.timestamp, title))]
    lines += [event_line(event, 0.0, 2) for event in inert_events(recording.events) if event.code in ("o", "r", "m")]
    return "".join(lines)


def _in_script(value: object) -> str:
    """Return JSON that cannot end a script element."""
    return json.dumps(value).replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def as_text(recording: Recording) -> str:
    """Return the recording as plain text, with its markers as lines of their own."""
    parts: list[str] = []
    for event in inert_events(recording.events):
        if event.code == "o":
            parts.append(event.data)
        elif event.code == "m":
            parts.append(f"\n[{event.data}]\n")
    return plain_lines("".join(parts)).strip("\n") + "\n"
