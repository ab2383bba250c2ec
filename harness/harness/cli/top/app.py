"""The dashboard: a table of everything, details of the row under the cursor, and a key for each action."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import PurePath
from typing import Any, ClassVar

import anyio
from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.widgets import DataTable, Footer, Input, Static

from ...errors import HarnessError
from ...live.client import open_stream
from ...live.overview import Overview, open_overview
from ...live.sessions.state import WaitingApproval
from ..output import readable
from .dialogs import ChangeDialog, ConfirmDialog, OutputScreen, ReasonDialog, TextDialog
from .hosts import HostsScreen
from .rows import (
    COLUMNS,
    MAX_TARGET,
    ORDERS,
    Row,
    cells_of,
    details_of,
    filtered,
    ordered,
    rows_of,
    sessions_of,
    summary_of,
    tail_arguments,
)

__all__ = ["Dashboard", "run_dashboard"]

DRAW_INTERVAL = 0.1
"""Minimum seconds between two drawings."""
GUARD_SECONDS = 1.0
"""Seconds for which no key acts on what came under the cursor by itself: it was pressed for what was there before."""
WIDE, NARROW = 100, (8, 6, 14, 6, 7)
MIN_WHAT = 10
MAX_TITLE = 200
ATTACHES = frozenset({"tmux", "ssh", "docker", "podman", "mosh"})
"""Programs that may attach to a session: what a process announces is not run unseen."""
HELP = (
    *("Enter  attach to the session's tmux", "a      approve the waiting call, once", "d      deny it"),
    *("e      change it, then approve", "p, r   pause the agent; resume it", "i      interrupt the turn or the job"),
    *(
        "k      kill the job, or cancel what the session does",
        "t      follow the output of a job, a call or a command; list hosts",
    ),
    *("/      filter: words in any column", "s, S   next order; reverse it", "x      show dead processes no longer"),
    "q      leave; nothing else ends",
)
CSS = """
Screen { layers: base; }
#summary { height: 1; }
#filter { display: none; height: 1; border: none; }
#filter.shown { display: block; }
#table { height: 2fr; }
#table > .datatable--cursor { text-style: reverse; }
#details { height: 1fr; min-height: 7; border-top: solid $foreground 50%; }
.dialog { width: 90%; height: auto; max-height: 90%; border: solid $foreground; padding: 0 1; background: $surface; }
.dialog VerticalScroll { height: auto; max-height: 70vh; }
.dialog TextArea, .dialog Log { height: 60vh; }
.keys { text-style: bold; height: auto; }
ModalScreen { align: center middle; }
"""


class Dashboard(App[int]):
    """The application.

    Args:
        name: Who acts, for audit logs; empty only watches.
    """

    CSS = CSS
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[Any]] = [
        *(("a", "approve", "approve"), ("d", "deny", "deny"), ("e", "change", "edit")),
        *(("p", "pause", "pause"), ("r", "resume", "resume"), ("i", "interrupt", "int.")),
        *(("k", "kill", "kill"), ("t", "tail", "tail")),
        *(
            ("slash", "filter", "filter"),
            Binding("s", "sort(False)", "sort", show=False),
            ("question_mark", "keys", "keys"),
        ),
        ("q", "leave", "quit"),
    ]

    def __init__(self, name: str = "") -> None:
        super().__init__()
        self._actor = name
        self._overview: Overview | None = None
        self._rows: list[Row] = []
        self._cells: dict[str, tuple[str, ...]] = {}
        self._order, self._backward, self._filter = "state", False, ""
        self._news = anyio.Event()
        self._failure: HarnessError | None = None
        self._guarded_until = 0.0
        self._requests: dict[str, tuple[str, float]] = {}
        """By row, the last approval request that it showed, and until when no key answers it."""
        self._answered = ""
        """The last request that was answered here: no key is meant for it any more."""

    # -- drawing

    def compose(self) -> ComposeResult:
        """Draw the table, the details and the keys."""
        yield Static("", id="summary")
        yield Input(placeholder="filter", id="filter")
        yield DataTable(id="table", cursor_type="row", zebra_stripes=False, cell_padding=1)
        with VerticalScroll(id="details", can_focus=False):
            yield Static("", id="text")
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        """Follow the processes, and draw."""
        table = self.query_one("#table", DataTable)
        for name, width in zip(COLUMNS, widths_of(self.size.width), strict=True):
            table.add_column(name, width=width, key=name)
        table.focus()
        self.run_worker(self._follow(), exit_on_error=True)
        self.run_worker(self._draw_changes(), exit_on_error=True)
        self.set_interval(1.0, self._draw_times)

    def on_resize(self) -> None:
        """Give each column its width."""
        table = self.query_one("#table", DataTable)
        for column, width in zip(table.columns.values(), widths_of(self.size.width), strict=False):
            column.width = width
        table.refresh(layout=True)
        self._changed()

    async def _follow(self) -> None:
        try:
            async with open_overview(self._changed, name=self._actor) as overview:
                self._overview = overview
                await anyio.sleep_forever()
        except HarnessError as error:
            self._failure = error
            self.exit(1)

    def _changed(self) -> None:
        self._news.set()

    async def _draw_changes(self) -> None:
        """Draw after each change, but not more often than is seen."""
        while True:
            await self._news.wait()
            self._news = anyio.Event()
            self._draw()
            await anyio.sleep(DRAW_INTERVAL)

    def _draw(self) -> None:
        if self._overview is None:
            return
        groups = filtered(rows_of(sessions_of(self._overview.processes.values())), self._filter)
        rows = ordered(groups, self._order, backward=self._backward)
        before = [row.key for row in self._rows]
        self._rows = rows
        self._note_requests()
        self._fill_table(same=before == [row.key for row in rows])
        mode = "" if self._actor else "   READ ONLY"
        shown = f"   filter: {self._filter}" if self._filter else ""
        order = f"   by {self._order}{' backward' if self._backward else ''}"
        self.query_one("#summary", Static).update(Text(f"harness top   {summary_of(rows)}{order}{shown}{mode}"))
        self._draw_details()

    def _fill_table(self, *, same: bool) -> None:
        """Show the rows; only what has changed if they are the same ones in the same order."""
        table, now = self.query_one("#table", DataTable), time.time()
        if same:
            for row in self._rows:
                self._update_row(table, row, now)
            return
        selected = self._selected_key(table)
        scroll = table.scroll_y
        table.clear()
        self._cells = {row.key: cells_of(row, now) for row in self._rows}
        for key, cells in self._cells.items():
            table.add_row(*map(Text, cells), key=key)
        keys = list(self._cells)
        if selected in keys:
            table.move_cursor(row=keys.index(selected), scroll=False)
            table.scroll_to(y=scroll, animate=False)
        elif selected:
            self._guarded_until = time.monotonic() + GUARD_SECONDS  # the cursor is on the first row now

    def _note_requests(self) -> None:
        """Note which request each row shows, and guard one that has replaced another."""
        now = time.monotonic()
        known, self._requests = self._requests, {}
        for row in self._rows:
            last = known.get(row.key, ("", 0.0))
            if row.approval is not None and row.approval.request_id != last[0]:
                is_first = last[0] in ("", self._answered)
                last = (row.approval.request_id, 0.0 if is_first else now + GUARD_SECONDS)
            self._requests[row.key] = last

    def _update_row(self, table: DataTable[Text], row: Row, now: float) -> None:
        cells, before = cells_of(row, now), self._cells[row.key]
        for name, text, old in zip(COLUMNS, cells, before, strict=True):
            if text != old:
                table.update_cell(row.key, name, Text(text))
        self._cells[row.key] = cells

    def _draw_times(self) -> None:
        """Draw what changes with the clock."""
        if self._rows and len(self.screen_stack) == 1:
            self._fill_table(same=True)
            self._draw_details()

    def _draw_details(self) -> None:
        row = self._selected()
        lines = details_of(row, time.time()) if row is not None else ["no harness process runs"]
        self.query_one("#text", Static).update(Text("\n".join(lines)))

    def on_data_table_row_highlighted(self, event: Any) -> None:
        """Show the details of another row."""
        self._draw_details()

    @staticmethod
    def _selected_key(table: DataTable[Text]) -> str:
        if not table.is_valid_row_index(table.cursor_row):
            return ""
        return str(table.coordinate_to_cell_key(table.cursor_coordinate).row_key.value)

    def _selected(self) -> Row | None:
        return self._row(self._selected_key(self.query_one("#table", DataTable)))

    def _row(self, key: str) -> Row | None:
        return next((row for row in self._rows if row.key == key), None)

    # -- asking a process

    def _act(self, row: Row, action: str, arguments: Mapping[str, Any], done: str) -> None:
        self.run_worker(self._ask(row, action, arguments, done))

    async def _ask(self, row: Row, action: str, arguments: Mapping[str, Any], done: str) -> None:
        """Ask the row's session for an action, and show how that ended."""
        try:
            if row.process.client is None:
                raise HarnessError("the process cannot be reached")
            await row.process.client.request(row.session.session, action, arguments)
        except HarnessError as error:
            self.notify(error.message, title=action, severity="error", markup=False)
        else:
            self.notify(done, markup=False)

    def _with_row(self, work: Callable[[Row], None]) -> None:
        row = self._selected()
        if row is not None and not self._is_refused(row) and not self._is_guarded():
            work(row)

    def _is_guarded(self) -> bool:
        """Whether the row has come under the cursor a moment ago, because the one there is shown no longer."""
        is_guarded = time.monotonic() < self._guarded_until
        if is_guarded:
            self.notify("the cursor has just come to this row by itself; nothing was done", severity="warning")
        return is_guarded

    def _is_refused(self, row: Row) -> bool:
        reason = "started with --read-only" if not self._actor else row.process.acting_problem
        if reason:
            self.notify(reason, severity="warning", markup=False)
        return bool(reason)

    def _later(self, work: Callable[[], Awaitable[None]]) -> None:
        self.run_worker(work())

    # -- approvals

    def _with_request(self, work: Callable[[Row, WaitingApproval], Awaitable[None]]) -> None:
        """Do something with the request that waits longest in the selected row; the row passed has no other one."""

        def act(row: Row) -> None:
            asked = row.approval
            if asked is None:
                self.notify("nothing waits for approval here")
            elif time.monotonic() < self._requests[row.key][1]:
                self.notify("another call waits here now; nothing was done", severity="warning")
            else:
                alone = replace(row, session=replace(row.session, approvals=(asked,)))
                self._later(partial(work, alone, asked))

        self._with_row(act)

    async def _answer(self, row: Row, action: str, asked: WaitingApproval, done: str, **arguments: str) -> None:
        self._answered = asked.request_id
        await self._ask(row, action, {"request_id": asked.request_id, **arguments}, done)

    def action_approve(self) -> None:
        """Ask whether to approve the waiting call, which is shown completely."""
        self._with_request(self._approve)

    async def _approve(self, row: Row, asked: WaitingApproval) -> None:
        lines = details_of(row, time.time())
        if not asked.is_complete:
            await self._show(TextDialog([*lines, "approve it where the session runs"]))
        elif await self._show(ConfirmDialog(lines, "run it, once")):
            await self._answer(row, "approve", asked, "approved")

    def action_deny(self) -> None:
        """Ask for the reason, and deny the waiting call."""
        self._with_request(self._deny)

    async def _deny(self, row: Row, asked: WaitingApproval) -> None:
        reason = await self._show(ReasonDialog(details_of(row, time.time()), "deny it; the model reads the reason"))
        if reason is not None:
            await self._answer(row, "deny", asked, "denied", reason=reason)

    def action_change(self) -> None:
        """Change the waiting call, and approve it as changed."""
        self._with_request(self._change)

    async def _change(self, row: Row, asked: WaitingApproval) -> None:
        if not asked.editable:
            self.notify("this call cannot be changed")
            return
        text = await self._show(ChangeDialog(asked.editable.replace("_", " "), asked.edit_text))
        if text is not None:
            await self._answer(row, "edit", asked, "changed and approved", text=text)

    async def _show(self, dialog: Any) -> Any:
        return await self.push_screen_wait(dialog)

    # -- agents and jobs

    def action_pause(self) -> None:
        """Pause the agent; one that is paused stays so."""
        self._with_row(partial(self._set_paused, action="pause"))

    def action_resume(self) -> None:
        """Resume the agent; one that is not paused is left alone."""
        self._with_row(partial(self._set_paused, action="resume"))

    def _set_paused(self, row: Row, action: str) -> None:
        paused_by = row.session.paused_by
        if action not in row.session.actions:
            self._notify_unsupported(action)
        elif action == "pause" and paused_by:
            self.notify("paused already; r resumes it")
        elif action == "resume" and not paused_by:
            self.notify("this agent is not paused")
        else:
            self._act(row, action, {"paused_by": paused_by} if action == "resume" else {}, f"{action}d")

    def _notify_unsupported(self, action: str) -> None:
        self.notify(f"this session does not support: {action}", markup=False)

    def action_interrupt(self) -> None:
        """Interrupt the job of the row, or what the session does."""
        self._with_row(partial(self._end, job_action="interrupt_job", what="interrupt"))

    def action_kill(self) -> None:
        """Kill the job of the row, or cancel what the session does."""
        self._with_row(partial(self._end, job_action="kill_job", what="kill"))

    def _end(self, row: Row, job_action: str, what: str) -> None:
        self._later(partial(self._confirm_end, row, job_action, what))

    async def _confirm_end(self, row: Row, job_action: str, what: str) -> None:
        job = row.job
        action = "cancel" if job is None else job_action
        if action not in row.session.actions:
            self._notify_unsupported(action)
            return
        about = "cancel what this session does" if job is None else f"{what} job {job.job_id}"
        if await self._show(ConfirmDialog([*details_of(row, time.time()), "", f"{about}?"], about)):
            meant = {"work": row.session.work} if job is None else {"job_id": job.job_id}
            await self._ask(row, action, meant, f"asked to {about}")

    def action_tail(self) -> None:
        """Follow the output of the job, the running call or the command; of a fleet, show the hosts first."""
        row = self._selected()
        if row is None:
            return
        opened = partial(open_stream, row.process.path, row.session.session)
        if row.session.hosts is not None:
            hosts = HostsScreen(
                row.session.title, partial(opened, "hosts"), lambda host: opened("tail", {"host": host})
            )
            self.push_screen(hosts)
        elif (arguments := tail_arguments(row)) is not None:
            title = " ".join(arguments.values()) or row.session.title
            self.push_screen(OutputScreen(readable(title)[:MAX_TITLE], partial(opened, "tail", arguments)))
        else:
            self.notify("no job, call or command here whose output can be followed")

    def on_data_table_row_selected(self, event: Any) -> None:
        """Attach to the session of the row."""
        row = self._row(str(event.row_key.value))
        if row is None or self._is_guarded():
            return
        words = list(row.session.attach)
        if not words or row.session.doing == "lost":
            self.notify("this session has no terminal to attach to", markup=False)
        elif PurePath(words[0]).name not in ATTACHES:
            self.notify(f"not started: {words[0]}", severity="error", markup=False)
        else:
            self._attach(words)

    def _attach(self, words: list[str]) -> None:
        environment = {
            name: value for name, value in os.environ.items() if name != "TMUX"
        }  # with it tmux does not nest
        try:
            with self.suspend():
                code = subprocess.run(words, env=environment, check=False).returncode
        except OSError as error:
            self.notify(f"{words[0]}: {(error.strerror or 'cannot start').lower()}", severity="error", markup=False)
            return
        if code:
            self.notify(f"{words[0]} ended with exit code {code}", severity="warning", markup=False)

    # -- filter and order

    def action_filter(self) -> None:
        """Type the filter."""
        field = self.query_one("#filter", Input)
        field.add_class("shown")
        field.focus()

    def on_input_changed(self, event: Any) -> None:
        """Filter while it is typed."""
        if event.input.id == "filter":
            self._filter = event.value
            self._changed()

    def on_input_submitted(self, event: Any) -> None:
        """Keep the filter, and return to the table."""
        if event.input.id == "filter":
            self._leave_filter(keep=True)

    def on_key(self, event: Any) -> None:
        """Let Escape remove the filter, and S reverse the order."""
        if event.key == "escape" and len(self.screen_stack) == 1:
            self._leave_filter(keep=False)
        elif event.key in ("S", "upper_s") and len(self.screen_stack) == 1 and not self._is_typing:
            self.action_sort(True)
        elif event.key == "x" and len(self.screen_stack) == 1 and not self._is_typing and self._overview is not None:
            self._overview.forget_lost()

    @property
    def _is_typing(self) -> bool:
        return isinstance(self.focused, Input)

    def _leave_filter(self, *, keep: bool) -> None:
        field = self.query_one("#filter", Input)
        if not keep:
            field.value = ""
        field.remove_class("shown")
        self.query_one("#table", DataTable).focus()

    def action_sort(self, reverse: bool) -> None:
        """Use the next order, or reverse this one."""
        if reverse:
            self._backward = not self._backward
        else:
            names = list(ORDERS)
            self._order, self._backward = names[(names.index(self._order) + 1) % len(names)], False
        self._changed()

    def action_keys(self) -> None:
        """List the keys."""
        self.push_screen(TextDialog(HELP))

    def action_leave(self) -> None:
        """Leave; what is shown continues."""
        self.exit(0)

    @property
    def failure(self) -> HarnessError | None:
        """Why the dashboard ended by itself."""
        return self._failure


def widths_of(width: int) -> tuple[int, ...]:
    """Return the columns' widths for a screen of a width: what a row does gets what is left. Pure."""
    state, kind, target, since, cost = NARROW
    target = target if width < WIDE else MAX_TARGET
    taken = sum((state, kind, target, since, cost)) + 2 * len(COLUMNS) + 2
    return state, kind, target, max(MIN_WHAT, width - taken), since, cost


def run_dashboard(name: str) -> int:
    """Show the dashboard until the operator leaves, and return the exit code.

    Raises:
        HarnessError: The processes cannot be followed.
    """
    dashboard = Dashboard(name)
    code = dashboard.run()
    if dashboard.failure is not None:
        raise dashboard.failure
    return code or 0
