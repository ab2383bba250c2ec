"""A command's standard input, on its way to the target: bytes, or a file of this machine, which is never held whole."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

from harness.errors import NoSpace
from harness.transport import Transport

from ..files.transfer import feed
from ..local_source import open_source

__all__ = ["in_memory", "pieces", "store_input"]

_STORE = 'umask 077; cat >"$1" && exit; rm -f "$1"; exit 1'


def in_memory(parts: tuple[bytes | Path, ...], limit: int) -> bytes | None:
    """All of it; None when a part is a file, or it has more than ``limit`` bytes."""
    data = [part for part in parts if isinstance(part, bytes)]
    return b"".join(data) if len(data) == len(parts) and sum(map(len, data)) <= limit else None


async def pieces(*parts: bytes | Path) -> AsyncGenerator[bytes]:
    """One part after the other, in pieces.

    Raises:
        FileError: a file cannot be read, or is no regular file.
    """
    for part in parts:
        if isinstance(part, bytes):
            yield part
            continue
        async with open_source(str(part)) as source:
            async for data in source.chunks(_unseen):
                yield data


def _unseen(data: bytes) -> None:
    pass


async def store_input(transport: Transport, path: str, *parts: bytes | Path) -> None:
    """Write it to a private file on the target.

    Raises:
        NoSpace: the target could not take it.
        FileError: a file cannot be read, or is no regular file.
    """
    reply = await feed(await transport.open_process(["sh", "-c", _STORE, "sh", path]), pieces(*parts))
    if reply.exit_code != 0:
        why = " ".join(reply.stderr.decode("utf-8", "replace").split())
        raise NoSpace(
            f"the command's input could not be stored, so nothing ran: {why}",
            target=transport.target,
            hint="free some space where harness keeps its state",
        )
