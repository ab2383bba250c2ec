"""Programs that reach this process through a socket: what a killed process leaves is removed, and nothing else."""

from __future__ import annotations

import os
import socket
import zlib
from pathlib import Path

import pytest
from anyio.abc import UNIXSocketStream

from harness.system.program_socket import SETUP_SECONDS, serve_program


def left_directory(parent: Path, name: str, *, listens: bool = False, age: float = 2 * SETUP_SECONDS) -> socket.socket:
    """Make what a process leaves that was killed, or that still runs."""
    directory = parent / name
    directory.mkdir(mode=0o700)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(directory / "s"))
    if listens:
        listener.listen()
    then = directory.stat().st_mtime - age
    os.utime(directory, (then, then))
    return listener


async def test_only_directories_of_killed_processes_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parent = tmp_path / "t"
    parent.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(parent))
    monkeypatch.setattr("harness.system.program_socket.MAX_PARENT_BYTES", 100)
    here = f"harness-e-{zlib.crc32(os.uname().nodename.encode()):08x}"
    other = "harness-e-of another machine"  # whose sockets refuse connections here
    left_directory(parent, "elsewhere").close()
    left_directory(parent, other).close()
    left_directory(parent, f"{here}-killed").close()
    (parent / f"{here}-link").symlink_to(parent / "elsewhere")
    left_directory(parent, f"{here}-open").close()
    (parent / f"{here}-open").chmod(0o777)

    async def answer(connection: UNIXSocketStream) -> None:
        """Serve nothing."""

    kept = {"elsewhere", other, *(f"{here}-{name}" for name in ("link", "open", "runs", "starts"))}
    with (
        left_directory(parent, f"{here}-runs", listens=True),
        left_directory(parent, f"{here}-starts", age=0.0),
    ):
        async with serve_program("e", "", answer) as program:
            own = Path(program).parent.name
            assert {path.name for path in parent.iterdir()} == {*kept, own}
    assert {path.name for path in parent.iterdir()} == kept
