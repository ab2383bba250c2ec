"""Notifications by an HTTP request to a webhook."""

from __future__ import annotations

import ipaddress
import ssl
from collections.abc import Awaitable, Callable
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import anyio

from ..errors import ConfigError
from ..extras import install_extra
from ..system.daemon_thread import run_in_daemon_thread
from ..toolkit.redaction.redactor import remember
from .channel import Channel, NotificationError
from .notification import Notification
from .settings import WebhookSettings
from .templates import request_of

if TYPE_CHECKING:
    from ..agent.models.keys import KeySource
    from .http_post import PostAnswer

__all__ = ["WebhookChannel", "check_url", "is_loopback"]

RETRIED = (429, 502, 503, 504)
"""Status codes of requests that are sent once more."""
RETRY_PAUSE = 1.0
MAX_URL_CHARS = 4_000
ReadSecret = Callable[["KeySource"], Awaitable[str]]


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine, by its spelling. Pure."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_url(url: str) -> None:
    """Refuse a URL that would send a notification unencrypted, or is not one. Pure; the message does not contain it.

    Raises:
        ValueError: It is refused.
    """
    if len(url) > MAX_URL_CHARS or not (url.isascii() and url.isprintable()) or " " in url:
        raise ValueError("is not a URL")
    parts = urlsplit(url)
    try:
        host = parts.hostname or ""
        _ = parts.port
    except ValueError:
        raise ValueError("is not a URL") from None
    if parts.scheme not in ("https", "http") or not host:
        raise ValueError("must be a URL that starts with https://")
    if parts.scheme == "http" and not is_loopback(host):
        raise ValueError("must start with https://: everyone on the way could read what is sent with http://")
    if parts.username is not None or parts.fragment:
        raise ValueError("must not contain a user, a password or a fragment; use token or headers")


class WebhookChannel(Channel):
    """A webhook.

    Args:
        settings: Its settings.
        number: Its place in the settings, from 1.
        read_secret: Reads what is kept elsewhere.
    """

    def __init__(self, settings: WebhookSettings, number: int, read_secret: ReadSecret) -> None:
        self._settings = settings
        self._read_secret = read_secret
        self._http: tuple[ModuleType, ssl.SSLContext] | None = None
        self.events = settings.events
        where = settings.name or (
            (urlsplit(settings.url).hostname or "") if isinstance(settings.url, str) else settings.template
        )
        self.name = f"webhook {number} ({where})"
        if isinstance(settings.url, str):
            remember(settings.url)  # what is logged must not contain it

    async def prepare(self) -> None:
        """See :class:`Channel`."""
        await self._loaded_http()

    async def send(self, notification: Notification) -> str:
        """See :class:`Channel`."""
        url = await self._url()
        settings = self._settings
        url, content = request_of(notification, url, settings.template, settings.body)
        headers = {"content-type": "application/json", "user-agent": "harness"}
        if settings.token is not None:
            headers["authorization"] = f"Bearer {await self._secret(settings.token)}"
        for name, value in settings.headers.items():
            headers[name.lower()] = value if isinstance(value, str) else await self._secret(value)
        status = await self._post(url, content, headers)
        if status in RETRIED:
            await anyio.sleep(RETRY_PAUSE)
            status = await self._post(url, content, headers)
        if status in RETRIED:
            raise NotificationError(f"{urlsplit(url).hostname} did not take it: HTTP {status}")
        return f"HTTP {status}"

    async def _url(self) -> str:
        url = self._settings.url
        if isinstance(url, str):
            return url
        found = await self._secret(url)
        try:
            check_url(found)
        except ValueError as error:
            raise NotificationError(f"the URL in {url} {error}") from None
        return found

    async def _secret(self, source: KeySource) -> str:
        try:
            return await self._read_secret(source)
        except ConfigError as error:
            hint = "set url, token or headers to where the value is kept"
            raise NotificationError(error.message, hint=hint) from None

    async def _loaded_http(self) -> tuple[ModuleType, ssl.SSLContext]:
        """Return the module that sends requests, and the certificates that it trusts.

        Raises:
            NotificationError: The library is not installed, or the certificates cannot be read.
        """
        if self._http is None:
            try:
                self._http = await run_in_daemon_thread(_load_http)
            except ImportError:
                raise NotificationError("webhooks need the library httpx", hint=install_extra("web")) from None
        return self._http

    async def _post(self, url: str, content: bytes, headers: dict[str, str]) -> int:
        """Send the request, and return a status that is good or may be retried.

        Raises:
            NotificationError: There was no answer, or it refuses the request.
        """
        library, context = await self._loaded_http()
        host = urlsplit(url).hostname or ""
        answer: PostAnswer = await library.post(url, content, headers, context, is_local=is_loopback(host))
        if 200 <= answer.status < 300 or answer.status in RETRIED:
            return answer.status
        if 300 <= answer.status < 400:
            hint = "set url to the final address"
            raise NotificationError(f"{host} redirects elsewhere (HTTP {answer.status})", hint=hint)
        said = f": {answer.text}" if answer.text else ""
        raise NotificationError(f"{host} refused it: HTTP {answer.status}{said}")


def _load_http() -> tuple[ModuleType, ssl.SSLContext]:
    library = import_module(".http_post", __package__)
    return library, library.ssl_context()
