"""Operators of a session: detected by their typing and the F12 key, and informed in the status line."""

from __future__ import annotations

import math
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import anyio

from harness.errors import ConnectionLost, HarnessError, TerminalError, UnsupportedOperation
from harness.system.background_tasks import BackgroundTasks
from harness.terminal import Listener, OperatorActivity, Operators, ScreenMark

from .channel.command_channel import CommandChannel
from .channel.control_connection import MY_PID, MY_SESSION, ControlConnection
from .channel.control_protocol import Notification, control_line
from .naming import DEFAULT_PANE
from .pane.pane_state import Pane
from .pane.pane_table import PaneTable

__all__ = [
    "SUBSCRIPTION",
    "TYPED_NOTICE",
    "OperatorWatch",
    "activity_commands",
    "is_typing",
    "keys_since",
    "operator_typed_during",
    "watch_operators",
]

SUBSCRIPTION = "hxtaken"
HOOK = "client-detached[77]"
SETTLED = 1.0
"""Seconds after its prompt in which a shell may still write parts of it."""
RECENT = 2.0
"""Seconds within which a key press can explain output at a prompt."""
OURS = 60.0
"""Seconds within which harness's own typing can explain late output, on a busy machine."""
PAUSE = 1.0
"""Seconds between two checks for typing."""
LINES = 200
"""Maximum lines of output since a mark."""
END_LIMIT = 2.0

STATUS = (
    "#{?@harness_taken,PAUSED by operator - F12 resumes the agent,"
    "#{?@harness_agent,agent: #{@harness_agent} - F12 takes over,"
    "#{?@harness_busy,job #{@harness_busy} runs - F12: keyboard,}}} %H:%M"
)
PAUSED_OPTION = "@harness_taken"
AGENT = "@harness_agent"
CLIENT = "@harness_agent_client"
_UNSHOWN = re.compile(r"[^\w \-:.,]", re.ASCII)


def _line(*commands: tuple[str, ...]) -> str:
    return control_line(*commands).decode("utf-8", "surrogateescape").rstrip("\n")


def activity_commands() -> list[tuple[str, ...]]:
    """Return the commands that a watching control client sends when it attaches. Pure.

    The hook unsets the agent's status when that client detaches, as the client cannot if it was killed.
    """
    where = ("-t", f"{MY_SESSION}:")
    unlock = (("select-pane", "-e"), ("set-option", "-w", "@harness_unlocked", "1"))
    toggle = ("set-option", "-F", PAUSED_OPTION, f"#{{?{PAUSED_OPTION},,1}}")
    forget = _line(("set-option", "-u", *where, AGENT), ("set-option", "-u", *where, PAUSED_OPTION))
    gone = _line(("if-shell", "-F", f"#{{==:#{{hook_client}},client-#{{{CLIENT}}}}}", forget))
    return [
        ("set-option", "-F", *where, CLIENT, MY_PID),
        ("set-option", *where, "status-right", STATUS),
        ("set-hook", *where, HOOK, gone),
        ("bind-key", "-n", "F12", "if-shell", "-F", f"#{{{AGENT}}}", _line(toggle, *unlock), _line(*unlock)),
        ("refresh-client", "-B", f"{SUBSCRIPTION}::#{{{PAUSED_OPTION}}}"),
    ]


def is_typing(clients: str, window: str, since: float) -> bool:
    """Return whether an operator has used a client that shows the window and may type. Pure.

    Args:
        clients: lines of ``CONTROL_MODE READ_ONLY ACTIVITY WINDOW``.
        since: seconds since the epoch; tmux reports whole seconds.
    """
    for line in clients.splitlines():
        control, read_only, activity, looks_at = (*line.split(" "), "", "", "", "")[:4]
        person = control != "1" and read_only != "1" and looks_at == window
        if person and activity.isdecimal() and int(activity) >= int(since):
            return True
    return False


def keys_since(clock: int, seconds: float, ours: float) -> int | None:
    """Return the second from which an operator's key explains a pane's output. Pure.

    Args:
        clock: the current second, as reported by tmux.
        seconds: the maximum age of the key press, in seconds.
        ours: seconds since harness typed into the pane, which may explain late output unless an operator has pressed a
            key since.

    Returns:
        A second since the epoch, or None if harness's own keys explain the output.
    """
    if ours < RECENT:
        return None
    return max(math.ceil(clock - seconds), math.ceil(clock - ours) + 1 if ours < OURS else 0)


class OperatorWatch(Operators):
    """The implementation of :class:`.Operators` that :func:`watch_operators` opens."""

    def __init__(self, link: ControlConnection, table: PaneTable, tasks: BackgroundTasks, listener: Listener) -> None:
        self._link = link
        self._table = table
        self._tasks = tasks
        self._listener = listener
        self._paused = False
        self._text = ""
        self._looking = False
        self._looked = -PAUSE
        self._ran: dict[str, int] = {}

    @property
    def _where(self) -> tuple[str, str]:
        return "-t", f"{self._link.setup.exact}:"

    # -- detection

    def on_pane_output(self, pane: Pane) -> None:
        """Handle output of a pane that is not a managed job's."""
        now = anyio.current_time()
        ran = pane.operator_command_count != self._ran.setdefault(pane.uid, pane.operator_command_count)
        edits = pane.phase == "prompt" and now - pane.prompt_time > SETTLED
        self._ran[pane.uid] = (
            pane.operator_command_count
        )  # also without a check now, as it does not explain later output
        ended_ours = pane.phase == "ended" and pane.last_ended != 0  # a whole job may arrive in one piece
        if pane.jobs or ended_ours or self._looking or not (ran or (edits and now - self._looked > PAUSE)):
            return
        self._looking = True
        self._tasks.start_soon(self._look, pane, RECENT if ran else min(RECENT, now - pane.prompt_time))

    async def _look(self, pane: Pane, seconds: float) -> None:
        try:
            clock, clients = await self._link.ask(
                ("display-message", "-p", "%s"),
                (
                    "list-clients",
                    *self._where,
                    "-F",
                    "#{client_control_mode} #{client_readonly} #{client_activity} #{window_id}",
                ),
            )
            since = keys_since(int(clock.text), seconds, anyio.current_time() - pane.typed)
            if since is not None and is_typing(clients.text, pane.window_id, since):
                self._listener(OperatorActivity("typing", pane.name))
        except (HarnessError, ValueError):
            return  # the next output triggers another check
        finally:
            self._looking, self._looked = False, anyio.current_time()

    def told(self, event: Notification) -> None:
        """Handle a notification that the F12 key was pressed, or that its option was set."""
        if event.name != "subscription-changed" or event.args[:1] != (SUBSCRIPTION,):
            return
        taken = event.args[-1] == "1"
        if taken != self._paused:
            self._paused, self._looked = taken, anyio.current_time() + RECENT  # a key was pressed, and it was this one
            self._listener(OperatorActivity("took" if taken else "returned"))

    async def back(self) -> None:
        """Set the status and options again after a reconnect."""
        await self._set(AGENT, self._text)

    # -- display

    async def set_status(self, text: str) -> None:
        self._text = _UNSHOWN.sub("", text)[:40].strip()
        await self._set(AGENT, self._text)

    async def set_paused(self, *, paused: bool) -> None:
        if paused != self._paused:  # repeating the key's state could undo a later key press
            self._paused = paused
            await self._set(PAUSED_OPTION, "1" if paused else "")

    async def _set(self, option: str, value: str) -> None:
        unset = () if value else ("-u",)
        words = (value,) if value else ()
        await self._link.ask(("set-option", *unset, *self._where, option, *words))

    async def mark(self, pane: str | None = None) -> ScreenMark:
        found = await self._table.find(pane or DEFAULT_PANE)
        size, cursor, limit = await self._lines(found)
        return ScreenMark(found.name, size + cursor, limit)

    async def text_since(self, mark: ScreenMark) -> str:
        pane = await self._table.find(mark.pane)
        size, cursor, _ = await self._lines(pane)
        start = max(mark.line - size, cursor - LINES)  # the screen's first line is 0
        blocks = await self._link.ask(("capture-pane", "-p", "-J", "-t", pane.pane_id, "-S", str(start)))
        return blocks[-1].text.rstrip()

    async def _lines(self, pane: Pane) -> tuple[int, int, int]:
        told = "#{history_size} #{cursor_y} #{history_limit}"
        blocks = await self._link.ask(("display-message", "-p", "-t", pane.pane_id, told))
        size, cursor, limit = (int(number) for number in blocks[-1].text.split())
        return size, cursor, limit

    async def leave(self) -> None:
        """Remove harness's status and options."""
        with anyio.CancelScope(shield=True), anyio.move_on_after(END_LIMIT), suppress(HarnessError):
            await self._link.ask(
                ("set-option", "-u", *self._where, AGENT),
                ("set-option", "-u", *self._where, PAUSED_OPTION),
                ("set-option", "-u", *self._where, "status-right"),
                ("set-hook", "-u", *self._where, HOOK),
                ("refresh-client", "-B", SUBSCRIPTION),
            )


@asynccontextmanager
async def watch_operators(
    link: ControlConnection,
    table: PaneTable,
    tasks: BackgroundTasks,
    listener: Listener,
    watch: Callable[[OperatorWatch | None], None],
) -> AsyncIterator[Operators]:
    """Watch the operators of a session.

    Raises:
        UnsupportedOperation: this tmux cannot report their activity.
    """
    if not link.setup.version.client_flags:
        raise UnsupportedOperation(
            f"tmux {link.setup.version} cannot report when an operator takes over; version 3.2 or newer is required",
            target=link.transport.target,
        )
    people = OperatorWatch(link, table, tasks, listener)
    commands = activity_commands()
    watch(people)
    try:
        await link.greet(*commands)
        yield people
    finally:
        watch(None)
        for command in commands:
            if command in link.greeting:
                link.greeting.remove(command)
        await people.leave()


# -- Detection of an operator's typing while a command ran, as the output then contains its echo.


MIN_TYPING_SECONDS = 0.5
"""Seconds: an operator cannot unlock the keyboard and type during a shorter command."""
TYPED_NOTICE = "an operator typed while the command was running; the output may contain what was typed"


async def operator_typed_during(link: CommandChannel, pane: Pane, seconds: float) -> bool:
    """Return True if an attached client was used in the last ``seconds`` and the keyboard was not locked."""
    lock = link.setup.config.keyboard_lock
    if lock and seconds < MIN_TYPING_SECONDS:
        return False
    try:
        now, clients = await link.ask(
            ("display-message", "-p", "-t", pane.pane_id, "%s #{@harness_unlocked}"),
            ("list-clients", "-F", "#{client_control_mode} #{client_activity}"),
        )
    except (ConnectionLost, TerminalError):
        return False
    clock, _, unlocked = now.text.partition(" ")
    if not clock.isdecimal() or (lock and unlocked != "1"):
        return False
    return any(active >= int(clock) - seconds - 1 for active in parse_clients(clients.text))


def parse_clients(text: str) -> list[int]:
    """Return the last activity of operators' clients, in seconds since the epoch, without control clients."""
    pairs = (line.split(" ") for line in text.splitlines())
    return [int(pair[1]) for pair in pairs if len(pair) == 2 and pair[0] != "1" and pair[1].isdecimal()]
