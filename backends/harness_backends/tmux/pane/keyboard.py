"""The tmux commands that type into a pane. Pure.

Everything is pasted from a buffer: ``send-keys`` would act on the pane's mode (copy mode, a list, the clock), and with
``synchronize-panes`` on the other panes of the window too; ``paste-buffer`` writes to the program in this pane only.
"""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Iterable
from dataclasses import dataclass

from ..channel.control_protocol import control_line
from ..version import TmuxVersion
from .key_bytes import KeyBytes

__all__ = [
    "BUSY",
    "CLEAR",
    "INTERRUPT",
    "OTHER",
    "Dispatch",
    "SavedFile",
    "as_one",
    "next_log",
    "release",
    "type_keys",
    "type_text",
    "unlock",
]

BUSY = "busy:"
OTHER = "other:"
CLEAR = "\x15\x05\x15"
"""C-u C-e C-u: clears the line that the shell reads.

The first C-u ends a key sequence that an operator has started, such as C-x: C-e would open an editor then.
"""
EMPTY = "\x1b[7733~"
"""A key that does not exist on keyboards; the hooks of zsh and fish bind it to clearing all lines of the editor."""
INTERRUPT = "\x03"
"""C-c."""
_VI_KINDS = frozenset({"bash", "zsh", "mksh"})
"""Shells whose vi mode deletes the line with ``Escape 0 D`` and returns to insert mode with ``i``."""
_LINE = " hx\r"
_FISH_LINE = " hxa; eval $hxf; hxd\r"


@dataclass(frozen=True, slots=True)
class SavedFile:
    """A file on the target; ``text`` must not contain NUL."""

    path: str
    text: str

    def commands(self) -> list[tuple[str, ...]]:
        """Return the tmux commands that write the file."""
        # Buffers belong to the server, and save-buffer lets other clients run first, so buffer names must be unique.
        buffer = f"hx{hashlib.sha256(self.path.encode('utf-8', 'surrogateescape')).hexdigest()[:16]}"
        return [
            ("set-buffer", "-b", buffer, "--", self.text),
            ("save-buffer", "-b", buffer, self.path),
            ("delete-buffer", "-b", buffer),
        ]


def unlock(pane: str) -> tuple[str, ...]:
    """Return the command that enables input of the pane; a locked pane drops pasted text too."""
    return ("select-pane", "-t", pane, "-e")


def type_text(version: TmuxVersion, pane: str, text: str, folder: str = "") -> list[tuple[str, ...]]:
    """Return the commands that type characters, independently of the pane's mode.

    Args:
        folder: a directory of harness where tmux runs, for text with NUL, which tmux does not accept as argument.
    """
    paste, steps = ("paste-buffer", "-d", *version.paste_flags, "-t", pane), []
    buffer = f"hxk{pane[1:]}"  # set and pasted in one step of the server, without other clients in between
    for number, piece in enumerate(text.split("\0")):
        if number:
            path = f"{folder}/nul"
            write = f"umask 077; printf '\\000' >{shlex.quote(path)}".replace("#", "##")
            steps += [("run-shell", write), ("load-buffer", "-b", buffer, path), (*paste, "-b", buffer)]
        if piece:
            steps += [("set-buffer", "-b", buffer, "--", piece), (*paste, "-b", buffer)]
    return steps


def type_keys(version: TmuxVersion, pane: str, keys: Iterable[KeyBytes], folder: str) -> list[tuple[str, ...]]:
    """Return the commands that type keys; the bytes of some depend on the terminal's mode, which tmux knows."""
    steps, plain = [], ""
    for key in keys:
        if not key.mode:
            plain += key.normal
            continue
        either = (as_one(*type_text(version, pane, text)) for text in (key.application, key.normal))
        steps += [*type_text(version, pane, plain, folder), ("if-shell", "-F", "-t", pane, f"#{{{key.mode}}}", *either)]
        plain = ""
    return [*steps, *type_text(version, pane, plain, folder)]


def clear_line(kind: str) -> str:
    """Return the keys that clear the line editor of a shell of this kind, with the cursor at any position.

    In emacs mode the additional keys have no lasting effect: ``M-0 D`` types no D, and fish has no ``M-S``. In vi mode
    they delete the line and return to insert mode. busybox drops the keys after an Escape. In zsh and fish C-u clears
    one of several lines; bash and mksh keep several lines as one.
    """
    if kind == "fish":
        return f"\x15{EMPTY}\x1bS\x1b[F\x15"
    return f"\x15{EMPTY if kind == 'zsh' else ''}\x1b0Di\x05\x15" if kind in _VI_KINDS else CLEAR


@dataclass(frozen=True, slots=True)
class Dispatch:
    """The input to type into a pane: a job's slot, or whole lines in a nested shell; ``lock`` locks the keyboard."""

    version: TmuxVersion
    pane: str
    place: tuple[str, ...]
    """The arguments of ``set-option`` that select where the pane's options are stored."""
    job_id: str
    kind: str
    slot: SavedFile | None = None
    lines: tuple[str, ...] = ()
    lock: bool = True
    script: str = ""
    """A script with which the tmux server fills the slot, as a client without control mode may do so after the keys."""

    reserved: bool = False
    """True if the pane is already held for this job; see :meth:`reserve`."""
    known: str = "1"
    """A format, true while the pane runs the known program; see :mod:`.respawn_check`."""
    ours: str = ""
    """A format, true if harness started the pane's program."""

    @property
    def slot_path(self) -> str:
        """The path of the slot; empty without one."""
        return self.slot.path if self.slot is not None else ""

    def command(self) -> tuple[str, ...]:
        """Return the command that types the input, or prints ``busy:HOLDER`` if the pane is held.

        It prints ``other:OURS:PID:TTY`` if the pane's first process is not the known one.

        The test and the typing are one step of the tmux server, so two harnesses cannot both pass. If the client exits,
        the server drops the rest: ``@harness_typed`` names the job of which keys may have been typed.
        """
        steps: list[tuple[str, ...]] = [
            ("set-option", *self.place, "@harness_busy", self.job_id),
            unlock(self.pane),
            ("set-option", "-w", "-u", "-t", self.pane, "@harness_unlocked"),
            *self._keys(),
        ]
        if self.lock:
            steps.append(("select-pane", "-t", self.pane, "-d"))
        return self._unless_held(*steps)

    def reserve(self) -> tuple[str, ...]:
        """Return the command that reserves the pane without typing; its output is that of :meth:`command`."""
        return self._unless_held(("set-option", *self.place, "@harness_busy", self.job_id))

    def _unless_held(self, *steps: tuple[str, ...]) -> tuple[str, ...]:
        held = f"#{{!=:#{{@harness_busy}},{self.job_id}}}" if self.reserved else "#{@harness_busy}"
        other = f"{OTHER}{self.ours}:#{{pane_pid}}:#{{pane_tty}}"
        answer = f"#{{?{self.known},{BUSY}#{{@harness_busy}},{other}}}"
        told = as_one(("display-message", "-p", "-t", self.pane, answer))
        return ("if-shell", "-F", "-t", self.pane, f"#{{?{self.known},{held},1}}", told, as_one(*steps))

    def again(self) -> list[tuple[str, ...]]:
        """Return the commands that type it again into a reserved pane."""
        lock = [("select-pane", "-t", self.pane, "-d")] if self.lock else []
        return [unlock(self.pane), *self._keys(), *lock]

    def _keys(self) -> list[tuple[str, ...]]:
        typed = ("set-option", *self.place, "@harness_typed", self.job_id)
        if self.lines:
            lines = "".join(f"{clear_line(self.kind)}{line}\r" for line in self.lines)
            return [typed, *type_text(self.version, self.pane, lines)]
        slot = self.slot.commands() if self.slot else []
        if self.script:
            slot = [("run-shell", self.script.replace("#", "##"))]
        line = _FISH_LINE if self.kind == "fish" else _LINE  # fish has no aliases
        return [*slot, typed, *type_text(self.version, self.pane, f"{clear_line(self.kind)}{line}")]


def release(pane: str, place: tuple[str, ...], holder: str, outer: str = "") -> list[tuple[str, ...]]:
    """Return the commands that release a pane from one holder, and unlock the keyboard.

    Args:
        outer: the job that started the shell in which the holder ran; it holds the pane again.
    """
    if outer:
        handed = as_one(("set-option", *place, "@harness_busy", outer), unlock(pane))
        return [("if-shell", "-F", "-t", pane, f"#{{==:#{{@harness_busy}},{holder}}}", handed)]
    of_before = ("set-option", "-w", "-u", "-t", pane, "@harness_busy")  # earlier versions kept it with the window
    steps = (("set-option", "-u", *place, "@harness_busy"), of_before, unlock(pane))
    return [("if-shell", "-F", "-t", pane, f"#{{==:#{{@harness_busy}},{holder}}}", as_one(*steps))]


def next_log(pane: str, writer: str) -> tuple[str, ...]:
    """Return the command that changes the log writer; it prints ``busy:HOLDER`` if the pane is held."""
    told = as_one(("display-message", "-p", "-t", pane, f"{BUSY}#{{@harness_busy}}"))
    return ("if-shell", "-F", "-t", pane, "#{@harness_busy}", told, as_one(("pipe-pane", "-t", pane, writer)))


def as_one(*commands: tuple[str, ...]) -> str:
    """Return commands as one argument of another command, such as ``if-shell``."""
    return control_line(*commands).decode("utf-8", "surrogateescape").rstrip("\n")
