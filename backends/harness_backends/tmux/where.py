"""Where tmux runs: on the target, or on this machine with the panes' shells on the target."""

from __future__ import annotations

import os
import shlex
import socket
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import anyio

from harness.backend import Capabilities
from harness.config import Config
from harness.errors import UnsupportedOperation
from harness.target import Target
from harness.transport import Transport
from harness.withheld import inherited

from ..local import LocalTransport
from ..posix.shell import HeldShell, open_held_shell
from ..posix.state import JobStore, LogPlace, open_job_store
from .naming import target_label
from .setup import Setup
from .version import FLOOR, TmuxVersion, require

__all__ = ["Place", "session_here", "tmux_place"]

TERMINAL_TIMEOUT = 20.0
"""How long a target may take to say whether it gives a terminal; after that the session's first prompt tells."""


@dataclass(frozen=True, slots=True)
class Place:
    """The machine that tmux runs on. ``notice`` is for the first caller; empty when there is nothing to say."""

    transport: Transport
    shell: HeldShell
    setup: Setup
    notice: str = ""


@asynccontextmanager
async def tmux_place(
    transport: Transport,
    shell: HeldShell,
    store: JobStore,
    capabilities: Capabilities,
    config: Config,
    session: str,
) -> AsyncIterator[Place]:
    """Choose by ``config.tmux_at``, and by what the target has.

    Raises:
        UnsupportedOperation: there is no usable tmux where it should run.
    """
    version = TmuxVersion.parse(capabilities.tmux_version)
    missing = version is None or version < FLOOR
    if config.tmux_at == "target" or (config.tmux_at == "auto" and not missing) or transport.describe() == "local":
        version = require(capabilities.tmux_version, transport.target)
        yield Place(transport, shell, Setup(store.root, session, version, config))
        return
    notice = ""
    if config.tmux_at == "auto":
        found = f"tmux {version} on the target is too old" if version else "there is no tmux on the target"
        notice = f"{found}: the session is on this machine, with its shell on the target; it ends with the link"
    async with _here() as (local, local_shell, root, here):
        label = target_label(transport.target, transport.identity)
        name = session_here(session, label)
        known = await local_shell.call(f"tmux -L {shlex.quote(config.tmux_socket)} has-session -t ={name} 2>/dev/null")
        if known.exit_code != 0:
            await _require_terminal(transport)
        logs = LogPlace(local, local_shell, root, f"{socket.gethostname()}:{root}")
        setup = Setup(root, name, here, config, store.root, transport.interactive_argv, host=logs.name, label=label)
        store.log_places[logs.name] = logs
        try:
            yield Place(local, local_shell, setup, notice)
        finally:
            del store.log_places[logs.name]


async def _require_terminal(transport: Transport) -> None:
    """Start a program on the target as a pane of a session here does, and look at its standard input.

    Raises:
        UnsupportedOperation: it got no terminal.
    """
    ours, theirs = os.openpty()
    try:
        argv = transport.interactive_argv(["sh", "-c", "[ -t 0 ] && echo terminal || echo none"])
        with anyio.move_on_after(TERMINAL_TIMEOUT):
            done = await anyio.run_process(
                argv, stdin=theirs, stderr=subprocess.PIPE, check=False, start_new_session=True, env=inherited()
            )
            said = done.stderr.decode("utf-8", "replace").strip().partition("\n")[0].strip()
            if done.stdout.split()[-1:] == [b"none"] or "PTY allocation request failed" in said:
                raise UnsupportedOperation(
                    f"the target gives no terminal{f' ({said})' if said else ''}, and a session on this machine needs"
                    " one for each of its shells",
                    target=transport.target,
                    hint='have its SSH server allow one (PermitTTY yes), use tmux on the target (tmux_at = "target"),'
                    " or leave --tmux out",
                )
    finally:
        os.close(ours)
        os.close(theirs)


def session_here(session: str, label: str) -> str:
    """The name of a session on this machine that holds shells of another: one per target."""
    return f"{session}-{label}"


@asynccontextmanager
async def _here() -> AsyncIterator[tuple[Transport, HeldShell, str, TmuxVersion]]:
    local = LocalTransport(Target.parse("local:"))
    async with open_held_shell(local) as shell, open_job_store(shell) as store:
        text = (await shell.call("tmux -V")).text
        try:
            version = require(text, local.target)
        except UnsupportedOperation as error:
            raise UnsupportedOperation(
                f"{error.message}, and it was to run here", target=local.target, hint="install tmux on this machine"
            ) from None
        yield local, shell, store.root, version
