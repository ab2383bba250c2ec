"""Messages to and from a server at a URL (streamable HTTP); imported only if such a server is used.

The library follows redirects only within the endpoint's origin, so headers are sent nowhere else.
"""

from __future__ import annotations

import json
import os
import ssl
import urllib.request
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress

import anyio
import anyio.to_thread
import httpx2
from mcp.client.streamable_http import streamable_http_client

from ...errors import ConfigError
from .channel import ServerConnection, ServerLog
from .configuration import HttpEndpoint, ServerConfig, check_url

__all__ = ["open_http"]

CONNECT_LIMIT = 10.0
WRITE_LIMIT = 30.0
CLOSE_TIMEOUT = 2.0
SESSION = "mcp-session-id"
SAID_BY_STATUS = frozenset({401, 403, 404, 407, 429})
"""HTTP statuses, besides those from 500 on, that explain a failure better than their response bodies."""


@asynccontextmanager
async def open_http(
    config: ServerConfig, endpoint: HttpEndpoint, environ: Mapping[str, str]
) -> AsyncIterator[ServerConnection]:
    """Prepare a connection to the server; nothing is sent yet.

    Raises:
        ConfigError: the URL, a header's value, the CA file or the proxy is unavailable or invalid.
    """
    url, headers = await anyio.to_thread.run_sync(_resolve, config, endpoint, environ)
    transport = _LimitedTransport(
        await anyio.to_thread.run_sync(_transport, config, endpoint, url), config.max_message_bytes
    )
    timeout = httpx2.Timeout(CONNECT_LIMIT, write=WRITE_LIMIT, read=None)  # each call has its own timeout
    async with httpx2.AsyncClient(transport=transport, headers=headers, timeout=timeout) as client:
        try:
            async with streamable_http_client(
                url, http_client=client, terminate_on_close=False, max_sse_event_size=config.max_message_bytes
            ) as (read, write):
                yield ServerConnection(read, write, _no_stream, ServerLog(config.name))
        finally:
            await _say_goodbye(client, url, transport.session)


async def _say_goodbye(client: httpx2.AsyncClient, url: str, session: Mapping[str, str]) -> None:
    """End the session at the server, with a short timeout."""
    if not session:
        return
    with anyio.CancelScope(shield=True), anyio.move_on_after(CLOSE_TIMEOUT), suppress(httpx2.HTTPError):
        await client.delete(url, headers=session)


def _no_stream() -> None:
    """Do nothing: with HTTP, the session is closed as a whole when the connection ends."""


def _resolve(config: ServerConfig, endpoint: HttpEndpoint, environ: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    where = f"server {config.name!r}"
    url = endpoint.url.resolve(environ, f"{where}: url")
    check_url(url, where, secret=bool(endpoint.headers))
    headers = {name: value.resolve(environ, f"{where}: headers.{name}") for name, value in endpoint.headers}
    for name, value in headers.items():
        if not value.isprintable() or not value.isascii():
            raise ConfigError(f"{where}: headers.{name} contains an invalid character")
        if value != value.strip():  # the library would refuse and print it
            raise ConfigError(f"{where}: headers.{name} starts or ends with a blank")
    return url, {**headers, "accept-encoding": "identity"}  # the size limit would not apply to decompressed data


def _transport(config: ServerConfig, endpoint: HttpEndpoint, url: str) -> httpx2.AsyncHTTPTransport:
    try:
        verify = ssl.create_default_context(cafile=os.path.expanduser(endpoint.ca_file)) if endpoint.ca_file else True
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"server {config.name!r}: ca_file {endpoint.ca_file}: {error}") from error
    parts = httpx2.URL(url)
    direct = urllib.request.proxy_bypass(parts.host)
    proxy = None if direct else urllib.request.getproxies().get(parts.scheme)
    if proxy is not None and "://" not in proxy:
        proxy = f"http://{proxy}"
    try:
        return httpx2.AsyncHTTPTransport(verify=verify, proxy=proxy)
    except (ValueError, httpx2.InvalidURL, ImportError):  # the message may contain the password
        failure = f"server {config.name!r}: the proxy of the environment is not the URL of an HTTP proxy"
    raise ConfigError(failure, hint="set HTTPS_PROXY to http://HOST:PORT")


class _LimitedTransport(httpx2.AsyncBaseTransport):
    """Limits the size of responses, and reports the HTTP status of a refusal to the protocol layer."""

    def __init__(self, inner: httpx2.AsyncBaseTransport, limit: int) -> None:
        self._inner = inner
        self._limit = limit
        self.session: Mapping[str, str] = {}
        """The header with the session id, once the server has sent one."""

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        response = await self._inner.handle_async_request(request)
        status = response.status_code
        if SESSION in response.headers:
            self.session = {SESSION: response.headers[SESSION]}
        if request.method == "POST" and (status in SAID_BY_STATUS or status >= 500):
            await response.aclose()
            return _refusal(status)
        if response.headers.get("content-encoding", "identity") != "identity":
            await response.aclose()
            return _refusal(415)
        if "text/event-stream" in response.headers.get("content-type", ""):
            return response  # the library limits each event
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        stream = _BoundedStream(response.stream, self._limit)
        return httpx2.Response(status, headers=response.headers, stream=stream, extensions=response.extensions)

    async def aclose(self) -> None:
        await self._inner.aclose()


def _refusal(status: int) -> httpx2.Response:
    error = {"code": -32000, "message": f"HTTP status {status}", "data": {"http_status": status}}
    body = json.dumps({"jsonrpc": "2.0", "id": 0, "error": error})
    return httpx2.Response(max(status, 400), headers={"content-type": "application/json"}, content=body)


class _BoundedStream(httpx2.AsyncByteStream):
    def __init__(self, inner: httpx2.AsyncByteStream, limit: int) -> None:
        self._inner = inner
        self._left = limit

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._inner:
            self._left -= len(chunk)
            if self._left < 0:
                raise httpx2.StreamError("the response is larger than allowed")
            yield chunk

    async def aclose(self) -> None:
        await self._inner.aclose()
