"""Runs the dashboard's server: where it may listen, and how browsers reach it."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anyio
from anyio import to_thread
from starlette.types import ASGIApp

from ..errors import ConfigError
from ..system.http_server import Address, serve_http
from .application import build_application
from .dashboard import open_dashboard
from .guard import MAX_BODY_BYTES, RequestGuard, Site, site_of
from .logins import LoginStore

__all__ = ["ServerOptions", "check_options", "serve_dashboard"]

PING_INTERVAL = 20.0
"""Seconds between two checks that a browser is still there."""


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """Where the server listens, its certificate and key, the URL of a proxy in front of it, and its other names."""

    address: Address
    certificate: Path | None = None
    key: Path | None = None
    proxy: str = ""
    names: tuple[str, ...] = ()

    @property
    def has_tls(self) -> bool:
        """Whether the server itself encrypts."""
        return self.certificate is not None


def check_options(options: ServerOptions) -> None:
    """Refuse options with which others could read what is sent.

    Raises:
        ConfigError: The address can be reached by other machines without encryption, or the certificate is not valid.
    """
    if (options.certificate is None) != (options.key is None):
        raise ConfigError("--tls-cert and --tls-key belong together", hint="give both, or none")
    if not options.address.is_loopback and not options.has_tls and not options.proxy:
        raise ConfigError(
            f"{options.address.host} can be reached from other machines, and nothing is encrypted",
            hint="forward the port with ssh -L, or give --tls-cert and --tls-key, or --behind-proxy URL",
        )
    if options.certificate is not None and options.key is not None:
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(options.certificate, options.key)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(f"cannot use {options.certificate} and {options.key}: {error}") from error
    _site(options, options.address)


async def serve_dashboard(
    options: ServerOptions,
    logins: LoginStore,
    redact: Callable[[str], str],
    name: str,
    started: Callable[[Site], object],
) -> None:
    """Serve the dashboard until cancelled.

    Args:
        options: Where and how.
        logins: Who may see it.
        redact: Replaces secrets in texts that do not come from a harness process.
        name: Who runs the server.
        started: Called when it listens.

    Raises:
        HarnessError: The address is not available.
    """
    async with open_dashboard(logins, redact, name) as dashboard:

        def build(found: Address) -> ASGIApp:
            site = _site(options, found)
            path = urlsplit(site.url).path
            return RequestGuard(build_application(dashboard, path, is_encrypted=site.is_encrypted), site)

        async with serve_http(build, options.address, **_uvicorn_options(options)) as found:
            site = _site(options, found)
            await to_thread.run_sync(logins.set_url, site.url)
            started(site)
            await anyio.sleep_forever()


def _site(options: ServerOptions, address: Address) -> Site:
    return site_of(address, tls=options.has_tls, proxy=options.proxy, names=options.names)


def _uvicorn_options(options: ServerOptions) -> dict[str, Any]:
    return {
        "ws": "websockets-sansio",
        "ws_max_size": MAX_BODY_BYTES,
        "ws_ping_interval": PING_INTERVAL,
        "ws_ping_timeout": PING_INTERVAL,
        "ws_per_message_deflate": False,
        "ssl_certfile": options.certificate,
        "ssl_keyfile": options.key,
    }
