"""A pane's screen and scrollback: options of ``capture-pane``, and search for jobs by prompt tags. Pure."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from harness.command import Capture
from harness.errors import UnsupportedOperation

from ..naming import shown_text
from ..version import TmuxVersion

__all__ = ["TaggedOutput", "capture_command", "captured_text", "extract_running", "extract_tagged"]

_TAG = re.compile(r"\[harness (\d+): (-?\d+)\] ")


def capture_command(pane: str, request: Capture, version: TmuxVersion) -> tuple[str, ...]:
    """Return the ``capture-pane`` command for a request.

    Raises:
        UnsupportedOperation: this tmux keeps trailing spaces in joined lines only.
    """
    if request.preserve_trailing_spaces and not (version.keeps_spaces or request.join_wrapped_lines):
        raise UnsupportedOperation(
            f"tmux {version} does not keep trailing spaces in lines as they are wrapped",
            hint="join the wrapped lines, or use tmux 3.1 or newer",
        )
    command = ["capture-pane", "-p", "-t", pane]
    flags = (
        ("-J", request.join_wrapped_lines),
        ("-N", request.preserve_trailing_spaces and version.keeps_spaces),
        ("-e", request.include_escape_sequences),
        ("-C", request.escape_non_printable),
    )
    command += [flag for flag, wanted in flags if wanted]
    command += _bound("-S", request.start) + _bound("-E", request.end)
    if request.include_alternate_screen:
        command += ["-a", "-q"]
    return tuple(command)


def captured_text(text: str, request: Capture, version: TmuxVersion) -> str:
    """Return the captured text, without the padding blanks that tmux before 3.3 adds to joined lines."""
    if not version.pads_captures or request.preserve_trailing_spaces:
        return text
    return re.sub(r" +$", "", text, flags=re.MULTILINE)


def _bound(flag: str, value: int | Literal["-"] | None) -> list[str]:
    return [] if value is None else [flag, str(value)]


@dataclass(frozen=True, slots=True)
class TaggedOutput:
    """A job's text between two tags in the scrollback; ``exact`` is False if it may contain more or less."""

    text: str
    exit_code: int | None
    exact: bool = True


@dataclass(frozen=True, slots=True)
class _Tag:
    """A tag, or output that looks like one: its position, and the text before and after it on its line."""

    line: int
    job: str
    code: int
    before: str
    after: str


def extract_tagged(screen: str, job_id: str, command: str, width: int = 0) -> TaggedOutput | None:
    """Find a job in a joined capture of the whole scrollback, by the visible tags only.

    The tag ``[harness 7: 0]`` is part of the prompt that follows job 7. Its output is the text between the echo of the
    command, on and below the prompt before it, and the first such tag. Returns None without such a tag.

    A last line without newline is recognized by the blanks that fill it up to ``width``, the columns of the pane.
    Output that imitates tags makes the result inexact, unless it is indistinguishable from real ones.
    """
    lines = screen.split("\n")
    tags = [_tag(index, match) for index, line in enumerate(lines) for match in _TAG.finditer(line)]
    echo = [_flat(line) for line in shown_text(command).split("\x1bE")]
    starts = [tag for tag in tags if tag.job != job_id and _echoes(lines, tag, echo)]
    starts = [tag for tag in starts if any(end.job == job_id and end.line >= tag.line + len(echo) for end in tags)]
    if not starts:
        return _by_tags_only(lines, tags, job_id, width)
    start = starts[-1]
    end = _end(tags, job_id, start.line + len(echo), _prompt(start, echo[0]))
    between = [tag for tag in tags if start.line < tag.line < end.line]
    ids = [int(tag.job) for tag in starts]
    exact = not between and all(first < second for first, second in pairwise(ids))
    return TaggedOutput(_text(lines[start.line + len(echo) : end.line], end, width), end.code, exact)


def extract_running(screen: str, command: str) -> str:
    """Return the output of a running command: the text below its echo; empty if the echo is not found."""
    lines = screen.split("\n")
    tags = [_tag(index, match) for index, line in enumerate(lines) for match in _TAG.finditer(line)]
    echo = [_flat(line) for line in shown_text(command).split("\x1bE")]
    starts = [tag for tag in tags if _echoes(lines, tag, echo)]
    if not starts:
        return ""
    body = "\n".join(lines[starts[-1].line + len(echo) :]).rstrip("\n")
    return f"{body}\n" if body else ""


def _tag(index: int, match: re.Match[str]) -> _Tag:
    return _Tag(index, match[1], int(match[2]), match.string[: match.start()], match.string[match.end() :])


def _flat(text: str) -> str:
    """Replace tabs by blanks like a terminal, and strip trailing blanks."""
    return " ".join(text.split())


def _echoes(lines: list[str], tag: _Tag, echo: list[str]) -> bool:
    """Return True if the echo of the command follows the prompt with this tag."""
    below = lines[tag.line + 1 : tag.line + len(echo)]
    return _flat(tag.after).endswith(echo[0]) and [_flat(line) for line in below] == echo[1:]


def _prompt(start: _Tag, echo: str) -> str:
    """Return the user's own prompt between the tag and the echo."""
    return _flat(start.after)[: -len(echo) or None].rstrip()


def _end(tags: list[_Tag], job_id: str, line: int, prompt: str) -> _Tag:
    """Return the job's first tag from ``line`` on with the same prompt as the one before, else its first tag."""
    ends = [tag for tag in tags if tag.job == job_id and tag.line >= line]
    return next((tag for tag in ends if _flat(tag.after).startswith(prompt)), ends[0])


def _by_tags_only(lines: list[str], tags: list[_Tag], job_id: str, width: int) -> TaggedOutput | None:
    """Find the output without the echo, which was cleared, scrolled away, or typed in another form."""
    index = next((index for index, tag in enumerate(tags) if tag.job == job_id), None)
    if index is None:
        return None
    start = tags[index - 1].line + 1 if index else 0
    return TaggedOutput(_text(lines[start : tags[index].line], tags[index], width), tags[index].code, exact=False)


def _text(body: list[str], end: _Tag, width: int) -> str:
    """Join the lines of the output with the text before the tag: a last line without newline.

    The hooks, or zsh and fish by themselves, fill such a line up with blanks, and the prompt stands below; fish puts a
    mark before the blanks. The capture joins the two lines unless the prompt was written again.
    """
    before = end.before
    if not before and body and body[-1].endswith(" ") and width and _columns(body[-1]) % width == 0:
        before = body.pop()
    return "".join(f"{line}\n" for line in body) + re.sub("\N{RETURN SYMBOL}? *\\Z", "", before)


def _columns(line: str) -> int:
    """Return the number of columns of a line on the screen."""
    return sum((unicodedata.east_asian_width(char) in "WF") + (not unicodedata.combining(char)) for char in line)
