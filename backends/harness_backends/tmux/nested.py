"""Teaching the markers to a shell that was started inside the pane's own: ``su -``, ``ssh``, ``sudo -i``, ``bash``.

Its files and its user may be others, so everything is typed. First one line that any POSIX shell answers with its
kind, then the hooks, packed into lines that the smallest terminal buffer (4095 bytes) takes.
"""

from __future__ import annotations

import re

from .setup import fish_quote, hook_sources

__all__ = ["hook_lines", "probe_line", "probe_line_fish"]

_LINE = 1500


def probe_line(nonce: str) -> str:
    """Asks a POSIX shell for its kind; the answer is a ``W`` mark ``kind=...``."""
    return (
        " command printf '\\033]133;W;%s;kind=%s\\007' " + nonce + ' "${BASH_VERSION:+bash}${ZSH_VERSION:+zsh}'
        '${KSH_VERSION:+mksh}${BB_ASH_VERSION:+ash}"'
    )


def probe_line_fish(nonce: str) -> str:
    """Asks fish."""
    return f" test -n \"$FISH_VERSION\"; and printf '\\e]133;W;%s;kind=fish\\a' {nonce}"


def hook_lines(kind: str, nonce: str, *, tag: bool) -> list[str]:
    """The lines to type. The last one installs the hooks and clears the screen of what was typed."""
    if kind == "fish":
        source = _minify(hook_sources()["hooks.fish"])
        head = f"set -g hxdir ''\nset -g hxslot /dev/null\nset -g hxn {nonce}\nset -g hxt {fish_quote('1' if tag else '')}\n"
        pieces = _pieces(_pack(head + source))
        lines = [f" set -g hxz {fish_quote('')}", *(f" set -g hxz $hxz{fish_quote(piece)}" for piece in pieces)]
        return [*lines, " printf '%b' $hxz | source; printf '\\e[H\\e[2J'"]
    source = _minify(hook_sources()["hooks.sh"])
    head = f"hxdir= hxslot=/dev/null hxn={nonce} hxk={kind or 'sh'} hxt={'1' if tag else ''}\n"
    lines = [" hxz=", *(f" hxz=$hxz'{piece}'" for piece in _pieces(_pack(head + source)))]
    return [*lines, ' eval "$(command printf %b "$hxz")"; command printf \'\\033[H\\033[2J\'']


def _minify(source: str) -> str:
    return "".join(f"{line}\n" for line in source.splitlines() if line and not line.startswith("#"))


def _pack(source: str) -> str:
    """One line that ``printf %b`` turns back into the source, without a character that shells treat differently."""
    special = {"\\": "\\\\", "\n": "\\n", "'": "\\0047", "!": "\\0041", "\t": "\\t"}
    return "".join(special.get(char, char) for char in source)


def _pieces(packed: str) -> list[str]:
    """Cut between escapes, never inside one."""
    return re.findall(rf"(?:\\0047|\\0041|\\.|[^\\]){{1,{_LINE}}}", packed)
