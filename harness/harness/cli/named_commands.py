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
    "advise_on_host",
    "any_host_options",
    "complete_commands",
    "complete_commands_on_host",
    "connection_options",
    "host_options",
    "target_options",
    "use_target_options",
]

_ON_TARGET = re.compile(r"\bharness (?=(?:jobs|keys|panes|sessions|attach|shell|capture|doctor)\b)")
_TARGETS: Mapping[str, str] = {"target": "--target", "ssh": "--ssh", "container": "--container", "engine": "--engine"}
_CONNECTIONS: Mapping[str, str] = {"config_file": "--config", "ssh_config": "-F", "identity": "-i"}
ANY_HOST = " --ssh HOST"
_USER, _WORD = "[A-Za-z0-9_.+-]+@", "[A-Za-z0-9_][A-Za-z0-9_-]*"
_HOST_ADDRESS = re.compile(rf"(?:ssh://)?(?:{_USER}{_WORD}|(?:{_USER})?{_WORD}(?:\.{_WORD})+)(?::\d+)?")
"""What looks like a host's address and like nothing else: with a user, or with dots between words."""
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


def advise_on_host(word: str, choices: CommandLineChoices) -> str:
    """Return how to reach a host that was given in place of a command; empty if the word means no host.

    Args:
        word: The word.
        choices: The command line.
    """
    if choices.ssh or choices.target or choices.container or choices.image:
        return ""
    option = _option_of_host(word, choices)
    if not option:
        return ""
    reach = f"{connection_options(choices)} {option} {shlex.quote(word.removeprefix('ssh://'))}"
    return f"'harness shell{reach}' opens a terminal there, 'harness run{reach} -- COMMAND' runs a command"


def _option_of_host(word: str, choices: CommandLineChoices) -> str:
    from ..operate.known_names import host_names, named_targets

    if word in named_targets(choices):
        return "--target"
    return "--ssh" if _HOST_ADDRESS.fullmatch(word) or word in host_names(choices) else ""
