"""What the operator faces before the rest is loaded: the surface, the status line, the history of entries."""

from __future__ import annotations

import json
import os
import shlex
import stat
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from prompt_toolkit.history import History

from ...context import ExecutionContext
from ...system.private_files import make_directories, state_home
from .surface import Line, Span, Surface, folded, line, one_line, printable, theme_for

if TYPE_CHECKING:
    from ...system.background_tasks import BackgroundTasks
    from .editor import Suggestion
    from .screen import ScreenSurface

__all__ = [
    "InputHistory",
    "PromptUI",
    "StatusLine",
    "history_path",
    "status_line",
]


# -- What was entered before: one file for the user alone, a JSON text in each line, the oldest first.


KEPT = 2000
"""Entries; when there are twice as many, the older ones go."""
READ = 8 << 20
"""Bytes at the end of the file that are looked at."""
LONGEST = 20_000
"""Characters of an entry that is kept."""


def history_path(environ: Mapping[str, str] | None = None) -> Path:
    """``$XDG_STATE_HOME/harness/prompt-history``, or below ``~/.local/state``."""
    return state_home(environ) / "prompt-history"


class InputHistory(History):
    """The history of the prompt. What begins with a space is not kept. A file that cannot be had is done without.

    Args:
        redact: takes secrets out of what is kept on the disk; None: nothing can yet, and entries wait.
    """

    def __init__(self, path: Path, redact: Callable[[str], str] | None = str) -> None:
        super().__init__()
        self._path = path
        self._redact = redact
        self._early: list[str] = []

    def redacts(self, redact: Callable[[str], str]) -> None:
        """Take secrets out with ``redact`` from now on, also of what was entered before there was one."""
        self._redact = redact
        early, self._early = self._early, []
        for text in early:
            self.store_string(text)

    def load_history_strings(self) -> Iterable[str]:
        """The entries, the newest first."""
        lines = self._lines()
        if len(lines) > 2 * KEPT:
            self._rewrite(lines[-KEPT:])
        return [text for line in reversed(lines[-KEPT:]) if (text := _entry(line)) is not None]

    def store_string(self, string: str) -> None:
        """Keep an entry."""
        if self._redact is None:
            self._early.append(string)
            return
        text = self._redact(string)
        if not text.strip() or text[0] == " " or len(text) > LONGEST:
            return
        with suppress(OSError):
            make_directories(self._path.parent)
            descriptor = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600)
            try:
                os.fchmod(descriptor, 0o600)
                os.write(descriptor, _line_end(descriptor) + json.dumps(text).encode() + b"\n")
            finally:
                os.close(descriptor)

    def _lines(self) -> list[bytes]:
        try:
            descriptor = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            with open(descriptor, "rb") as file:
                info = os.fstat(descriptor)
                if not stat.S_ISREG(info.st_mode):  # a pipe that nobody writes to would hold up the prompt
                    return []
                file.seek(max(0, info.st_size - READ))
                return file.read(READ).splitlines()
        except OSError:
            return []

    def _rewrite(self, lines: list[bytes]) -> None:
        new = self._path.with_name(f"{self._path.name}.{os.getpid()}")
        with suppress(OSError):
            descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.writelines(line + b"\n" for line in lines)
            new.replace(self._path)


def _line_end(descriptor: int) -> bytes:
    """What ends the last line, of which a full disk may have taken a part only."""
    size = os.fstat(descriptor).st_size
    return b"\n" if size and os.pread(descriptor, 1, size - 1) != b"\n" else b""


def _entry(line: bytes) -> str | None:
    with suppress(ValueError):
        text = json.loads(line)
        return text if isinstance(text, str) else None
    return None


# -- The status line: where commands run, who answers, what it has cost, what may run unasked, what runs. Pure.


@dataclass(frozen=True, slots=True)
class StatusLine:
    """What the status line says. Tokens of 0 and texts that are empty are not known, or do not matter."""

    target: str
    pane: str = ""
    model: str = ""
    doing: str = ""
    context: int = 0
    limit: int = 0
    cost: float | None = None
    approvals: str = "ask"
    remaining: float | None = None
    jobs: int = 0
    queued: int = 0


def status_line(standing: StatusLine, width: int) -> Line:
    """The facts in one line; what does not fit goes, the least important first."""
    facts = [
        (0, one_line(standing.target, 40)),
        (4, one_line(standing.pane, 40)),
        (2, one_line(standing.model, 30) or "no model"),
        (0, one_line(standing.doing, 40)),
        (3, _tokens(standing)),
        (3, "" if standing.cost is None or not standing.context else f"${standing.cost:.2f}"),
        (1, _approvals(standing)),
        (1, f"{standing.jobs} job{'s' if standing.jobs > 1 else ''}" if standing.jobs else ""),
        (1, f"{standing.queued} queued" if standing.queued else ""),
    ]
    kept = [fact for fact in facts if fact[1]]
    while len(_joined(kept)) > width and any(rank for rank, _ in kept):
        kept.remove(max(kept, key=lambda fact: fact[0]))
    return (Span(_joined(kept)[: max(1, width)].ljust(width)),)


def _joined(facts: list[tuple[int, str]]) -> str:
    return f" {' · '.join(text for _, text in facts)}"


def _tokens(standing: StatusLine) -> str:
    if not standing.context:
        return ""
    used = _count(standing.context)
    return f"{used}/{_count(standing.limit)}" if standing.limit else f"{used} tokens"


def _count(tokens: int) -> str:
    return str(tokens) if tokens < 1000 else f"{tokens / 1000:.1f}k" if tokens < 100_000 else f"{tokens // 1000}k"


def _approvals(standing: StatusLine) -> str:
    if standing.approvals == "ask":
        return "asks"
    if standing.remaining is None:
        return "APPROVES ALL" if standing.approvals == "all" else "denies all"
    left = max(0.0, standing.remaining)
    return f"APPROVES ALL {f'{left / 60:.0f} min' if left >= 90 else f'{left:.0f} s'}"


# -- What the operator faces: the surface, and what it needs. It is there before what works behind it is loaded.


class PromptUI:
    """The surface of a prompt on one target.

    ``commands``, which says how a slash command could go on, and ``listing``, in which the target is asked for paths,
    are given to it when they are there; until then nothing is offered.
    """

    def __init__(
        self,
        execution: ExecutionContext,
        terminal: int,
        *,
        plain: bool,
        color: bool,
        accepts_typeahead: Callable[[], bool] = lambda: True,
    ) -> None:
        self._execution = execution
        self.terminal = terminal
        self.color = color
        self._accepts_typeahead = accepts_typeahead
        self.history = InputHistory(history_path(), None)
        self.commands: Callable[[str], Iterable[Suggestion]] = lambda text: ()
        self.listing: BackgroundTasks | None = None
        self.surface: Surface = self._plain() if plain else self._screen()

    def _plain(self) -> Surface:
        from .plain import LineSurface

        return LineSurface(self.terminal)

    def _screen(self) -> ScreenSurface:
        from .editor import PromptCompleter
        from .screen import ScreenSurface

        completer = PromptCompleter(self._completions, self._execution.list_dir, lambda: self.listing)
        theme = theme_for("", color=self.color)
        return ScreenSurface(
            self.terminal,
            theme=theme,
            history=self.history,
            completer=completer,
            accepts_typeahead=self._accepts_typeahead,
        )

    def _completions(self, text: str) -> Iterable[Suggestion]:
        return self.commands(text)

    def warned(self, text: str) -> None:
        """Show a warning of the log."""
        self.surface.show(*(line(Span(f"· {part}", "warn")) for part in printable(text).split("\n")))

    def greet(self) -> None:
        """Say where this is, and how to watch."""
        has_terminal, target = self._execution.has_terminal, str(self._execution.target).removesuffix(":")
        without = "" if has_terminal else ", without tmux: --tmux lets you watch"
        self.surface.show(*folded(line(Span("harness", "title"), f" on {target}{without}"), self.surface.width - 1))
        if has_terminal:
            self.surface.show(line(Span(f"watch: {shlex.join(self._execution.attach_command)}", "dim")))
        self.surface.status(status_line(StatusLine(target=target, doing="starting"), self.surface.width))
