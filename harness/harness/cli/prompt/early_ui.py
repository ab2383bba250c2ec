"""The prompt's UI, usable before the rest is loaded: surface, status line and input history."""

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
from ...system.private_files import make_directories, replace_file, state_home
from ...target import FLEET_SCHEME
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


# -- The input history: one file, readable only by the user, one JSON string per line, oldest first.


KEPT = 2000
"""Number of entries to keep; older ones are removed when there are twice as many."""
READ = 8 << 20
"""Bytes at the end of the file that are read."""
LONGEST = 20_000
"""Maximum number of characters of a stored entry."""


def history_path(environ: Mapping[str, str] | None = None) -> Path:
    """Return the path of the history: ``$XDG_STATE_HOME/harness/prompt-history``, or below ``~/.local/state``."""
    return state_home(environ) / "prompt-history"


class InputHistory(History):
    """The input history of the prompt, without entries that start with a space; file errors are ignored.

    Args:
        path: The file.
        redact: Redacts stored entries; None keeps them in memory until :meth:`redacts` is called.
    """

    def __init__(self, path: Path, redact: Callable[[str], str] | None = str) -> None:
        super().__init__()
        self._path = path
        self._redact = redact
        self._early: list[str] = []

    def redacts(self, redact: Callable[[str], str]) -> None:
        """Redact and store entries with ``redact`` from now on, including those that waited."""
        self._redact = redact
        early, self._early = self._early, []
        for text in early:
            self.store_string(text)

    def load_history_strings(self) -> Iterable[str]:
        """Return the entries, newest first."""
        lines = self._lines()
        if len(lines) > 2 * KEPT:
            self._rewrite(lines[-KEPT:])
        return [text for line in reversed(lines[-KEPT:]) if (text := _entry(line)) is not None]

    def store_string(self, string: str) -> None:
        """Store an entry."""
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
                if not stat.S_ISREG(info.st_mode):  # a pipe without a writer would block the prompt
                    return []
                file.seek(max(0, info.st_size - READ))
                return file.read(READ).splitlines()
        except OSError:
            return []

    def _rewrite(self, lines: list[bytes]) -> None:
        with suppress(OSError):
            replace_file(self._path, b"".join(line + b"\n" for line in lines))


def _line_end(descriptor: int) -> bytes:
    """Return a line feed if the last line is incomplete, as after a full disk."""
    size = os.fstat(descriptor).st_size
    return b"\n" if size and os.pread(descriptor, 1, size - 1) != b"\n" else b""


def _entry(line: bytes) -> str | None:
    with suppress(ValueError):
        text = json.loads(line)
        return text if isinstance(text, str) else None
    return None


# -- The status line. Pure.


@dataclass(frozen=True, slots=True)
class StatusLine:
    """The facts of the status line; 0 tokens and empty texts are unknown or irrelevant."""

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
    """Return the facts in one line, omitting the least important ones that do not fit."""
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


# -- The UI: the surface and what it needs, available before the rest of the prompt is loaded.


class PromptUI:
    """The surface of a prompt on one target.

    ``commands``, which completes slash commands, and ``listing``, the tasks that ask the target for paths, are set
    later; until then there are no completions.
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
        from .line_mode import LineSurface

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
        """Show a log record."""
        self.surface.show(*(line(Span(f"· {part}", "warn")) for part in printable(text).split("\n")))

    def _beside_panes(self) -> str:
        if self._execution.has_panes:
            return "with the panes of your own tmux: harness lend PANE lets the agent type into one"
        return "without tmux: --tmux lets you watch"

    def greet(self) -> None:
        """Show the target and how to watch it."""
        has_terminal, target = self._execution.has_terminal, str(self._execution.target).removesuffix(":")
        without = "" if has_terminal else f", {self._beside_panes()}"
        where = (
            self._execution.describe() if self._execution.target.last.scheme == FLEET_SCHEME else f"{target}{without}"
        )
        self.surface.show(*folded(line(Span("harness", "title"), f" on {where}"), self.surface.width - 1))
        if has_terminal:
            self.surface.show(line(Span(f"watch: {shlex.join(self._execution.attach_command)}", "dim")))
        self.surface.status(status_line(StatusLine(target=target, doing="starting"), self.surface.width))
