"""The entry of a program on the list of those that only read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

__all__ = ["VERSIONS", "Program"]


@dataclass(frozen=True, slots=True)
class Program:
    """A program, or one of its sub-commands.

    ``operands``: files whose content it shows (``paths``), files that it only names (``names``), a pattern and then
    files (``pattern``), or words. ``loose``: no option of it does harm in any version, so that words which are only
    known at run time may be among them. ``alone``: it may stand without a sub-command. ``own``: it reads its options in
    a way of its own. ``permute``: options may stand behind operands.
    """

    options: str = ""
    operands: Literal["none", "text", "names", "paths", "pattern"] = "none"
    most: int | None = None
    loose: bool = False
    one_dash: bool = False
    alone: bool = False
    own: bool = False
    permute: bool = True
    commands: Mapping[str, Program] = field(default_factory=dict)


VERSIONS: Mapping[str, str] = {
    **dict.fromkeys(("python", "python3", "psql", "mysql", "curl", "wget", "tmux"), "--version -V"),
    **dict.fromkeys(("gcc", "g++", "clang", "cmake", "ruby", "vim", "rsync"), "--version"),
    **dict.fromkeys(("node", "php", "make", "redis-server", "redis-cli"), "--version -v"),
    "java": "--version -version",
}
"""Programs of which only the version is asked for, and how."""
