"""HTTP requests by harness's machine, only to public addresses; imported lazily, because it loads the HTTP library."""

from __future__ import annotations

import ipaddress
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial

import anyio
import httpcore
import httpx
from anyio import to_thread

from harness.toolkit.values import Advice
from harness.toolkit.web_settings import AllowedHost, WebSettings

from .getter import HttpClient, RequestHeaders
from .pages import HttpResponse, Inflater, WebFailure, wants_body
from .urls import WebUrl

__all__ = [
    "GuardedHttpClient",
    "UnguardedHttpClient",
    "forbidden",
    "is_never",
    "may_connect",
]


# -- Which addresses may be reached from harness's machine: those of the public internet. Pure.


Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_NETWORKS = {
    "0.0.0.0/8": "this host",
    "10.0.0.0/8": "a private network",
    "100.64.0.0/10": "a carrier's private network",
    "127.0.0.0/8": "this machine",
    "168.63.129.16/32": "a cloud's metadata service",
    "169.254.0.0/16": "link-local, where clouds keep their metadata service",
    "172.16.0.0/12": "a private network",
    "192.0.0.0/24": "reserved",
    "192.0.2.0/24": "reserved for documentation",
    "192.31.196.0/24": "reserved",
    "192.52.193.0/24": "reserved",
    "192.88.99.0/24": "a relay to IPv6",
    "192.168.0.0/16": "a private network",
    "192.175.48.0/24": "reserved",
    "198.18.0.0/15": "reserved for measurements",
    "198.51.100.0/24": "reserved for documentation",
    "203.0.113.0/24": "reserved for documentation",
    "224.0.0.0/4": "multicast",
    "240.0.0.0/4": "reserved",
    "::/128": "this host",
    "::1/128": "this machine",
    "100::/64": "reserved",
    "2001::/23": "reserved, or a tunnel",
    "2001:db8::/32": "reserved for documentation",
    "2002::/16": "a tunnel to an IPv4 address",
    "3fff::/20": "reserved for documentation",
    "5f00::/16": "reserved",
    "64:ff9b:1::/48": "a translation to a private IPv4 address",
    "fc00::/7": "a private network",
    "fe80::/10": "link-local",
    "fec0::/10": "a private network",
    "ff00::/8": "multicast",
}
_FORBIDDEN = [(ipaddress.ip_network(network), what) for network, what in _NETWORKS.items()]
_GLOBAL6 = ipaddress.IPv6Network("2000::/3")
_MAPPED = [ipaddress.IPv6Network(text) for text in ("::ffff:0:0/96", "::ffff:0:0:0/96", "64:ff9b::/96", "::/96")]
_NEVER = [
    ipaddress.ip_network(network)
    for network in ("0.0.0.0/8", "169.254.0.0/16", "168.63.129.16/32", "224.0.0.0/3", "fe80::/10", "ff00::/8", "::/128")
]
_ISATAP = frozenset({0x5EFE, 0x0200_5EFE})
FOUR_BYTES = 0xFFFF_FFFF


def _inner(address: Address) -> Iterator[ipaddress.IPv4Address]:
    """Yield the IPv4 addresses that an IPv6 address represents or leads to."""
    if isinstance(address, ipaddress.IPv4Address):
        return
    number = int(address)
    if any(address in network for network in _MAPPED) and number > 1:  # :: and ::1 are themselves
        yield ipaddress.IPv4Address(number & FOUR_BYTES)
    if (number >> 32) & FOUR_BYTES in _ISATAP:
        yield ipaddress.IPv4Address(number & FOUR_BYTES)


def forbidden(address: Address) -> str:
    """Return why an address is not public; empty if it is."""
    if isinstance(address, ipaddress.IPv6Address) and address.scope_id:
        return "an address of one link"
    for network, what in _FORBIDDEN:
        if address.version == network.version and address in network:
            return what
    inner = list(_inner(address))
    for one in inner:
        if why := forbidden(one):
            return f"{one}, {why}"
    if isinstance(address, ipaddress.IPv6Address) and address not in _GLOBAL6 and not inner:
        return "reserved"
    return "" if inner or address.is_global else "not public"


def may_connect(host: str, port: int, address: Address, allowed: Iterable[AllowedHost]) -> str:
    """Return why a connection to an address of ``host`` is refused; empty if it is allowed.

    An allowed host that is an address allows that address. One that is a name allows each private address of the name,
    but never a link-local one, where cloud machines provide their credentials.
    """
    why = forbidden(address)
    if not why or any(_covers(place, host, port, address) for place in allowed):
        return ""
    return why


def _covers(place: AllowedHost, host: str, port: int, address: Address) -> bool:
    if place.port not in (None, port):
        return False
    if place.network is not None:
        return any(one in place.network for one in (address, *_inner(address)) if one.version == place.network.version)
    return place.name == host and not is_never(address)


def is_never(address: Address) -> bool:
    """Return whether no name may lead to an address: cloud credentials are there, or nothing that can be fetched."""
    ways = (address, *_inner(address))
    return any(one in network for one in ways for network in _NEVER if network.version == one.version)


# -- Connections from harness's machine, only to public addresses.


Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""Returns the addresses of a host name."""
BY_TARGET = Advice('; via="target" fetches with the network of the target', ("via",))
MOST = 8
"""Maximum addresses that are tried."""


async def look_up(host: str, port: int) -> Sequence[str]:
    """Resolve a host name on harness's machine.

    Raises:
        OSError: The name has no addresses.
    """
    found = await anyio.getaddrinfo(host, port, type=1)  # SOCK_STREAM
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


class GuardedNetwork(httpcore.AsyncNetworkBackend):
    """Network backend that resolves a name once, checks each address, and connects to one of exactly these.

    A name is refused if one of its addresses is not public, so that its owner cannot choose which one is used.
    """

    def __init__(self, allowed: Iterable[AllowedHost] = (), resolve: Resolve = look_up) -> None:
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
            WebFailure: ``forbidden_address``, or ``unreachable``: the name is unknown.
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
        """Refuse the connection.

        Raises:
            WebFailure: Always.
        """
        raise WebFailure("forbidden_address", "Unix sockets are not allowed")

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await anyio.sleep(seconds)

    async def _addresses(self, host: str, port: int) -> list[Address]:
        try:
            texts = [host] if _is_address(host) else await self._resolve(host, port)
        except (OSError, UnicodeError) as error:
            raise WebFailure("unreachable", f"unknown host {host}: {error}") from error
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
    what = f"{host} resolves to {address}, which" if is_named else f"{address}"
    return f"{what} is not allowed: {why}. Only the operator can allow it ([web] allowed_hosts in the settings)"


# -- HTTP requests by harness's machine.


CONNECT = 10.0
"""Timeout of one connection in seconds."""
PACKED = 64 << 10
"""Maximum compressed bytes, in addition to twice the allowed size, that are read."""


class _Transport(httpx.AsyncBaseTransport):
    """A connection pool for one request."""

    def __init__(self, pool: httpcore.AsyncConnectionPool) -> None:
        self._pool = pool

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        url = httpcore.URL(
            scheme=request.url.raw_scheme,
            host=request.url.raw_host,
            port=request.url.port,
            target=request.url.raw_path,
        )
        response = await self._pool.handle_async_request(
            httpcore.Request(request.method, url, headers=request.headers.raw, extensions=request.extensions)
        )
        return httpx.Response(response.status, headers=response.headers, stream=_Stream(response))

    async def aclose(self) -> None:
        await self._pool.aclose()


class _Stream(httpx.AsyncByteStream):
    def __init__(self, response: httpcore.Response) -> None:
        self._response = response

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._response.aiter_stream():
            yield chunk

    async def aclose(self) -> None:
        await self._response.aclose()


class UnguardedHttpClient(HttpClient):
    """HTTP client for a server that the operator named; it ignores TLS settings of the environment."""

    async def get(self, url: WebUrl, sent: RequestHeaders, most: int, timeout: float) -> HttpResponse:
        """See :class:`HttpClient`."""
        parsed = httpx.URL(str(url))
        if (parsed.scheme, parsed.raw_host.decode(), parsed.port or url.port) != url.origin:
            raise WebFailure("bad_url", f"{url} is ambiguous")
        context = await to_thread.run_sync(httpx.create_ssl_context) if parsed.scheme == "https" else None
        received = _Received()
        with anyio.move_on_after(timeout) as scope:
            await self._received(parsed, sent.headers, most, context, received)
        if scope.cancelled_caught and received.status == 0:
            raise WebFailure("timeout", f"{url.authority} did not respond within {timeout:.0f} s")
        return received.answer(cut=scope.cancelled_caught)

    async def _received(
        self,
        url: httpx.URL,
        headers: Mapping[str, str],
        most: int,
        context: ssl.SSLContext | None,
        received: _Received,
    ) -> None:
        try:
            async with httpx.AsyncClient(transport=_Transport(self._pool(context, url)), trust_env=False) as client:
                await _receive(client, url, headers, received, partial(self._read, most))
        except httpx.InvalidURL as error:  # the client parses the location of a redirect
            raise WebFailure("bad_redirect", f"{url} redirects to an unsupported URL: {error}") from error
        except (httpx.HTTPError, httpcore.TimeoutException, httpcore.NetworkError, httpcore.ProtocolError) as error:
            raise WebFailure("unreachable", f"could not fetch from {url.host}: {_reason(error)}") from error
        except (httpcore.ProxyError, httpcore.UnsupportedProtocol, ssl.SSLError) as error:
            raise WebFailure("unreachable", f"could not fetch from {url.host}: {_reason(error)}") from error

    async def _read(self, most: int, response: httpx.Response, received: _Received) -> None:
        await _read(response, most, received)

    def _pool(self, context: ssl.SSLContext | None, url: httpx.URL) -> httpcore.AsyncConnectionPool:
        return httpcore.AsyncConnectionPool(ssl_context=context, max_connections=1)


class GuardedHttpClient(UnguardedHttpClient):
    """HTTP client for public addresses, and for hosts that the operator allows."""

    def __init__(self, settings: WebSettings, resolve: Resolve = look_up) -> None:
        self._settings = settings
        self._network = GuardedNetwork(settings.allowed_hosts, resolve)

    def _pool(self, context: ssl.SSLContext | None, url: httpx.URL) -> httpcore.AsyncConnectionPool:
        if not self._settings.proxy:
            return httpcore.AsyncConnectionPool(ssl_context=context, max_connections=1, network_backend=self._network)
        self._check(url)
        proxy = httpx.Proxy(self._settings.proxy)
        return httpcore.AsyncHTTPProxy(
            proxy_url=str(proxy.url), proxy_auth=proxy.raw_auth, ssl_context=context, max_connections=1
        )

    async def _read(self, most: int, response: httpx.Response, received: _Received) -> None:
        if wants_body(received.status, received.headers):
            await _read(response, most, received)

    def _check(self, url: httpx.URL) -> None:
        """Refuse private addresses by their spelling only, because the proxy resolves names."""
        try:
            address = ipaddress.ip_address("127.0.0.1" if _is_local(url.host) else url.host)
        except ValueError:
            return
        port = url.port or (443 if url.scheme == "https" else 80)
        if why := may_connect(url.host, port, address, self._settings.allowed_hosts):
            raise WebFailure("forbidden_address", f"{url.host} is not allowed: {why}")


class _Received:
    """The part of a response that was received so far."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.body = bytearray()
        self.truncated = False

    def answer(self, *, cut: bool) -> HttpResponse:
        return HttpResponse(self.status, self.headers, bytes(self.body), self.truncated or cut)


async def _receive(
    client: httpx.AsyncClient,
    url: httpx.URL,
    headers: Mapping[str, str],
    received: _Received,
    read: Callable[[httpx.Response, _Received], Awaitable[None]],
) -> None:
    wanted = {**headers, "accept-encoding": "gzip, deflate", "connection": "close"}
    timeout = httpx.Timeout(None, connect=CONNECT)  # the whole request has its own timeout
    request = client.build_request("GET", url, headers=wanted, timeout=timeout)
    response = await client.send(request, stream=True, follow_redirects=False)
    try:
        received.headers = {name.lower(): value for name, value in response.headers.items()}
        received.status = response.status_code
        await read(response, received)
    finally:
        await response.aclose()


async def _read(response: httpx.Response, most: int, received: _Received) -> None:
    """Read the body, up to one byte more than allowed."""
    inflater = Inflater(received.headers.get("content-encoding", ""))
    packed = 0
    async for chunk in response.aiter_raw():
        packed += len(chunk)
        received.body += inflater.feed(chunk, most + 1 - len(received.body))
        if len(received.body) > most or packed > 2 * most + PACKED:
            received.truncated = True
            del received.body[most:]
            return


def _is_local(host: str) -> bool:
    return host == "localhost" or host.endswith(".localhost")


def _reason(error: Exception) -> str:
    return str(error) or type(error).__name__
