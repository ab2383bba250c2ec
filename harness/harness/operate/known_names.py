"""Names that this machine knows without asking anybody: hosts, groups, runs, conversations, recordings, settings.

They are for completion: nothing connects to a host, asks a question or waits, and what cannot be read is left out.
:mod:`.target_names` has the names on a target.
"""

from __future__ import annotations

import stat
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

from ..errors import HarnessError
from ..settings import CommandLineChoices, Settings, load_settings
from ..system.account import home_directory

__all__ = [
    "conversation_names",
    "forward_names",
    "group_names",
    "host_names",
    "known_hosts_names",
    "model_names",
    "named_targets",
    "recording_ids",
    "run_numbers",
    "server_names",
    "setting_names",
    "tool_names",
]

MAX_FILE_BYTES = 1 << 20
MAX_CONVERSATIONS = 200
SYSTEM_KNOWN_HOSTS = Path("/etc/ssh/ssh_known_hosts")
DEFAULT_PORT = 22
_BUILTIN_TOOLS = """
ask_user_question bash_output capture_pane checkfor clean_diff compact conflicts delete edit errs fetch_url forget glob
grep imports kill_shell list_shells ls notab read_file recall remember repfor run_shell send_keys sig skill splice split
stump tabcount task time tmux_create_pane tmux_create_session tmux_kill_pane tmux_kill_session tmux_list_panes
tmux_list_sessions todo_write tool_search transform utf8 web_search write_file
"""
BUILTIN_TOOLS = frozenset(_BUILTIN_TOOLS.split())
"""The names of harness's tools: importing their modules takes longer than an operator waits for a completion."""


def _settings(choices: CommandLineChoices) -> Settings | None:
    try:
        return load_settings(choices)
    except HarnessError:
        return None


# -- hosts and groups


def host_names(choices: CommandLineChoices, inventory: str | None = None) -> list[str]:
    """Return the hosts of an inventory, or of the ssh configuration and the known hosts without hashed names."""
    if inventory is not None:
        from ..fleets import read_inventory

        with suppress(HarnessError):
            return list(read_inventory(inventory).hosts)
        return []
    from ..fleets.hosts import ssh_config_hosts

    settings = _settings(choices)
    configured = settings.config.ssh_config if settings else choices.ssh_config
    return [*ssh_config_hosts(configured or None), *known_hosts_names()]


def known_hosts_names() -> list[str]:
    """Return the names in the user's and the system's known hosts: ``HOST`` or ``HOST:PORT``, without hashed ones."""
    files = home_directory() / ".ssh/known_hosts", SYSTEM_KNOWN_HOSTS
    return [name for file in files for name in _names_of_known_hosts(_read(file))]


def _names_of_known_hosts(text: str) -> Iterator[str]:
    for line in text.splitlines():
        fields = line.split(maxsplit=1)
        if not fields or fields[0].startswith(("#", "@", "|")):
            continue
        for name in fields[0].split(","):
            host, _, port = name.removeprefix("[").partition("]:") if name.startswith("[") else (name, "", "")
            if host and not set(host) & set("*?!") and ":" not in host:
                yield host if port in ("", str(DEFAULT_PORT)) else f"{host}:{port}"


def _read(file: Path) -> str:
    """Return the start of a regular file; empty if it cannot be read."""
    with suppress(OSError):
        if stat.S_ISREG(file.stat().st_mode):  # a named pipe would block
            with file.open(encoding="utf-8", errors="replace") as opened:
                return opened.read(MAX_FILE_BYTES)
    return ""


def group_names(inventory: str | None = None) -> list[str]:
    """Return the groups of an inventory, or those in files of ClusterShell's configuration, without ``@``."""
    if inventory is None:
        return _clustershell_groups()
    from ..fleets import read_inventory

    with suppress(HarnessError):
        return ["all", *read_inventory(inventory).names_of_groups()]
    return []


def _clustershell_groups() -> list[str]:
    """Return the groups of ClusterShell's default source, unless programs have to be run for it."""
    try:
        from ClusterShell.NodeSet import std_group_resolver
        from ClusterShell.NodeUtils import GroupResolverError, GroupSourceError, UpcallGroupSource
    except ImportError:
        return []
    try:
        resolver = std_group_resolver()
        if isinstance(resolver._source(None), UpcallGroupSource):
            return []
        return sorted(str(name) for name in resolver.grouplist())
    except (GroupResolverError, GroupSourceError, AttributeError):  # AttributeError: a release without _source
        return []


# -- settings


def named_targets(choices: CommandLineChoices) -> list[str]:
    """Return the named targets of the settings."""
    settings = _settings(choices)
    return [name for name, _ in settings.targets] if settings else []


def setting_names() -> list[str]:
    """Return the names of the general settings and of those of the engine, as ``harness config show`` lists them."""
    from ..settings_schema import ENGINE_KEYS, GENERAL_KEYS

    return sorted({*GENERAL_KEYS, *ENGINE_KEYS})


def model_names(choices: CommandLineChoices) -> list[str]:
    """Return the model profiles of the settings."""
    from ..agent.models import load_models

    with suppress(HarnessError):
        return [profile.name for profile in load_models(choices).profiles]
    return []


def server_names(choices: CommandLineChoices) -> list[str]:
    """Return the configured MCP servers."""
    from ..mcp.client.configuration import load_servers

    with suppress(HarnessError):
        return [server.name for server in load_servers(choices).servers]
    return []


def tool_names() -> list[str]:
    """Return harness's tools and those of other installed packages, of which only these are imported.

    Files with tools are not read, as that may run their code.
    """
    from importlib.metadata import entry_points

    if all(point.value.startswith("harness_tools.") for point in entry_points(group="harness.tools")):
        return sorted(BUILTIN_TOOLS)
    from ..toolkit.plugins import OWN, TOOLS, find, load_tools

    loaded = load_tools(plugin for plugin in find(TOOLS) if plugin.distribution != OWN)
    return sorted({*BUILTIN_TOOLS, *(tool.name for _, tools in loaded.found for tool in tools)})


# -- what this user has kept


def run_numbers() -> list[str]:
    """Return the numbers of the kept fleet runs, the newest first."""
    from ..fleets.kept_runs import RunStore

    with suppress(OSError):
        return [str(number) for number in reversed(RunStore().numbers())]
    return []


def conversation_names() -> list[str]:
    """Return the stored conversations, the last changed first: the name, or the ID of one without."""
    from ..agent.storage import rows
    from ..agent.storage.store import sessions_database
    from ..agent.storage.values import ConversationList

    with suppress(HarnessError):
        listed = sessions_database().read(partial(rows.listed, limit=MAX_CONVERSATIONS), ConversationList())
        return [found.name or found.session_id for found in listed.found]
    return []


def forward_names() -> list[str]:
    """Return the names of the running forwards of this user."""
    import anyio

    from ..live.forwards import list_forwards

    with suppress(HarnessError, OSError):
        forwards, _ = anyio.run(list_forwards)
        return [forward.name for forward in forwards]
    return []


def recording_ids() -> list[str]:
    """Return the IDs of the recordings, the newest first."""
    from ..recordings.directory import recordings_directory

    with suppress(OSError):
        return sorted((path.stem for path in recordings_directory().glob("*.cast")), reverse=True)
    return []
