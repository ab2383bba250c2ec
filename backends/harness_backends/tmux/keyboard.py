"""What is typed into a pane, as tmux commands. Pure.

Everything is pasted from a buffer. ``send-keys`` would give it to the mode that an operator has put the pane in (copy
mode, a list, the clock), and ``synchronize-panes`` would give it to the other panes of the window as well;
``paste-buffer`` writes to the program in this pane alone.
"""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Iterable
from dataclasses import dataclass

from .control_protocol import control_line
from .keys import KeyBytes
from .version import TmuxVersion

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
"""C-u C-e C-u: empties the line that the shell reads. The first ends what a person has typed of a sequence, as C-x: C-e
would open an editor then."""
EMPTY = "\x1b[7733~"
"""A key that no keyboard has; the hooks of zsh and fish bind it to clearing all lines of the editor."""
INTERRUPT = "\x03"
"""C-c."""
_VI_KINDS = frozenset({"bash", "zsh", "mksh"})
"""Shells whose vi mode deletes the line by ``Escape 0 D`` and types again after ``i``."""
_LINE = " hx\r"
_FISH_LINE = " hxa; eval $hxf; hxd\r"


@dataclass(frozen=True, slots=True)
class SavedFile:
    """A file on the target. ``text`` holds no NUL."""

    path: str
    text: str

    def commands(self) -> list[tuple[str, ...]]:
        """Write it through the control client."""
        # Buffers are the server's, and save-buffer lets other clients go first: no two files may share a name.
        buffer = f"hx{hashlib.sha256(self.path.encode('utf-8', 'surrogateescape')).hexdigest()[:16]}"
        return [
            ("set-buffer", "-b", buffer, "--", self.text),
            ("save-buffer", "-b", buffer, self.path),
            ("delete-buffer", "-b", buffer),
        ]


def unlock(pane: str) -> tuple[str, ...]:
    """Let keys through to the pane; while it is locked a paste is lost too."""
    return ("select-pane", "-t", pane, "-e")


def type_text(version: TmuxVersion, pane: str, text: str, folder: str = "") -> list[tuple[str, ...]]:
    """Type characters, whatever mode the pane is in.

    Args:
        folder: a directory of ours where tmux runs, for a text that holds NUL: tmux takes no such argument.
    """
    paste, steps = ("paste-buffer", "-d", *version.paste_flags, "-t", pane), []
    buffer = f"hxk{pane[1:]}"  # set and pasted in one step of the server: no other client comes between
    for number, piece in enumerate(text.split("\0")):
        if number:
            path = f"{folder}/nul"
            write = f"umask 077; printf '\\000' >{shlex.quote(path)}".replace("#", "##")
            steps += [("run-shell", write), ("load-buffer", "-b", buffer, path), (*paste, "-b", buffer)]
        if piece:
            steps += [("set-buffer", "-b", buffer, "--", piece), (*paste, "-b", buffer)]
    return steps


def type_keys(version: TmuxVersion, pane: str, keys: Iterable[KeyBytes], folder: str) -> list[tuple[str, ...]]:
    """Type keys; the bytes of some of them depend on the terminal's mode, which tmux knows."""
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
    """What empties the editor of a shell of this kind, with the cursor anywhere in what it holds.

    In emacs mode the additions do nothing that the end of it does not undo: ``M-0 D`` types no D, and fish has no
    ``M-S``. In vi mode they delete the whole line and go to insert mode. busybox loses what follows an Escape. One line
    of several is all that C-u means to zsh and fish; bash and mksh hold several lines as one.
    """
    if kind == "fish":
        return f"\x15{EMPTY}\x1bS\x1b[F\x15"
    return f"\x15{EMPTY if kind == 'zsh' else ''}\x1b0Di\x05\x15" if kind in _VI_KINDS else CLEAR


@dataclass(frozen=True, slots=True)
class Dispatch:
    """What to type into which pane: a job's slot, or whole lines in a nested shell; ``lock`` locks the keyboard."""

    version: TmuxVersion
    pane: str
    place: tuple[str, ...]
    """Where its options are kept, for ``set-option``."""
    job_id: str
    kind: str
    slot: SavedFile | None = None
    lines: tuple[str, ...] = ()
    lock: bool = True
    script: str = ""
    """What the tmux server runs before it types: a plain client would write the slot later than the keys arrive."""

    reserved: bool = False
    """The pane is held for this job already; see :meth:`reserve`."""
    known: str = "1"
    """A format, true while the pane runs the known program; see :mod:`.replaced`."""
    ours: str = ""
    """A format, true if harness started the pane's program."""

    @property
    def slot_path(self) -> str:
        """Where the slot is."""
        return self.slot.path if self.slot is not None else ""

    def command(self) -> tuple[str, ...]:
        """The command that types it unless somebody else holds the pane; then it prints ``busy:HOLDER``.

        When the pane has another first process than the one that is known it prints ``other:OURS:PID:TTY``.

        The test and the typing are one step of the tmux server, so two harnesses cannot both pass. When the client dies
        the server forgets the rest, though: ``@harness_typed`` names the job whose keys are all that may have followed.
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
        """The command that takes the pane for the job, and types nothing; else it prints what :meth:`command` does."""
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
    """Commands as one word of another command, such as ``if-shell``."""
    return control_line(*commands).decode("utf-8", "surrogateescape").rstrip("\n")
