"""Installation of the prompt markers in the shell that reads a pane's keyboard, including nested shells."""

from __future__ import annotations

import re
import secrets

from ..channel.command_channel import CommandChannel
from ..setup import fish_quote, hook_sources
from .foreground import Foreground
from .keyboard import CLEAR, type_text, unlock
from .pane_state import Pane, PaneShell
from .respawn_check import while_known

__all__ = [
    "command_lines",
    "hook_lines",
    "install_markers",
    "until_prompt",
    "until_settled",
]


# -- The lines that install the markers in a nested shell: ``su -``, ``ssh``, ``sudo -i``, ``bash``.
#
# It may run on another machine or as another user, so everything is typed: first one line that any POSIX shell answers
# with its kind, then the hooks, packed into lines that the smallest line editor accepts.


_LINE = 700
"""Maximum characters of a packed piece: busybox's line editor accepts lines of up to 1024 characters."""


def probe_line(nonce: str) -> str:
    """Return the line that asks a POSIX shell for its kind; the answer is a ``W`` marker ``kind=...``."""
    return (
        " command printf '\\033]133;W;%s;kind=%s\\007' " + nonce + ' "${BASH_VERSION:+bash}${ZSH_VERSION:+zsh}'
        '${KSH_VERSION:+mksh}${BB_ASH_VERSION:+ash}"'
    )


def probe_line_fish(nonce: str) -> str:
    """Return the line to which fish answers like other shells to :func:`probe_line`."""
    return f" test -n \"$FISH_VERSION\"; and printf '\\e]133;W;%s;kind=fish\\a' {nonce}"


def hook_lines(kind: str, nonce: str, *, tag: bool) -> list[str]:
    """Return the lines to type; the last one installs the hooks and clears the screen."""
    shown = "1" if tag else ""
    if kind == "fish":
        head = f"set -g hxdir ''\nset -g hxslot /dev/null\nset -g hxn {nonce}\nset -g hxt {fish_quote(shown)}\n"
        return [*_packed(kind, head + _minify("hooks.fish")), " printf '%b' $hxin | source; printf '\\e[H\\e[2J'"]
    head = f"hxdir= hxslot=/dev/null hxn={nonce} hxk={kind or 'sh'} hxt={shown}\n"
    # Aliases that another harness installed earlier would replace the names of the functions.
    install = ' \\unalias hx hxc 2>/dev/null; eval "$(command printf %b "$hxin")"; command printf \'\\033[H\\033[2J\''
    return [*_packed(kind, head + _minify("hooks.sh")), install]


def command_lines(kind: str, job_id: str, command: str) -> list[str]:
    """Return the lines that run a command in a nested shell, which cannot read harness's files."""
    lines = _packed(kind, f"hxc\n{command}")
    if kind == "fish":
        run = f"hxb {job_id}; eval (printf '%b' $hxin | string collect); hxd"
    else:
        run = f'hxb {job_id}; eval "$(command printf %b "$hxin")"; {{ hxd && :; }} 2>/dev/null'
    short = len(lines) == 2 and len(lines[1]) + len(run) < _LINE  # one piece after the empty first line
    return [f"{lines[1].replace('$hxin', '', 1)}; {run}"] if short else [*lines, f" {run}"]


def _packed(kind: str, source: str) -> list[str]:
    """Return the lines that store a text in ``hxin`` in pieces, from which ``printf %b`` restores it."""
    pieces = _pieces(_pack(source))
    if kind == "fish":
        return [f" set -g hxin {fish_quote('')}", *(f" set -g hxin $hxin{fish_quote(piece)}" for piece in pieces)]
    return [" hxin=", *(f" hxin=$hxin'{piece}'" for piece in pieces)]


def _minify(name: str) -> str:
    source = hook_sources()[name]
    return "".join(f"{line}\n" for line in source.splitlines() if line and not line.startswith("#"))


def _pack(source: str) -> str:
    """Encode text as one line for ``printf %b``, without characters that shells treat differently."""
    special = {"\\": "\\\\", "\n": "\\n", "'": "\\0047", "!": "\\0041", "\t": "\\t"}
    return "".join(special.get(char, char) for char in source)


def _pieces(packed: str) -> list[str]:
    """Split text between escapes, never inside one."""
    return re.findall(rf"(?:\\0047|\\0041|\\.|[^\\]){{1,{_LINE}}}", packed)


# -- Installation of the markers: ask for the shell's kind, then type the hooks.


ADOPT_TIMEOUT = 4.0
PROMPT_GRACE = 0.3


async def until_prompt(pane: Pane, timeout: float) -> bool:
    """Wait at most ``timeout`` seconds for the pane's shell to show its prompt, and return whether it did."""
    return await pane.wait_until(lambda: pane.phase == "prompt", timeout)


async def until_settled(pane: Pane) -> None:
    """Wait briefly until the line editor is ready, as it would drop C-d, and show other keys twice."""
    if pane.phase == "ended":
        await until_prompt(pane, PROMPT_GRACE)


async def install_markers(link: CommandChannel, pane: Pane, front: Foreground) -> bool:
    """Install the markers in the foreground shell; return False if it did not answer.

    It may already have markers that were not seen, as its log was deleted, and must keep them. They appear with its
    prompt, so the answer to a second probe arrives after them.
    """
    with pane.hidden():  # the lines contain the nonce, and the last one clears the screen
        return await _install_markers(link, pane, front)


async def _install_markers(link: CommandChannel, pane: Pane, front: Foreground) -> bool:
    nonce, is_sure = secrets.token_hex(10), bool(pane.shell.pid)
    pane.push_shell(PaneShell(nonce, "?"))
    kind = await _ask_kind(link, pane, nonce, front)
    if kind is not None and not is_sure:
        kind = await _ask_kind(link, pane, nonce, front)
    if pane.shell.nonce != nonce:  # a shell that already has markers has read what was typed
        return await until_prompt(pane, ADOPT_TIMEOUT)
    if kind is None:
        pane.pop_shell(nonce)
        return False
    pane.adopt_shell(nonce, kind, front.image)  # before the last line is typed: its prompt may come with the answer
    for line in hook_lines(kind, nonce, tag=link.setup.config.prompt_tag):
        await _type_line(link, pane, line)
    return await until_prompt(pane, ADOPT_TIMEOUT)


async def _ask_kind(link: CommandChannel, pane: Pane, nonce: str, front: Foreground) -> str | None:
    probes = [probe_line(nonce), probe_line_fish(nonce)]
    if front.name == "fish":
        probes.reverse()
    pane.kind = None
    for probe in probes:
        await _type_line(link, pane, probe)
        if await pane.wait_until(lambda: pane.kind is not None or pane.shell.nonce != nonce, ADOPT_TIMEOUT):
            break
    return pane.kind


async def _type_line(link: CommandChannel, pane: Pane, line: str) -> None:
    typed = type_text(link.setup.version, pane.pane_id, f"{CLEAR}{line}\r")
    await link.request(while_known(pane, unlock(pane.pane_id), *typed, here=link.setup.here))
