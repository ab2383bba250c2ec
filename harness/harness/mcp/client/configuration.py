"""Configured MCP servers: settings tables and ``.mcp.json`` files, with their trust, and values that they refer to."""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from ...deprecated_names import renamed_fields
from ...errors import ConfigError, ToolError
from ...settings import CommandLineChoices, SettingsTable, is_trusted, load_settings, load_tables
from ...system.account import expand_home
from ...toolkit.arguments import parse_arguments
from ...toolkit.contract import HERE, Arguments
from ...toolkit.values import Category, Json

__all__ = [
    "PROJECT_FILE",
    "HttpEndpoint",
    "ServerConfig",
    "ServerList",
    "ServerTable",
    "StdioLaunch",
    "Template",
    "check_url",
    "load_servers",
    "parse_mcp_json",
    "read_private",
    "server_config",
]


# -- Values that are read when they are needed
#
# ``${NAME}`` and ``${NAME:-default}`` are environment variables of harness, ``${file:PATH}`` is the text of a private
# file. So settings need no secrets, and no secret is kept longer than it is used.


PLACE = re.compile(r"\$\{(?P<body>[^{}]*)\}")
REFERENCE = re.compile(r"(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?P<default>:-.*)?", re.DOTALL)
FILE_REFERENCE = "file:"
FILE_LIMIT = 64 << 10
HARMLESS = frozenset({"HOME", "USER", "PWD", "TMPDIR"})
"""Variables that are allowed in a command line, which every user of this machine can read."""


@dataclass(frozen=True, slots=True)
class Template:
    """A text with references. Its ``repr`` does not show the text, which may contain a secret."""

    text: str

    def __repr__(self) -> str:
        return "Template(...)"

    @property
    def public(self) -> bool:
        """Whether it is allowed in a command line."""
        bodies = [place["body"].partition(":-")[0] for place in PLACE.finditer(self.text)]
        return all(body in HARMLESS for body in bodies)

    def resolve(self, environ: Mapping[str, str], where: str) -> str:
        """Return the text with all references replaced.

        Args:
            environ: the environment variables.
            where: what the value is for, in error messages.

        Raises:
            ConfigError: a variable is not set, or a file is unreadable or other users have access to it.
        """
        return PLACE.sub(lambda place: _value(place["body"], environ, where), self.text)


def _value(body: str, environ: Mapping[str, str], where: str) -> str:
    if body.startswith(FILE_REFERENCE):
        return read_private(expand_home(body.removeprefix(FILE_REFERENCE)), where)
    match = REFERENCE.fullmatch(body)
    if match is None:
        raise ConfigError(f"{where}: invalid reference ${{{body}}}", hint="write ${NAME} or ${file:PATH}")
    found = environ.get(match["name"]) or (match["default"] or "").removeprefix(":-")
    if not found and match["default"] is None:
        raise ConfigError(f"{where}: the variable {match['name']} is not set", hint=f"export {match['name']}=...")
    return found


def read_private(path: Path, where: str) -> str:
    """Return the text of a file with a secret, without the newlines at its end.

    Raises:
        ConfigError: it is unreadable, belongs to another user, or other users may read or write it.
    """
    try:
        with open(path, "rb", opener=_open_at_once) as file:
            _check_private(path, os.fstat(file.fileno()), where)
            text = file.read(FILE_LIMIT).decode()
    except OSError as error:
        raise ConfigError(f"{where}: {path}: {(error.strerror or str(error)).lower()}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{where}: {path} is not UTF-8 text") from error
    return text.rstrip("\r\n")


def _open_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)  # a named pipe must not block


def _check_private(path: Path, info: os.stat_result, where: str) -> None:
    if not stat.S_ISREG(info.st_mode):
        raise ConfigError(f"{where}: {path} is not a regular file")
    if info.st_uid not in {os.geteuid(), 0}:
        raise ConfigError(f"{where}: {path} belongs to another user")
    if info.st_mode & 0o077:
        raise ConfigError(f"{where}: others may read {path}", hint=f"chmod 600 {path}")


# -- Validation of the ``[mcp.servers.NAME]`` tables of the settings files


NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,31}")
PIN = re.compile(r"(?:sha256:)?([0-9a-fA-F]{64})")
VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
LONGEST = 86_400.0
SMALLEST_MESSAGE, LARGEST_MESSAGE = 64 << 10, 256 << 20

Values = tuple[tuple[str, Template], ...]


@renamed_fields(pin="program_sha256")
@dataclass(frozen=True, slots=True)
class StdioLaunch:
    """A server that is a local program. ``program_sha256`` is the SHA-256 of the program's file, empty for any."""

    command: tuple[Template, ...]
    env: Values = ()
    cwd: str = ""
    program_sha256: str = ""


@dataclass(frozen=True, slots=True)
class HttpEndpoint:
    """A server at a URL. ``ca_file`` contains the certificate authorities to trust instead of the system's."""

    url: Template
    headers: Values = ()
    ca_file: str = ""


@renamed_fields(max_message="max_message_bytes")
@dataclass(frozen=True, slots=True)
class ServerConfig:
    """One server. Times are in seconds, ``max_message_bytes`` in bytes.

    ``trust_annotations``: trust the server's ``readOnlyHint``. ``read_only`` names tools that are read-only whatever
    the server says; ``True`` is all of them. ``pin_tools``: disable a tool whose definition changes until the operator
    accepts it.
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
    max_message_bytes: int = 8 << 20

    @property
    def identity(self) -> str:
        """A digest of the server's name and its command or URL, without resolved secrets."""
        if isinstance(self.reach, StdioLaunch):
            parts: Json = ["stdio", *(word.text for word in self.reach.command), self.reach.cwd]
        else:
            parts = ["http", self.reach.url.text]
        return hashlib.sha256(json.dumps([self.name, parts]).encode()).hexdigest()

    @property
    def place(self) -> str:
        """Where its tools run, for operators; never the target."""
        if isinstance(self.reach, StdioLaunch):
            return f"{HERE} (MCP server {self.name})"
        return f"{_public_host(self.reach.url)} (MCP server {self.name})"


def _public_host(url: Template) -> str:
    """Return the host of a URL if the settings contain it literally; a resolved value may be a secret."""
    try:
        parts = urlsplit(url.text)
        host = parts.hostname or ""
    except ValueError:
        host = ""
    if not host or "$" in parts.netloc:
        return "another machine"
    return HERE if host in LOOPBACK else host


class ServerTable(Arguments):
    """The keys of ``[mcp.servers.NAME]``."""

    command: list[str] | None = None
    args: list[str] = []  # noqa: RUF012  # pydantic copies the default
    env: dict[str, str] = {}  # noqa: RUF012  # pydantic copies the default
    cwd: str = ""
    program_sha256: str = ""
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
    max_message_bytes: int = 8 << 20


def server_config(name: str, values: Mapping[str, Json], origin: str) -> ServerConfig:
    """Return the validated configuration of one server.

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
    pinned = isinstance(reach, StdioLaunch) and bool(reach.program_sha256)
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
        max_message_bytes=_size(table.max_message_bytes, where),
    )


def _seconds(key: str, value: float, where: str) -> float:
    if not 0.1 <= value <= LONGEST:
        raise ConfigError(f"{where}: {key} must be a number of seconds from 0.1 to {LONGEST:g}")
    return value


def _size(value: int, where: str) -> int:
    if not SMALLEST_MESSAGE <= value <= LARGEST_MESSAGE:
        raise ConfigError(
            f"{where}: max_message_bytes must be a number of bytes from {SMALLEST_MESSAGE} to {LARGEST_MESSAGE}"
        )
    return value


def _reach(table: ServerTable, where: str) -> StdioLaunch | HttpEndpoint:
    if bool(table.command) == bool(table.url):
        raise ConfigError(f"{where}: give either command or url")
    if table.command:
        _only(table, ("headers", "ca_file"), "url", where)
        return _launch(table, table.command, where)
    _only(table, ("args", "env", "cwd", "program_sha256"), "command", where)
    return _endpoint(table, where)


def _only(table: ServerTable, keys: tuple[str, ...], owner: str, where: str) -> None:
    for key in keys:
        if getattr(table, key):
            raise ConfigError(f"{where}: {key} needs {owner}")


def _launch(table: ServerTable, command: list[str], where: str) -> StdioLaunch:
    words = tuple(Template(word) for word in [*command, *table.args])
    if not all(word.public for word in words):
        raise ConfigError(
            f"{where}: the command line must not contain variables or files, because every user can read it",
            hint="use env; a command line may contain ${HOME}, ${USER}, ${PWD} and ${TMPDIR}",
        )
    pin = PIN.fullmatch(table.program_sha256)
    if table.program_sha256 and pin is None:
        raise ConfigError(f"{where}: program_sha256 must be sha256: and 64 hexadecimal digits")
    return StdioLaunch(words, _values(table.env, VARIABLE_NAME, "env", where), table.cwd, pin[1].lower() if pin else "")


def _endpoint(table: ServerTable, where: str) -> HttpEndpoint:
    headers = _values(table.headers, HEADER, "headers", where)
    if "${" not in table.url:
        check_url(table.url, where, secret=bool(headers))
    return HttpEndpoint(Template(table.url), headers, table.ca_file)


def check_url(url: str, where: str, *, secret: bool) -> None:
    """Refuse an invalid endpoint, and one to which secret headers would be sent unencrypted.

    Raises:
        ConfigError: it is refused.
    """
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError:
        raise ConfigError(f"{where}: invalid url") from None
    if parts.scheme not in {"http", "https"} or not host:
        raise ConfigError(f"{where}: the url must start with https:// or http:// and contain a host")
    if parts.username is not None or parts.password is not None:
        raise ConfigError(f"{where}: the url must not contain a user or a password", hint="use headers")
    if parts.scheme == "http" and host not in LOOPBACK and secret:
        raise ConfigError(f"{where}: headers would be sent unencrypted to {host}", hint="use https")


def _values(given: Mapping[str, str], pattern: re.Pattern[str], key: str, where: str) -> Values:
    for name in given:
        if not pattern.fullmatch(name):
            raise ConfigError(f"{where}: {key}.{name} is not a valid name")
    return tuple((name, Template(value)) for name, value in given.items())


# -- Server lists in the format of other clients: ``.mcp.json`` with ``{"mcpServers": {NAME: {...}}}``


KEYS = ("mcpServers", "servers")
OURS = frozenset({"command", "args", "env", "cwd", "url", "headers", "disabled"})
"""The supported keys of an entry; others are ignored."""
KINDS = {"": "", "stdio": "command", "http": "url", "streamable-http": "url", "streamableHttp": "url"}


def parse_mcp_json(text: str | bytes, origin: str) -> tuple[ServerConfig, ...]:
    """Return the servers of a ``.mcp.json`` file, in its order.

    Raises:
        ConfigError: the file or an entry is invalid; the message names the file and the entry.
    """
    try:
        document = json.loads(text, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{origin}: invalid JSON: {error}") from error
    entries = _entries(document, origin)
    return tuple(server_config(name, _table(name, entry, origin), origin) for name, entry in entries.items())


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("duplicate name")
    return found


def _entries(document: object, origin: str) -> Mapping[str, Any]:
    given = [document[key] for key in KEYS if key in document] if isinstance(document, dict) else []
    if len(given) != 1 or not isinstance(given[0], dict):
        raise ConfigError(f'{origin}: no list of servers; write {{"mcpServers": {{...}}}}')
    return given[0]


def _table(name: str, entry: object, origin: str) -> Mapping[str, Json]:
    if not isinstance(entry, dict):
        raise ConfigError(f"{origin}: server {name!r} is not an object")
    kind = str(entry.get("type", entry.get("transport", "")))
    if kind not in KINDS:
        hint = "use its streamable HTTP endpoint" if kind == "sse" else "supported types: stdio, http"
        raise ConfigError(f"{origin}: server {name!r} has the unsupported type {kind!r}", hint=hint)
    if KINDS[kind] and KINDS[kind] not in entry:
        raise ConfigError(f"{origin}: server {name!r} is of type {kind!r} and has no {KINDS[kind]}")
    return {key: value for key, value in entry.items() if key in OURS}


# -- Reading the server lists of this machine, each with its trust


PROJECT_FILE = ".mcp.json"
LIMIT = 1 << 20


@dataclass(frozen=True, slots=True)
class ServerList:
    """The configured servers, by name, and messages about refused files."""

    servers: tuple[ServerConfig, ...] = ()
    refused: tuple[str, ...] = ()


def load_servers(
    choices: CommandLineChoices | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    directory: Path | None = None,
) -> ServerList:
    """Load the servers of the settings files, of the files in ``[mcp] files``, and of ``./.mcp.json``.

    A later server replaces an earlier one of the same name; the settings files override the others. A ``./.mcp.json``
    in a directory that is not in ``trusted_dirs`` is refused and listed as such, because it starts local programs.

    Args:
        choices: the options of the command line.
        environ: the environment variables; by default ``os.environ``.
        directory: the directory of ``.mcp.json`` and of the project's settings; by default the current one.

    Raises:
        ConfigError: a file is unreadable or invalid, or settings of an untrusted project name servers.
    """
    here = directory or Path.cwd()
    tables = load_tables("mcp", choices, environ=environ, directory=directory)
    for table in tables:
        _check(table)
    found: dict[str, ServerConfig] = {}
    for path in _named(tables):
        found |= _by_name(parse_mcp_json(_read(path), str(path)))
    refused: tuple[str, ...] = ()
    if (here / PROJECT_FILE).exists():
        if is_trusted(here, load_settings(choices, environ=environ, directory=directory).trusted_dirs):
            found |= _by_name(parse_mcp_json(_read(here / PROJECT_FILE), str(here / PROJECT_FILE)))
        else:
            refused = (_refusal(here),)
    found |= _by_name(server for table in tables for server in _servers(table))
    return ServerList(tuple(found[name] for name in sorted(found)), refused)


def _check(table: SettingsTable) -> None:
    if not table.trusted and {"servers", "files"} & set(table.values):
        raise ConfigError(
            f"{table.origin}: [mcp] starts programs on this machine, and this directory is not trusted",
            hint="add the directory to trusted_dirs in your own settings",
        )


def _refusal(here: Path) -> str:
    return (
        f"{here / PROJECT_FILE} was not read: it starts programs on this machine, and this directory is not trusted "
        "(add it to trusted_dirs in your own settings)"
    )


def _named(tables: Iterable[SettingsTable]) -> list[Path]:
    paths = []
    for table in tables:
        files = table.values.get("files", [])
        if not isinstance(files, list) or not all(isinstance(name, str) for name in files):
            raise ConfigError(f"{table.origin}: mcp.files is not a list of paths")
        paths += [Path(table.origin).parent / expand_home(name) for name in files]
    return paths


def _servers(table: SettingsTable) -> list[ServerConfig]:
    servers = table.values.get("servers", {})
    if not isinstance(servers, dict) or not all(isinstance(values, dict) for values in servers.values()):
        raise ConfigError(f"{table.origin}: mcp.servers is not a table of tables", hint="write [mcp.servers.NAME]")
    return [server_config(name, values, table.origin) for name, values in servers.items()]


def _by_name(servers: Iterable[ServerConfig]) -> dict[str, ServerConfig]:
    return {server.name: server for server in servers}


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(LIMIT + 1)
    except OSError as error:
        raise ConfigError(f"{path}: {(error.strerror or str(error)).lower()}") from error
    if len(data) > LIMIT:
        raise ConfigError(f"{path}: larger than {LIMIT} bytes")
    return data
