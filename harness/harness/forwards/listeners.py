"""Listening on this machine, and connecting from it, at the addresses of forwards."""

from __future__ import annotations

import errno
import logging
import os
import socket
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import anyio
from anyio import to_thread

from ..errors import ForwardError
from ..system.background_tasks import BackgroundTasks
from .specification import Address, SocketPath, TcpAddress
from .streams import SocketStream

__all__ = ["accept_connections", "connect_here", "listen_here"]

BACKLOG = 128
ACCEPT_PAUSE = 0.5
"""Seconds until the next attempt to accept a connection after a failed one."""
CONNECT_TIMEOUT = 30.0
LOOPBACK: Final = ("127.0.0.1", "::1")
EVERYWHERE: Final = ("0.0.0.0", "::")  # noqa: S104  # only where the operator asks for it
_FIXED: Final[Mapping[str | None, Sequence[str]]] = {None: LOOPBACK, "localhost": LOOPBACK, "*": EVERYWHERE}
_NO_FAMILY: Final = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT})
"""Errors of a system without IPv4 or IPv6."""

log = logging.getLogger(__name__)


@contextmanager
def listen_here(address: Address) -> Iterator[list[socket.socket]]:
    """Listen on this machine while the context is open; a host with several addresses has a socket for each.

    Raises:
        ForwardError: The address is in use, or is not one of this machine.
    """
    sockets = [_listen_on_path(address.path)] if isinstance(address, SocketPath) else _listen_on_port(address)
    try:
        yield sockets
    finally:
        for one in sockets:
            if isinstance(address, SocketPath):
                _remove_own(one, address.path)
            one.close()


def _listen_on_port(address: TcpAddress) -> list[socket.socket]:
    is_fixed = address.host in _FIXED
    sockets: list[socket.socket] = []
    failure: OSError | None = None
    try:
        for family, place in _places(address):
            try:
                sockets.append(_listener(family, place))
            except OSError as error:
                if not is_fixed or error.errno not in _NO_FAMILY:
                    raise
                failure = error
    except UnicodeError as error:
        failure, is_fixed = OSError(f"not a host name: {error}"), False
    except OSError as error:
        failure, is_fixed = error, False
    if failure is not None and not (is_fixed and sockets):
        for one in sockets:
            one.close()
        raise _error(address, failure) from failure
    return sockets


def _places(address: TcpAddress) -> list[tuple[socket.AddressFamily, Any]]:
    """Return the families and socket addresses of a host, each once."""
    hosts = _FIXED.get(address.host, (address.host,))
    found = []
    for host in hosts:
        for family, _, _, _, place in socket.getaddrinfo(host, address.port, type=socket.SOCK_STREAM):
            found.append((family, place))
    return list(dict.fromkeys(found))


def _listener(family: socket.AddressFamily, place: Any) -> socket.socket:
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family is socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.setblocking(False)
        listener.bind(place)
        listener.listen(BACKLOG)
    except BaseException:
        listener.close()
        raise
    return listener


def _listen_on_path(path: str) -> socket.socket:
    """Listen on a Unix socket that only this user can connect to; one without a listener is replaced."""
    listener = socket.socket(socket.AF_UNIX)
    try:
        listener.setblocking(False)
        _remove_stale(path)
        listener.bind(path)
        os.chmod(path, 0o600)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise _error(SocketPath(path), error) from error
    return listener


def _remove_stale(path: str) -> None:
    """Remove the socket of a process that was killed."""
    if not Path(path).is_socket() or Path(path).is_symlink():
        return
    with socket.socket(socket.AF_UNIX) as probe:
        probe.setblocking(False)
        if probe.connect_ex(path) == errno.ECONNREFUSED:
            os.unlink(path)


def _remove_own(listener: socket.socket, path: str) -> None:
    """Remove a listener's path, unless another process listens there now."""
    with suppress(OSError), socket.socket(socket.AF_UNIX) as probe:
        listener.shutdown(socket.SHUT_RDWR)
        probe.setblocking(False)
        if Path(path).is_socket() and probe.connect_ex(path) == errno.ECONNREFUSED:
            os.unlink(path)


def _error(address: Address, error: OSError) -> ForwardError:
    reason = (error.strerror or str(error)).lower()
    hint = ""
    if error.errno == errno.EADDRINUSE:
        hint = "choose another address, or end what uses it ('harness forward list' shows your forwards)"
    elif error.errno == errno.EACCES:
        hint = "ports below 1024 are reserved for root; choose another one"
    return ForwardError(f"cannot listen on {address}: {reason}", hint=hint)


async def accept_connections(
    listener: socket.socket,
    serve: Callable[[SocketStream], Awaitable[None]],
    tasks: BackgroundTasks,
    slots: anyio.CapacityLimiter,
) -> None:
    """Accept and serve connections until cancelled, or the listener is closed.

    Args:
        listener: The non-blocking listener.
        serve: Serves one connection, and closes it; must not raise.
        tasks: Run what serves, and this.
        slots: Limit how many connections are open; further ones wait in the listener's queue.
    """
    unserved: set[SocketStream] = set()

    async def run(stream: SocketStream, slot: object) -> None:
        unserved.discard(stream)
        try:
            await serve(stream)
        finally:
            slots.release_on_behalf_of(slot)

    try:
        while True:
            await anyio.wait_readable(listener)
            slot = object()
            await slots.acquire_on_behalf_of(slot)
            connection = _accept(listener)
            if connection is None:
                slots.release_on_behalf_of(slot)
                await anyio.sleep(ACCEPT_PAUSE)
                continue
            stream = SocketStream(connection)
            unserved.add(stream)
            tasks.start_soon(run, stream, slot)
    except (anyio.ClosedResourceError, ValueError):  # ValueError: closed before the wait began
        return
    finally:
        for stream in unserved:
            stream.close()


def _accept(listener: socket.socket) -> socket.socket | None:
    """Return the next connection; None if the client has left, or there are no more descriptors."""
    try:
        return listener.accept()[0]
    except OSError as error:
        log.debug("cannot accept a connection: %s", error)
        return None


async def connect_here(address: Address) -> SocketStream:
    """Connect to an address from this machine.

    Raises:
        ForwardError: Nothing listens there, or it does not answer.
    """
    failure: OSError | UnicodeError | None = None
    try:
        for family, place in await _destinations(address):
            try:
                return SocketStream(await _connect(family, place))
            except OSError as error:
                failure = error
    except (OSError, UnicodeError) as error:  # UnicodeError: not a host name
        failure = error
    reason = (getattr(failure, "strerror", "") or str(failure)).lower()
    raise ForwardError(f"cannot connect to {address}: {reason}") from failure


async def _destinations(address: Address) -> Sequence[tuple[socket.AddressFamily, Any]]:
    if isinstance(address, SocketPath):
        return [(socket.AF_UNIX, address.path)]
    return await to_thread.run_sync(_places, address, abandon_on_cancel=True)


async def _connect(family: socket.AddressFamily, place: Any) -> socket.socket:
    connection = socket.socket(family, socket.SOCK_STREAM)
    try:
        connection.setblocking(False)
        number = connection.connect_ex(place)
        if number == errno.EINPROGRESS:
            with anyio.fail_after(CONNECT_TIMEOUT):
                await anyio.wait_writable(connection)
            number = connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if number:
            raise OSError(number, os.strerror(number))
    except TimeoutError:
        connection.close()
        raise OSError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT)) from None
    except BaseException:
        connection.close()
        raise
    return connection
