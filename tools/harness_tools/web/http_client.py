"""Requests by the machine that harness runs on. Imported where it is used: it loads the HTTP library."""

from __future__ import annotations

import ipaddress
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import partial

import anyio
import httpcore
import httpx
from anyio import to_thread

from harness.toolkit.websettings import WebSettings

from .addresses import may_connect
from .getter import Getter
from .headers import Sent
from .network import GuardedNetwork, Resolve, look_up
from .pages import Answer, Inflater, WebFailure, wants_body
from .urls import WebUrl

__all__ = ["HttpGetter", "PlainGetter"]

CONNECT = 10.0
"""Seconds for one connection."""
PACKED = 64 << 10
"""Bytes that may come before they mean anything, beside twice what may be kept."""


class _Transport(httpx.AsyncBaseTransport):
    """A pool of connections for one request."""

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


class PlainGetter(Getter):
    """Requests to wherever the operator has said, with his own settings of TLS and without those of the environment."""

    async def get(self, url: WebUrl, sent: Sent, most: int, timeout: float) -> Answer:
        """See :class:`Getter`."""
        parsed = httpx.URL(str(url))
        if (parsed.scheme, parsed.raw_host.decode(), parsed.port or url.port) != url.origin:
            raise WebFailure("bad_url", f"{url} can be read in two ways")
        context = await to_thread.run_sync(httpx.create_ssl_context) if parsed.scheme == "https" else None
        received = _Received()
        with anyio.move_on_after(timeout) as scope:
            await self._received(parsed, sent.headers, most, context, received)
        if scope.cancelled_caught and received.status == 0:
            raise WebFailure("timeout", f"{url.authority} did not answer within {timeout:.0f} s")
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
        except httpx.InvalidURL as error:  # the client reads where a redirect leads to
            raise WebFailure("bad_redirect", f"{url} redirects to what is not fetched: {error}") from error
        except (httpx.HTTPError, httpcore.TimeoutException, httpcore.NetworkError, httpcore.ProtocolError) as error:
            raise WebFailure("unreachable", f"{url.host} could not be fetched from: {_reason(error)}") from error
        except (httpcore.ProxyError, httpcore.UnsupportedProtocol, ssl.SSLError) as error:
            raise WebFailure("unreachable", f"{url.host} could not be fetched from: {_reason(error)}") from error

    async def _read(self, most: int, response: httpx.Response, received: _Received) -> None:
        await _read(response, most, received)

    def _pool(self, context: ssl.SSLContext | None, url: httpx.URL) -> httpcore.AsyncConnectionPool:
        return httpcore.AsyncConnectionPool(ssl_context=context, max_connections=1)


class HttpGetter(PlainGetter):
    """Requests to public addresses, and to the places that the operator allows."""

    def __init__(self, settings: WebSettings, resolve: Resolve = look_up) -> None:
        self._settings = settings
        self._network = GuardedNetwork(settings.allow, resolve)

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
        """Refuse what is private by its spelling alone: names are looked up by the proxy."""
        try:
            address = ipaddress.ip_address("127.0.0.1" if _is_local(url.host) else url.host)
        except ValueError:
            return
        port = url.port or (443 if url.scheme == "https" else 80)
        if why := may_connect(url.host, port, address, self._settings.allow):
            raise WebFailure("forbidden_address", f"{url.host} is not fetched: {why}")


class _Received:
    """What has come of a response so far."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.body = bytearray()
        self.truncated = False

    def answer(self, *, cut: bool) -> Answer:
        return Answer(self.status, self.headers, bytes(self.body), self.truncated or cut)


async def _receive(
    client: httpx.AsyncClient,
    url: httpx.URL,
    headers: Mapping[str, str],
    received: _Received,
    read: Callable[[httpx.Response, _Received], Awaitable[None]],
) -> None:
    wanted = {**headers, "accept-encoding": "gzip, deflate", "connection": "close"}
    timeout = httpx.Timeout(None, connect=CONNECT)  # the whole has its limit
    request = client.build_request("GET", url, headers=wanted, timeout=timeout)
    response = await client.send(request, stream=True, follow_redirects=False)
    try:
        received.headers = {name.lower(): value for name, value in response.headers.items()}
        received.status = response.status_code
        await read(response, received)
    finally:
        await response.aclose()


async def _read(response: httpx.Response, most: int, received: _Received) -> None:
    """The body, until there is one byte too many."""
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
