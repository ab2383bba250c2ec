"""Names and formats that the engine and people see: sessions, windows, options, the text of job files. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from harness.errors import TerminalError

from ..posix.state import JobRecord, render_record

__all__ = [
    "DEFAULT_PANE",
    "PANE_FORMAT",
    "PaneRow",
    "check_name",
    "parse_panes",
    "record_text",
    "shown_text",
]

DEFAULT_PANE = "main"

_SHOWN_LINES = 12
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,47}")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")

PANE_FIELDS = (
    "pane_id",
    "window_id",
    "@harness_pane_id",
    "@harness_pane",
    "@harness_uid",
    "@harness_busy",
    "pane_width",
    "pane_height",
    "pane_current_command",
    "pane_current_path",
    "pane_tty",
    "pane_pid",
)
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
    """Read ``list-panes -F PANE_FORMAT``; panes that we did not create are left out."""
    rows = []
    for line in text.splitlines():
        values = line.split("\t")
        if len(values) != len(PANE_FIELDS):
            continue
        pane_id, window_id, owned, name, uid, busy, width, height, foreground, cwd, tty, pid = values
        if owned == pane_id and name and uid:
            rows.append(
                PaneRow(pane_id, window_id, name, uid, busy, int(width), int(height), foreground, cwd, tty, int(pid))
            )
    return rows


def check_name(name: str, what: str) -> str:
    """A name that tmux, a shell and a person read alike.

    Raises:
        TerminalError: it is not one.
    """
    if not _NAME.fullmatch(name):
        raise TerminalError(
            f"{name!r} is not a name for a {what}", hint="use up to 48 letters, digits, '-' and '_', no first '-'"
        )
    return name


def shown_text(command: str) -> str:
    """What people see of a command: its first lines, without anything that a terminal would act on but NEXT LINE."""
    lines = [_CONTROL.sub("?", line)[:400] for line in command.strip("\n").split("\n")]
    shown, hidden = lines[:_SHOWN_LINES], len(lines) - _SHOWN_LINES
    if hidden > 0:
        shown.append(f"... ({hidden} more lines)")
    return "\x1bE".join(shown)


def record_text(record: JobRecord) -> str:
    """The file that the pane's shell reads: the record in one line, then the command."""
    return render_record(record, shown_text(record.command))
