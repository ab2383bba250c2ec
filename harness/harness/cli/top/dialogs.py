"""The dialogs of the dashboard: confirm, approve, give a reason, change a call, follow output, the keys."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import Any, ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Input, Log, Static, TextArea

from ...errors import HarnessError
from ..prompt.surface import output_lines

__all__ = ["ChangeDialog", "ConfirmDialog", "OutputScreen", "ReasonDialog", "TextDialog"]


class TextDialog(ModalScreen[bool]):
    """A text to read; Enter and Escape close it."""

    BINDINGS: ClassVar[list[Any]] = [("escape,q,enter", "close", "close")]

    def __init__(self, lines: Sequence[str], keys: str = "Enter closes") -> None:
        super().__init__()
        self._lines = lines
        self._keys = keys

    def compose(self) -> ComposeResult:
        """Draw the text, and the keys below it."""
        with Vertical(classes="dialog"):
            with VerticalScroll():
                yield Static(Text("\n".join(self._lines)))
            yield Static(Text(self._keys), classes="keys")

    def action_close(self) -> None:
        """Close it."""
        self.dismiss(False)


class ConfirmDialog(TextDialog):
    """A question; only ``y`` agrees."""

    BINDINGS: ClassVar[list[Any]] = [("y", "agree", "yes"), ("n,escape,q", "close", "no"), ("enter", "nothing", "")]

    def __init__(self, lines: Sequence[str], what: str) -> None:
        super().__init__(lines, f"y: {what}   n, Esc: no")

    def action_agree(self) -> None:
        """Agree."""
        self.dismiss(True)

    def action_nothing(self) -> None:
        """Ignore Enter, so that a key too many decides nothing."""


class ReasonDialog(ModalScreen[str | None]):
    """A line of text; Escape gives None."""

    BINDINGS: ClassVar[list[Any]] = [("escape", "close", "cancel")]

    def __init__(self, lines: Sequence[str], label: str, value: str = "") -> None:
        super().__init__()
        self._lines = lines
        self._label = label
        self._value = value

    def compose(self) -> ComposeResult:
        """Draw what it is about, and the input."""
        with Vertical(classes="dialog"):
            with VerticalScroll():
                yield Static(Text("\n".join(self._lines)))
            yield Static(Text(f"{self._label} (Enter: yes, Esc: cancel)"), classes="keys")
            yield Input(value=self._value)

    def on_mount(self) -> None:
        """Type into the input at once."""
        self.query_one(Input).focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Take the line."""
        self.dismiss(event.value)

    def action_close(self) -> None:
        """Cancel."""
        self.dismiss(None)


class ChangeDialog(ModalScreen[str | None]):
    """A text to change; Ctrl-S takes it, Escape gives None."""

    BINDINGS: ClassVar[list[Any]] = [("ctrl+s", "take", "run the changed call"), ("escape", "close", "cancel")]

    def __init__(self, label: str, value: str) -> None:
        super().__init__()
        self._label = label
        self._value = value

    def compose(self) -> ComposeResult:
        """Draw the editor."""
        with Vertical(classes="dialog"):
            yield Static(Text(f"change the {self._label}   Ctrl-S: run the changed call   Esc: cancel"), classes="keys")
            yield TextArea(self._value)

    def on_mount(self) -> None:
        """Type into the editor at once."""
        editor = self.query_one(TextArea)
        editor.move_cursor(editor.document.end)
        editor.focus()

    def action_take(self) -> None:
        """Take the text."""
        self.dismiss(self.query_one(TextArea).text)

    def action_close(self) -> None:
        """Cancel."""
        self.dismiss(None)


class OutputScreen(ModalScreen[None]):
    """The output of a job or a call, as it comes.

    Args:
        title: What it is.
        open_items: Opens the stream.
    """

    BINDINGS: ClassVar[list[Any]] = [("escape,q", "close", "close")]
    MAX_LINES = 10_000
    MAX_LINE_CHARS = 2_000
    """Characters of a line; a longer one continues on the next."""

    def __init__(self, title: str, open_items: Callable[[], AsyncGenerator[Mapping[str, Any], None]]) -> None:
        super().__init__()
        self._title = title
        self._open_items = open_items
        self._line = ""

    def compose(self) -> ComposeResult:
        """Draw the title and the output."""
        with Vertical(classes="dialog"):
            yield Static(Text(f"{self._title}   Esc: close"), classes="keys")
            yield Log(max_lines=self.MAX_LINES)

    def on_mount(self) -> None:
        """Follow the output."""
        self.query_one(Log).focus()
        self.run_worker(self._follow(), exclusive=True)

    async def _follow(self) -> None:
        log = self.query_one(Log)
        try:
            async for item in self._open_items():
                *lines, self._line = (self._line + str(item.get("text", ""))).split("\n")
                for line in lines:
                    self._write_line(log, line)
                if len(self._line) > self.MAX_LINE_CHARS:
                    self._write_line(log, self._line)
                    self._line = ""
            end = "[the end]"
        except HarnessError as error:
            end = f"[{error.message}]"
        if self._line:
            self._write_line(log, self._line)
        log.write_line(end)

    def _write_line(self, log: Log, line: str) -> None:
        text = "\n".join(output_lines(line))
        for start in range(0, max(len(text), 1), self.MAX_LINE_CHARS):
            log.write_line(text[start : start + self.MAX_LINE_CHARS])

    def action_close(self) -> None:
        """Close it; the stream ends with its worker."""
        self.dismiss(None)
