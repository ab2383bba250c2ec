"""An HTTP server of this user: its address, which names and origins are served, and its socket with uvicorn.

A web page in a browser can send requests to any address, under any name that its owner's DNS resolves to this machine,
but it cannot change ``Host`` and ``Origin``: a server that any browser of this machine can reach checks both.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import anyio
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from ..errors import ConfigError, HarnessError

if TYPE_CHECKING:
    from starlette.types import ASGIApp

__all__ = [
    "CONNECTIONS",
    "Address",
    "check_names",
    "header_value",
    "names_of",
    "parse_address",
    "serve_http",
    "site_refusal",
]

CONNECTIONS = 256
HEAD_LIMIT = 10.0
"""Maximum seconds for a connection to send the head of its request, which contains the secret."""
GRACE = 2
"""Seconds for running requests to finish during shutdown."""
NAME = re.compile(r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?")
LOCAL_NAMES = ("127.0.0.1", "localhost", "[::1]")


# -- The address, and the names under which the server is reached.


@dataclass(frozen=True, slots=True)
class Address:
    """The address of the server. ``port`` 0 is any free one."""

    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def authority(self) -> str:
        """``host:port``, as in a URL."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str) -> Address:
    """Parse ``HOST:PORT``, ``[HOST]:PORT``, ``:PORT`` or ``PORT``; the default host is 127.0.0.1.

    Raises:
        ConfigError: the text is not in one of these forms.
    """
    host, colon, port = text.rpartition(":")
    name = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    plain = name == host and ":" in name  # an IPv6 address without brackets is ambiguous
    if plain or not (port.isascii() and port.isdigit()) or int(port) > 65535 or (colon and host == "[]"):
        raise ConfigError(f"invalid address {text!r}", hint="write HOST:PORT, for example 127.0.0.1:8765")
    return Address(name or "127.0.0.1", int(port))


def check_names(names: Sequence[str]) -> None:
    """Refuse names that no request could have in its Host header.

    Raises:
        ConfigError: a name is not a host name with or without a port.
    """
    for name in names:
        if not NAME.fullmatch(name):
            raise ConfigError(f"{name!r} is not a host name", hint="write NAME or NAME:PORT, without http://")


def names_of(address: Address, more: Sequence[str] = ()) -> frozenset[str]:
    """Return the authorities of the server. Pure.

    A name of ``more`` without a port is also valid with the server's port.
    """
    own = {f"{name}:{address.port}" for name in LOCAL_NAMES} if address.is_loopback else set()
    named = {form for name in more for form in (name.lower(), f"{name.lower()}:{address.port}")}
    return frozenset({address.authority.lower(), *own, *named})


# -- Which requests are served.


def site_refusal(
    headers: Sequence[tuple[bytes, bytes]], names: frozenset[str], schemes: Sequence[str] = ("http", "https")
) -> tuple[int, str] | None:
    """Return the HTTP status and reason to refuse a request for another site, or None to accept it. Pure.

    Args:
        headers: The request's headers.
        names: The authorities of the server, such as ``127.0.0.1:8765``.
        schemes: The schemes of pages that may send requests.
    """
    host, origin = header_value(headers, b"host"), header_value(headers, b"origin")
    if host is None or host.lower() not in names:
        return 421, "unknown Host name"
    if origin and origin.lower() not in {f"{scheme}://{name}" for name in names for scheme in schemes}:
        return 403, "requests from other origins are not served"
    return None


def header_value(headers: Sequence[tuple[bytes, bytes]], name: bytes) -> str | None:
    """Return the value of a header; a duplicate header is ambiguous, and returned as a value that matches nothing."""
    values = [value for key, value in headers if key.lower() == name]
    if len(values) > 1:
        return "\0"
    return values[0].decode("latin-1").strip() if values else None


# -- The socket with uvicorn, and a bounded shutdown.


@asynccontextmanager
async def serve_http(build: Callable[[Address], ASGIApp], address: Address, **options: Any) -> AsyncIterator[Address]:
    """Serve inside the block; yields the address with the actual port.

    The application must end its long responses itself when the block is left.

    Args:
        build: Returns the ASGI application for the address with the actual port.
        address: Where to listen.
        options: Further options of ``uvicorn.Config``.

    Raises:
        HarnessError: the address is not available.
    """
    with _listening(address) as (listener, found):
        server = _Server(_config(build(found), options))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_serve, server, listener)
            try:
                yield found
            finally:
                server.should_exit = True


async def _serve(server: _Server, listener: socket.socket) -> None:
    """Serve until told to exit: a cancelled server would leave its connections to the end of the event loop."""
    with anyio.CancelScope(shield=True):
        await server.serve([listener])


@contextmanager
def _listening(address: Address) -> Iterator[tuple[socket.socket, Address]]:
    try:
        family, _, _, _, where = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)[0]
        with socket.create_server(where[:2], family=family, backlog=128) as listener:
            yield listener, replace(address, port=listener.getsockname()[1])
    except (OSError, OverflowError) as error:
        reason = (getattr(error, "strerror", None) or str(error)).lower()
        raise HarnessError(f"cannot listen on {address.authority}: {reason}") from error


def _config(app: ASGIApp, options: dict[str, Any]) -> uvicorn.Config:
    chosen: dict[str, Any] = {"ws": "none", **options}
    return uvicorn.Config(
        app,
        http=_Connection,
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=CONNECTIONS,
        timeout_graceful_shutdown=GRACE,
        **chosen,
    )


class _Connection(H11Protocol):
    """A connection that is closed if it sends no request: clients without a secret could use up all connections."""

    def connection_made(self, transport: Any) -> None:
        """Start the timeout for the first request."""
        super().connection_made(transport)
        self.loop.call_later(HEAD_LIMIT, self._end_if_silent)

    def _end_if_silent(self) -> None:
        is_web_socket = self.transport.get_protocol() is not self
        if self.cycle is None and not is_web_socket and not self.transport.is_closing():
            self.transport.close()


class _Server(uvicorn.Server):
    """A uvicorn server that leaves signals to harness."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture no signals."""
        yield
