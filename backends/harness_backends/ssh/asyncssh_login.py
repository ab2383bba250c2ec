"""Login with asyncssh: host keys, identities and prompts."""

from __future__ import annotations

import logging
import math
import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal

import anyio
import asyncssh
from anyio import to_thread

from harness.config import Config
from harness.errors import AuthenticationError, ConnectError, HostKeyError
from harness.extras import install_extra
from harness.login import LoginQuestion, Prompter, QuestionKind
from harness.system.private_files import make_directories
from harness.target import Target

from .asyncssh_process import translate, translated
from .asyncssh_settings import HostSettings
from .login_pacing import ThrottledError, log_in_paced

__all__ = [
    "HostKeys",
    "LoginHost",
    "OfferedKey",
    "host_name",
    "judge",
    "log_in",
    "refusal",
]


# -- Host keys: known ones, the decision about unknown ones, and the record of accepted ones.


USER_FILES = ("~/.ssh/known_hosts", "~/.ssh/known_hosts2")
SYSTEM_FILES = ("/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2")
DEFAULT_PORT = 22

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class OfferedKey:
    """A host key without a record for its host; ``known`` means that other keys are recorded."""

    name: str
    key: asyncssh.SSHKey
    known: bool

    @property
    def fingerprint(self) -> str:
        """The fingerprint in OpenSSH's form: ``SHA256:...``."""
        return self.key.get_fingerprint()

    @property
    def algorithm(self) -> str:
        """The algorithm, e.g. ``ssh-ed25519``."""
        return self.key.get_algorithm()


class HostKeys:
    """The known_hosts files, and the keys accepted in this login."""

    def __init__(self, user_files: Sequence[str] | None, system_files: Sequence[str] | None) -> None:
        self._user = [os.path.expanduser(path) for path in (USER_FILES if user_files is None else user_files)]
        self._system = list(SYSTEM_FILES if system_files is None else system_files)
        self._accepted = b"# known hosts\n"

    def data(self) -> bytes:
        """Return every known key in the files' format; never empty, as asyncssh would then read its default file."""
        parts = [self._accepted]
        for path in (*self._user, *self._system):
            try:
                with open(path, "rb") as file:
                    parts.append(file.read() + b"\n")
            except OSError:
                continue
        return b"".join(parts)

    def accept(self, offered: OfferedKey) -> None:
        """Trust a key, and record it in the user's first file as OpenSSH does."""
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
            _log.warning("the host key of %s was accepted but could not be recorded: %s", offered.name, error)


def _separator(before: bytes) -> bytes:
    return b"" if not before or before.endswith(b"\n") else b"\n"


def host_name(host: str, port: int) -> str:
    """Return a host as known_hosts files name it."""
    return host if port == DEFAULT_PORT else f"[{host}]:{port}"


def judge(checking: str, offered: OfferedKey, *, can_ask: bool) -> Literal["refuse", "ask", "accept"]:
    """Decide about a key without a record; a changed key is always refused."""
    if offered.known or checking in {"yes", "true"}:
        return "refuse"
    if checking == "accept-new":
        return "accept"
    return "ask" if can_ask else "refuse"


def refusal(offered: OfferedKey, target: Target) -> HostKeyError:
    """Return the error for a refused key, with its remedy."""
    key = f"{offered.algorithm} {offered.fingerprint}"
    if offered.known:
        return HostKeyError(
            f"the host key has changed: it is now {key}, which is not recorded for {offered.name}",
            target=target,
            hint=f"find out why; if the change is expected: ssh-keygen -R '{offered.name}', then log in with ssh once",
        )
    return HostKeyError(
        f"the host key is unknown: {key}",
        target=target,
        hint="compare the fingerprint with the host's own (ssh-keygen -lf), then log in with ssh once to record it",
    )


# -- The login: attempts until the host key, the private key and the prompts are settled.


ATTEMPTS = 3
"""Attempts for each password or passphrase, and for the login as a whole."""

CIPHERS = "^aes128-gcm@openssh.com,aes256-gcm@openssh.com"
"""The preferred ciphers if the user configured none.

asyncssh encrypts a packet with one call for these; its default, ChaCha20, sets up three ciphers per packet, which takes
half of the time of a command."""

_Lost = Callable[[Exception | None], None]
_Key = asyncssh.SSHKey | tuple[asyncssh.SSHKey, str]


@dataclass(frozen=True, slots=True)
class LoginHost:
    """One host to log in to, its configuration ``files``, and the connection to ``tunnel`` through."""

    target: Target
    config: Config
    files: Sequence[str]
    settings: HostSettings
    checking: str
    prompter: Prompter | None
    tunnel: asyncssh.SSHClientConnection | None = None


@dataclass(slots=True)
class _LoginDeadline:
    """The time limit of a login, paused while the operator answers."""

    scope: anyio.CancelScope
    asking: int = 0
    left: float = field(default=0.0)

    def pause(self) -> None:
        if self.asking == 0:
            self.left = self.scope.deadline - anyio.current_time()
            self.scope.deadline = math.inf
        self.asking += 1

    def resume(self) -> None:
        self.asking -= 1
        if self.asking == 0:
            self.scope.deadline = anyio.current_time() + self.left


class _Client(asyncssh.SSHClient):
    """The callbacks of asyncssh during one attempt."""

    def __init__(self, login: _Login) -> None:
        self._login = login
        self._connection: asyncssh.SSHClientConnection | None = None
        self._lost: _Lost | None = None
        self._ended = False
        self._passwords = 0
        self._rounds = 0
        self.offered: OfferedKey | None = None

    def connection_made(self, conn: asyncssh.SSHClientConnection) -> None:
        self._connection = conn

    def has_exchanged_keys(self) -> bool:
        """Return whether the connection is encrypted, so that the server may have seen an authentication."""
        return self._connection is not None and self._connection.get_extra_info("recv_cipher") is not None

    def on_loss(self, lost: _Lost) -> None:
        """Report the end of the connection to ``lost``, also if it has already ended."""
        self._lost = lost
        if self._ended:
            lost(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended = True
        if self._lost is not None:
            self._lost(exc)

    def validate_host_public_key(self, host: str, addr: str, port: int, key: asyncssh.SSHKey) -> bool:
        number = None if port == DEFAULT_PORT else port
        known = asyncssh.match_known_hosts(self._login.keys.data(), host, addr, number)[0]
        name = host if self._login.endpoint.settings.host_key_alias else host_name(host, port)
        self.offered = OfferedKey(name, key, bool(known))
        return False

    async def password_auth_requested(self) -> str | None:
        self._passwords += 1
        if self._passwords > ATTEMPTS:
            return None
        return await self._login.ask("password", "Password: ", secret=True)

    async def kbdint_auth_requested(self) -> str | None:
        self._rounds += 1
        return "" if self._login.endpoint.prompter is not None and self._rounds <= ATTEMPTS else None

    async def kbdint_challenge_received(
        self, name: str, instructions: str, lang: str, prompts: Sequence[tuple[str, bool]]
    ) -> list[str] | None:
        answers: list[str] = []
        for text, echo in prompts:
            kind: QuestionKind = "password" if "password" in text.lower() else "otp"
            answer = await self._login.ask(kind, text, secret=not echo)
            if answer is None:
                return None
            answers.append(answer)
        return answers


class _Login:
    """The shared state of one login's attempts."""

    def __init__(self, endpoint: LoginHost, clock: _LoginDeadline) -> None:
        self.endpoint = endpoint
        self.keys = HostKeys(endpoint.settings.known_hosts, endpoint.settings.global_known_hosts)
        self.gave_up = False
        self._clock = clock
        self._asking: list[anyio.CancelScope] = []
        self._asked: Counter[str] = Counter()

    async def ask(self, kind: QuestionKind, text: str, *, secret: bool) -> str | None:
        """Ask the operator, with the connection's time limit paused."""
        prompter = self.endpoint.prompter
        if prompter is None or self.gave_up:
            return None
        self._asked[text] += 1
        question = LoginQuestion(kind, text, secret, str(self.endpoint.target), self._asked[text])
        answer = None
        self._clock.pause()
        try:
            with anyio.CancelScope() as scope:  # asyncssh calls this in its own tasks, which outlive a cancelled login
                self._asking.append(scope)
                answer = await prompter.answer(question)
        finally:
            self._clock.resume()
        self.gave_up = answer is None
        return answer

    def end(self) -> None:
        """Cancel the open questions."""
        for scope in self._asking:
            scope.cancel()

    async def settle(self, offered: OfferedKey) -> None:
        """Accept an unknown host key, or raise HostKeyError."""
        decision = judge(self.endpoint.checking, offered, can_ask=self.endpoint.prompter is not None)
        if decision == "ask":
            decision = "accept" if await self._confirms(offered) else "refuse"
        if decision == "refuse":
            raise refusal(offered, self.endpoint.target)
        await to_thread.run_sync(self.keys.accept, offered)

    async def _confirms(self, offered: OfferedKey) -> bool:
        text = (
            f"The authenticity of host {offered.name} can't be established.\n"
            f"{offered.algorithm} key fingerprint is {offered.fingerprint}.\n"
            "Continue connecting (yes/no/fingerprint)? "
        )
        answer = await self.ask("hostkey", text, secret=False)
        return (answer or "").strip() in {"yes", offered.fingerprint}

    async def unlock(self, path: str) -> _Key | None:
        """Read an encrypted private key with the operator's passphrase; return None without an answer."""
        for _ in range(ATTEMPTS):
            text = f"Enter passphrase for key '{path}': "
            passphrase = await self.ask("passphrase", text, secret=True)
            if passphrase is None:
                return None
            try:
                return await to_thread.run_sync(_read_key, path, passphrase)
            except (asyncssh.KeyImportError, asyncssh.KeyEncryptionError) as error:
                if "bcrypt" in str(error):
                    raise AuthenticationError(
                        f"{path} cannot be unlocked without the bcrypt library",
                        target=self.endpoint.target,
                        hint=f"{install_extra('asyncssh')}, or load the key into an agent",
                    ) from error
        raise AuthenticationError(f"the passphrase for {path} is wrong", target=self.endpoint.target)


async def log_in(endpoint: LoginHost, lost: _Lost) -> asyncssh.SSHClientConnection:
    """Connect and authenticate; ``lost`` is called once, when the connection ends for any reason.

    Raises:
        ConnectError: the login failed; a subclass where the reason is known.
        ConfigError: the configuration is invalid.
    """
    pause = endpoint.config.connect_timeout
    return await log_in_paced(endpoint.settings.server, partial(_log_in_once, endpoint, lost), max_pause=pause)


async def _log_in_once(endpoint: LoginHost, lost: _Lost) -> asyncssh.SSHClientConnection:
    config = endpoint.config
    with (
        anyio.move_on_after(config.login_timeout),
        anyio.move_on_after(config.connect_timeout) as scope,
        translated(endpoint.target),
    ):
        login = _Login(endpoint, _LoginDeadline(scope))
        try:
            return await _attempts(login, lost)
        finally:
            login.end()
    raise ConnectError(
        "the login did not finish in time",
        target=endpoint.target,
        hint="check the host and the network, or raise connect_timeout",
    )


async def _attempts(login: _Login, lost: _Lost) -> asyncssh.SSHClientConnection:
    can_ask = login.endpoint.prompter is not None
    locked = await to_thread.run_sync(_locked, login.endpoint.settings.identities) if can_ask else []
    unlocked: list[_Key] = []
    for _ in range(ATTEMPTS):
        client = _Client(login)
        try:
            connection = await _connect(login, client, unlocked, questions=can_ask and not locked)
        except asyncssh.HostKeyNotVerifiable as error:
            if client.offered is None:
                raise translate(error, login.endpoint.target) from error
            await login.settle(client.offered)
        except (asyncssh.ConnectionLost, ConnectionResetError) as error:
            if client.has_exchanged_keys() or login.endpoint.settings.proxy_command:
                raise  # a proxy command may have been refused
            raise ThrottledError(
                "the server closed the connection before the login",
                target=login.endpoint.target,
                hint="MaxStartups of its sshd, a ban or a firewall",
            ) from error
        except asyncssh.PermissionDenied:
            if not locked:
                raise
            found = [await login.unlock(path) for path in locked]
            unlocked, locked = [key for key in found if key is not None], []
        else:
            client.on_loss(lost)
            return connection
    raise ConnectError("the host offers a different host key at each attempt", target=login.endpoint.target)


async def _connect(
    login: _Login, client: _Client, unlocked: Sequence[_Key], *, questions: bool
) -> asyncssh.SSHClientConnection:
    endpoint, hop = login.endpoint, login.endpoint.target.last
    return await asyncssh.connect(
        hop.host,
        hop.port or (),
        username=hop.user or (),
        config=list(endpoint.files),
        tunnel=endpoint.tunnel,
        client_factory=lambda: client,
        known_hosts=login.keys.data(),
        client_keys=[*unlocked, *endpoint.settings.identities],
        encryption_algs=() if endpoint.settings.chooses_ciphers else CIPHERS,
        ignore_encrypted=True,
        password_auth=() if questions else False,
        kbdint_auth=() if questions else False,
        keepalive_interval=endpoint.config.keepalive_interval,
        keepalive_count_max=endpoint.config.keepalive_count,
        connect_timeout=None,
        login_timeout=0,
        encoding=None,
    )


def _read_key(path: str, passphrase: str) -> _Key:
    key = asyncssh.read_private_key(path, passphrase)
    certificate = f"{path}-cert.pub"
    return (key, certificate) if os.path.exists(certificate) else key


def _locked(paths: Sequence[str]) -> list[str]:
    return [path for path in paths if _needs_passphrase(path)]


def _needs_passphrase(path: str) -> bool:
    try:
        asyncssh.read_private_key(path)
    except asyncssh.KeyImportError as error:
        return "passphrase" in str(error).lower()
    except (OSError, ValueError):
        return False
    return False
