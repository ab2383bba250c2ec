"""Host keys of the asyncssh engine: the recorded ones, the decision about others, and the record of accepted ones."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import asyncssh

from harness.errors import HostKeyError
from harness.target import Target

from .asyncssh_settings import HostSettings
from .known_hosts import KnownKey, add_known_key, changed_key, find_known_keys, unknown_key

__all__ = ["HostKeys", "OfferedKey", "judge", "refusal"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class OfferedKey:
    """A host key without a record for its host; ``place`` is where another key is recorded."""

    name: str
    key: asyncssh.SSHKey
    place: str = ""

    @property
    def fingerprint(self) -> str:
        """The fingerprint in OpenSSH's form: ``SHA256:...``."""
        return self.key.get_fingerprint()

    @property
    def algorithm(self) -> str:
        """The algorithm, e.g. ``ssh-ed25519``."""
        return self.key.get_algorithm()


class HostKeys:
    """The recorded keys of a host, and those accepted in this login."""

    def __init__(self, host: HostSettings) -> None:
        self._host = host
        self._accepted: list[asyncssh.SSHKey] = []
        files = (*host.user_files, *host.system_files)
        found = [find_known_keys(name, files) for name in host.names]
        self._recorded = [line for line in next(iter(found), []) if not line.marker]
        trusted = next((lines for lines in found if any(not line.marker for line in lines)), [])
        marked = [line for lines in found for line in lines]
        self._trusted = _import(line for line in trusted if not line.marker)
        self.authorities = _import(line for line in marked if line.marker == "@cert-authority")
        self.revoked = _import(line for line in marked if line.marker == "@revoked")

    @property
    def types(self) -> list[str]:
        """The types of the recorded keys."""
        return [key.get_algorithm() for key in self._trusted]

    def find(self, *_server: object) -> tuple[list[asyncssh.SSHKey], list[asyncssh.SSHKey], list[asyncssh.SSHKey]]:
        """Return the keys to trust, the authorities, and the revoked keys, for asyncssh.

        A key that is recorded for the server's address only is not trusted, as with ssh.
        """
        return [*self._accepted, *self._trusted], self.authorities, self.revoked

    def offered(self, key: asyncssh.SSHKey) -> OfferedKey:
        """Return what to decide about a key without a record."""
        return OfferedKey(self._host.names[0], key, self._recorded[-1].place if self._recorded else "")

    def accept(self, offered: OfferedKey) -> None:
        """Trust a key, and record it in the user's first file as OpenSSH does."""
        self._accepted.append(offered.key)
        path = next(iter(self._host.user_files), os.devnull)
        if path == os.devnull:
            return
        key = offered.key.export_public_key().decode().strip()
        try:
            add_known_key(path, offered.name, key, hashed=self._host.hashes_names)
        except OSError as error:
            _log.warning("the host key of %s was accepted but could not be recorded: %s", offered.name, error)


def _import(lines: Iterable[KnownKey]) -> list[asyncssh.SSHKey]:
    keys = []
    for line in lines:
        with suppress(asyncssh.KeyImportError):  # of a type that asyncssh does not know
            keys.append(_import_key(line.key))
    return keys


@lru_cache(maxsize=1024)
def _import_key(text: str) -> asyncssh.SSHKey:
    return asyncssh.import_public_key(text)


def judge(checking: str, offered: OfferedKey, *, can_ask: bool) -> Literal["refuse", "ask", "accept"]:
    """Decide about a key without a record; a changed key is always refused."""
    if offered.place or checking in {"yes", "true"}:
        return "refuse"
    if checking == "accept-new":
        return "accept"
    return "ask" if can_ask else "refuse"


def refusal(offered: OfferedKey, target: Target) -> HostKeyError:
    """Return the error for a refused key, in the words that are used for OpenSSH's."""
    presented = f"{offered.algorithm} {offered.fingerprint}"
    if offered.place:
        return changed_key(presented, offered.place, target)
    return unknown_key(presented, target)
