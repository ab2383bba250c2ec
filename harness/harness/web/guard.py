"""Passes requests of the dashboard's own pages to the application, with headers that bind the browser to them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from ..errors import ConfigError
from ..system.http_server import Address, check_names, header_value, names_of, site_refusal

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["CONTENT_POLICY", "MAX_BODY_BYTES", "RequestGuard", "Site", "TokenBucket", "request_refusal", "site_of"]

MAX_BODY_BYTES = 64 << 10
CONTENT_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
HEADERS = (
    (b"content-security-policy", CONTENT_POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), clipboard-read=(), geolocation=(), microphone=(), usb=()"),
)
SAFE_METHODS = ("GET", "HEAD")


@dataclass(frozen=True, slots=True)
class Site:
    """How browsers reach the dashboard: its URL, the names in ``Host`` headers, and the scheme of its pages."""

    url: str
    names: frozenset[str]
    scheme: str

    @property
    def is_encrypted(self) -> bool:
        """Whether browsers reach it over TLS."""
        return self.scheme == "https"


def site_of(address: Address, *, tls: bool, proxy: str = "", names: Sequence[str] = ()) -> Site:
    """Return the site of a server.

    Args:
        address: Where it listens, with the actual port.
        tls: Whether it has a certificate.
        proxy: The URL of a proxy in front of it; only that name is served then.
        names: Further host names of the server, the first of which is in its URL.

    Raises:
        ConfigError: The URL of the proxy, or a name, is not valid.
    """
    if not proxy:
        check_names(names)
        scheme = "https" if tls else "http"
        shown = next((name if ":" in name else f"{name}:{address.port}" for name in names), address.authority)
        return Site(f"{scheme}://{shown}/", names_of(address, names), scheme)
    found = urlsplit(proxy)
    if found.scheme != "https" or not found.netloc or found.query or found.fragment or found.username is not None:
        raise ConfigError(f"invalid URL of a proxy: {proxy!r}", hint="write https://NAME/ or https://NAME/PATH/")
    check_names([found.netloc])
    return Site(f"https://{found.netloc}{found.path.rstrip('/')}/", frozenset({found.netloc.lower()}), "https")


def request_refusal(scope: Scope, site: Site) -> tuple[int, str] | None:
    """Return the HTTP status and reason to refuse a request with, or None to accept it. Pure.

    A page of another site may not ask for data, and nothing without an ``Origin`` may change something or open the
    WebSocket: browsers send it always then.
    """
    headers: Sequence[tuple[bytes, bytes]] = scope["headers"]
    refusal = site_refusal(headers, site.names, (site.scheme,))
    if refusal is not None:
        return refusal
    changes = scope["type"] == "websocket" or scope["method"] not in SAFE_METHODS
    if changes and not header_value(headers, b"origin"):
        return 403, "requests without an origin are not served"
    from_site = header_value(headers, b"sec-fetch-site")
    if "/api/" in scope["path"] and from_site not in (None, "same-origin"):
        return 403, "requests from other sites are not served"
    return _body_refusal(headers) if changes and scope["type"] == "http" else None


def _body_refusal(headers: Sequence[tuple[bytes, bytes]]) -> tuple[int, str] | None:
    length = header_value(headers, b"content-length") or ""
    if not (length.isascii() and length.isdigit()) or header_value(headers, b"transfer-encoding"):
        return 411, "the length of the body is required"
    if len(length) > 9 or int(length) > MAX_BODY_BYTES:
        return 413, "the body is too large"
    if (header_value(headers, b"content-type") or "").partition(";")[0] != "application/json":
        return 415, "the body must be JSON"
    return None


class RequestGuard:
    """The outermost application: refuses foreign requests, and adds headers to every response.

    Args:
        app: Gets what is accepted.
        site: How browsers reach the dashboard.
    """

    def __init__(self, app: ASGIApp, site: Site) -> None:
        self._app = app
        self._site = site

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] not in ("http", "websocket"):
            return
        refusal = request_refusal(scope, self._site)
        answer = _with_headers(send, is_private="/api/" in scope["path"])
        if refusal is None:
            await self._app(scope, receive, answer)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close"})  # becomes status 403
        else:
            await _refuse(scope, receive, answer, refusal)


async def _refuse(scope: Scope, receive: Receive, send: Send, refusal: tuple[int, str]) -> None:
    from starlette.responses import PlainTextResponse

    status, reason = refusal
    await PlainTextResponse(reason + "\n", status, {"Connection": "close"})(scope, receive, send)


def _with_headers(send: Send, *, is_private: bool) -> Send:
    async def answer(message: Message) -> None:
        if message["type"] == "http.response.start":
            cache = b"no-store" if is_private else b"no-cache"
            message = {**message, "headers": [*message["headers"], *HEADERS, (b"cache-control", cache)]}
        await send(message)

    return answer


class TokenBucket:
    """Limits how often something happens: ``burst`` times at once, and ``rate`` times per second on average."""

    def __init__(self, rate: float, burst: int) -> None:
        self._rate = rate
        self._burst = burst
        self._level = float(burst)
        self._at = time.monotonic()

    def take(self) -> bool:
        """Return whether it may happen now, and count it."""
        now = time.monotonic()
        self._level = min(float(self._burst), self._level + (now - self._at) * self._rate)
        self._at = now
        if self._level < 1:
            return False
        self._level -= 1
        return True
