"""What completes the values of options and arguments, as functions for ``shell_complete=``."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from ..settings import CommandLineChoices

if TYPE_CHECKING:
    from ..operate.target_names import Kind

__all__ = [
    "VARIABLE",
    "complete_config_key",
    "complete_container",
    "complete_conversation",
    "complete_copied",
    "complete_file",
    "complete_forward",
    "complete_host",
    "complete_job",
    "complete_model",
    "complete_operator_pane",
    "complete_pane",
    "complete_pattern",
    "complete_recording",
    "complete_run",
    "complete_server",
    "complete_session",
    "complete_target",
    "complete_tool",
    "matching",
]

VARIABLE = "_HARNESS_COMPLETE"
"""The variable by which a shell asks the program for what completes a command."""

_Items = list[CompletionItem[Any]]
_USER = re.compile(r"[^@\s]+@")
_ELEMENT = re.compile(r"(.*[,!&^])?(.*)", re.DOTALL)
"""A pattern of hosts: what stays, and the element that is completed."""


def _choices(ctx: click.Context) -> CommandLineChoices:
    invocation = ctx.find_root().obj
    return invocation.choices if invocation is not None else CommandLineChoices()


def matching(names: Iterable[str], incomplete: str, before: str = "") -> _Items:
    """Return the names that continue a word; a name that would be an option is left out.

    Args:
        names: The names.
        incomplete: The word, or its part behind ``before``.
        before: The part of the word that stays.
    """
    found = (name for name in dict.fromkeys(names) if name.startswith(incomplete))
    return [CompletionItem(before + name) for name in found if before or not name.startswith("-")]


def complete_file(ctx: click.Context, param: click.Parameter, incomplete: str) -> _Items:
    """Complete a file of this machine; the shell does it."""
    return [CompletionItem(incomplete, type="file")]


def complete_copied(ctx: click.Context, param: click.Parameter, incomplete: str) -> _Items:
    """Complete a file of this machine, or ``HOST:``; paths on hosts are not known here."""
    from ..operate.known_names import host_names, named_targets

    if ":" in incomplete:
        return []
    files = complete_file(ctx, param, incomplete)
    if "/" in incomplete:
        return files
    choices = _choices(ctx)
    names = [*host_names(choices), *named_targets(choices)]
    return [*matching((f"{name}:" for name in names if ":" not in name), incomplete), *files]


# -- hosts and targets


def complete_host(ctx: click.Context, param: click.Parameter, incomplete: str) -> _Items:
    """Complete ``[USER@]HOST``."""
    from ..operate.known_names import host_names

    user = _USER.match(incomplete)
    before = user[0] if user else ""
    return matching(host_names(_choices(ctx)), incomplete[len(before) :], before)


def complete_pattern(ctx: click.Context, param: click.Parameter, incomplete: str) -> _Items:
    """Complete the last element of a pattern of hosts: a host, a named target or ``@GROUP``."""
    from ..operate.known_names import group_names, host_names, named_targets

    split = _ELEMENT.fullmatch(incomplete)
    before, element = (split[1] or "", split[2]) if split else ("", incomplete)
    inventory = ctx.params.get("inventory")
    if element.startswith("@"):
        return matching((f"@{name}" for name in group_names(inventory)), element, before)
    choices = _choices(ctx)
    return matching([*host_names(choices, inventory), *named_targets(choices)], element, before)


def complete_target(ctx: click.Context, param: click.Parameter, incomplete: str) -> _Items:
    """Complete a named target, ``local:``, or the name in the URL of a host or a container."""
    from ..operate.known_names import host_names, named_targets

    scheme, colon, name = incomplete.partition("://")
    if scheme == "ssh" and colon:
        return matching(host_names(_choices(ctx)), name, "ssh://")
    if scheme in {"docker", "podman", "container"} and colon:
        return matching(_on_target("containers", ctx), name, f"{scheme}://")
    return matching([*named_targets(_choices(ctx)), "local:", "ssh://", "docker://", "podman://"], incomplete)


# -- names on the target


def _on_target(kind: Kind, ctx: click.Context) -> list[str]:
    from ..operate.target_names import names_on_target

    return names_on_target(kind, _choices(ctx))


def complete_container(ctx: click.Context, param: click.Parameter, incomplete: str) -> _Items:
    """Complete the name of a running container."""
    return matching(_on_target("containers", ctx), incomplete)


def complete_job(ctx: click.Context, param: click.Parameter, incomplete: str) -> _Items:
    """Complete the ID of a job."""
    return matching(_on_target("jobs", ctx), incomplete)


def complete_pane(ctx: click.Context, param: click.Parameter, incomplete: str) -> _Items:
    """Complete the name of a managed pane."""
    return matching(_on_target("panes", ctx), incomplete)


def complete_operator_pane(ctx: click.Context, param: click.Parameter, incomplete: str) -> _Items:
    """Complete a pane of the operator's own tmux."""
    return matching(_on_target("operator_panes", ctx), incomplete)


def complete_session(ctx: click.Context, param: click.Parameter, incomplete: str) -> _Items:
    """Complete the name of a tmux session."""
    return matching(_on_target("sessions", ctx), incomplete)


# -- names that this machine keeps


def complete_run(ctx: click.Context, param: click.Parameter, incomplete: str) -> _Items:
    """Complete the number of a fleet run."""
    from ..operate.known_names import run_numbers

    return matching(run_numbers(), incomplete)


def complete_conversation(ctx: click.Context, param: click.Parameter, incomplete: str) -> _Items:
    """Complete the name or the ID of a conversation."""
    from ..operate.known_names import conversation_names

    return matching(conversation_names(), incomplete)


def complete_recording(ctx: click.Context, param: click.Parameter, incomplete: str) -> _Items:
    """Complete the ID of a recording, or else a file."""
    from ..operate.known_names import recording_ids

    found = [] if "/" in incomplete else matching(recording_ids(), incomplete)
    return found or complete_file(ctx, param, incomplete)


def complete_forward(ctx: click.Context, param: click.Parameter, incomplete: str) -> _Items:
    """Complete the name of a running forward."""
    from ..operate.known_names import forward_names

    return matching(forward_names(), incomplete)


def complete_tool(ctx: click.Context, param: click.Parameter, incomplete: str) -> _Items:
    """Complete the name of a tool of an installed package."""
    from ..operate.known_names import tool_names

    return matching(tool_names(), incomplete)


def complete_model(ctx: click.Context, param: click.Parameter, incomplete: str) -> _Items:
    """Complete the name of a model profile."""
    from ..operate.known_names import model_names

    return matching(model_names(_choices(ctx)), incomplete)


def complete_server(ctx: click.Context, param: click.Parameter, incomplete: str) -> _Items:
    """Complete the name of an MCP server of the settings."""
    from ..operate.known_names import server_names

    return matching(server_names(_choices(ctx)), incomplete)


def complete_config_key(ctx: click.Context, param: click.Parameter, incomplete: str) -> _Items:
    """Complete the name of a setting."""
    from ..operate.known_names import setting_names

    return matching(setting_names(), incomplete)
