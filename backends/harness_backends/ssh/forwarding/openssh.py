"""Forwarding through OpenSSH's control master.

Connections to the target are requested one by one, so that this process does all listening on this machine, and its
sockets end with it. The target's listening belongs to the master, which other processes share, so a guard ends it if
this process is killed: a shell that waits for the end of its input.
"""

from __future__ import annotations

import math
import os
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress

import anyio

from harness.errors import ConnectionLost, ForwardError
from harness.forwards.interface import Forwarding, Serve, connect_refused, listen_refused
from harness.forwards.listeners import accept_connections
from harness.forwards.specification import Address, SocketPath, TcpAddress
from harness.forwards.streams import ByteStream, SocketStream
from harness.system.background_tasks import open_background_tasks
from harness.system.child_process import start_child

from ..control_master import connect_with_timeout, hold_forward_socket
from ..multiplex import UNIX_SOCKET, ForwardAddress, ForwardType, MuxConnection, MuxError, MuxRefused
from ..openssh import OpenSSHTransport
from ..options import cancel_forward_argv

__all__ = ["OpenSshForwarding", "open_openssh_forwarding"]

CONNECT_TIMEOUT = 180.0
"""Seconds for the target to connect; its system gives up before that."""
REQUEST_TIMEOUT = 30.0
"""Seconds for the server to start or end listening."""
CLOSE_TIMEOUT = 5.0
LOCK_TIMEOUT = 1.0
"""Seconds for the guard of a killed process to end what that left."""
BACKLOG = 128
BUFFER_BYTES = 1 << 20
GUARD = 'exec >/dev/null 2>&1; read -r _ && exit; path=$1; shift; rm -f -- "$path"; ssh "$@"; rm -f -- "$path.lock"'
"""Waits for a line; if the end of the input comes first, it removes a socket, runs ssh, and releases the lock."""


class OpenSshForwarding(Forwarding):
    """Forwarding through the control master of a transport."""

    def __init__(self, transport: OpenSSHTransport) -> None:
        self.target = transport.target
        self._transport = transport
        self._connection = AsyncExitStack()
        """What ends with the current connection."""
        self._watch: MuxConnection | None = None
        self._probe: MuxConnection | None = None
        self._probing = anyio.Lock()
        self._unix_paths: dict[str, str] = {}
        self._unix_turn = anyio.Lock()

    async def reconnect(self) -> None:
        """See :class:`Forwarding`."""
        await self.aclose()
        try:
            self._watch = self._connection.enter_context(await self._transport.connect())
            self._probe = self._connection.enter_context(await connect_with_timeout(self._transport.control_path))
        except MuxError as error:
            raise self._lost() from error

    async def wait_lost(self) -> None:
        """See :class:`Forwarding`."""
        with suppress(MuxError):
            while self._watch is not None:
                await self._watch.receive()

    async def aclose(self) -> None:
        """Close what belongs to the current connection."""
        stack, self._connection = self._connection, AsyncExitStack()
        self._watch = self._probe = None
        self._unix_paths = {}
        await stack.aclose()

    def _lost(self) -> ConnectionLost:
        return ConnectionLost("the connection was lost", target=self.target)

    def _end_check(self) -> Callable[[], Awaitable[None]]:
        """Return what raises ConnectionLost once the current connection is lost: that is not the end of the data."""
        probe = self._probe

        async def check() -> None:
            try:
                async with self._probing:
                    with anyio.fail_after(REQUEST_TIMEOUT):
                        if probe is None:
                            raise self._lost()
                        await probe.alive()
            except (MuxError, TimeoutError) as error:
                raise self._lost() from error

        return check

    # -- connections of the target

    async def connect(self, address: Address) -> ByteStream:
        """See :class:`Forwarding`."""
        if isinstance(address, SocketPath):
            return await self._connect_unix(address)
        check_end = self._end_check()
        ours, theirs = _socket_pairs()
        session: MuxConnection | None = None
        try:
            session = await connect_with_timeout(self._transport.control_path)
            with anyio.fail_after(CONNECT_TIMEOUT):
                descriptors = (theirs[0].fileno(), theirs[1].fileno())
                await session.open_forward(address.host or "localhost", address.port, descriptors)
        except BaseException as error:
            if session is not None:
                session.close()
            _close(*ours)
            raise self._connect_error(address, error) from error
        finally:
            _close(*theirs)
        return SocketStream(*ours, check_end=check_end, on_close=session.close)

    def _connect_error(self, address: Address, error: BaseException) -> BaseException:
        if isinstance(error, MuxRefused | TimeoutError):
            return connect_refused(address, self.target)
        return self._lost() if isinstance(error, MuxError) else error

    async def _connect_unix(self, address: SocketPath) -> ByteStream:
        """Connect through a private socket of the master: before OpenSSH 9.4, ``ssh -W`` takes no path."""
        paths, connection_stack = self._unix_paths, self._connection  # those of this connection, even if it is lost now
        async with self._unix_turn:
            if address.path not in paths:
                paths[address.path] = await connection_stack.enter_async_context(self._private(address))
        connection = socket.socket(socket.AF_UNIX)
        connection.setblocking(False)
        try:
            connection.connect(paths[address.path])
        except OSError as error:
            connection.close()
            raise self._lost() from error
        return SocketStream(connection, check_end=self._end_check())

    @asynccontextmanager
    async def _private(self, address: SocketPath) -> AsyncIterator[str]:
        """Let the master forward a private socket to an address of the target."""
        async with hold_forward_socket(os.urandom(16).hex(), LOCK_TIMEOUT) as (path, lock):
            listen = os.fsencode(path), UNIX_SOCKET
            async with self._listening(ForwardType.LOCAL, listen, _encode(address), path, lock):
                yield path

    # -- listening of the target

    @asynccontextmanager
    async def listen(self, address: Address, serve: Serve) -> AsyncIterator[int]:
        """See :class:`Forwarding`."""
        check_end = self._end_check()

        async def checked(stream: SocketStream) -> None:
            stream.check_end = check_end
            await serve(stream)

        async with open_background_tasks() as tasks, self._hold_address(address) as (path, lock):
            connect = os.fsencode(path), UNIX_SOCKET
            with _listener(path) as listener:
                tasks.start_soon(accept_connections, listener, checked, tasks, anyio.CapacityLimiter(math.inf))
                async with self._listening(ForwardType.REMOTE, _encode(address), connect, path, lock) as port:
                    yield port or (address.port if isinstance(address, TcpAddress) else 0)

    @asynccontextmanager
    async def _hold_address(self, address: Address) -> AsyncIterator[tuple[str, int]]:
        """Hold an address of the target against this user's other processes.

        The private socket of an address is always the same one: ssh connects to that of the first request for the
        address, even if the server refused it.
        """
        is_fixed = isinstance(address, SocketPath) or address.port != 0
        identity = f"{self._transport.control_path} {address}" if is_fixed else os.urandom(16).hex()
        async with AsyncExitStack() as stack:
            try:
                held = await stack.enter_async_context(hold_forward_socket(identity, LOCK_TIMEOUT))
            except TimeoutError:
                raise ForwardError(
                    f"another forward of yours listens on {address} of the target",
                    target=self.target,
                    hint="'harness forward list' shows your forwards",
                ) from None
            yield held

    @asynccontextmanager
    async def _listening(
        self, kind: ForwardType, listen: ForwardAddress, connect: ForwardAddress, path: str, lock: int
    ) -> AsyncIterator[int]:
        """Let the master or the server listen while the context is open, or this process is alive."""
        async with _guard(self._transport.control_path, kind, listen, connect, path, lock):
            try:
                yield await self._start_listening(kind, listen, connect)
            finally:
                await self._stop_listening(kind, listen, connect)

    async def _start_listening(self, kind: ForwardType, listen: ForwardAddress, connect: ForwardAddress) -> int:
        try:
            with anyio.fail_after(REQUEST_TIMEOUT):
                with await connect_with_timeout(self._transport.control_path) as session:
                    return await session.start_listening(kind, listen, connect)
        except MuxRefused as error:
            if kind is ForwardType.LOCAL:
                message = f"ssh cannot listen on its private socket: {error}"
                raise ForwardError(message, target=self.target) from error
            raise listen_refused(_decode(listen), self.target) from error
        except (MuxError, TimeoutError) as error:
            raise self._lost() from error

    async def _stop_listening(self, kind: ForwardType, listen: ForwardAddress, connect: ForwardAddress) -> None:
        with (
            suppress(MuxError),
            anyio.move_on_after(CLOSE_TIMEOUT, shield=True),
            await connect_with_timeout(self._transport.control_path) as session,
        ):
            await session.stop_listening(kind, listen, connect)


def _encode(address: Address) -> ForwardAddress:
    if isinstance(address, SocketPath):
        return os.fsencode(address.path), UNIX_SOCKET
    return (address.host or "").encode("utf-8", "surrogateescape"), address.port


def _decode(address: ForwardAddress) -> Address:
    host, port = os.fsdecode(address[0]), address[1]
    return SocketPath(host) if port == UNIX_SOCKET else TcpAddress(host or None, port)


def _socket_pairs() -> tuple[tuple[socket.socket, socket.socket], tuple[socket.socket, socket.socket]]:
    """Return our reading and writing ends, and the master's; one pair for each direction, as each has its own end."""
    their_input, our_output = socket.socketpair()
    try:
        our_input, their_output = socket.socketpair()
    except OSError:
        _close(their_input, our_output)
        raise
    for one in (our_output, their_output):
        one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER_BYTES)
    return (our_input, our_output), (their_input, their_output)


def _close(*sockets: socket.socket) -> None:
    for one in sockets:
        one.close()


@asynccontextmanager
async def _guard(
    control_path: str, kind: ForwardType, listen: ForwardAddress, connect: ForwardAddress, path: str, lock: int
) -> AsyncIterator[None]:
    """Let a shell end the listening if this process is killed while the context is open.

    It holds the lock of the private socket until then, so that it ends nothing of a later process.
    """
    words = cancel_forward_argv(control_path, "-R" if kind is ForwardType.REMOTE else "-L", _spec(listen, connect))
    guard = await start_child(["/bin/sh", "-c", GUARD, "harness-forward", path, *words], pass_fds=[lock], cwd="/")
    try:
        yield
    finally:
        with anyio.CancelScope(shield=True):
            with anyio.move_on_after(CLOSE_TIMEOUT), suppress(BrokenPipeError):
                await guard.stdin.write(b"\n")
                await guard.wait()
            if guard.returncode is None:
                guard.signal_group(signal.SIGKILL)
                await guard.wait()
            guard.close_pipes()


def _spec(listen: ForwardAddress, connect: ForwardAddress) -> str:
    return ":".join(_spec_part(address) for address in (listen, connect))


def _spec_part(address: ForwardAddress) -> str:
    host, port = os.fsdecode(address[0]), address[1]
    if port == UNIX_SOCKET:
        return f"[{host}]" if ":" in host else host.replace("\\", "\\\\")
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}" if host else str(port)


@contextmanager
def _listener(path: str) -> Iterator[socket.socket]:
    """Listen on a private socket, to which only the master connects."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.setblocking(False)
        listener.bind(path)
        os.chmod(path, 0o600)
        listener.listen(BACKLOG)
        try:
            yield listener
        finally:
            anyio.notify_closing(listener)


@asynccontextmanager
async def open_openssh_forwarding(transport: OpenSSHTransport) -> AsyncIterator[Forwarding]:
    """Forward through the control master of a transport while the context is open.

    Raises:
        ConnectError: the master exited, and the login failed.
        ConnectionLost: the connection was lost.
    """
    forwarding = OpenSshForwarding(transport)
    try:
        await forwarding.reconnect()
        yield forwarding
    finally:
        with anyio.CancelScope(shield=True):
            await forwarding.aclose()
