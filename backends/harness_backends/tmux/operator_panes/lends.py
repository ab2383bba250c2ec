"""Which panes are lent: one private file for each in the state directory, which no program at the socket can write.

A lend names the server and the pane's first process, so it ends with either of them; tmux compares both in the step
that types.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from harness.errors import TerminalError
from harness.system.private_files import check_private, make_private, replace_file, state_home
from harness.target import Target

from .server import OperatorPane, OperatorServer

__all__ = ["LendStore", "PaneLend", "lend_directory"]

MAX_LEND_BYTES = 8 << 10
MAX_LENDS = 1_000
"""Maximum files that are read: operators have fewer panes."""


@dataclass(frozen=True, slots=True)
class PaneLend:
    """One lent pane; ``until`` is the Unix time at which it ends, None without one."""

    socket: str
    server: str
    pane_id: str
    pane_pid: int
    until: float | None = None

    def covers(self, server: OperatorServer, pane: OperatorPane) -> bool:
        """Return whether it is about this pane and its first process."""
        mine = (self.socket, self.server, self.pane_id, self.pane_pid)
        return mine == (server.socket, server.identity, pane.pane_id, pane.pid)


def lend_directory() -> Path:
    """Return ``$XDG_STATE_HOME/harness/lent-panes``, or ``~/.local/state/harness/lent-panes``."""
    return state_home() / "lent-panes"


class LendStore:
    """The lends of one tmux server. Everything here blocks for a few small files.

    Args:
        server: The server.
        directory: The private directory of the files.
        clock: Returns the Unix time.
    """

    def __init__(self, server: OperatorServer, directory: Path, clock: Callable[[], float] = time.time) -> None:
        self._server = server
        self._directory = directory
        self._clock = clock

    def valid(self, panes: Iterable[OperatorPane]) -> dict[str, PaneLend]:
        """Return the lends of these panes that have not ended, by pane id.

        Raises:
            TerminalError: The directory is not private, so a lend in it proves nothing.
        """
        found = {}
        for pane in panes:
            lend = self._read(self._path(pane.pane_id))
            if lend is not None and lend.covers(self._server, pane) and not self._has_ended(lend):
                found[pane.pane_id] = lend
        return found

    def add(self, pane: OperatorPane, seconds: float | None) -> PaneLend:
        """Lend a pane, for some seconds or until it is ended; remove the files of lends that have ended.

        Raises:
            TerminalError: The file cannot be written.
        """
        until = None if seconds is None else self._clock() + seconds
        lend = PaneLend(self._server.socket, self._server.identity, pane.pane_id, pane.pid, until)
        try:
            make_private(self._directory, failure=self._failure)
            replace_file(self._path(pane.pane_id), json.dumps(asdict(lend)).encode())
        except OSError as error:
            raise self._failure((error.strerror or "error").lower(), "") from None
        self._remove_ended()
        return lend

    def end(self, pane_id: str) -> None:
        """End the lend of a pane, if it is lent.

        Raises:
            TerminalError: The file cannot be removed.
        """
        try:
            self._path(pane_id).unlink(missing_ok=True)
        except OSError as error:
            raise self._failure((error.strerror or "error").lower(), "") from None

    def _path(self, pane_id: str) -> Path:
        key = "\0".join((self._server.socket, self._server.identity, pane_id))
        return self._directory / f"{hashlib.sha256(key.encode('utf-8', 'surrogateescape')).hexdigest()[:24]}.json"

    def _read(self, path: Path) -> PaneLend | None:
        """Return a lend; None without one, or for a file that this user did not write."""
        try:
            check_private(self._directory, failure=self._failure)
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            with open(descriptor, "rb") as file:
                info = os.fstat(descriptor)
                if not stat.S_ISREG(info.st_mode) or info.st_uid != os.geteuid() or info.st_mode & 0o077:
                    return None
                return parse_lend(file.read(MAX_LEND_BYTES))
        except OSError:
            return None

    def _has_ended(self, lend: PaneLend) -> bool:
        return lend.until is not None and lend.until <= self._clock()

    def _remove_ended(self) -> None:
        for path in sorted(self._directory.glob("*.json"))[:MAX_LENDS]:
            lend = self._read(path)
            if lend is None or self._has_ended(lend) or not _is_process(lend.pane_pid):
                path.unlink(missing_ok=True)

    def _failure(self, why: str, hint: str) -> TerminalError:
        return TerminalError(f"{self._directory} cannot hold lends: {why}", target=Target.parse("local:"), hint=hint)


def parse_lend(data: bytes) -> PaneLend | None:
    """Return a lend from its file; None if that is damaged. Pure."""
    try:
        match json.loads(data):
            case {
                "socket": str(socket),
                "server": str(server),
                "pane_id": str(pane),
                "pane_pid": int(pid),
                "until": until,
            }:
                is_time = isinstance(until, int | float)
                return PaneLend(socket, server, pane, pid, until) if is_time or until is None else None
    except ValueError:
        pass
    return None


def _is_process(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
