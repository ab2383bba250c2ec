"""Reading a pane's screen and scrollback: the options of ``capture-pane``, and finding a job by the prompt tags. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from harness.command import Capture

__all__ = ["TaggedOutput", "capture_command", "extract_tagged"]

_TAG = re.compile(r"^\[harness (\d+): (\d+)\] ")


def capture_command(pane: str, request: Capture) -> tuple[str, ...]:
    """The ``capture-pane`` command for a request."""
    command = ["capture-pane", "-p", "-t", pane]
    flags = (
        ("-J", request.join_wrapped_lines),
        ("-N", request.preserve_trailing_spaces),
        ("-e", request.include_escape_sequences),
        ("-C", request.escape_non_printable),
    )
    command += [flag for flag, wanted in flags if wanted]
    command += _bound("-S", request.start) + _bound("-E", request.end)
    if request.include_alternate_screen:
        command += ["-a", "-q"]
    return tuple(command)


def _bound(flag: str, value: int | Literal["-"] | None) -> list[str]:
    return [] if value is None else [flag, str(value)]


@dataclass(frozen=True, slots=True)
class TaggedOutput:
    """A job's text between two tags in the scrollback. ``exact`` is False when a part of it may be missing."""

    text: str
    exit_code: int | None
    exact: bool = True


def extract_tagged(screen: str, job_id: str, command: str) -> TaggedOutput | None:
    """Find a job in a joined capture of the whole scrollback, by the visible tags alone.

    The tag ``[harness 7: 0]`` stands in the prompt that follows job 7. Its output is what stands between the echo of
    the command, on and below the prompt before it, and that tag. None when the tag is not there (any more).
    """
    lines = screen.split("\n")
    end = next((i for i in range(len(lines) - 1, -1, -1) if _is_tag(lines[i], job_id)), None)
    if end is None:
        return None
    begin = next((i for i in range(end - 1, -1, -1) if _TAG.match(lines[i])), None)
    match = _TAG.match(lines[end])
    code = int(match[2]) if match else None
    if begin is None:
        return TaggedOutput("\n".join(lines[:end]), code, exact=False)
    echo = max(1, command.strip("\n").count("\n") + 1)
    body = lines[begin + _echo_lines(lines[begin:end], echo) : end]
    return TaggedOutput("\n".join(body) + ("\n" if body else ""), code)


def _is_tag(line: str, job_id: str) -> bool:
    match = _TAG.match(line)
    return match is not None and match[1] == job_id


def _echo_lines(block: list[str], lines: int) -> int:
    """How many lines at the top of a block are the prompt and the command's echo; long commands are shown in part."""
    for index, line in enumerate(block[:lines]):
        if re.fullmatch(r"\.\.\. \(\d+ more lines\)", line):
            return index + 1
    return min(lines, len(block))
