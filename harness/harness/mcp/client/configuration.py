"""Which servers there are: the tables ``[mcp.servers.NAME]`` of the settings files, checked."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from ..errors import ConfigError, ToolError
from ..toolkit.arguments import parse_arguments
from ..toolkit.contract import HERE, Arguments
from ..toolkit.values import Category, Json
from .client_values import Template

__all__ = ["HttpEndpoint", "ServerConfig", "ServerTable", "StdioLaunch", "check_url", "server_config"]

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,31}")
PIN = re.compile(r"(?:sha256:)?([0-9a-fA-F]{64})")
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
LONGEST = 86_400.0
SMALLEST_MESSAGE, LARGEST_MESSAGE = 64 << 10, 256 << 20

Values = tuple[tuple[str, Template], ...]


@dataclass(frozen=True, slots=True)
class StdioLaunch:
    """A server that is a program on this machine. ``pin`` is the SHA-256 of the program's file, empty for any."""

    command: tuple[Template, ...]
    env: Values = ()
    cwd: str = ""
    pin: str = ""


@dataclass(frozen=True, slots=True)
class HttpEndpoint:
    """A server behind a URL. ``ca_file`` holds the authorities to trust instead of the system's."""

    url: Template
    headers: Values = ()
    ca_file: str = ""


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """One server. Times are in seconds, ``max_message`` in bytes.

    ``trust_annotations``: a tool that the server calls read-only counts as such. ``read_only`` names tools that do
    whatever the server says; ``True`` is all of them. ``pin_tools``: a tool whose definition changes is disabled until
    somebody accepts it.
    """

    name: str
    reach: StdioLaunch | HttpEndpoint
    origin: str = ""
    timeout: float = 30.0
    start_timeout: float = 10.0
    category: Category = Category.MCP
    trust_annotations: bool = False
    read_only: bool | frozenset[str] = field(default=frozenset())
    parallelizable: bool = False
    lazy: bool = False
    disabled: bool = False
    pin_tools: bool = False
    max_message: int = 8 << 20

    @property
    def identity(self) -> str:
        """A digest of what is reached and how, without any secret that is filled in later."""
        if isinstance(self.reach, StdioLaunch):
            parts: Json = ["stdio", *(word.text for word in self.reach.command), self.reach.cwd]
        else:
            parts = ["http", self.reach.url.text]
        return hashlib.sha256(json.dumps([self.name, parts]).encode()).hexdigest()

    @property
    def place(self) -> str:
        """Where its tools do their work, for people: it is never the target."""
        if isinstance(self.reach, StdioLaunch):
            return f"{HERE} (MCP server {self.name})"
        return f"{_public_host(self.reach.url)} (MCP server {self.name})"


def _public_host(url: Template) -> str:
    """The host of a URL, where the settings themselves name it: what is filled in later may be a secret."""
    try:
        parts = urlsplit(url.text)
        host = parts.hostname or ""
    except ValueError:
        host = ""
    if not host or "$" in parts.netloc:
        return "another machine"
    return HERE if host in LOOPBACK else host


class ServerTable(Arguments):
    """What ``[mcp.servers.NAME]`` may hold."""

    command: list[str] | None = None
    args: list[str] = []  # noqa: RUF012  # pydantic copies the default
    env: dict[str, str] = {}  # noqa: RUF012  # pydantic copies the default
    cwd: str = ""
    pin: str = ""
    url: str = ""
    headers: dict[str, str] = {}  # noqa: RUF012  # pydantic copies the default
    ca_file: str = ""
    timeout: float = 30.0
    start_timeout: float = 10.0
    category: Category = Category.MCP
    trust_annotations: bool = False
    read_only: bool | list[str] = []  # noqa: RUF012  # pydantic copies the default
    parallelizable: bool = False
    lazy: bool = False
    disabled: bool = False
    pin_tools: bool | None = None
    max_message: int = 8 << 20


def server_config(name: str, values: Mapping[str, Json], origin: str) -> ServerConfig:
    """One server from its table.

    Raises:
        ConfigError: the name, a key or a value is wrong; the message names the file and the key.
    """
    where = f"{origin}: server {name!r}"
    if not NAME.fullmatch(name):
        raise ConfigError(f"{where}: use letters, digits, _ and -, 32 at most, for its name")
    try:
        table = parse_arguments(ServerTable, values, where)
    except ToolError as error:
        raise ConfigError(error.message) from None
    reach = _reach(table, where)
    pinned = isinstance(reach, StdioLaunch) and bool(reach.pin)
    read_only = table.read_only
    return ServerConfig(
        name=name,
        reach=reach,
        origin=origin,
        timeout=_seconds("timeout", table.timeout, where),
        start_timeout=_seconds("start_timeout", table.start_timeout, where),
        category=table.category,
        trust_annotations=table.trust_annotations,
        read_only=read_only if isinstance(read_only, bool) else frozenset(read_only),
        parallelizable=table.parallelizable,
        lazy=table.lazy,
        disabled=table.disabled,
        pin_tools=pinned if table.pin_tools is None else table.pin_tools,
        max_message=_size(table.max_message, where),
    )


def _seconds(key: str, value: float, where: str) -> float:
    if not 0.1 <= value <= LONGEST:
        raise ConfigError(f"{where}: {key} is seconds, from 0.1 to {LONGEST:g}")
    return value


def _size(value: int, where: str) -> int:
    if not SMALLEST_MESSAGE <= value <= LARGEST_MESSAGE:
        raise ConfigError(f"{where}: max_message is bytes, from {SMALLEST_MESSAGE} to {LARGEST_MESSAGE}")
    return value


def _reach(table: ServerTable, where: str) -> StdioLaunch | HttpEndpoint:
    if bool(table.command) == bool(table.url):
        raise ConfigError(f"{where}: give either command or url")
    if table.command:
        _only(table, ("headers", "ca_file"), "url", where)
        return _launch(table, table.command, where)
    _only(table, ("args", "env", "cwd", "pin"), "command", where)
    return _endpoint(table, where)


def _only(table: ServerTable, keys: tuple[str, ...], owner: str, where: str) -> None:
    for key in keys:
        if getattr(table, key):
            raise ConfigError(f"{where}: {key} needs {owner}")


def _launch(table: ServerTable, command: list[str], where: str) -> StdioLaunch:
    words = tuple(Template(word) for word in [*command, *table.args])
    if not all(word.public for word in words):
        raise ConfigError(
            f"{where}: a variable or a file in the command line, which every user can read",
            hint="give it with env; a command line may hold ${HOME}, ${USER}, ${PWD} and ${TMPDIR}",
        )
    pin = PIN.fullmatch(table.pin)
    if table.pin and pin is None:
        raise ConfigError(f"{where}: pin is sha256: and 64 hexadecimal digits")
    return StdioLaunch(words, _values(table.env, VARIABLE, "env", where), table.cwd, pin[1].lower() if pin else "")


def _endpoint(table: ServerTable, where: str) -> HttpEndpoint:
    headers = _values(table.headers, HEADER, "headers", where)
    if "${" not in table.url:
        check_url(table.url, where, secret=bool(headers))
    return HttpEndpoint(Template(table.url), headers, table.ca_file)


def check_url(url: str, where: str, *, secret: bool) -> None:
    """Refuse what cannot be an endpoint, or would show a ``secret`` that goes with it to the network.

    Raises:
        ConfigError: it cannot.
    """
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError:
        raise ConfigError(f"{where}: the url is none") from None
    if parts.scheme not in {"http", "https"} or not host:
        raise ConfigError(f"{where}: the url starts with https:// or http://, and names a host")
    if parts.username is not None or parts.password is not None:
        raise ConfigError(f"{where}: the url holds a user or a password", hint="give it with headers")
    if parts.scheme == "http" and host not in LOOPBACK and secret:
        raise ConfigError(f"{where}: headers would be sent in the clear to {host}", hint="use https")


def _values(given: Mapping[str, str], pattern: re.Pattern[str], key: str, where: str) -> Values:
    for name in given:
        if not pattern.fullmatch(name):
            raise ConfigError(f"{where}: {key}.{name} is no usable name")
    return tuple((name, Template(value)) for name, value in given.items())
