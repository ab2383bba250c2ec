"""``Terminal`` over the operator's own tmux: it captures any pane and types into those that are lent, nothing else."""

from __future__ import annotations

import os
import re
import secrets
import termios
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import NoReturn

import anyio
from anyio import to_thread

from harness.command import Capture, Command, Keys
from harness.config import Config
from harness.errors import PaneBusy, PaneGone, TerminalError, UnsupportedOperation
from harness.results import PaneInfo, SessionInfo, ShellResult
from harness.terminal import CURRENT_TMUX, Terminal
from harness.transport import Transport

from ..naming import listed
from ..pane.capture import capture_command, captured_text
from ..pane.key_bytes import KeyBytes, encode_keys
from ..pane.keyboard import INTERRUPT, as_one, type_keys
from .lends import LendStore, PaneLend, lend_directory
from .server import OperatorPane, OperatorServer, find_operator_server

__all__ = ["OperatorTerminal", "open_operator_terminal"]


# -- What the kernel says about terminals.


def foreground_terminal() -> str:
    """Return the terminal whose operator started this program and waits for it; empty without one.

    A program that opens a terminal it does not belong to, as one that an agent runs may do, has none.
    """
    for descriptor in (0, 1, 2):
        try:
            if os.tcgetpgrp(descriptor) == os.getpgrp():  # an error unless it controls this process's session
                return os.ttyname(descriptor)
        except OSError:
            continue
    return ""


def hides_input(tty: str) -> bool:
    """Return whether a program reads a line from a terminal without echo, as prompts for passwords do.

    Raises:
        OSError: The terminal cannot be opened.
    """
    descriptor = os.open(tty, os.O_RDONLY | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        modes = termios.tcgetattr(descriptor)[3]
    except termios.error as error:
        raise OSError(*error.args) from None
    finally:
        os.close(descriptor)
    return not modes & termios.ECHO and bool(modes & termios.ICANON)


# -- The terminal.

QUIET_SECONDS = 2.0
"""Seconds without a key of an operator in a pane before harness types there; tmux tells whole seconds."""
_PLACE = re.compile(r"(?P<session>[^:]+):(?P<window>\d+)(?:\.(?P<pane>\d+))?")


class OperatorTerminal(Terminal):
    """The panes of one running tmux server, opened by :func:`open_operator_terminal`.

    Nothing is installed there, and no option, size or title is changed. No command runs in these panes: without hooks,
    neither its output nor its end could be proved.
    """

    runs_commands = False
    session = CURRENT_TMUX

    def __init__(self, server: OperatorServer, lends: LendStore) -> None:
        self._server = server
        self._lends = lends

    # -- screen and keyboard

    async def capture(self, request: Capture) -> str:
        if request.job_id is not None:
            self._refuse("the output of a job is on no screen here", "harness jobs show has it")
        if request.delay > 0:
            await anyio.sleep(request.delay)
        pane = await self._find(request.pane or request.target)
        version = self._server.version
        text = captured_text(
            await self._guarded(pane, capture_command(pane.pane_id, request, version)), request, version
        )
        return text if request.end is not None else text.rstrip("\n") + "\n"

    async def _guarded(self, pane: OperatorPane, *commands: tuple[str, ...], data: bytes | None = None) -> str:
        """Run commands if the pane is still the same, in one step of the server; ``data`` goes into a buffer first.

        Raises:
            PaneGone: It is not; nothing was done.
        """
        token = secrets.token_hex(8)
        otherwise: list[tuple[str, ...]] = [("display-message", "-p", token)]
        before: list[tuple[str, ...]] = []
        if data is not None:
            buffer = f"harness-{token}"
            before = [("load-buffer", "-b", buffer, "-")]  # as an argument, every user could read it
            paste = ("paste-buffer", "-d", *self._server.version.paste_flags, "-b", buffer, "-t", pane.pane_id)
            commands = (paste, *commands)
            otherwise.insert(0, ("delete-buffer", "-b", buffer))
        check = ("if-shell", "-F", "-t", pane.pane_id, pane.unchanged, as_one(*commands), as_one(*otherwise))
        said = await self._server.run(*before, check, data=data)
        if said.strip() == token:
            raise self._gone(f"pane {pane.pane_id} has changed; nothing was done")
        return said

    async def send_keys(self, request: Keys) -> None:
        target = self._server.target
        keys = encode_keys((*request.keys, *(("Enter",) if request.enter else ())), target)
        if request.delay > 0:
            await anyio.sleep(request.delay)
        pane = await self._find(request.pane or request.target)
        text = request.literal_text or b""
        plain, rest = _split(keys)
        data = (text.encode("utf-8", "surrogateescape") if isinstance(text, str) else text) + plain.encode()
        if any("\0" in key.normal for key in rest):
            raise self._not_typed(pane, "C-Space cannot follow a key of the cursor", "type it separately")
        await self._check_typing(pane, interrupts=not rest and data.strip(INTERRUPT.encode()) == b"")
        if data or rest:
            steps = type_keys(self._server.version, pane.pane_id, rest, "")
            await self._guarded(pane, *steps, data=data or None)

    async def _check_typing(self, pane: OperatorPane, *, interrupts: bool) -> None:
        """Check that harness may type into a pane now.

        Raises:
            TerminalError: The pane is not lent, or is the one of this program, or asks for a password.
            PaneBusy: An operator types there.
        """
        if pane.pane_id == self._server.own_pane:
            raise self._not_typed(pane, "harness itself runs there", "name another pane")
        if pane.pane_id not in await self._valid([pane]):
            raise self._not_typed(pane, "it is not lent", f"the operator lends it: harness lend {pane.pane_id}")
        if pane.is_dead or pane.is_locked:
            why = "its program has ended" if pane.is_dead else "its keyboard is locked (select-pane -d)"
            raise self._not_typed(pane, why)
        if not interrupts:
            await self._check_password(pane)
            await self._check_operators(pane)

    async def _check_password(self, pane: OperatorPane) -> None:
        try:
            hidden = await to_thread.run_sync(hides_input, pane.tty)
        except OSError as error:
            raise self._not_typed(pane, f"its terminal cannot be read: {(error.strerror or 'error').lower()}") from None
        if hidden:
            why = "a program there hides what is typed, as for a password"
            raise self._not_typed(pane, why, "type it yourself, in the pane")

    async def _check_operators(self, pane: OperatorPane) -> None:
        clients = await self._server.active_clients()
        last = max((active for shown, active in clients if shown == pane.pane_id), default=0)
        if time.time() - last < QUIET_SECONDS:
            why = f"an operator pressed a key there in the last {QUIET_SECONDS:g} s"
            raise self._not_typed(pane, why, "try again when they have finished", error=PaneBusy)

    def _not_typed(
        self, pane: OperatorPane, why: str, hint: str = "", error: type[TerminalError] = TerminalError
    ) -> TerminalError:
        message = f"nothing was typed into pane {pane.pane_id} ({pane.name}): {why}"
        return error(message, target=self._server.target, hint=hint)

    # -- lending

    async def lend_pane(self, name: str, seconds: float | None = None) -> PaneInfo:
        panes = await self._server.panes()
        pane = self._named(name, panes)
        await self._check_lender(panes)
        if pane.is_managed or pane.is_dead:
            why = "belongs to harness already" if pane.is_managed else "has no running program"
            raise self._not_lent(f"pane {pane.pane_id} ({pane.name}) {why}", "harness --tmux current panes lists panes")
        lend = await to_thread.run_sync(self._lends.add, pane, seconds)
        return self._info(pane, lend, only=False)

    async def _check_lender(self, panes: Sequence[OperatorPane]) -> None:
        """Check that an operator at a pane of this server runs this program, and no agent through another pane.

        Raises:
            TerminalError: That cannot be seen.
        """
        own = next((pane for pane in panes if pane.pane_id == self._server.own_pane), None)
        if own is None or own.is_managed or own.tty != foreground_terminal():
            raise self._not_lent("only an operator can lend a pane", "run harness lend at a shell prompt in your tmux")
        if await self._valid([own]):
            why = "this pane is lent, so an agent may have typed this"
            raise self._not_lent(why, "run harness lend in another pane, or end the lend of this one first")

    def _not_lent(self, why: str, hint: str) -> TerminalError:
        return TerminalError(f"nothing was lent: {why}", target=self._server.target, hint=hint)

    async def end_lend(self, name: str) -> PaneInfo:
        pane = self._named(name, await self._server.panes())
        await to_thread.run_sync(self._lends.end, pane.pane_id)
        return self._info(pane, None, only=False)

    async def _valid(self, panes: Sequence[OperatorPane]) -> dict[str, PaneLend]:
        return await to_thread.run_sync(self._lends.valid, panes)

    # -- panes

    async def list_panes(self) -> list[PaneInfo]:
        panes = {pane.pane_id: pane for pane in reversed(await self._server.panes()) if not pane.is_managed}
        lends = await self._valid(list(panes.values()))
        only = len(lends) == 1
        return [self._info(pane, lends.get(pane.pane_id), only=only) for pane in reversed(panes.values())]

    async def ensure_pane(self, name: str, *, create: bool = True) -> None:
        self._named(name, await self._server.panes())

    def _info(self, pane: OperatorPane, lend: PaneLend | None, *, only: bool) -> PaneInfo:
        return PaneInfo(
            name=pane.name,
            pane_id=pane.pane_id,
            session=pane.session,
            default=only and lend is not None,
            width=pane.width,
            height=pane.height,
            foreground=pane.foreground,
            cwd=pane.cwd,
            lent=lend is not None,
            lent_until=None if lend is None else lend.until,
        )

    async def _find(self, name: str | None) -> OperatorPane:
        panes = await self._server.panes()
        if name is not None:
            return self._named(name, panes)
        lends = await self._valid(panes)
        if len(lends) != 1:
            why = f"{len(lends)} panes are lent" if lends else "no pane is lent"
            self._refuse(f"name a pane of your tmux: {why}", "--pane %3, or --pane work:1.0; harness panes lists them")
        return self._named(next(iter(lends)), panes)

    def _named(self, name: str, panes: Sequence[OperatorPane]) -> OperatorPane:
        """Return the pane of a tmux id, or of ``SESSION:WINDOW.PANE`` by its indexes; without PANE, the active one.

        Raises:
            PaneGone: There is none.
        """
        place = _PLACE.fullmatch(name)
        for pane in panes:
            if name in (pane.pane_id, pane.name):
                return pane
            if place and not place["pane"] and pane.is_active and name == f"{pane.session}:{pane.window}":
                return pane
        raise self._gone(f"pane {name!r} does not exist in your tmux; {listed(pane.name for pane in panes)}")

    # -- what these panes do not offer

    async def run(self, command: Command) -> ShellResult:
        self._refuse("no command runs in a pane of your own tmux", "type it: harness keys")

    async def wait(self, job_id: str, timeout: float, max_output: int) -> ShellResult | None:
        return None

    def follow(self, job_id: str, offset: int) -> AsyncIterator[bytes] | None:
        return None

    async def kill(self, job_id: str, signal: str, grace: float) -> bool:
        return False

    async def create_pane(self, name: str, cwd: str | None = None) -> PaneInfo:
        self._refuse("harness creates no pane in your own tmux", "use --tmux for a session of its own")

    async def kill_pane(self, name: str, *, force: bool = False) -> None:
        self._refuse("harness kills no pane of your own tmux", "kill it with tmux")

    async def list_sessions(self) -> list[SessionInfo]:
        self._refuse("the sessions of your own tmux are not harness's", "list them with tmux list-sessions")

    async def create_session(self, name: str) -> SessionInfo:
        self._refuse("harness creates no session in your own tmux", "use --tmux for a session of its own")

    async def kill_session(self, name: str) -> None:
        self._refuse("harness kills no session of your own tmux", "kill it with tmux")

    def attach_command(self, *, read_only: bool = False) -> list[str]:
        self._refuse("you are attached to your own tmux already", "")

    def describe(self) -> str:
        return "your own tmux"

    def _gone(self, message: str) -> PaneGone:
        return PaneGone(message, target=self._server.target, hint="harness --tmux current panes lists them")

    def _refuse(self, message: str, hint: str) -> NoReturn:
        raise UnsupportedOperation(message, target=self._server.target, hint=hint)


def _split(keys: Sequence[KeyBytes]) -> tuple[str, list[KeyBytes]]:
    """Return the bytes of the keys up to the first that depends on the terminal's mode, and the other keys. Pure."""
    first = next((number for number, key in enumerate(keys) if key.mode), len(keys))
    return "".join(key.normal for key in keys[:first]), list(keys[first:])


@asynccontextmanager
async def open_operator_terminal(transport: Transport, config: Config) -> AsyncIterator[Terminal]:
    """Open the tmux server in which this process runs; the target is this machine.

    Raises:
        UnsupportedOperation: This process runs outside tmux, or in a pane of harness.
        TerminalError: The server does not answer.
    """
    server = await find_operator_server(transport.target, os.environ, config.tmux_socket)
    yield OperatorTerminal(server, LendStore(server, lend_directory()))
