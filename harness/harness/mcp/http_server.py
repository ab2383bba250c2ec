"""The HTTP server around the sessions: a socket, uvicorn on it, and an end that waits for nobody."""

from __future__ import annotations

import logging
import re
import socket
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import anyio
import uvicorn
from mcp.server.transport_security import RequestBodyLimitMiddleware
from uvicorn.protocols.http.h11_impl import H11Protocol

from ..errors import ConfigError, HarnessError
from .http_guard import Address, Guard
from .http_sessions import HttpSessions
from .http_token import Token

if TYPE_CHECKING:
    from starlette.types import ASGIApp

__all__ = ["BODY_LIMIT", "check_address", "check_names", "http_server", "names_of"]

BODY_LIMIT = 4 << 20
"""Bytes of one request."""
CONNECTIONS = 256
HEAD_LIMIT = 10.0
"""Seconds within which a connection must have sent the head of its request, which holds the token."""
GRACE = 2
"""Seconds that running requests get when the server ends."""
NAME = re.compile(r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?")
LOCAL_NAMES = ("127.0.0.1", "localhost", "[::1]")
log = logging.getLogger("harness.mcp")


def check_address(address: Address, *, allow_remote: bool) -> None:
    """Refuse to be reached from other machines, unless that is asked for.

    Raises:
        ConfigError: the address is not of this machine alone.
    """
    if not address.is_loopback and not allow_remote:
        raise ConfigError(
            f"{address.host} can be reached from other machines, and there is no encryption on this port",
            hint="listen on 127.0.0.1, and forward it with ssh -L; --allow-remote does it all the same",
        )


def check_names(names: Sequence[str]) -> None:
    """Refuse what no request could ever come under.

    Raises:
        ConfigError: one is no name of a host, with or without a port.
    """
    for name in names:
        if not NAME.fullmatch(name):
            raise ConfigError(f"{name!r} is no name of a host", hint="write NAME or NAME:PORT, without http://")


def names_of(address: Address, more: Sequence[str] = ()) -> frozenset[str]:
    """The authorities under which the server may be spoken to. Pure.

    A name of ``more`` without a port also stands for itself with the server's port.
    """
    own = {f"{name}:{address.port}" for name in LOCAL_NAMES} if address.is_loopback else set()
    named = {form for name in more for form in (name.lower(), f"{name.lower()}:{address.port}")}
    return frozenset({address.authority.lower(), *own, *named})


@asynccontextmanager
async def http_server(
    sessions: HttpSessions, address: Address, token: Token, names: Sequence[str] = ()
) -> AsyncIterator[Address]:
    """Serve until it is left; gives the address with the port that was found.

    Raises:
        HarnessError: nothing can listen there.
    """
    with _listening(address) as (listener, found):
        app: ASGIApp = RequestBodyLimitMiddleware(sessions, BODY_LIMIT)
        server = _Server(_config(Guard(app, names_of(found, names), token)))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(server.serve, [listener])
            try:
                yield found
            finally:
                server.should_exit = True
                with anyio.CancelScope(shield=True):
                    await sessions.close()  # or their streams would hold up the end


@contextmanager
def _listening(address: Address) -> Iterator[tuple[socket.socket, Address]]:
    try:
        family, _, _, _, where = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)[0]
        with socket.create_server(where[:2], family=family, backlog=128) as listener:
            yield listener, replace(address, port=listener.getsockname()[1])
    except (OSError, OverflowError) as error:
        reason = (getattr(error, "strerror", None) or str(error)).lower()
        raise HarnessError(f"cannot listen on {address.authority}: {reason}") from error


def _config(app: ASGIApp) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=_Connection,
        lifespan="off",
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=CONNECTIONS,
        timeout_graceful_shutdown=GRACE,
    )


class _Connection(H11Protocol):
    """A connection that is ended when it asks for nothing: whoever has no token could take all that there may be."""

    def connection_made(self, transport: Any) -> None:
        """Begin to wait for a request."""
        super().connection_made(transport)
        self.loop.call_later(HEAD_LIMIT, self._end_if_silent)

    def _end_if_silent(self) -> None:
        if self.cycle is None and not self.transport.is_closing():
            self.transport.close()


class _Server(uvicorn.Server):
    """Uvicorn, which leaves signals to us."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield
