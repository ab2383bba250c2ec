"""Which target a stored conversation goes on with: the one it was with, unless the command line insists. Pure."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from typing import TYPE_CHECKING, Any

from ..errors import ConfigError
from ..settings import Choices

if TYPE_CHECKING:
    from ..agent.models import ModelProfile, ModelTable
    from ..agent.storage import SessionSummary
    from ..toolkit.values import JsonObject

__all__ = ["check_identity", "check_target", "choices_for", "stored_choices", "stored_model"]

WHERE = ("target", "ssh", "container", "engine", "image")
PATHS = ("config_file", "identity", "ssh_config")
SWITCHES = ("tmux", "fresh_connection")
IMAGE = "image"
HERE = "leave the target out, or say --here to go on with it on this one"


def stored_choices(choices: Choices) -> JsonObject:
    """What of the command line is kept with a conversation, to reach its target again from any directory."""
    said = {name: value for name, value in asdict(choices).items() if value not in (None, ())}
    whole = {name: os.path.abspath(os.path.expanduser(said[name])) for name in PATHS if name in said}
    lists = {name: list(value) for name, value in said.items() if isinstance(value, tuple)}
    return {**said, **whole, **lists}


def choices_for(summary: SessionSummary, given: Choices, *, here: bool) -> Choices:
    """What the command line says of a target, with the conversation's own where it says nothing.

    With ``here``, or with a target, only the tmux session is the conversation's.

    Raises:
        ConfigError: the conversation was in a throw-away container, which is gone.
    """
    tmux = given.tmux if given.tmux is not None or given.pane is not None else summary.tmux or False
    if here or any(getattr(given, name) is not None for name in WHERE):
        return replace(given, tmux=given.tmux if here else tmux)
    kept = _kept(summary.options)
    if kept.get(IMAGE) is not None:
        raise ConfigError(
            f"the conversation {summary.session_id} was in a container that is gone",
            hint="say where to go on with it: its target, and --here",
        )
    if not any(name in kept for name in WHERE):
        kept["target"] = summary.target
    said = {item.name: value for item in fields(Choices) if (value := getattr(given, item.name)) not in (None, ())}
    pane = given.pane or (summary.pane or None if tmux is not False else None)
    return Choices(**{**kept, **said, "tmux": tmux, "pane": pane})


def _kept(options: Mapping[str, object]) -> dict[str, Any]:
    """The stored choices that are of the right kind."""
    found: dict[str, Any] = {}
    for item in fields(Choices):
        value = options.get(item.name)
        if isinstance(item.default, tuple):
            if isinstance(value, list) and all(isinstance(one, str) for one in value):
                found[item.name] = tuple(value)
        elif isinstance(value, str) or (isinstance(value, bool) and item.name in SWITCHES):
            found[item.name] = value
    return found


def stored_model(models: ModelTable, summary: SessionSummary) -> tuple[ModelProfile | None, str]:
    """The model that a conversation was with; else None, and a line that says why when it had one."""
    if not summary.model:
        return None, ""
    try:
        return models.profile(summary.model), ""
    except ConfigError:
        return None, f"the conversation was with the model {summary.model}, which is not configured any more"


def check_identity(summary: SessionSummary, identity: str) -> None:
    """Go on with a conversation only on the very target that it was with, not on another one of the same name.

    Raises:
        ConfigError: this is another.
    """
    if identity != summary.identity:
        raise ConfigError(
            f"the conversation {summary.session_id} is with {summary.identity}, and this is {identity}",
            hint="say --here to go on with it on this one",
        )


def check_target(summary: SessionSummary, target: object, tmux: bool | str, *, here: bool) -> None:
    """Go on with a conversation where it was only.

    Raises:
        ConfigError: this is another target, or another tmux session.
    """
    if here:
        return
    if str(target) != summary.target:
        raise ConfigError(f"the conversation {summary.session_id} is with {summary.target}, not {target}", hint=HERE)
    if isinstance(tmux, str) and summary.tmux and tmux != summary.tmux:
        raise ConfigError(
            f"the conversation {summary.session_id} is in the tmux session {summary.tmux!r}, not {tmux!r}",
            hint="leave --tmux out, or say --here",
        )
