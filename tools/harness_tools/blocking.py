"""Shell text that finds what a program would wait for: pipes and devices under the names of files. Pure.

Whoever opens a pipe for reading waits until somebody writes to it. git and ripgrep open what is called ``.gitignore``,
whatever it is.
"""

from __future__ import annotations

import shlex

__all__ = ["first_blocking"]

_EACH = (
    'for f do if [ -p "$f" ] || { [ ! -h "$f" ] && { [ -c "$f" ] || [ -b "$f" ]; }; }; '
    'then printf "%s\\n" "$f"; fi; done'
)


def first_blocking(directory: str, pattern: str = "") -> str:
    """A command that prints the name of such a thing, or nothing.

    Args:
        directory: where to look, as a word of the shell that ends with a slash.
        pattern: its name, as a pattern; then no repository's own directory is looked into. Empty is any name.
    """
    named = f"-name .git -prune -o -name {shlex.quote(pattern)} " if pattern else ""
    found = f"! -type f ! -type d -exec sh -c {shlex.quote(_EACH)} sh {{}} +"
    return f"find {directory} {named}{found} 2>/dev/null | head -n 1"
