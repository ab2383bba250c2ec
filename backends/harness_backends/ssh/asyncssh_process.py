"""Processes on an asyncssh connection, and the translation of asyncssh's errors."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Literal

import anyio
import asyncssh

from harness.errors import (
    AuthenticationError,
    ConfigError,
    ConnectError,
    ConnectionLost,
    HarnessError,
    HostKeyError,
    TargetNotFound,
)
from harness.target import Target
from harness.transport import Process

from ..posix.output_noise import NoiseFilter
from .login import NegotiationError
from .login_pacing import error_of_forward

__all__ = [
    "FOREIGN",
    "Channel",
    "SshProcess",
    "channel_refused",
    "translate",
    "translated",
]


# -- The only translation of asyncssh's exceptions to harness's.


FOREIGN = (asyncssh.Error, OSError, ValueError, asyncssh.ChannelListenError, asyncssh.PasswordChangeRequired)
"""The exceptions that asyncssh raises; its errors about keys and configuration are ValueErrors."""

_Translation = Callable[[Target, Exception, str], HarnessError]


def _permission(target: Target, error: Exception, text: str) -> HarnessError:
    return AuthenticationError(
        f"the login was refused: {text}", target=target, hint="check the user name, the key and the agent (ssh-add -l)"
    )


def _host_key(target: Target, error: Exception, text: str) -> HarnessError:
    return HostKeyError(f"the host key could not be verified: {text}", target=target)


def _private_key(target: Target, error: Exception, text: str) -> HarnessError:
    return AuthenticationError(f"a private key cannot be used: {text}", target=target)


def _config(target: Target, error: Exception, text: str) -> HarnessError:
    return ConfigError(f"the ssh configuration cannot be read: {text}", target=target)


def _not_found(target: Target, error: Exception, text: str) -> HarnessError:
    return TargetNotFound(f"the host name cannot be resolved: {text}", target=target, hint="check the name")


def _password_change(target: Target, error: Exception, text: str) -> HarnessError:
    return AuthenticationError("the password has expired", target=target, hint="log in with ssh once and change it")


def _no_agreement(target: Target, error: Exception, text: str) -> HarnessError:
    hint = 'ssh_engine = "openssh" has more algorithms, or allow an older one, e.g. -o HostKeyAlgorithms=+ssh-rsa'
    return NegotiationError(f"the key exchange failed: {text}", target=target, hint=hint)


def _disconnected(target: Target, error: Exception, text: str) -> HarnessError:
    if "authentication failures" in text.lower():
        return _permission(target, error, text)
    return ConnectError(f"the connection failed: {text}", target=target)


def _not_forwarded(target: Target, error: Exception, text: str) -> HarnessError:
    return error_of_forward("", target, text)


def _refused(target: Target, error: Exception, text: str) -> HarnessError:
    return ConnectError(
        f"cannot connect: {text}", target=target, hint="check that sshd is running and the port is reachable"
    )


def _other(target: Target, error: Exception, text: str) -> HarnessError:
    return ConnectError(f"cannot connect: {text}", target=target)


# The most specific class first.
_TRANSLATIONS: tuple[tuple[type[Exception], _Translation], ...] = (
    (asyncssh.PermissionDenied, _permission),
    (asyncssh.IllegalUserName, _permission),
    (asyncssh.HostKeyNotVerifiable, _host_key),
    (asyncssh.PasswordChangeRequired, _password_change),
    (asyncssh.KeyExchangeFailed, _no_agreement),
    (asyncssh.KeyImportError, _private_key),
    (asyncssh.KeyEncryptionError, _private_key),
    (asyncssh.ConfigParseError, _config),
    (asyncssh.ChannelOpenError, _not_forwarded),
    (asyncssh.Error, _disconnected),
    (socket.gaierror, _not_found),
    (OSError, _refused),
    (Exception, _other),
)


def translate(error: Exception, target: Target, *, connected: bool = False) -> HarnessError:
    """Return harness's error for one of asyncssh's; after the login (``connected``) it is ConnectionLost."""
    if isinstance(error, HarnessError):
        return error
    text = _text(error)
    if connected:
        return ConnectionLost(f"connection lost: {text}", target=target)
    action = next(action for kind, action in _TRANSLATIONS if isinstance(error, kind))
    return action(target, error, text)


@contextmanager
def translated(target: Target, *, connected: bool = False) -> Iterator[None]:
    """Translate asyncssh's exceptions raised inside the context."""
    try:
        yield
    except HarnessError:
        raise
    except FOREIGN as error:
        raise translate(error, target, connected=connected) from error


def channel_refused(target: Target, open_channels: int) -> HarnessError:
    """Return the error for a channel that the server refused, or for a reached limit."""
    return ConnectError(
        f"the server allows no further session; harness has {open_channels} open",
        target=target,
        hint="raise MaxSessions in its sshd_config",
    )


def _text(error: Exception) -> str:
    if isinstance(error, asyncssh.Error):
        return getattr(error, "reason", "") or type(error).__name__
    if isinstance(error, socket.gaierror) and error.strerror:
        return error.strerror
    if isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno)  # asyncio's text contains only the address
    return str(error) or type(error).__name__


# -- One program on one SSH channel: streams with flow control, the nonce, the exit status.


HIGH_WATER = 1 << 18
"""Unread bytes at which reading pauses; the channel's window bounds the data still in flight."""
LOW_WATER = HIGH_WATER // 4
WRITE_SLICE = 1 << 15
CLOSE_TIMEOUT = 2.0
STDERR = asyncssh.EXTENDED_DATA_STDERR


class _ReceiveBuffer:
    """The received, unread bytes of one stream."""

    def __init__(self, nonce: str, stream: Literal["stdout", "stderr"]) -> None:
        self.filter = NoiseFilter(nonce, stream)
        self.size = 0
        self._chunks: deque[bytes] = deque()
        self._changed = asyncio.Event()
        self._ended = False

    def feed(self, data: bytes) -> None:
        data = self.filter.feed(data)
        if data:
            self._chunks.append(data)
            self.size += len(data)
            self._changed.set()

    def end(self) -> None:
        self._ended = True
        self._changed.set()

    async def take(self, max_bytes: int) -> bytes:
        while not self._chunks and not self._ended:
            self._changed.clear()
            await self._changed.wait()
        if not self._chunks:
            return b""
        data = self._chunks.popleft()
        if len(data) > max_bytes:
            self._chunks.appendleft(data[max_bytes:])
            data = data[:max_bytes]
        self.size -= len(data)
        return data


class Channel(asyncssh.SSHClientSession[bytes]):
    """The callbacks of asyncssh for one channel; it only records, :class:`SshProcess` waits."""

    def __init__(self, nonce: str) -> None:
        self.stdout = _ReceiveBuffer(nonce, "stdout")
        self.stderr = _ReceiveBuffer(nonce, "stderr")
        self.status: int | None = None
        self.closed = False
        self.settled = asyncio.Event()
        """Set once the exit status is known, or can no longer arrive."""
        self.moved = asyncio.Event()
        """Set once the nonce was seen, or can no longer arrive."""
        self.writable = asyncio.Event()
        self.writable.set()
        self._paused = False
        self._channel: asyncssh.SSHClientChannel[bytes] | None = None

    @property
    def channel(self) -> asyncssh.SSHClientChannel[bytes]:
        assert self._channel is not None
        return self._channel

    def connection_made(self, chan: asyncssh.SSHClientChannel[bytes]) -> None:
        self._channel = chan

    def data_received(self, data: bytes, datatype: asyncssh.DataType) -> None:
        inlet = self.stderr if datatype == STDERR else self.stdout
        inlet.feed(data)
        if self.stdout.filter.passed:
            self.moved.set()
        if not self._paused and self.stdout.size + self.stderr.size > HIGH_WATER:
            self._paused = True
            self.channel.pause_reading()

    def consumed(self) -> None:
        """Resume reading from the channel if enough bytes were consumed."""
        if self._paused and self.stdout.size + self.stderr.size <= LOW_WATER:
            self._paused = False
            self.channel.resume_reading()

    def eof_received(self) -> bool:
        self._end_streams()
        return True  # keep the input open: the program may still read

    def exit_status_received(self, status: int) -> None:
        self._settle(status)

    def exit_signal_received(self, signal_name: str, core_dumped: bool, msg: str, lang: str) -> None:
        self._settle(signal_status(signal_name))

    def connection_lost(self, exc: Exception | None) -> None:
        self.end_of_link()

    def pause_writing(self) -> None:
        self.writable.clear()

    def resume_writing(self) -> None:
        self.writable.set()

    def end_of_link(self) -> None:
        """Record that no more data will arrive: the channel was closed or its connection lost."""
        self.closed = True
        self._end_streams()
        self._settle(None)
        self.writable.set()

    def _end_streams(self) -> None:
        self.stdout.end()
        self.stderr.end()
        self.moved.set()

    def _settle(self, status: int | None) -> None:
        if self.status is None:
            self.status = status
        self.settled.set()


class SshProcess(Process):
    """A program on a channel. ``release`` is called once, when the channel is closed."""

    def __init__(self, channel: Channel, target: Target, release: Callable[[], None]) -> None:
        self._session = channel
        self._target = target
        self._release = release
        self._released = False

    async def started(self, timeout: float) -> None:
        """Wait until the program has started and the login shell's own output has ended.

        Raises:
            ConnectError: it did not start.
        """
        with anyio.move_on_after(timeout):
            await self._session.moved.wait()
        reader = self._session.stdout.filter
        if reader.passed:
            return
        wrong = f"did not start the program in {timeout:g} s"
        if self._session.moved.is_set():
            with anyio.move_on_after(CLOSE_TIMEOUT):
                await self._session.settled.wait()
            status = self._session.status
            wrong = "exited" if status is None else f"exited with status {status}"
        noise = (reader.noise + b"\n" + self._session.stderr.filter.noise)[:300].decode("utf-8", "replace")
        said = " ".join(noise.split())
        raise ConnectError(
            f"the login shell {wrong}" + (f": {said}" if said else ""),
            target=self._target,
            hint="its start-up files must not block commands, and sshd must not force another command",
        )

    async def receive(self, max_bytes: int = 65536) -> bytes:
        data = await self._session.stdout.take(max_bytes)
        self._session.consumed()
        return data

    async def receive_stderr(self, max_bytes: int = 65536) -> bytes:
        data = await self._session.stderr.take(max_bytes)
        self._session.consumed()
        return data

    async def send(self, data: bytes) -> None:
        for start in range(0, len(data), WRITE_SLICE):
            await self._session.writable.wait()
            try:
                self._session.channel.write(data[start : start + WRITE_SLICE])
            except OSError as error:
                raise BrokenPipeError("the program exited, or the connection was lost") from error
        await self._session.writable.wait()
        if self._session.closed:
            raise BrokenPipeError("the program exited, or the connection was lost")

    async def send_eof(self) -> None:
        if not self._session.closed:
            with suppress(OSError):
                self._session.channel.write_eof()

    async def wait(self) -> int:
        await self._session.settled.wait()
        if self._session.status is None:
            raise ConnectionLost("connection lost before the exit status arrived", target=self._target)
        return self._session.status

    async def aclose(self) -> None:
        self._session.channel.abort()
        with anyio.move_on_after(CLOSE_TIMEOUT, shield=True):
            await self._session.channel.wait_closed()
        self._session.end_of_link()  # an unresponsive server never confirms, and no reader may wait for more
        if not self._released:
            self._released = True
            self._release()


def signal_status(name: str) -> int:
    """Return a shell's status for death by a signal: 128 + N, or 128 if this machine does not know the signal."""
    number = signal.Signals.__members__.get(f"SIG{name.partition('@')[0].removeprefix('SIG')}")
    return 128 + (number.value if number is not None else 0)
