"""Names and formats of sessions, windows, options and job files. Pure."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from harness.errors import TerminalError
from harness.results import PaneInfo
from harness.target import Target

from ..posix.state_directory import JobRecord, render_record

__all__ = [
    "DEFAULT_PANE",
    "PANE_FORMAT",
    "PaneRow",
    "check_name",
    "command_text",
    "first_named",
    "listed",
    "pane_info",
    "parse_panes",
    "record_text",
    "shown_text",
    "target_label",
]

DEFAULT_PANE = "main"

_LABEL_WORDS = 31
_SHOWN_LINES = 12
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,47}")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters, surrogates, and characters that change the order in which text is displayed."""

PANE_FIELDS = (
    "pane_id",
    "window_id",
    "@harness_pane_id",
    "@harness_pane",
    "@harness_uid",
    "@harness_busy",
    "pane_width",
    "pane_height",
    "pane_tty",
    "pane_pid",
    "pane_current_command",
    "pane_current_path",
)
"""Fields with free text come last, as they may contain a tab or a newline."""
_SURE_FIELDS = len(PANE_FIELDS) - 2
PANE_FORMAT = "\t".join(f"#{{{name}}}" for name in PANE_FIELDS)


@dataclass(frozen=True, slots=True)
class PaneRow:
    """One managed pane as tmux describes it."""

    pane_id: str
    window_id: str
    name: str
    uid: str
    busy: str
    width: int
    height: int
    foreground: str
    cwd: str
    tty: str
    pid: int


def parse_panes(text: str) -> list[PaneRow]:
    """Parse ``list-panes -F PANE_FORMAT``; unmanaged panes are skipped."""
    rows = []
    for line in text.split("\n"):
        values = line.split("\t", len(PANE_FIELDS) - 1)
        if len(values) < _SURE_FIELDS or values[2] != values[0] or not (values[3] and values[4]):
            continue
        foreground, cwd = (*values[_SURE_FIELDS:], "", "")[:2]
        pane_id, window_id, _, name, uid, busy, width, height, tty, pid = values[:_SURE_FIELDS]
        if all(number.isdecimal() for number in (width, height, pid)):
            rows.append(
                PaneRow(pane_id, window_id, name, uid, busy, int(width), int(height), foreground, cwd, tty, int(pid))
            )
    return rows


def first_named(rows: Iterable[PaneRow], name: str) -> PaneRow | None:
    """Return the pane of that name that was created first: tmux's window ids increase."""
    same = (row for row in rows if row.name == name)
    return min(same, key=lambda row: int(row.window_id.removeprefix("@")), default=None)


def pane_info(row: PaneRow, session: str) -> PaneInfo:
    """Return a row for callers."""
    return PaneInfo(
        name=row.name,
        pane_id=row.pane_id,
        session=session,
        default=row.name == DEFAULT_PANE,
        width=row.width,
        height=row.height,
        foreground=row.foreground,
        cwd=row.cwd,
        busy=f"job {row.busy}" if row.busy else "",
    )


def listed(names: Iterable[str]) -> str:
    """List names for the end of a message: ``there are main, bg-1``."""
    known = list(names)
    return f"there {'is' if len(known) == 1 else 'are'} {', '.join(known) or 'none'}"


def target_label(target: Target, identity: str = "") -> str:
    """Return a unique label for a target: up to 40 letters, digits and dashes, with a digest."""
    digest = hashlib.sha256(f"{target}\n{identity}".encode("utf-8", "surrogateescape")).hexdigest()
    words = re.sub(r"[^A-Za-z0-9]+", "-", str(target)).strip("-")[:_LABEL_WORDS].rstrip("-")
    return f"{words}-{digest[:8]}"


def check_name(name: str, what: str) -> str:
    """Check that a name is safe for tmux and shells, and return it.

    Raises:
        TerminalError: the name is invalid.
    """
    if not _NAME.fullmatch(name):
        raise TerminalError(
            f"{name!r} is not a valid name for a {what}", hint="use up to 48 letters, digits, '-' and '_', no first '-'"
        )
    return name


def shown_text(command: str) -> str:
    """Return the displayed text of a command: its first lines, without control characters except NEXT LINE."""
    lines = [_CONTROL.sub("?", line)[:400] for line in command.strip("\n").split("\n")]
    shown, hidden = lines[:_SHOWN_LINES], len(lines) - _SHOWN_LINES
    if hidden > 0:
        shown.append(f"... ({hidden} more lines)")
    return "\x1bE".join(shown)


def record_text(record: JobRecord, kind: str = "") -> str:
    """Return the record in one line, then the command, as the pane's shell reads it when tracing commands."""
    ended = replace(record, command=_ended(record.command, kind))
    return render_record(ended, shown_text(record.command))


def command_text(command: str, kind: str = "") -> str:
    """Return the text that the pane's shell reads; never empty, as tmux does not write empty files."""
    return _ended(command, kind) or "\n"


def _ended(command: str, kind: str) -> str:
    """Add a final newline for mksh 59, which reads out of bounds if an alias is the last word of a file without one."""
    return f"{command}\n" if kind in ("mksh", "ksh") and not command.endswith("\n") else command
