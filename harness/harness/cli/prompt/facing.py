"""What the operator faces: the surface, and what it needs. It is there before what works behind it is loaded."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from ...context import ExecutionContext
from .history import EnteredBefore, history_path
from .printable import printable
from .statusline import Standing, status_line
from .surface import Surface
from .themes import Span, folded, line, theme_for

if TYPE_CHECKING:
    from ...tasks import BackgroundTasks
    from .completing import Suggested
    from .screen import Screen

__all__ = ["Facing"]


class Facing:
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
        takes_blind: Callable[[], bool] = lambda: True,
    ) -> None:
        self._execution = execution
        self.terminal = terminal
        self.color = color
        self._takes_blind = takes_blind
        self.history = EnteredBefore(history_path(), None)
        self.commands: Callable[[str], Iterable[Suggested]] = lambda text: ()
        self.listing: BackgroundTasks | None = None
        self.surface: Surface = self._plain() if plain else self._screen()

    def _plain(self) -> Surface:
        from .plain import Plain

        return Plain(self.terminal)

    def _screen(self) -> Screen:
        from .completing import PromptCompleter
        from .screen import Screen

        completer = PromptCompleter(self._completions, self._execution.list_dir, lambda: self.listing)
        theme = theme_for("", color=self.color)
        return Screen(
            self.terminal,
            theme=theme,
            history=self.history,
            completer=completer,
            takes_blind=self._takes_blind,
        )

    def _completions(self, text: str) -> Iterable[Suggested]:
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
        self.surface.status(status_line(Standing(target=target, doing="starting"), self.surface.width))
