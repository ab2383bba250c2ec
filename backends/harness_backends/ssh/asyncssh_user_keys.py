"""The user's keys for asyncssh, offered in the order in which ssh offers them."""

from __future__ import annotations

import os
import stat
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import asyncssh

from .asyncssh_settings import HostSettings

__all__ = [
    "ClientKey",
    "Identity",
    "OfferedKeys",
    "agent_key_types",
    "key_problems",
    "offered_keys",
    "read_identities",
]

ClientKey = asyncssh.SSHKey | asyncssh.SSHKeyPair | tuple[asyncssh.SSHKey, str]
_USUAL = ("ssh-ed25519", "ssh-rsa", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521")


@dataclass(frozen=True)
class Identity:
    """A file with a key of the user."""

    path: str
    key: asyncssh.SSHKey | None = None
    """The private key; None if only the public one is known."""
    public: tuple[bytes, ...] = ()
    """The public key and its certificate, as an agent names them."""
    problem: str = ""
    """Why ssh could use it, or report about it, and this engine cannot."""
    encrypted: bool = False

    @property
    def certificate(self) -> str:
        """The file of its certificate; empty without one."""
        path = f"{self.path}-cert.pub"
        return path if os.path.exists(path) else ""


def read_identities(paths: Sequence[str]) -> list[Identity]:
    """Read the files that exist."""
    return [_read_file(path) for path in paths if os.path.exists(path)]


def _read_file(path: str) -> Identity:
    try:
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode):  # reading a named pipe could block this process, and empties it
            return Identity(path, problem="it is not a regular file")
        if status.st_uid == os.getuid() and stat.S_IMODE(status.st_mode) & 0o077 and not path.endswith(".pub"):
            return Identity(path, problem="others can read it")
        return _parse_file(path, status.st_ino, status.st_size, status.st_mtime_ns)
    except (OSError, ValueError) as error:
        return Identity(path, problem=str(error))


@lru_cache(maxsize=64)
def _parse_file(path: str, *_version: int) -> Identity:
    """Read a key once for all hosts, as long as its file does not change."""
    data = Path(path).read_bytes()
    try:
        key = asyncssh.import_private_key(data)
    except asyncssh.KeyImportError as error:
        return _public_identity(path, data, encrypted="passphrase" in str(error).lower())
    return _identity(path, key, key)


def _public_identity(path: str, data: bytes, *, encrypted: bool) -> Identity:
    try:
        public = asyncssh.read_public_key(f"{path}.pub") if encrypted else asyncssh.import_public_key(data)
    except (OSError, asyncssh.KeyImportError):
        return Identity(path, problem="its public key is not known", encrypted=encrypted)
    return _identity(path, None, public, encrypted=encrypted)


def _identity(path: str, key: asyncssh.SSHKey | None, public: asyncssh.SSHKey, *, encrypted: bool = False) -> Identity:
    kind = public.get_algorithm()
    problem = "" if kind in _USUAL else f"it is of type {kind}"
    return Identity(path, key, (public.public_data,), problem, encrypted)


def key_problems(host: HostSettings, agent_types: Sequence[str], *, may_unlock: bool) -> Iterator[str]:
    """Yield why ssh might log in with another key than this engine.

    Args:
        host: The host's settings.
        agent_types: The types of the agent's keys.
        may_unlock: Whether ssh may get the passphrases of keys otherwise than from the operator.
    """
    for identity in read_identities(host.identities):
        if identity.problem:
            yield f"identityfile {identity.path}: {identity.problem}"
        elif identity.certificate:
            yield f"identityfile {identity.path}: it has a certificate"
        elif identity.encrypted and may_unlock:
            yield f"identityfile {identity.path}: it may be unlocked with a passphrase"
    for kind in sorted({*agent_types} - {*_USUAL}):
        yield f"identityagent {host.agent}: it has a key of type {kind}"


class Agent(asyncssh.SSHAgentClient):
    """A connection to the agent; ``refused`` is set, and ``on_refusal`` called, after it has not signed.

    It refuses a key that is restricted to certain hosts (``ssh-add -h``): only ssh proves to it which host it is.
    """

    refused = False
    on_refusal: Callable[[], None] | None = None

    async def sign(self, key_blob: bytes, data: bytes, flags: int = 0) -> bytes:
        """Sign data; as in the base class.

        Raises:
            ValueError: The agent refuses, or does not answer.
        """
        try:
            return await super().sign(key_blob, data, flags)
        except ValueError:
            self.refused = True
            if self.on_refusal is not None:
                self.on_refusal()
            raise


@dataclass(frozen=True)
class OfferedKeys:
    """The keys of a login, in the order in which they are offered."""

    keys: list[ClientKey]
    agent: Agent | None = None


@asynccontextmanager
async def offered_keys(host: HostSettings) -> AsyncIterator[OfferedKeys]:
    """Provide the keys: of the agent those that the configuration names, then its others, then the files' own.

    An agent's keys work only inside the context.
    """
    identities = read_identities(host.identities)
    agent, keys = await _connect_agent(host.agent)
    try:
        named = {public for identity in identities for public in _with_certificate(identity)}
        first: list[ClientKey] = [key for key in keys if key.public_data in named]
        others = [] if host.identities_only else [key for key in keys if key.public_data not in named]
        held = {key.public_data for key in keys}
        files = [_pair(found) for found in identities if found.key is not None and not held & {*found.public}]
        yield OfferedKeys([*first, *others, *(pair for pair in files if pair is not None)], agent)
    finally:
        if agent is not None:
            agent.close()


async def agent_key_types(path: str) -> list[str]:
    """Return the types of an agent's keys; none if it does not answer."""
    agent, keys = await _connect_agent(path)
    if agent is not None:
        agent.close()
    return [key.algorithm.decode() for key in keys]


async def _connect_agent(path: str) -> tuple[Agent | None, Sequence[asyncssh.SSHKeyPair]]:
    if not path:
        return None, ()
    agent = Agent(path)
    try:
        return agent, await agent.get_keys()
    except (OSError, ValueError):  # as ssh, which then uses the files
        agent.close()
        return None, ()
    except BaseException:  # cancelled while the agent does not answer
        agent.close()
        raise


def _with_certificate(identity: Identity) -> Iterator[bytes]:
    yield from identity.public
    if identity.certificate:
        try:
            yield asyncssh.read_certificate(identity.certificate).public_data
        except (OSError, asyncssh.KeyImportError):
            return


def _pair(identity: Identity) -> ClientKey | None:
    if identity.key is None or not identity.certificate:
        return identity.key
    return identity.key, identity.certificate
