"""Settings of the web tools: the ``[web]`` table of the settings files.

All of it permits additional access, so a file in a directory that is not trusted may set none of it.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from ..deprecated_names import renamed_fields
from ..errors import ConfigError

if TYPE_CHECKING:
    from ..settings import SettingsTable
    from .web_settings_table import Provider, SearchTable, WebTable

__all__ = ["AllowedHost", "SearchSettings", "WebSettings", "place_of", "web_settings_of"]

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True, slots=True)
class AllowedHost:
    """A host name or a network, and a port; None is any port."""

    name: str = ""
    network: Network | None = None
    port: int | None = None


@dataclass(frozen=True, slots=True)
class SearchSettings:
    """The search engine of ``web_search``. An empty ``url`` is the provider's default."""

    provider: Provider = "ddgs"
    url: str = ""
    key: str = field(default="", repr=False)
    engines: tuple[str, ...] = ("duckduckgo",)
    """The engines that ``ddgs`` queries."""


@renamed_fields(allow="allowed_hosts", credentials="credential_hosts")
@dataclass(frozen=True, slots=True)
class WebSettings:
    """The operator's settings for the web tools."""

    allowed_hosts: tuple[AllowedHost, ...] = ()
    """Hosts that may be accessed although they are not public."""
    credential_hosts: tuple[AllowedHost, ...] = ()
    """Hosts that receive credentials which a model passes in headers."""
    proxy: str = field(default="", repr=False)
    """The URL of a proxy. It resolves names itself, so it must block access to private hosts."""
    timeout: float = 30.0
    """Total timeout of one fetch or search in seconds."""
    search: SearchSettings = field(default_factory=SearchSettings)

    @property
    def secrets(self) -> tuple[str, ...]:
        """The values that must always be redacted."""
        found = (self.search.key, unquote(urlsplit(self.proxy).password or ""))
        return tuple(secret for secret in found if secret)


def web_settings_of(tables: Iterable[SettingsTable], environ: Mapping[str, str] | None = None) -> WebSettings:
    """Combine the settings of all files in order: later values take precedence, and lists accumulate.

    Args:
        tables: the tables of the files.
        environ: the environment for ``search.api_key_env``; the default is ``os.environ``.

    Raises:
        ConfigError: a key is unknown, a value is invalid, or a file that is not trusted sets something.
    """
    from .web_settings_table import checked  # loaded on demand: few settings files have this table

    settings = WebSettings()
    for table in tables:
        table.check_trusted("[web]")
        settings = _with(settings, checked(table), table.origin, os.environ if environ is None else environ)
    return settings


def _with(settings: WebSettings, table: WebTable, origin: str, environ: Mapping[str, str]) -> WebSettings:
    return WebSettings(
        allowed_hosts=(*settings.allowed_hosts, *_places(table.allowed_hosts, origin, "allowed_hosts")),
        credential_hosts=(*settings.credential_hosts, *_places(table.credential_hosts, origin, "credential_hosts")),
        proxy=settings.proxy if table.proxy is None else _proxy(table.proxy, origin),
        timeout=table.timeout or settings.timeout,
        search=settings.search if table.search is None else _search(table.search, origin, environ),
    )


def _places(texts: list[str] | None, origin: str, key: str) -> Iterable[AllowedHost]:
    for text in texts or ():
        try:
            yield place_of(text)
        except ValueError as error:
            raise ConfigError(f"{origin}: web.{key}: {error}", hint='write "10.0.0.5:9200" or "wiki.lan"') from None


def place_of(text: str) -> AllowedHost:
    """Parse ``host``, ``host:port``, an address, ``[address6]:port`` or a network such as ``10.0.0.0/24``.

    Raises:
        ValueError: the text is not one of these.
    """
    host, port = _split_port(text.strip().lower())
    try:
        return AllowedHost(network=ipaddress.ip_network(host), port=port)
    except ValueError:
        if not host or "/" in host or host.replace(".", "").isdecimal() or not host.isascii():
            raise ValueError(f"{text!r} is not a host, address or network") from None
    return AllowedHost(name=host.removesuffix("."), port=port)


def _split_port(text: str) -> tuple[str, int | None]:
    if text.startswith("["):
        host, _, rest = text[1:].partition("]")
        digits = rest.removeprefix(":") if rest else ""
    elif text.count(":") == 1:
        host, _, digits = text.partition(":")
    else:
        return text, None
    if digits and not (digits.isdecimal() and 0 < int(digits) < 65536):
        raise ValueError(f"{digits!r} is not a port")
    return host, int(digits) if digits else None


def _proxy(text: str, origin: str) -> str:
    if text and not text.startswith(("http://", "https://")):
        raise ConfigError(f"{origin}: web.proxy: write http://host:port")
    return text


def _search(table: SearchTable, origin: str, environ: Mapping[str, str]) -> SearchSettings:
    if table.url and not table.url.startswith(("http://", "https://")):
        raise ConfigError(f"{origin}: web.search.url: write http://host or https://host")
    if table.provider == "searxng" and not table.url:
        raise ConfigError(f"{origin}: web.search: searxng requires the url of a server")
    key = table.key or environ.get(table.api_key_env, "")
    if table.api_key_env and not key:
        raise ConfigError(f"{origin}: web.search.api_key_env: {table.api_key_env} is not set")
    if table.provider == "brave" and not key:
        raise ConfigError(f"{origin}: web.search: brave requires a key", hint="set key, or api_key_env")
    return SearchSettings(table.provider, table.url.rstrip("/"), key, tuple(table.engines))
