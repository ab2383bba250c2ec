"""Opening transports and running programs through them, for tests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import anyio
from tests.support.sshd import SshServer

from harness.target import Target
from harness.transport import Process, Transport
from harness_backends.ssh import open_transport

TIME = 30.0


@asynccontextmanager
async def connected(server: SshServer, target: str = "", **overrides: Any) -> AsyncIterator[Transport]:
    """A transport to a server, or with its configuration to another target; bounded in time."""
    with anyio.fail_after(TIME):
        async with open_transport(Target.parse(target or server.target), server.config(**overrides), None) as transport:
            yield transport


async def read_all(process: Process) -> tuple[bytes, bytes]:
    """Both streams to their end."""
    streams: dict[str, bytes] = {"out": b"", "err": b""}

    async def read(name: str) -> None:
        receive = process.receive if name == "out" else process.receive_stderr
        while data := await receive():
            streams[name] += data

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(read, "out")
        tasks.start_soon(read, "err")
    return streams["out"], streams["err"]


async def run(transport: Transport, *argv: str, stdin: bytes = b"") -> tuple[int, bytes, bytes]:
    """Exit status, standard output and standard error of a program."""
    async with await transport.open_process(argv) as process:

        async def feed() -> None:
            with suppress(BrokenPipeError):  # a program may end without reading
                await process.send(stdin)
            await process.send_eof()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(feed)
            out, err = await read_all(process)
        return await process.wait(), out, err
