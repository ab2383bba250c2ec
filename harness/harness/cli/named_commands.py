"""Commands that messages name, such as ``harness jobs wait 12``, with the options that reach the same target."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..settings import CommandLineChoices

__all__ = [
    "any_host_options",
    "complete_commands",
    "complete_commands_on_host",
    "connection_options",
    "host_options",
    "target_options",
    "use_target_options",
]

_ON_TARGET = re.compile(r"\bharness (?=(?:jobs|keys|panes|sessions|attach|capture|doctor)\b)")
_TARGETS: Mapping[str, str] = {"target": "--target", "ssh": "--ssh", "container": "--container", "engine": "--engine"}
_CONNECTIONS: Mapping[str, str] = {"config_file": "--config", "ssh_config": "-F", "identity": "-i"}
ANY_HOST = " --ssh HOST"
_in_use: ContextVar[str] = ContextVar("target_options", default="")


def connection_options(choices: CommandLineChoices) -> str:
    """Return the options of the command line that say how hosts are reached, with a space in front of each."""
    given = [(option, getattr(choices, name)) for name, option in _CONNECTIONS.items()]
    given += [("-o", value) for value in choices.ssh_options]
    return "".join(f" {option} {shlex.quote(value)}" for option, value in given if value is not None)


def target_options(choices: CommandLineChoices) -> str:
    """Return the options of the command line that reach its target, with a space in front of each."""
    given = [(option, getattr(choices, name)) for name, option in _TARGETS.items()]
    chosen = "".join(f" {option} {shlex.quote(value)}" for option, value in given if value is not None)
    tmux = f" --tmux={shlex.quote(choices.tmux)}" if isinstance(choices.tmux, str) else ""
    return f"{connection_options(choices)}{chosen}{tmux}"


def host_options(url: str, choices: CommandLineChoices) -> str:
    """Return the options that reach one host of a fleet.

    Args:
        url: The URL of the host's target.
        choices: The command line of the fleet.
    """
    return f"{connection_options(choices)}{_host_option(url)}"


def _host_option(url: str) -> str:
    if url.startswith("ssh://") and "+" not in url:
        return f" --ssh {shlex.quote(url.removeprefix('ssh://'))}"
    return f" --target {shlex.quote(url)}"


def any_host_options(choices: CommandLineChoices) -> str:
    """Return the options that reach one of several hosts of a fleet, with ``HOST`` for its name."""
    return f"{connection_options(choices)}{ANY_HOST}"


def use_target_options(options: str) -> None:
    """Set the options that :func:`complete_commands` uses from now on."""
    _in_use.set(options)


def complete_commands(text: str, options: str | None = None) -> str:
    """Return a message whose commands reach the target; those that have options already are left alone.

    Args:
        text: The message.
        options: The options; None is those of the program's own target.
    """
    found = _in_use.get() if options is None else options
    return _ON_TARGET.sub(lambda match: f"harness{found} ", text) if found else text


def complete_commands_on_host(text: str, url: str) -> str:
    """Return a message of a session on many hosts whose commands reach one of them.

    Args:
        text: The message.
        url: The URL of the host's target; empty if it is about several hosts.
    """
    return complete_commands(text, f"{_in_use.get()}{_host_option(url) if url else ANY_HOST}")
