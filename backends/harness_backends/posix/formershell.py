"""The end of a held shell that was lost with its link. Shell text, pure.

What was sent through a link that broke may still be on its way: the kernel sends it again when the network is back, for
minutes, also when the program that wrote it has ended. The shell at the other end would carry it out. So a new held
shell ends the one before it first; from then on it is certain what the old one did.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from .jobend import SINCE

__all__ = ["WHO", "end_script", "who_is"]

# "PID BEGAN BOOT" of the held shell itself: a process is not known by its number alone.
WHO = f"""{SINCE}
hx_boot=
{{ read -r hx_boot </proc/sys/kernel/random/boot_id; }} 2>/dev/null
hx_since $$
printf '%s %s %s' "$$" "$hx_began" "$hx_boot"
"""

# hx_end PID BEGAN BOOT: it is gone, or a zombie, when this returns; a moment is all that a killed process takes.
_END = f"""{SINCE}
hx_boot=
{{ read -r hx_boot </proc/sys/kernel/random/boot_id; }} 2>/dev/null
hx_there() {{
  hx_since "$1"
  [ "$hx_began" = "$2" ] && [ "$hx_boot" = "$3" ] && case ${{hx_stat##*) }} in [ZX]*) return 1 ;; esac
}}
hx_end() {{
  hx_there "$@" || return 0
  kill -9 "$1"
  hx_left=10000
  while [ "$hx_left" -gt 0 ] && hx_there "$@"; do hx_left=$((hx_left - 1)); done
}}
"""


def who_is(text: str) -> tuple[str, str, str] | None:
    """What :data:`WHO` printed; None where there is no ``/proc`` to tell one process from a later one."""
    words = text.split()
    return (words[0], words[1], words[2]) if len(words) == 3 and words[0].isdecimal() and words[1].isdecimal() else None


def end_script(former: Sequence[tuple[str, str, str]]) -> str:
    """The script that ends these shells, each by what :func:`who_is` gave."""
    return _END + "".join(f"hx_end {shlex.join(one)}\n" for one in former)
