"""Commands that install an optional part (extra) of the running harness.

``harness-ops`` is not in a package index, so ``pip install 'harness-ops[web]'`` finds nothing. The commands use the
source of this installation instead, which pip, pipx and uv record (PEP 610, ``direct_url.json``).
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

__all__ = ["DISTRIBUTION", "EXTRAS", "install_command", "install_extra"]

DISTRIBUTION = "harness-ops"
EXTRAS: Mapping[str, str] = {
    "acp": "the agent in editors, harness acp",
    "agent": "the agent and its prompt",
    "asyncssh": "the second SSH engine, and harness demo",
    "dask": "many hosts from the workers of a Dask cluster",
    "docker": "containers of engines behind a socket",
    "fleet": "many hosts with one command",
    "inspect": "sandboxes of inspect_ai",
    "keyring": "model keys from the system's keyring",
    "libtmux": "scripts of tmux on a target",
    "mcp": "the Model Context Protocol, server and client",
    "otel": "OpenTelemetry",
    "parsers": "tools that read source code",
    "policy": "classified shell commands; without it every command of an agent needs approval",
    "rich": "tables and progress bars",
    "skills": "skills and sub-agent types from files",
    "tools": "regular expressions of models",
    "view": "the dashboards harness top and harness web",
    "web": "tools that fetch and search web pages",
}
"""What each extra gives."""


def install_extra(name: str) -> str:
    """Return the command that installs an extra of harness, such as ``web``."""
    return install_command(f"{DISTRIBUTION}[{name}]")


def install_command(requirement: str) -> str:
    """Return the command that installs a requirement next to harness.

    Args:
        requirement: An argument of ``pip install``; an extra of harness is written ``harness-ops[NAME]``.

    Returns:
        A line for a POSIX shell, with the source of this installation in place of harness's own name.
    """
    if not requirement.startswith(f"{DISTRIBUTION}["):
        return f"{_installer()} {shlex.quote(requirement)}"
    return command_for(requirement, _recorded_source())


def command_for(requirement: str, source: dict[str, Any]) -> str:
    """Return the command for an extra of harness.

    Args:
        requirement: ``harness-ops[NAME]``.
        source: The content of ``direct_url.json``; empty if nothing was recorded.
    """
    extras = requirement.removeprefix(DISTRIBUTION)
    url = str(source.get("url", ""))
    if not url:
        return f"{_installer()} '.{extras}' in a checkout of harness"
    if "dir_info" in source:
        editable = "-e " if source["dir_info"].get("editable") else ""
        return f"{_installer()} {editable}{shlex.quote(unquote(urlsplit(url).path) + extras)}"
    version = source.get("vcs_info")
    if version:
        url = f"{version['vcs']}+{url}@{version.get('requested_revision') or version['commit_id']}"
    return f"{_installer()} {shlex.quote(f'{requirement} @ {url}')}"


def _installer() -> str:
    """Return the command that installs into this environment: pipx and uv leave a file in those that they made."""
    if Path(sys.prefix, "pipx_metadata.json").exists():
        return f"pipx runpip {DISTRIBUTION} install"
    if Path(sys.prefix, "uv-receipt.toml").exists():
        return f"uv pip install --python {shlex.quote(sys.executable)}"
    return "pip install"


def _recorded_source() -> dict[str, Any]:
    import json  # slow to import, and seldom needed
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        found = json.loads(distribution(DISTRIBUTION).read_text("direct_url.json") or "{}")
    except (PackageNotFoundError, OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
