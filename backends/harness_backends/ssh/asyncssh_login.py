"""Login with asyncssh: attempts until the host key, the private key and the prompts are settled."""

from __future__ import annotations

import asyncio
import errno
import logging
import math
import os
import re
import socket
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any, Literal

import anyio
import asyncssh
from anyio import to_thread

from harness.config import Config
from harness.errors import AuthenticationError, ConnectError, HarnessError, HostKeyError
from harness.extras import install_extra
from harness.login import LoginQuestion, Prompter, QuestionKind
from harness.target import Target

from .asyncssh_process import translate, translated
from .asyncssh_settings import HostSettings, algorithm_arguments, config_file
from .asyncssh_user_keys import ClientKey, OfferedKeys, agent_key_types, key_problems, offered_keys, read_identities
from .known_hosts import (
    KnownKey,
    add_known_key,
    changed_key,
    find_known_keys,
    is_readable_at_once,
    revoked_key,
    unknown_key,
)
from .login import AgentRefusedError, add_advice, diagnose, login_timed_out
from .login_pacing import ThrottledError, log_in_paced

__all__ = ["HostKeys", "LoginHost", "OfferedKey", "find_differences", "judge", "log_in", "refusal"]


# -- Host keys.

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


# -- The login.


ATTEMPTS = 3
"""Attempts for each password or passphrase, and for the login as a whole."""

_ERRNO = re.compile(r"\[Errno (\d+)\]")
_Lost = Callable[[Exception | None], None]


@dataclass(frozen=True, slots=True)
class LoginHost:
    """One host to log in to, and the connection to ``tunnel`` through."""

    target: Target
    config: Config
    settings: HostSettings
    prompter: Prompter | None
    tunnel: asyncssh.SSHClientConnection | None = None


@dataclass(slots=True)
class _LoginDeadline:
    """The time limit of a connection until its authentication begins, paused while the operator answers."""

    scope: anyio.CancelScope
    asking: int = 0
    left: float = field(default=0.0)

    def start(self, seconds: float) -> None:
        """Limit the next connection."""
        self.scope.deadline = anyio.current_time() + seconds

    def stop(self) -> None:
        """End the limit: as with ssh, the authentication may take longer than the connection."""
        self.scope.deadline = self.left = math.inf

    def pause(self) -> None:
        if self.asking == 0:
            self.left = self.scope.deadline - anyio.current_time()
            self.scope.deadline = math.inf
        self.asking += 1

    def resume(self) -> None:
        self.asking -= 1
        if self.asking == 0:
            self.scope.deadline = anyio.current_time() + self.left

    @property
    def stopped(self) -> bool:
        """Whether the authentication has begun."""
        return self.scope.deadline == math.inf


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

    def begin_auth(self, username: str) -> None:
        self._login.clock.stop()

    @property
    def has_connection(self) -> bool:
        """Whether asyncssh has begun to use the connection, and closes it."""
        return self._connection is not None

    def has_exchanged_keys(self) -> bool:
        """Return whether the connection is encrypted, so that the server may have seen an authentication."""
        return self._connection is not None and self._connection.get_extra_info("recv_cipher") is not None

    def abort(self) -> None:
        """End the connection at once."""
        if self._connection is not None:
            self._connection.abort()

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
        self.offered = self._login.keys.offered(key)
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
        self.keys = HostKeys(endpoint.settings)
        self.gave_up = False
        self.clock = clock
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
        self.clock.pause()
        try:
            with anyio.CancelScope() as scope:  # asyncssh calls this in its own tasks, which outlive a cancelled login
                self._asking.append(scope)
                answer = await prompter.answer(question)
        finally:
            self.clock.resume()
        self.gave_up = answer is None
        return answer

    def end(self) -> None:
        """Cancel the open questions."""
        for scope in self._asking:
            scope.cancel()

    async def settle(self, offered: OfferedKey) -> None:
        """Accept an unknown host key, or raise HostKeyError."""
        decision = judge(self.endpoint.settings.checking, offered, can_ask=self.endpoint.prompter is not None)
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

    async def unlock(self, path: str) -> ClientKey | None:
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
    config = endpoint.config
    attempt = partial(_log_in_once, endpoint, lost)
    try:
        return await log_in_paced(endpoint.settings.server, attempt, max_pause=config.connect_timeout)
    except HarnessError as error:
        add_advice(error, config.ssh_config, asked=endpoint.prompter is not None)
        raise


async def _log_in_once(endpoint: LoginHost, lost: _Lost) -> asyncssh.SSHClientConnection:
    config = endpoint.config
    with (
        anyio.move_on_after(config.login_timeout),
        anyio.CancelScope() as scope,
        translated(endpoint.target),
    ):
        clock = _LoginDeadline(scope)
        login = _Login(endpoint, clock)
        try:
            return await _attempts(login, lost)
        finally:
            login.end()
    if clock.stopped:
        raise login_timed_out(config.login_timeout, endpoint.target)
    raise ConnectError(
        "the login did not finish in time",
        target=endpoint.target,
        hint="check the host and the network, or raise connect_timeout",
    )


async def _attempts(login: _Login, lost: _Lost) -> asyncssh.SSHClientConnection:
    can_ask = login.endpoint.prompter is not None
    identities = await to_thread.run_sync(read_identities, login.endpoint.settings.identities)
    locked = [found.path for found in identities if found.encrypted] if can_ask else []
    unlocked: list[ClientKey] = []
    for _ in range(ATTEMPTS):
        client = _Client(login)
        login.clock.start(login.endpoint.config.connect_timeout)
        try:
            connection = await _connect(login, client, unlocked, questions=can_ask and not locked)
        except asyncssh.HostKeyNotVerifiable as error:
            if client.offered is None:
                raise _revoked(error, login.endpoint.target) from error
            await login.settle(client.offered)
        except (asyncssh.ConnectionLost, ConnectionResetError) as error:
            if client.has_exchanged_keys() or login.endpoint.settings.uses_proxy_command:
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


@contextmanager
def _connecting(endpoint: LoginHost) -> Iterator[None]:
    """Translate the errors of the connection itself; a reset one may be the server's answer."""
    direct = endpoint.tunnel is None and not endpoint.settings.uses_proxy_command
    try:
        yield
    except OSError as error:
        if not direct or isinstance(error, ConnectionResetError):
            raise
        raise _unreachable(error, endpoint) from error


_FAMILIES = {"inet": socket.AF_INET, "inet6": socket.AF_INET6}


async def _connect_socket(login: _Login) -> socket.socket | None:
    """Connect to the first address that answers: as with ssh, each one has the time limit.

    Returns:
        None where asyncssh connects itself: through another host or program, or from a certain address.
    """
    ssh, limit = login.endpoint.settings.ssh, login.endpoint.config.connect_timeout
    if login.endpoint.tunnel is not None or login.endpoint.settings.uses_proxy_command or ssh.get("bindaddress"):
        return None
    family = _FAMILIES.get(ssh.get("addressfamily"), socket.AF_UNSPEC)
    found = await anyio.getaddrinfo(ssh.get("hostname"), ssh.get("port"), family=family, type=socket.SOCK_STREAM)
    login.clock.stop()
    failure = OSError(errno.EADDRNOTAVAIL, "no address")
    for number, (family, kind, protocol, _, address) in enumerate(found):
        try:
            return await _connect_address(socket.socket(family, kind, protocol), address, limit)
        except OSError as error:
            failure = failure if number else error
    raise failure


async def _connect_address(opened: socket.socket, address: tuple[Any, ...], limit: float) -> socket.socket:
    opened.setblocking(False)
    try:
        with anyio.fail_after(limit):
            await asyncio.get_running_loop().sock_connect(opened, address)
    except TimeoutError:
        opened.close()
        raise OSError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT)) from None
    except BaseException:
        opened.close()
        raise
    return opened


@contextmanager
def _closing_unused(opened: socket.socket | None, client: _Client) -> Iterator[None]:
    """Close a socket when asyncssh fails, or is cancelled, before it has taken it."""
    try:
        yield
    except BaseException:
        if opened is not None and not client.has_connection:
            opened.close()
        raise


@contextmanager
def _leaving_to_ssh(endpoint: LoginHost, client: _Client, offered: OfferedKeys) -> Iterator[None]:
    """With ``auto``, end a login before another key is tried than the one that the agent may use for ssh only."""
    if offered.agent is None or endpoint.config.ssh_engine != "auto":
        yield
        return
    offered.agent.on_refusal = client.abort
    failure = None
    try:
        yield
    except (asyncssh.Error, OSError) as error:
        failure = error
    if offered.agent.refused:  # asyncssh.connect may have returned the ended connection
        raise AgentRefusedError(
            "the agent refused to sign with a key that the server accepts",
            target=endpoint.target,
            hint="unlock the key in its agent or token, or use another one",
        ) from failure
    if failure is not None:
        raise failure


def _unreachable(error: OSError, endpoint: LoginHost) -> HarnessError:
    """Return the error for a host without a connection, in the words that ssh's own message gives."""
    host, port = (endpoint.settings.ssh.get(name) for name in ("hostname", "port"))
    if isinstance(error, socket.gaierror):
        return diagnose(f"ssh: Could not resolve hostname {host}: {error.strerror}", endpoint.target)
    number = error.errno or next(map(int, _ERRNO.findall(str(error))), 0)  # of the first of several addresses
    return diagnose(f"ssh: connect to host {host} port {port}: {os.strerror(number)}", endpoint.target)


def _revoked(error: asyncssh.HostKeyNotVerifiable, target: Target) -> HarnessError:
    """Return the error for a host key or a certificate that asyncssh has refused itself."""
    if "revoked" in error.reason:
        return revoked_key("marked so in a known_hosts file", target)
    return translate(error, target)


async def _connect(
    login: _Login, client: _Client, unlocked: Sequence[ClientKey], *, questions: bool
) -> asyncssh.SSHClientConnection:
    endpoint, hop, keys = login.endpoint, login.endpoint.target.last, login.keys
    settings = endpoint.settings
    certificates = bool(keys.authorities)
    file = config_file(settings, keys.types, certificates=certificates)
    algorithms: dict[str, Any] = algorithm_arguments(settings, keys.types, certificates=certificates)
    async with offered_keys(settings) as offered:
        with file as path, _connecting(endpoint), _leaving_to_ssh(endpoint, client, offered):
            connected = await _connect_socket(login)
            login.clock.start(endpoint.config.connect_timeout)
            client_keys = [*unlocked, *offered.keys] or None  # for an empty list, asyncssh takes its default keys
            with _closing_unused(connected, client):
                return await asyncssh.connect(
                    hop.host,
                    config=[path],
                    tunnel=endpoint.tunnel,
                    sock=connected,
                    client_factory=lambda: client,
                    known_hosts=keys.find,
                    client_keys=client_keys,
                    agent_path="",  # its keys are among those offered
                    agent_forwarding=settings.forwarded_agent or False,
                    ignore_encrypted=True,
                    password_auth=() if questions else False,
                    kbdint_auth=() if questions else False,
                    keepalive_interval=endpoint.config.keepalive_interval,
                    keepalive_count_max=endpoint.config.keepalive_count,
                    connect_timeout=None,
                    login_timeout=0,
                    encoding=None,
                    **algorithms,
                )


async def find_differences(host: HostSettings, *, may_unlock: bool, timeout: float) -> list[str]:
    """Return why ssh might trust another host, or log in with another key, than this engine.

    Args:
        host: The host's settings.
        may_unlock: Whether ssh may get the passphrases of keys otherwise than from the operator.
        timeout: Seconds for the agent to name its keys.
    """
    try:
        with anyio.fail_after(timeout):
            types = await agent_key_types(host.agent)
    except TimeoutError:
        return [f"identityagent {host.agent}: it does not answer"]
    found = list(key_problems(host, types, may_unlock=may_unlock))
    found += [
        f"known hosts: {path} is not a regular file"
        for path in (*host.user_files, *host.system_files)
        if not is_readable_at_once(path)
    ]
    if HostKeys(host).authorities:
        found.append("known hosts: an authority for host certificates")
    return found


def _read_key(path: str, passphrase: str) -> ClientKey:
    key = asyncssh.read_private_key(path, passphrase)
    certificate = f"{path}-cert.pub"
    return (key, certificate) if os.path.exists(certificate) else key
