"""Host keys: which are known, what an unknown one means, and how an accepted one is recorded."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import asyncssh

from harness.errors import HostKeyError
from harness.system.private_files import make_directories
from harness.target import Target

__all__ = ["DEFAULT_PORT", "HostKeys", "OfferedKey", "host_name", "judge", "refusal"]

USER_FILES = ("~/.ssh/known_hosts", "~/.ssh/known_hosts2")
SYSTEM_FILES = ("/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2")
DEFAULT_PORT = 22

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class OfferedKey:
    """A key that a host offered and that is not on record for it. ``known``: other keys are."""

    name: str
    key: asyncssh.SSHKey
    known: bool

    @property
    def fingerprint(self) -> str:
        """As OpenSSH shows it: ``SHA256:...``."""
        return self.key.get_fingerprint()

    @property
    def algorithm(self) -> str:
        """For example ``ssh-ed25519``."""
        return self.key.get_algorithm()


class HostKeys:
    """The files with known keys, and the keys accepted in this login."""

    def __init__(self, user_files: Sequence[str] | None, system_files: Sequence[str] | None) -> None:
        self._user = [os.path.expanduser(path) for path in (USER_FILES if user_files is None else user_files)]
        self._system = list(SYSTEM_FILES if system_files is None else system_files)
        self._accepted = b"# known hosts\n"

    def data(self) -> bytes:
        """Every known key, in the files' format; never empty, which asyncssh would take for its own default file."""
        parts = [self._accepted]
        for path in (*self._user, *self._system):
            try:
                with open(path, "rb") as file:
                    parts.append(file.read() + b"\n")
            except OSError:
                continue
        return b"".join(parts)

    def accept(self, offered: OfferedKey) -> None:
        """Trust a key from now on, and record it in the user's first file, as OpenSSH does."""
        line = f"{offered.name} ".encode() + offered.key.export_public_key().strip() + b"\n"
        self._accepted += line
        path = self._user[0] if self._user else ""
        if not path or path == os.devnull:
            return
        try:
            make_directories(Path(path).parent)
            with open(os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600), "r+b") as file:
                file.write(_separator(file.read()) + line)
        except OSError as error:
            _log.warning("the host key of %s was accepted and could not be recorded: %s", offered.name, error)


def _separator(before: bytes) -> bytes:
    return b"" if not before or before.endswith(b"\n") else b"\n"


def host_name(host: str, port: int) -> str:
    """A host as known_hosts files name it."""
    return host if port == DEFAULT_PORT else f"[{host}]:{port}"


def judge(checking: str, offered: OfferedKey, *, can_ask: bool) -> Literal["refuse", "ask", "accept"]:
    """What to do with a key that is not on record. A changed one is always refused."""
    if offered.known or checking in {"yes", "true"}:
        return "refuse"
    if checking == "accept-new":
        return "accept"
    return "ask" if can_ask else "refuse"


def refusal(offered: OfferedKey, target: Target) -> HostKeyError:
    """Why a key was refused, and what to do."""
    key = f"{offered.algorithm} {offered.fingerprint}"
    if offered.known:
        return HostKeyError(
            f"the host's key has changed: it is now {key}, which is not on record for {offered.name}",
            target=target,
            hint=f"find out why; if it is right: ssh-keygen -R '{offered.name}' and log in with ssh once",
        )
    return HostKeyError(
        f"the host's key is not known: {key}",
        target=target,
        hint="compare it with the host's own (ssh-keygen -lf), then log in with ssh once to record it",
    )
