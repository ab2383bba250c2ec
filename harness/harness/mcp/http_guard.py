"""Who may talk to the HTTP server: who knows the token, under a name that the server has, and from no foreign page."""

from __future__ import annotations

import ipaddress
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import ConfigError
from .http_token import Token

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

__all__ = ["PATH", "Address", "Guard", "parse_address", "refusal_of"]

PATH = "/mcp"
log = logging.getLogger("harness.mcp")


@dataclass(frozen=True, slots=True)
class Address:
    """Where the server listens. ``port`` 0 is any that is free."""

    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        """Only this machine can reach it."""
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

    @property
    def url(self) -> str:
        """What a client is given."""
        return f"http://{self.authority}{PATH}"


def parse_address(text: str) -> Address:
    """``HOST:PORT``, ``[HOST]:PORT``, ``:PORT`` or ``PORT``; without a host it is 127.0.0.1.

    Raises:
        ConfigError: it is none of these.
    """
    host, colon, port = text.rpartition(":")
    name = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    plain = name == host and ":" in name  # an IPv6 address without brackets could end anywhere
    if plain or not (port.isascii() and port.isdigit()) or int(port) > 65535 or (colon and host == "[]"):
        raise ConfigError(f"{text!r} is no address", hint="write HOST:PORT, for example 127.0.0.1:8765")
    return Address(name or "127.0.0.1", int(port))


def refusal_of(headers: Sequence[tuple[bytes, bytes]], names: frozenset[str], token: Token) -> tuple[int, str] | None:
    """Why a request may not pass: an HTTP status and a reason; None lets it pass. Pure.

    ``names`` are the authorities (``127.0.0.1:8765``) under which the server may be spoken to. A page that a browser
    shows may send requests to any address, under any name that its owner's DNS gives to this machine; it can neither
    change Host nor Origin.
    """
    host, origin, sent = (_only(headers, name) for name in (b"host", b"origin", b"authorization"))
    if host is None or host.lower() not in names:
        return 421, "this server is not spoken to under this name"
    if origin and origin.lower() not in {f"{scheme}://{name}" for name in names for scheme in ("http", "https")}:
        return 403, "requests of other origins are not served"
    scheme, _, offered = (sent or "").partition(" ")
    if scheme.lower() != "bearer" or not token.matches(offered.strip()):
        return 401, "a token is required: Authorization: Bearer ..."
    return None


def _only(headers: Sequence[tuple[bytes, bytes]], name: bytes) -> str | None:
    """A header that is there once; one that is there twice may mean two things, so it means nothing."""
    values = [value for key, value in headers if key.lower() == name]
    if len(values) > 1:
        return "\0"
    return values[0].decode("latin-1").strip() if values else None


class Guard:
    """Lets requests pass to ``app``, or answers them; nothing of one that is refused is read."""

    def __init__(self, app: ASGIApp, names: frozenset[str], token: Token) -> None:
        self._app = app
        self._names = names
        self._token = token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        from starlette.responses import PlainTextResponse

        if scope["type"] != "http":
            return
        refusal = refusal_of(scope["headers"], self._names, self._token)
        if refusal is None and scope["path"] == PATH:
            await self._app(scope, receive, send)
            return
        status, reason = refusal or (404, f"the server is at {PATH}")
        log.info("refused a request from %s: %s %s", (scope.get("client") or ["?"])[0], status, reason)
        more = {"WWW-Authenticate": 'Bearer realm="harness"'} if status == 401 else {}
        await PlainTextResponse(reason + "\n", status, {"Connection": "close", **more})(scope, receive, send)
