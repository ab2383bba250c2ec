"""Who may use the dashboard: invitations, logins and their roles, in a private file that keeps no secret.

An invitation is a one-time token in the fragment of a URL. It is exchanged for a cookie, which pages cannot read, and a
key, which the page keeps. A cookie alone is not enough: browsers send the cookies of a host to each of its ports, and
another user of this machine may listen on one; the key stays in the storage of the page's origin, which has the port.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from ..errors import ConfigError, HarnessError
from ..system.private_files import hold_lock, make_private, replace_file, state_home
from ..system.process_identity import ProcessId, ProcessState, process_state, this_process

__all__ = [
    "INVITATION_LIFETIME",
    "LOGIN_LIFETIME",
    "MAX_ENTRIES",
    "Exchanged",
    "Login",
    "LoginStore",
    "Role",
    "check_name",
    "login_directory",
]

INVITATION_LIFETIME = 15 * 60.0
"""Seconds for which an invitation can be used, once."""
LOGIN_LIFETIME = 12 * 3600.0
"""Seconds after which a login ends."""
MAX_ENTRIES = 100
"""Maximum invitations, and maximum logins; the oldest ones are removed."""
MAX_SECRET_CHARS = 200
MAX_NAME_CHARS = 64
LOCK_TIMEOUT = 5.0


class Role(StrEnum):
    """What a login may do."""

    VIEWER = "viewer"
    """See everything, and change nothing."""
    OPERATOR = "operator"
    """Approve, pause, kill and type as well."""


@dataclass(frozen=True, slots=True)
class Login:
    """A login: who it is, until the Unix time ``expires``. ``login_id`` names it, and is not secret."""

    name: str
    role: Role
    expires: float
    login_id: str


@dataclass(frozen=True, slots=True)
class Exchanged:
    """A new login with its two secrets, which are stored nowhere else."""

    login: Login
    cookie: str
    key: str


@dataclass(frozen=True, slots=True)
class _Entry:
    """An invitation, whose ``key`` is empty, or a login: SHA-256 of its secrets, which are random and long."""

    secret: str
    name: str
    role: str
    created: float
    expires: float
    key: str = ""


@dataclass(frozen=True, slots=True)
class _Content:
    url: str = ""
    server: str = ""
    invitations: tuple[_Entry, ...] = ()
    logins: tuple[_Entry, ...] = ()

    def at(self, now: float) -> _Content:
        """Return the content without what has expired."""
        alive = [tuple(one for one in entries if one.expires > now) for entries in (self.invitations, self.logins)]
        return replace(self, invitations=alive[0][-MAX_ENTRIES:], logins=alive[1][-MAX_ENTRIES:])


def login_directory(environ: Mapping[str, str] | None = None) -> Path:
    """Return the directory of the dashboard's logins."""
    return state_home(environ) / "web"


def check_name(name: str) -> str:
    """Return a name of a person, who is named in the audit log.

    Raises:
        ConfigError: It is empty, too long, or not printable.
    """
    if not name or len(name) > MAX_NAME_CHARS or not name.isprintable() or name != name.strip():
        raise ConfigError(f"invalid name {name!r}", hint=f"use 1 to {MAX_NAME_CHARS} printable characters")
    return name


class LoginStore:
    """The file of invitations and logins, which several processes may change. Everything here blocks.

    Args:
        directory: Its private directory.
        clock: Returns the Unix time.
    """

    def __init__(self, directory: Path, clock: Callable[[], float] = time.time) -> None:
        self._directory = directory
        self._file = directory / "logins.json"
        self._clock = clock
        self._cached: tuple[tuple[int, int], _Content] | None = None
        make_private(directory, failure=lambda what, hint: ConfigError(f"{directory}: {what}", hint=hint))

    # -- invitations

    def invite(self, name: str, role: Role, lifetime: float = INVITATION_LIFETIME) -> str:
        """Return a one-time token for a person.

        Raises:
            ConfigError: The name is not valid.
        """
        token = secrets.token_urlsafe(32)
        now = self._clock()
        entry = _Entry(_hash(token), check_name(name), Role(role).value, now, now + lifetime)
        with self._changing() as change:
            change(lambda content: replace(content, invitations=(*content.invitations, entry)))
        return token

    def exchange(self, token: str) -> Exchanged | None:
        """Use up an invitation, and return the login; None if there is no such invitation, or it was used."""
        now, cookie, key = self._clock(), secrets.token_urlsafe(32), secrets.token_urlsafe(32)
        with self._changing() as change:
            found = _find(self._read().at(now).invitations, token)
            if found is None:
                return None
            login = replace(found, secret=_hash(cookie), key=_hash(key), created=now, expires=now + LOGIN_LIFETIME)

            def use(content: _Content) -> _Content:
                left = tuple(one for one in content.invitations if one.secret != found.secret)
                return replace(content, invitations=left, logins=(*content.logins, login))

            change(use)
        return Exchanged(_login(login), cookie, key)

    # -- logins

    def find(self, cookie: str, key: str) -> Login | None:
        """Return the login of a cookie and a key."""
        entry = _find(self._read().at(self._clock()).logins, cookie)
        if entry is None or not hmac.compare_digest(entry.key, _hash(key)):
            return None
        return _login(entry)

    def logins(self) -> list[Login]:
        """Return all logins."""
        return [_login(one) for one in self._read().at(self._clock()).logins]

    def end(self, *, login_id: str = "", name: str = "") -> int:
        """End the logins and invitations with an ID or a name, and return how many."""

        def is_meant(entry: _Entry) -> bool:
            return (bool(login_id) and _login(entry).login_id == login_id) or (bool(name) and entry.name == name)

        with self._changing() as change:
            content = self._read().at(self._clock())
            ended = [one for one in (*content.invitations, *content.logins) if is_meant(one)]
            change(
                lambda now: replace(
                    now,
                    invitations=tuple(one for one in now.invitations if not is_meant(one)),
                    logins=tuple(one for one in now.logins if not is_meant(one)),
                )
            )
        return len(ended)

    # -- the address of the server, for invitations that another process makes

    @property
    def url(self) -> str:
        """The URL of the last server; empty before the first one."""
        return self._read().url

    @property
    def running_url(self) -> str:
        """The URL of the last server if it still runs on this machine, else empty."""
        content = self._read()
        if not content.server:
            return ""
        try:
            server = ProcessId.from_text(content.server)
        except ValueError as error:
            raise self._unreadable(error) from error
        return content.url if process_state(server, this_process()) is ProcessState.ALIVE else ""

    def set_url(self, url: str) -> None:
        """Store the URL of the server, which is this process."""
        server = this_process().to_text()
        with self._changing() as change:
            change(lambda content: replace(content, url=url, server=server))

    # -- the file

    def _read(self) -> _Content:
        try:
            with open(self._file, "rb") as file:
                info = os.fstat(file.fileno())
                version = (info.st_ino, info.st_mtime_ns)
                if self._cached is not None and self._cached[0] == version:
                    return self._cached[1]
                content = _content_of(json.loads(file.read()))
        except FileNotFoundError:
            return _Content()
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise self._unreadable(error) from error
        self._cached = version, content
        return content

    def _unreadable(self, error: Exception) -> HarnessError:
        return HarnessError(f"{self._file}: cannot be read: {error}", hint="remove it; logins end")

    @contextmanager
    def _changing(self) -> Iterator[Callable[[Callable[[_Content], _Content]], None]]:
        def change(changed: Callable[[_Content], _Content]) -> None:
            content = changed(self._read().at(self._clock()))
            replace_file(self._file, json.dumps(asdict(content)).encode())

        try:
            with hold_lock(self._directory / "lock", LOCK_TIMEOUT):
                yield change
        except OSError as error:
            raise HarnessError(f"{self._file}: {error.strerror or error}") from error


def _content_of(document: Mapping[str, Any]) -> _Content:
    lists = {name: tuple(_Entry(**one) for one in document[name]) for name in ("invitations", "logins")}
    return _Content(str(document["url"]), str(document.get("server", "")), **lists)


def _find(entries: tuple[_Entry, ...], secret: str) -> _Entry | None:
    """Return the entry of a secret; each entry is compared, in constant time."""
    wanted, found = _hash(secret), None
    for entry in entries:
        if hmac.compare_digest(entry.secret, wanted):
            found = entry
    return found


def _hash(secret: str) -> str:
    return hashlib.sha256(secret[:MAX_SECRET_CHARS].encode("utf-8", "surrogatepass")).hexdigest()


def _login(entry: _Entry) -> Login:
    return Login(entry.name, Role(entry.role), entry.expires, entry.secret[:16])
