"""The words of a command line that give another process of harness the options of this one."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import ConfigError
from ..target import mask_password

if TYPE_CHECKING:
    from .options import Invocation

__all__ = ["harness_program", "name_of_target", "option_words"]

_VALUES: Mapping[str, str] = {
    "config_file": "--config",
    "ssh_config": "-F",
    "identity": "-i",
    "ssh_options": "-o",
    "connect_timeout": "--connect-timeout",
    "target": "--target",
    "ssh": "--ssh",
    "container": "--container",
    "engine": "--engine",
    "image": "--image",
    "image_memory": "--memory",
    "image_cpus": "--cpus",
    "image_network": "--network",
    "image_mounts": "--mount",
    "pane": "--pane",
}
"""Fields of the choices that are the value of an option, or its values."""
_FLAGS: Mapping[str, str] = {"dedicated_connection": "--dedicated-connection", "record": "--record"}
_FILES = frozenset({"config_file", "ssh_config", "identity"})
"""Fields that name a file, which the other process may look for in another directory."""
_CONNECTION = frozenset({"config_file", "ssh_config", "identity", "ssh_options", "connect_timeout", "engine"})


def harness_program() -> str:
    """Return the absolute path of this program.

    Raises:
        ConfigError: It was not started as a program.
    """
    found = shutil.which(sys.argv[0])
    if found is None or Path(sys.argv[0]).suffix == ".py":
        raise ConfigError(f"{sys.argv[0]} is not the program harness", hint="run the installed 'harness'")
    return str(Path(found).absolute())


def option_words(invocation: Invocation) -> list[str]:
    """Return the options that reach the target of an invocation; files have absolute paths.

    Raises:
        ConfigError: The target has a password, which other users of the machine would see.
    """
    words: list[str] = []
    for name, option in _VALUES.items():
        for value in _values(invocation, name):
            if mask_password(value) != value:
                raise ConfigError(
                    "the target has a password, which does not belong into a file or a command line",
                    hint="use a key, or a named target in the settings",
                )
            words += [option, value]
    choices = invocation.choices
    words += [option for name, option in _FLAGS.items() if getattr(choices, name)]
    if choices.tmux is not None:
        named = isinstance(choices.tmux, str)
        words.append(f"--tmux={choices.tmux}" if named else "--tmux" if choices.tmux else "--no-tmux")
    return words


def _values(invocation: Invocation, name: str) -> list[str]:
    if name in invocation.several:
        return list(invocation.several[name])
    value = getattr(invocation.choices, name)
    if isinstance(value, tuple):
        return [_with_absolute_source(one) for one in value] if name == "image_mounts" else list(value)
    if value is None:
        return []
    return [str(Path(value).expanduser().absolute()) if name in _FILES else str(value)]


def _with_absolute_source(mount: str) -> str:
    """Return a mount ``./DIRECTORY:...`` with the directory's absolute path; others are unchanged."""
    source, colon, rest = mount.partition(":")
    is_relative = source in (".", "..") or source.startswith(("./", "../"))
    return f"{Path(source).resolve()}{colon}{rest}" if is_relative else mount


def name_of_target(invocation: Invocation, *patterns: str) -> str:
    """Return a name of letters, digits and ``-`` that says which target the options reach; empty for this machine.

    Args:
        invocation: The options.
        patterns: The host patterns that were given in addition.
    """
    fields = [name for name in _VALUES if name not in _CONNECTION and not name.startswith("image_")]
    words = [value for name in fields for value in _values(invocation, name)]
    plain = [word.rpartition("://")[2].rpartition("@")[2] for word in (*words, *patterns)]
    return re.sub(r"[^A-Za-z0-9]+", "-", " ".join(plain)).strip("-")[:50].rstrip("-")
