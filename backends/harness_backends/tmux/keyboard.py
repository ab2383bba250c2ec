"""What is typed into a pane to run a job there, as tmux commands. Pure."""

from __future__ import annotations

import shlex

from .protocol import control_line
from .setup import fish_quote

__all__ = ["BUSY", "dispatch", "release", "save_file", "script_line", "type_text"]

BUSY = "busy:"
_PIECE = 8000


def script_line(kind: str, job_id: str, suffix: str = "sh") -> str:
    """The line that runs a job's file in a shell of this kind. The shell replaces it on the screen by the command."""
    words = f" hx {job_id}" if suffix == "sh" else f" hx {job_id} {suffix}"
    if kind == "fish":
        return f"{words}; source $hxf; hxd"
    if kind == "zsh":  # an interrupt ends the list, and zsh then writes its end-of-line mark before any hook
        return f'{words}; {{ . "$hxf" }} always {{ {{ hxd; }} 2>/dev/null }}'
    return f'{words}; . "$hxf"; {{ hxd; }} 2>/dev/null'


def eval_line(kind: str, job_id: str, command: str) -> str:
    """As :func:`script_line`, with the command in the line, for a shell that cannot read our files."""
    if kind == "fish":
        return f" hx {job_id}; eval {fish_quote('hxc' + chr(10) + command)}; hxd"
    return f" hx {job_id}; eval {shlex.quote('hxc' + chr(10) + command)}; {{ hxd; }} 2>/dev/null"


def save_file(path: str, text: str, buffer: str) -> list[tuple[str, ...]]:
    """Write a file on the target through the control client."""
    return [
        ("set-buffer", "-b", buffer, text),
        ("save-buffer", "-b", buffer, path),
        ("delete-buffer", "-b", buffer),
    ]


def type_text(pane: str, text: str) -> list[tuple[str, ...]]:
    """Type characters; long text in pieces, since one argument of send-keys ends at 16 kB. A final ``;`` survives."""
    pieces = [text[start : start + _PIECE] for start in range(0, len(text), _PIECE)]
    return [("send-keys", "-t", pane, "-l", "--", _last_semicolon(piece)) for piece in pieces]


def _last_semicolon(piece: str) -> str:
    return f"{piece[:-1]}\\;" if piece.endswith(";") else piece


def dispatch(pane: str, window: str, job_id: str, line: str, *, lock: bool) -> tuple[str, ...]:
    """The command that types ``line`` unless somebody else holds the pane; then it prints ``busy:HOLDER``.

    The test and the typing are one step of the tmux server, so two harnesses cannot both pass.
    """
    steps: list[tuple[str, ...]] = [
        ("set-option", "-w", "-t", window, "@harness_busy", job_id),
        ("if-shell", "-F", "-t", pane, "#{pane_in_mode}", _nested(("send-keys", "-t", pane, "-X", "cancel"))),
        ("select-pane", "-t", pane, "-e"),
        ("send-keys", "-t", pane, "C-e", "C-u"),
        *type_text(pane, line),
        ("send-keys", "-t", pane, "Enter"),
    ]
    if lock:
        steps.append(("select-pane", "-t", pane, "-d"))
    told = _nested(("display-message", "-p", "-t", pane, f"{BUSY}#{{@harness_busy}}"))
    return ("if-shell", "-F", "-t", pane, "#{@harness_busy}", told, _nested(*steps))


def release(pane: str, window: str) -> list[tuple[str, ...]]:
    """Give the pane back: no holder, and the operator's keyboard works."""
    return [("set-option", "-w", "-u", "-t", window, "@harness_busy"), ("select-pane", "-t", pane, "-e")]


def _nested(*commands: tuple[str, ...]) -> str:
    return control_line(*commands).decode("utf-8", "surrogateescape").rstrip("\n")
