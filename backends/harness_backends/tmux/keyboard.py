"""What is typed into a pane to run a job there, as tmux commands. Pure."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from .protocol import control_line

__all__ = ["BUSY", "Dispatch", "SavedFile", "leave_modes", "next_log", "release", "slot_text", "type_text"]

BUSY = "busy:"
_PIECE = 8000
_FISH_LINE = " hxa; eval $hxf; hxd"


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
            ("set-buffer", "-b", buffer, self.text),
            ("save-buffer", "-b", buffer, self.path),
            ("delete-buffer", "-b", buffer),
        ]


def type_text(pane: str, text: str) -> list[tuple[str, ...]]:
    """Type characters; long text in pieces, since one argument of send-keys ends at 16 kB."""
    pieces = [text[start : start + _PIECE] for start in range(0, len(text), _PIECE)]
    return [("send-keys", "-t", pane, "-l", "--", piece) for piece in pieces]


def slot_text(job_id: str, suffix: str = "") -> str:
    """What the slot of a pane holds: which of the job's files its shell is to read next."""
    return f"{job_id} {suffix}".rstrip() + "\n"


@dataclass(frozen=True, slots=True)
class Dispatch:
    """What to type where: a job's slot, or, in a nested shell, whole lines. ``lock``: keep the operator's keys out."""

    pane: str
    place: tuple[str, ...]
    """Where its options are kept, for ``set-option``."""
    job_id: str
    kind: str
    slot: str = ""
    suffix: str = ""
    lines: tuple[str, ...] = ()
    lock: bool = True
    quits: bool = True
    """This tmux has ``copy-mode -q``."""
    script: str = ""
    """What the tmux server runs before it types: a plain client would write the slot later than the keys arrive."""

    def command(self) -> tuple[str, ...]:
        """The command that types it unless somebody else holds the pane; then it prints ``busy:HOLDER``.

        The test and the typing are one step of the tmux server, so two harnesses cannot both pass. When the client dies
        the server forgets the rest, though: ``@harness_typed`` names the job whose keys are all that may have followed.
        """
        steps: list[tuple[str, ...]] = [
            ("set-option", *self.place, "@harness_busy", self.job_id),
            *leave_modes(self.pane, quits=self.quits),
            ("select-pane", "-t", self.pane, "-e"),
            ("set-option", "-w", "-u", "-t", self.pane, "@harness_unlocked"),
            *self._keys(),
        ]
        if self.lock:
            steps.append(("select-pane", "-t", self.pane, "-d"))
        told = _nested(("display-message", "-p", "-t", self.pane, f"{BUSY}#{{@harness_busy}}"))
        return ("if-shell", "-F", "-t", self.pane, "#{@harness_busy}", told, _nested(*steps))

    def again(self) -> list[tuple[str, ...]]:
        """The commands that type it once more into a pane that is ours."""
        lock = [("select-pane", "-t", self.pane, "-d")] if self.lock else []
        return [("select-pane", "-t", self.pane, "-e"), *self._keys(), *lock]

    def _keys(self) -> list[tuple[str, ...]]:
        clear, enter = ("send-keys", "-t", self.pane, "C-e", "C-u"), ("send-keys", "-t", self.pane, "Enter")
        typed = ("set-option", *self.place, "@harness_typed", self.job_id)
        if self.lines:
            return [typed, *(key for line in self.lines for key in (clear, *type_text(self.pane, line), enter))]
        slot = SavedFile(self.slot, slot_text(self.job_id, self.suffix)).commands() if self.slot else []
        if self.script:
            slot = [("run-shell", self.script.replace("#", "##"))]
        if self.kind == "fish":  # it has no aliases
            return [*slot, typed, clear, *type_text(self.pane, _FISH_LINE), enter]
        return [*slot, typed, (*clear, "Space", "h", "x", "Enter")]


def leave_modes(pane: str, *, quits: bool) -> list[tuple[str, ...]]:
    """Leave whatever mode an operator has put the pane in: scrolling, a menu, the clock. Keys would go there.

    Args:
        quits: this tmux has ``copy-mode -q``; without it two modes, one over the other, are left at most.
    """
    if quits:
        return [("copy-mode", "-q", "-t", pane)]
    cancel, press = ("send-keys", "-t", pane, "-X", "cancel"), ("send-keys", "-t", pane, "q")
    one = ("if-shell", "-F", "-t", pane, "#{==:#{pane_mode},copy-mode}", _nested(cancel), _nested(press))
    return [("if-shell", "-F", "-t", pane, "#{pane_in_mode}", _nested(one))] * 2


def release(pane: str, place: tuple[str, ...], holder: str) -> list[tuple[str, ...]]:
    """Give the pane back for one holder: the operator's keyboard works again. Nothing when another holds it."""
    of_before = ("set-option", "-w", "-u", "-t", pane, "@harness_busy")  # earlier versions kept it with the window
    steps = (("set-option", "-u", *place, "@harness_busy"), of_before, ("select-pane", "-t", pane, "-e"))
    return [("if-shell", "-F", "-t", pane, f"#{{==:#{{@harness_busy}},{holder}}}", _nested(*steps))]


def next_log(pane: str, writer: str) -> tuple[str, ...]:
    """Have another program write the pane's output; prints ``busy:HOLDER`` instead when somebody holds the pane."""
    told = _nested(("display-message", "-p", "-t", pane, f"{BUSY}#{{@harness_busy}}"))
    return ("if-shell", "-F", "-t", pane, "#{@harness_busy}", told, _nested(("pipe-pane", "-t", pane, writer)))


def _nested(*commands: tuple[str, ...]) -> str:
    return control_line(*commands).decode("utf-8", "surrogateescape").rstrip("\n")
