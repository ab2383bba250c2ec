"""Connections from this machine to public addresses alone. Imported where it is used: it loads the HTTP library."""

from __future__ import annotations

import ipaddress
from collections.abc import Awaitable, Callable, Iterable, Sequence

import anyio
import httpcore

from harness.toolkit.values import Advice
from harness.toolkit.websettings import Place

from .addresses import Address, is_never, may_connect
from .pages import WebFailure

__all__ = ["GuardedNetwork", "Resolve", "look_up"]

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""The addresses of a host's name."""
BY_TARGET = Advice('; via="target" fetches with the network of the target', ("via",))
MOST = 8
"""Addresses that are tried."""


async def look_up(host: str, port: int) -> Sequence[str]:
    """The addresses by which this machine knows the name.

    Raises:
        OSError: there are none.
    """
    found = await anyio.getaddrinfo(host, port, type=1)  # SOCK_STREAM
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


class GuardedNetwork(httpcore.AsyncNetworkBackend):
    """Looks a name up once, judges every address that comes, and connects to one of exactly these.

    A name with one address that is not public is refused: which of them is used is not for its owner to choose.
    """

    def __init__(self, allowed: Iterable[Place] = (), resolve: Resolve = look_up) -> None:
        self._allowed = tuple(allowed)
        self._resolve = resolve
        self._inner = httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Connect to one of the addresses of a name.

        Raises:
            WebFailure: ``forbidden_address``, or ``unreachable``: the name is not known.
        """
        failure: Exception | None = None
        for address in await self._addresses(host, port):
            try:
                return await self._inner.connect_tcp(str(address), port, timeout, local_address, socket_options)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failure = failure or error
        raise failure or WebFailure("unreachable", f"{host} has no address")

    async def connect_unix_socket(
        self, path: str, timeout: float | None = None, socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None
    ) -> httpcore.AsyncNetworkStream:
        """Refused.

        Raises:
            WebFailure: always.
        """
        raise WebFailure("forbidden_address", "a socket of this machine is not fetched from")

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await anyio.sleep(seconds)

    async def _addresses(self, host: str, port: int) -> list[Address]:
        try:
            texts = [host] if _is_address(host) else await self._resolve(host, port)
        except (OSError, UnicodeError) as error:
            raise WebFailure("unreachable", f"the name {host} is not known here: {error}") from error
        addresses = [ipaddress.ip_address(text) for text in texts]
        for address in addresses:
            if why := may_connect(host, port, address, self._allowed):
                way = None if is_never(address) else BY_TARGET
                raise WebFailure("forbidden_address", _refusal(host, address, why), way)
        return addresses[:MOST]


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _refusal(host: str, address: Address, why: str) -> str:
    is_named = host != str(address)
    what = f"{host} leads to {address}, which" if is_named else f"{address}"
    return f"{what} is not fetched: {why}. Only the operator can allow such a place ([web] allow in the settings)"
