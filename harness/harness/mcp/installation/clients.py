"""MCP clients and their configuration files, and the entry of harness in one.

Each path and form is from the client's own documentation.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import stat
import sys
import time
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...errors import ConfigError
from ...system.account import home_directory
from ...system.private_files import make_directories, replace_file, write_new_file
from .json_text import JsonTextError, read_json, set_member

__all__ = ["CLIENTS", "Client", "Installation", "check_name", "plan_installation"]

MAX_FILE_BYTES = 8 << 20
"""Maximum size of a configuration file; a larger one is not what it is taken for."""
NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True)
class Client:
    """An MCP client: what its file is named and how it names servers in it."""

    title: str
    servers: str
    """The object of the file that holds the servers."""
    comments: bool = False
    """Whether the file may have comments and trailing commas."""
    toml: bool = False
    extra: tuple[tuple[str, str], ...] = ()
    """What an entry of a server that is a program has in addition to its command and arguments."""
    one_list: bool = False
    """Whether the program and its arguments are one list."""
    restart: str = "restart it"
    """What the user does next."""

    def entry(self, command: Sequence[str]) -> dict[str, Any]:
        """Return the entry of a server that is started by a command line."""
        program = {"command": [*command]} if self.one_list else {"command": command[0], "args": [*command[1:]]}
        return {**dict(self.extra), **program}


CLIENTS: Mapping[str, Client] = {
    "claude-code": Client("Claude Code", "mcpServers", restart="start 'claude' in this directory and approve it"),
    "claude-desktop": Client("Claude Desktop", "mcpServers", restart="quit and start it"),
    "codex": Client("Codex", "mcp_servers", toml=True),
    "cursor": Client("Cursor", "mcpServers"),
    "gemini": Client(
        "Gemini CLI", "mcpServers", comments=True, restart="restart it; it uses servers only in a folder that it trusts"
    ),
    "opencode": Client("opencode", "mcp", comments=True, extra=(("type", "local"),), one_list=True),
    "vscode": Client(
        "VS Code",
        "servers",
        comments=True,
        extra=(("type", "stdio"),),
        restart="open this directory and start the server from the file, or with 'MCP: List Servers'",
    ),
    "zed": Client("Zed", "context_servers", comments=True, restart="nothing else is needed"),
}


def config_path(name: str, environ: Mapping[str, str], directory: Path, platform: str) -> Path:
    """Return the configuration file of a client.

    Args:
        name: The client's name in :data:`CLIENTS`.
        environ: Environment variables.
        directory: The current directory, for files of a project.
        platform: The operating system, as ``sys.platform`` has it.

    Raises:
        ConfigError: The client's documentation names none for this system.
    """
    home = home_directory(environ)
    if name == "claude-desktop":
        if platform != "darwin":
            raise ConfigError(
                "the documentation of Claude Desktop names no configuration file on this system",
                hint="--file FILE writes to another file",
            )
        return home / "Library/Application Support/Claude/claude_desktop_config.json"
    if name in {"opencode", "zed"}:
        base = environ.get("XDG_CONFIG_HOME", "") if (name, platform) != ("zed", "darwin") else ""
        file = {"opencode": "opencode/opencode.json", "zed": "zed/settings.json"}[name]
        return (Path(base) if base.startswith("/") else home / ".config") / file
    if name == "codex":
        base = environ.get("CODEX_HOME", "")
        return (Path(base) if base.startswith("/") else home / ".codex") / "config.toml"
    in_project = {"claude-code": ".mcp.json", "vscode": ".vscode/mcp.json"}
    if name in in_project:
        return directory / in_project[name]
    return home / {"cursor": ".cursor/mcp.json", "gemini": ".gemini/settings.json"}[name]


def check_name(name: str) -> str:
    """Return the name of a server.

    Raises:
        ConfigError: Some client does not take it.
    """
    if not NAME.fullmatch(name):
        raise ConfigError(
            f"{name!r} is not a server name", hint="use up to 64 letters, digits, '_' and '-' (no other characters)"
        )
    return name


@dataclass(frozen=True, slots=True)
class Installation:
    """A change of a client's file that was not made yet."""

    path: Path
    before: bytes | None
    """The content of the file; None if it does not exist."""
    after: bytes
    replaces: bool
    """Whether there is another entry of that name, which is replaced."""

    @property
    def changes(self) -> bool:
        """Whether the file is not as wanted already."""
        return self.before != self.after

    def diff(self) -> list[str]:
        """Return the change as a unified diff."""
        old = (self.before or b"").decode().splitlines()
        return [
            str(self.path),
            *list(difflib.unified_diff(old, self.after.decode().splitlines(), n=1, lineterm=""))[2:],
        ]

    def write(self) -> Path | None:
        """Write the file.

        Returns:
            The copy of the earlier content; None if there was no file.

        Raises:
            ConfigError: The file has changed since it was read, or cannot be written.
        """
        try:
            if self.before is None:
                make_directories(self.path.parent)
                write_new_file(self.path, self.after)
                return None
            if _content(self.path) != self.before:
                raise ConfigError(f"{self.path} has just been changed by another program", hint="run this again")
            copy = _backup(self.path, self.before)
            replace_file(self.path, self.after, mode=stat.S_IMODE(self.path.stat().st_mode))
            return copy
        except FileExistsError:
            raise ConfigError(f"{self.path} has just been created by another program", hint="run this again") from None
        except OSError as error:
            raise ConfigError(f"{self.path}: {(error.strerror or str(error)).lower()}") from error


def plan_installation(
    name: str, server: str, command: Sequence[str], file: Path | None = None, environ: Mapping[str, str] | None = None
) -> Installation:
    """Return the change that makes a client start a server.

    Args:
        name: The client's name in :data:`CLIENTS`.
        server: The server's name in the client.
        command: The program with its absolute path, and its arguments.
        file: The file to change, if it is not the client's usual one.
        environ: Environment variables; ``os.environ`` by default.

    Raises:
        ConfigError: The file cannot be read, or cannot be changed reliably.
    """
    client = CLIENTS[name]
    env = os.environ if environ is None else environ
    path = _without_links(file or config_path(name, env, Path.cwd(), sys.platform))
    before = _content(path)
    try:
        text = (before or b"").decode()
        after, replaces = (_toml if client.toml else _json)(client, text, check_name(server), client.entry(command))
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is not UTF-8 text; nothing was changed") from None
    except ValueError as error:  # also a number with too many digits
        hint = f"repair it, or add this by hand: {_by_hand(client, check_name(server), client.entry(command))}"
        raise ConfigError(f"{path} cannot be changed: {error}; nothing was changed", hint=hint) from None
    try:
        planned = Installation(path, before, after.encode(), replaces)
    except UnicodeEncodeError:
        raise ConfigError("an option is not UTF-8 text, which the file of a client cannot hold") from None
    if before is not None and planned.changes and not path.stat().st_mode & stat.S_IWUSR:
        by_hand = _by_hand(client, server, client.entry(command))
        raise ConfigError(
            f"{path} is read-only; nothing was changed", hint=f"chmod u+w {path}, or add this by hand: {by_hand}"
        )
    return planned


def _without_links(path: Path) -> Path:
    """Return the file that a path leads to.

    Raises:
        ConfigError: Its links lead in a circle.
    """
    try:
        return path.resolve()
    except (RuntimeError, OSError):  # RuntimeError until Python 3.12
        raise ConfigError(f"{path}: too many levels of symbolic links") from None


def _content(path: Path) -> bytes | None:
    """Return a file's content; None if it does not exist.

    Raises:
        ConfigError: It is not a file of this user, is too large, or cannot be read.
    """
    try:
        info = path.stat()
        if not stat.S_ISREG(info.st_mode):
            raise ConfigError(f"{path} is not a file")
        if info.st_uid != os.geteuid():
            raise ConfigError(f"{path} belongs to another user", hint="run this as that user")
        if info.st_size > MAX_FILE_BYTES:
            raise ConfigError(f"{path} is larger than {MAX_FILE_BYTES >> 20} MiB: it is not a configuration file")
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(f"{path}: {(error.strerror or str(error)).lower()}") from error


def _json(client: Client, text: str, server: str, entry: dict[str, Any]) -> tuple[str, bool]:
    root = read_json(text, comments=client.comments)
    servers = root.get(client.servers) if isinstance(root, dict) else None
    current = servers.get(server) if isinstance(servers, dict) else None
    if current == entry:
        return text, False
    return set_member(text, (client.servers, server), entry, comments=client.comments), current is not None


def _toml(client: Client, text: str, server: str, entry: dict[str, Any]) -> tuple[str, bool]:
    """Append a table: in this way nothing else of the file can change."""
    root = tomllib.loads(text)
    servers = root.get(client.servers, {})
    if not isinstance(servers, dict):
        raise JsonTextError(f"{client.servers} is not a table")
    if server in servers:
        if servers[server] == entry:
            return text, False
        raise JsonTextError(f"it has another table [{client.servers}.{server}]; remove it, or use --name")
    newline = "\r\n" if "\r\n" in text else "\n"
    start = f"{text.rstrip()}{newline}{newline}" if text.strip() else ""
    after = start + newline.join([*_toml_lines(client, server, entry), ""])
    if tomllib.loads(after) != {**root, client.servers: {**servers, server: entry}}:
        raise JsonTextError("it cannot be changed reliably")
    return after, False


def _toml_lines(client: Client, server: str, entry: dict[str, Any]) -> list[str]:
    values = [f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in entry.items()]
    return [f"[{client.servers}.{server}]", *values]


def _by_hand(client: Client, server: str, entry: dict[str, Any]) -> str:
    if client.toml:
        return "; ".join(_toml_lines(client, server, entry))
    return json.dumps({client.servers: {server: entry}}, ensure_ascii=False)


def _backup(path: Path, content: bytes) -> Path:
    stamp = time.strftime("%Y%m%d-%H%M%S")
    for number in range(1, 100):
        copy = path.with_name(f"{path.name}.{stamp}{'' if number == 1 else f'-{number}'}.bak")
        try:
            write_new_file(copy, content)
        except FileExistsError:
            continue
        return copy
    raise ConfigError(f"{path}: there are too many copies of this second")
