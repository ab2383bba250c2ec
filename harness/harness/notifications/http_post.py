"""One POST request: verified, without redirects, and bounded, also if the lookup of the host name is not answered."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import httpcore
import httpx

from ..system.daemon_thread import run_in_daemon_thread
from .channel import NotificationError
from .notification import short_line

__all__ = ["PostAnswer", "post", "ssl_context"]

MAX_ANSWER_BYTES = 2_000
MAX_ADDRESSES = 4
CONNECT_TIMEOUT = 3.0
"""Seconds for each address of a host."""


@dataclass(frozen=True, slots=True)
class PostAnswer:
    """The status of an answer, and the start of its text."""

    status: int
    text: str


class _Network(httpcore.AnyIOBackend):
    """Connects to the addresses of a host, one after the other; no lookup of a name delays the end of the program."""

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Connect to one of the addresses of a host.

        Raises:
            httpcore.ConnectError: None of them answers, or the name is not known.
        """
        try:
            found = await run_in_daemon_thread(partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM))
        except (OSError, UnicodeError) as error:
            raise httpcore.ConnectError(f"unknown host: {getattr(error, 'strerror', '') or error}") from error
        addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))[:MAX_ADDRESSES]
        failure: Exception = httpcore.ConnectError("the host has no address")
        for address in addresses:
            try:
                return await super().connect_tcp(address, port, CONNECT_TIMEOUT, local_address, socket_options)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failure = error
        raise failure


def ssl_context() -> ssl.SSLContext:
    """Return a context that verifies certificates. Blocks.

    Raises:
        NotificationError: The certificates of the authorities cannot be read.
    """
    try:
        return httpx.create_ssl_context()
    except OSError as error:  # also of SSL
        why = (error.strerror or str(error)).lower()
        hint = "check SSL_CERT_FILE and SSL_CERT_DIR"
        raise NotificationError(f"cannot read the certificates of the authorities: {why}", hint=hint) from None


async def post(
    url: str, content: bytes, headers: Mapping[str, str], context: ssl.SSLContext, *, is_local: bool
) -> PostAnswer:
    """Send a request, once; nothing logs its URL or its headers.

    Args:
        url: The URL.
        content: The body.
        headers: The headers.
        context: Verifies the certificate of the host.
        is_local: Whether the host is this machine, which is not reached through a proxy.

    Raises:
        NotificationError: There was no answer.
    """
    parts = urlsplit(url)
    host = parts.hostname or ""
    sent = [(name.encode(), value.encode()) for name, value in headers.items()]
    proxy = None if is_local else _proxy_for(parts.scheme, host)
    try:
        async with (
            _pool(context, proxy) as pool,
            pool.stream("POST", url, headers=sent, content=content) as answer,
        ):
            said = bytearray()
            async for chunk in answer.aiter_stream():
                said += chunk
                if len(said) >= MAX_ANSWER_BYTES:
                    break
            return PostAnswer(answer.status, short_line(said[:MAX_ANSWER_BYTES].decode("utf-8", "replace"), 200))
    except httpcore.LocalProtocolError:  # its text contains the value of the header
        raise NotificationError(f"{host}: the URL or a header contains a character that HTTP does not allow") from None
    except (
        *(httpcore.NetworkError, httpcore.TimeoutException, httpcore.ProtocolError, httpcore.ProxyError),
        *(httpcore.UnsupportedProtocol, ssl.SSLError, OSError),
    ) as error:
        why = short_line(str(error).replace(url, "the URL")) or type(error).__name__
        raise NotificationError(f"{host}: {why}") from None


def _pool(context: ssl.SSLContext, proxy: str | None) -> httpcore.AsyncConnectionPool:
    if proxy is None:
        return httpcore.AsyncConnectionPool(ssl_context=context, max_connections=1, network_backend=_Network())
    found = _parse_proxy(proxy)
    return httpcore.AsyncHTTPProxy(
        proxy_url=str(found.url),
        proxy_auth=found.raw_auth,
        ssl_context=context,
        max_connections=1,
        network_backend=_Network(),
    )


def _proxy_for(scheme: str, host: str) -> str | None:
    """Return the proxy of the environment for a host."""
    return None if proxy_bypass(host) else getproxies().get(scheme)


def _parse_proxy(proxy: str) -> httpx.Proxy:
    """Return a proxy of the environment; ``HOST:PORT`` without a scheme is one for HTTP, as for curl.

    Raises:
        NotificationError: It is not the URL of an HTTP proxy. The message does not contain it: it may have a password.
    """
    try:
        found = httpx.Proxy(proxy if "://" in proxy else f"http://{proxy}")
        if found.url.scheme in ("http", "https") and found.url.host:
            return found
    except (ValueError, httpx.InvalidURL):
        pass
    raise NotificationError(
        "the proxy of the environment is not the URL of an HTTP proxy", hint="set HTTPS_PROXY to http://HOST:PORT"
    )
