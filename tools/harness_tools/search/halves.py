"""One walk of ``find`` as two that run at the same time, each over every other directory. Shell text, pure.

A walk costs the target's processor, not its disk, when the names are in memory: two take half the time. The second
half waits in a pipe until the first has been passed on, so no frame is cut by another.
"""

from __future__ import annotations

import shlex

__all__ = ["FEW", "LONGEST", "MOST", "in_halves"]

FEW = 8
"""With fewer directories below the top, it is those below them that are dealt out: one may hold nearly all."""
LONGEST = 96 << 10
"""Bytes of an expression that is passed on: a variable may not have 128 KiB. One ``find`` takes longer ones."""
MOST = 1_000
"""Directories that are dealt out. Of more, one ``find`` takes them all: a shell is slow at lists."""

_DEAL = f"""\
walk() {{ eval "$walk"; }}
if [ $# -lt {FEW} ] && [ "$below" = "$base/*" ]; then
  below="$base/*/*"; export below
  walk "$@" -maxdepth 1 -type d -path "$below" -exec sh -c 'eval "$deal"' sh {{}} + -o
  exit
fi
one= two= n=$#
if [ $n -gt {MOST} ]; then n=0; fi
while [ $n -gt 0 ]; do
  one="$one \\"\\${{$n}}\\""; n=$((n - 1))
  if [ $n -gt 0 ]; then two="$two \\"\\${{$n}}\\""; n=$((n - 1)); fi
done
if [ -z "$two" ]; then walk "$@"; else eval "walk $two" | {{ eval "walk $one"; cat; }}; fi"""


def in_halves(expression: str, origin: str = ".") -> str:
    """``find ORIGIN EXPRESSION`` for a ``find`` that has ``-maxdepth``: what it prints comes in another order.

    ``origin`` is a word of the shell, without a letter that is more than itself to ``-path``. The expression must hold
    for a directory where the search begins as it does below ``origin``: by its name or its path, not by its depth.
    """
    if len(expression.encode("utf-8", "surrogateescape")) > LONGEST:
        return f"find {origin} {expression}"
    walk = f'find "$@" {expression}'
    return f"""\
walk={shlex.quote(walk)} deal={shlex.quote(_DEAL)} base={origin}; below="$base/*"; export walk deal below base
  set -- "$base" -maxdepth 1 -type d -path "$below" -exec sh -c 'eval "$deal"' sh {{}} + -o
  eval "$walk\""""
