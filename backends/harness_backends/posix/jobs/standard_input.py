"""Transfer of a command's standard input to the target: bytes, or a file that is read in pieces."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

from harness.errors import NoSpace
from harness.transport import Transport

__all__ = ["in_memory", "pieces", "store_input"]

_STORE = 'umask 077; cat >"$1" && exit; rm -f "$1"; exit 1'


def in_memory(parts: tuple[bytes | Path, ...], limit: int) -> bytes | None:
    """Return the joined parts; None if one is a file, or they have more than ``limit`` bytes."""
    data = [part for part in parts if isinstance(part, bytes)]
    return b"".join(data) if len(data) == len(parts) and sum(map(len, data)) <= limit else None


async def pieces(*parts: bytes | Path) -> AsyncGenerator[bytes]:
    """Yield the parts in order, in pieces.

    Raises:
        FileError: a file cannot be read, or is not a regular file.
    """
    from ..files.upload_source import open_source  # loaded here: few commands have so much input

    for part in parts:
        if isinstance(part, bytes):
            yield part
            continue
        async with open_source(str(part)) as source:
            async for data in source.chunks(0, source.size):
                yield data


async def store_input(transport: Transport, path: str, *parts: bytes | Path) -> None:
    """Write the parts to a private file on the target.

    Raises:
        NoSpace: the target could not store them.
        FileError: a file cannot be read, or is not a regular file.
    """
    from ..files.transfer import feed  # as above

    reply = await feed(await transport.open_process(["sh", "-c", _STORE, "sh", path]), pieces(*parts))
    if reply.exit_code != 0:
        why = " ".join(reply.stderr.decode("utf-8", "replace").split())
        raise NoSpace(
            f"the command's input could not be stored, so nothing ran: {why}",
            target=transport.target,
            hint="free disk space in harness's state directory",
        )
