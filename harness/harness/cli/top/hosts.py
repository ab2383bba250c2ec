"""The hosts of a command on many, in the dashboard: a row for those that ended alike, and the output of any of them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any, ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import DataTable, Static

from ...errors import HarnessError
from ..output import readable
from .dialogs import OutputScreen, ReasonDialog

__all__ = ["HostsScreen"]

Items = AsyncGenerator[Mapping[str, Any], None]
COLUMNS = ("STATE", "COUNT", "HOSTS", "HOW IT ENDED")
MAX_CELL = 200


class HostsScreen(ModalScreen[None]):
    """The hosts, as they change.

    Args:
        title: What runs on them.
        open_hosts: Opens the stream of their states.
        open_output: Opens the stream of the output of a host.
    """

    BINDINGS: ClassVar[list[Any]] = [("escape,q", "close", "close"), ("h", "name", "host")]

    def __init__(self, title: str, open_hosts: Callable[[], Items], open_output: Callable[[str], Items]) -> None:
        super().__init__()
        self._title = title
        self._open_hosts = open_hosts
        self._open_output = open_output
        self._first: dict[str, str] = {}
        """The first host of each row, by the row's key."""

    def compose(self) -> ComposeResult:
        """Draw the table."""
        with Vertical(classes="dialog"):
            keys = "Enter: output of the first host   h: of another one   Esc: close"
            yield Static(Text(f"{readable(self._title)[:MAX_CELL]}\n{keys}"), classes="keys")
            yield DataTable(cursor_type="row", cell_padding=1)
            yield Static("", id="state")

    def on_mount(self) -> None:
        """Follow the hosts."""
        table = self.query_one(DataTable)
        table.add_columns(*COLUMNS)
        table.focus()
        self.run_worker(self._follow(), exclusive=True)

    async def _follow(self) -> None:
        try:
            async for item in self._open_hosts():
                self._draw(item.get("groups") or [])
            end = "the end"
        except HarnessError as error:
            end = error.message
        self.query_one("#state", Static).update(Text(f"[{readable(end)}]"))

    def _draw(self, groups: list[Mapping[str, Any]]) -> None:
        """Show the groups; the cursor stays on its row."""
        table = self.query_one(DataTable)
        selected = self._selected()
        table.clear()
        self._first.clear()
        for group in groups:
            first = str(group["hosts"][0])
            key = f"{group['state']}/{first}"
            self._first[key] = first
            texts = (group["state"].replace("_", " "), str(group["count"]), group["folded"], group["ending"])
            table.add_row(*(Text(readable(text)[:MAX_CELL]) for text in texts), key=key)
        if selected in self._first:
            table.move_cursor(row=list(self._first).index(selected))

    def _selected(self) -> str:
        table = self.query_one(DataTable)
        if not table.is_valid_row_index(table.cursor_row):
            return ""
        return str(table.coordinate_to_cell_key(table.cursor_coordinate).row_key.value)

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """Show the output of the row's first host."""
        event.stop()
        if (host := self._first.get(str(event.row_key.value))) is not None:
            self._show(host)

    def action_name(self) -> None:
        """Ask for a host, and show its output."""
        self.app.push_screen(ReasonDialog([self._title], "output of the host named"), self._show)

    def _show(self, host: str | None) -> None:
        if host and host.strip():
            name = host.strip()
            self.app.push_screen(OutputScreen(readable(name), lambda: self._open_output(name)))

    def action_close(self) -> None:
        """Close it; the stream ends with its worker."""
        self.dismiss(None)
