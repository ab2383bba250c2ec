"""Targets that a program of the settings gives: its words, and where the command to start is put."""

from __future__ import annotations

from dataclasses import dataclass

from .errors import ConfigError

__all__ = ["ARGV", "COMMAND", "EXEC_SCHEME", "ExecTarget"]

EXEC_SCHEME = "exec"
ARGV = "{argv}"
"""A word that is replaced by the arguments, one word each."""
COMMAND = "{command}"
"""A part of a word that is replaced by the arguments as one text, which any POSIX or C shell reads."""


@dataclass(frozen=True, slots=True)
class ExecTarget:
    """A program that starts commands somewhere: ``[targets.NAME] exec``.

    Args:
        argv: Its words; one is :data:`ARGV`, or holds :data:`COMMAND`.
        terminal_argv: The words that an operator's terminal needs instead; empty if they are the same.

    Raises:
        ConfigError: The command has no place in the words, or more than one.
    """

    argv: tuple[str, ...]
    terminal_argv: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name, words in (("exec", self.argv), ("exec_terminal", self.terminal_argv or self.argv)):
            _check(name, words)


def _check(name: str, words: tuple[str, ...]) -> None:
    if not words or not words[0] or ARGV in words[0] or COMMAND in words[0]:
        raise ConfigError(f"{name} names no program", hint='for example ["lxc", "exec", "stage", "--", "{argv}"]')
    if any(ARGV in word and word != ARGV for word in words):
        raise ConfigError(f"{name}: {ARGV} is a word of its own", hint=f"inside a word, write {COMMAND}")
    if words.count(ARGV) + sum(word.count(COMMAND) for word in words) != 1:
        raise ConfigError(
            f"{name} needs {ARGV} or {COMMAND} once, where the command is put",
            hint=f"{ARGV} for programs that take arguments, {COMMAND} for those that pass a text to a shell",
        )
