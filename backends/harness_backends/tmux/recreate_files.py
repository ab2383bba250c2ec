"""Recreation of a pane's state files that were removed while its shell is running."""

from __future__ import annotations

import shlex

from ..posix.state_directory import STATE_RECREATED_NOTICE, JobStore
from .channel.control_connection import ControlConnection
from .pane.pane_state import Pane
from .setup import NewPane, log_files, shells_script

__all__ = ["recreate_pane_files"]


async def recreate_pane_files(link: ControlConnection, store: JobStore, pane: Pane) -> None:
    """Recreate a pane's files in the state directory, with a new log; its shell keeps its state.

    Raises:
        ConnectionLost: the connection was lost meanwhile.
        TerminalError: tmux refused.
    """
    await store.remake()
    store.add_notice(STATE_RECREATED_NOTICE)
    setup, own = link.setup, pane.shells[0]
    new = NewPane(pane.name, pane.uid, own.nonce, own.kind)
    pid = shlex.quote(f"{setup.pane_dir(pane.uid)}/pid")
    await link.shells.call(f"{shells_script(setup, new)}echo {own.pid} >{pid}\n")
    if setup.here:
        await link.shell.call(f"umask 077\n{log_files(setup, new)}")
    await link.client.request(("pipe-pane", "-t", pane.pane_id, setup.log_command(pane.uid, 0)))
    pane.log_number, pane.log_offset = 0, 0
