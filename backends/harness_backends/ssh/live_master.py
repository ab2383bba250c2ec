"""A program on a host to which harness is connected already; never a login, and no ssh is started."""

from __future__ import annotations

from collections.abc import Sequence

from harness.target import Target

from .control_master import find_sockets, is_listening, split_name
from .multiplex import MuxError, MuxProcess, connect_mux, open_pipes
from .options import master_tag
from .remote_command import new_nonce, remote_command

__all__ = ["run_if_connected"]

MAX_OUTPUT = 1 << 18


async def run_if_connected(target: Target, argv: Sequence[str]) -> bytes:
    """Run a program on a host through a running control master, and return its output.

    The caller limits the time. A master is found by the host as the user wrote it, whatever the connection's options.

    Args:
        target: The host.
        argv: The program and its arguments.

    Returns:
        The output, truncated to :data:`MAX_OUTPUT`; empty if no master runs, or it refuses another session.
    """
    tag = master_tag(target.last)
    for path in find_sockets():
        if (split_name(path) or ("", "", ""))[1] != tag or not is_listening(str(path)):
            continue
        try:
            return await _output(target, str(path), argv)
        except MuxError:
            continue
    return b""


async def _output(target: Target, path: str, argv: Sequence[str]) -> bytes:
    nonce = new_nonce()
    command = remote_command(argv, nonce).encode()
    session = await connect_mux(path)
    pipes = open_pipes()
    try:
        await session.open_session(command, (), pipes.theirs, forward_agent=False)
    except BaseException:
        session.close()
        pipes.close_ours()
        raise
    finally:
        pipes.close_theirs()
    async with MuxProcess(target, session, pipes, nonce, lambda: None) as process:
        await process.send_eof()
        if not await process.wait_for_start():
            return b""
        output = bytearray()
        while len(output) < MAX_OUTPUT and (chunk := await process.receive()):
            output += chunk
        return bytes(output)
