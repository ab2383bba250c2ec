"""Completion in bash, zsh and fish: the scripts of the shells, the words before the cursor, and inert answers.

A shell runs ``harness`` with the variables :data:`VARIABLE` and ``COMP_LINE``, the command up to the cursor. Names in
the answer may come from a host or from files of others, so they are text for the shell and never code: values with
characters that cannot be shown are left out, and bash, which inserts values unchanged, gets them quoted.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import ClassVar

import click
from click.shell_completion import CompletionItem, ShellComplete, split_arg_string

from .completed_names import VARIABLE
from .options import Invocation

__all__ = [
    "SHELLS",
    "TIMEOUT",
    "VARIABLE",
    "bash_replacement",
    "complete",
    "completion_script",
    "is_showable",
    "split_line",
]

LINE = "COMP_LINE"
WORD = "COMP_WORD"
"""For bash: the end of the word that it replaces; it also splits words at ``=``, ``:`` and ``@``."""
TIMEOUT = 2.0
"""Seconds after which nothing is completed."""
MAX_ITEMS = 2000
MAX_VALUE_CHARS = 200
_END = "\ue000"
"""A character that marks the cursor while a line is split."""

_BASH = r"""_harness_completion() {
    local answer answers
    COMPREPLY=()
    answers=$({
        VARIABLE=bash_complete COMP_LINE="${COMP_LINE:0:COMP_POINT}" COMP_WORD="$2" "$1" </dev/null
    } 2>/dev/null)
    while IFS= read -r answer; do
        case $answer in
            plain,*) COMPREPLY+=("${answer#plain,}") ;;
            file,*) compopt -o default ;;
            dir,*) compopt -o dirnames ;;
        esac
    done <<<"$answers"
}
complete -o nosort -F _harness_completion harness 2>/dev/null || complete -F _harness_completion harness
"""
_ZSH = r"""#compdef harness
_harness_completion() {
    emulate -L zsh
    local -a answers plain described
    local kind value help word="${words[CURRENT]}"
    (( $+commands[harness] )) || return 1
    [[ -z $SUFFIX ]] || word=${word%"$SUFFIX"}
    answers=("${(@f)$({
        VARIABLE=zsh_complete COMP_LINE="${(j: :)words[1,CURRENT-1]} $word" command harness </dev/null
    } 2>/dev/null)}")
    for kind value help in "${answers[@]}"; do
        case $kind in
            plain) if [[ $help == _ ]]; then plain+=("$value"); else described+=("$value:$help"); fi ;;
            file) _path_files -f ;;
            dir) _path_files -/ ;;
        esac
    done
    (( ! $#described )) || _describe -V unsorted described -U
    (( ! $#plain )) || compadd -U -V unsorted -a plain
}
if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
    _harness_completion "$@"
else
    compdef _harness_completion harness
fi
"""
_FISH = r"""function _harness_completion
    set -l line (commandline -cp | string collect)
    for answer in (VARIABLE=fish_complete COMP_LINE="$line" command harness </dev/null 2>/dev/null)
        switch $answer
            case 'plain,*'
                string sub --start 7 -- $answer
            case 'file,*'
                __fish_complete_path (string sub --start 6 -- $answer)
            case 'dir,*'
                __fish_complete_directories (string sub --start 5 -- $answer)
        end
    end
end
complete --no-files --command harness --arguments '(_harness_completion)'
"""


class _HarnessComplete(ShellComplete):
    """Completion from ``COMP_LINE``; subclasses have a shell's script and its form of an answer."""

    def source(self) -> str:
        return self.source_template.replace("VARIABLE", self.complete_var)

    def get_completion_args(self) -> tuple[list[str], str]:
        return split_line(os.environ.get(LINE, ""))

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem[str]]:
        """Return the answers; those of the value in ``--option=value`` have the option in front, as the word has."""
        option = re.match(r"--[A-Za-z-]+=", incomplete) if "--" not in args else None
        found = super().get_completions(args, incomplete)
        if option is not None:
            for item in found:
                item.value = option[0] + item.value
        return found

    def complete(self) -> str:
        args, incomplete = self.get_completion_args()
        found = [item for item in self.get_completions(args, incomplete) if is_showable(item.value)]
        return "\n".join(text for item in found[:MAX_ITEMS] for text in self.lines(item))

    def lines(self, item: CompletionItem[str]) -> Sequence[str]:
        """Return the lines of an answer; none if the shell cannot insert it."""
        raise NotImplementedError


class _BashComplete(_HarnessComplete):
    name: ClassVar[str] = "bash"
    source_template: ClassVar[str] = _BASH

    def lines(self, item: CompletionItem[str]) -> Sequence[str]:
        if item.type != "plain":
            return (f"{item.type},",)
        value = bash_replacement(item.value, os.environ.get(LINE, ""), os.environ.get(WORD, ""))
        return () if value is None else (f"plain,{value}",)


class _ZshComplete(_HarnessComplete):
    name: ClassVar[str] = "zsh"
    source_template: ClassVar[str] = _ZSH

    def lines(self, item: CompletionItem[str]) -> Sequence[str]:
        help_text = _one_line(item.help)
        value = item.value.replace("\\", "\\\\").replace(":", r"\:") if help_text else item.value
        return (item.type, value or "_", help_text or "_")


class _FishComplete(_HarnessComplete):
    name: ClassVar[str] = "fish"
    source_template: ClassVar[str] = _FISH

    def lines(self, item: CompletionItem[str]) -> Sequence[str]:
        help_text = _one_line(item.help)
        return (f"{item.type},{item.value}\t{help_text}" if help_text else f"{item.type},{item.value}",)


SHELLS: dict[str, type[_HarnessComplete]] = {kind.name: kind for kind in (_BashComplete, _ZshComplete, _FishComplete)}


def _one_line(text: str | None) -> str:
    return "".join(character if character.isprintable() else " " for character in text or "").strip()


def is_showable(value: str) -> bool:
    """Return whether a value can be shown and typed: no control characters, no characters that turn or hide text."""
    return len(value) <= MAX_VALUE_CHARS and value.isprintable()


def completion_script(shell: str) -> str:
    """Return the script that a shell's start-up file evaluates."""
    return SHELLS[shell](click.Command("harness"), {}, "harness", VARIABLE).source()


def complete(program: click.Command, instruction: str) -> int:
    """Answer a shell: print its script, or what completes the words before the cursor; errors print nothing.

    Args:
        program: The top-level command.
        instruction: The value of :data:`VARIABLE`, such as ``bash_complete``.

    Returns:
        The exit code.
    """
    shell, _, action = instruction.partition("_")
    if shell not in SHELLS or action not in {"source", "complete"}:
        return 1
    shell_complete = SHELLS[shell](program, {"obj": Invocation()}, "harness", VARIABLE)
    if action == "source":
        click.echo(shell_complete.source(), nl=False)
        return 0
    _silence()
    _exit_after(TIMEOUT)
    with suppress(Exception):  # whatever a source does, nothing may appear at the shell's prompt
        click.echo(shell_complete.complete())
    return 0


def _silence() -> None:
    """Let nothing that this process or its children print reach the terminal, which is the shell's."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 0)
    os.dup2(nowhere, 2)


def _exit_after(seconds: float) -> None:
    """End this process after a time, also while its main thread is blocked in a system call."""
    timer = threading.Timer(seconds, os._exit, (0,))
    timer.daemon = True
    timer.start()


# -- the words before the cursor


def split_line(line: str) -> tuple[list[str], str]:
    """Split a command up to the cursor.

    Returns:
        The words behind the program's name, and the incomplete word at the cursor, both without quotes.
    """
    words: list[str] = split_arg_string(line + _END)
    return words[1:-1], words[-1].removesuffix(_END)


_PLAIN = frozenset("_@%+=:,./-")


def _is_plain(character: str) -> bool:
    return character.isalnum() or character in _PLAIN


def bash_replacement(value: str, line: str, word: str) -> str | None:
    """Return what bash must put in the place of the end of the last word, so that the word means a value.

    Args:
        value: The value.
        line: The command up to the cursor.
        word: The end of its last word that bash replaces; without the opening quote, if the word has one.

    Returns:
        The text; None if what is typed so far cannot be continued to the value.
    """
    typed, quote = _last_word(line)
    if not typed.endswith(word):
        return None
    head = typed[: len(typed) - len(word)].removeprefix(quote)
    if quote:
        quoted = value if all(_is_plain(character) or character == " " for character in value) else None
    else:
        quoted = "".join(character if _is_plain(character) else f"\\{character}" for character in value)
    return quoted[len(head) :] if quoted is not None and quoted.startswith(head) else None


def _last_word(line: str) -> tuple[str, str]:
    """Return the last word as typed, and its quote if it starts with one that is still open."""
    start, quote, number = 0, "", 0
    opened = -1
    while number < len(line):
        character = line[number]
        if character == "\\" and quote != "'":
            number += 1
        elif character in "'\"" and quote in ("", character):
            quote, opened = ("", -1) if quote else (character, number)
        elif character.isspace() and not quote:
            start = number + 1
        number += 1
    return line[start:], quote if opened == start else ""
