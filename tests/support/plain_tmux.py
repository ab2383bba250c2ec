"""A tmux without control mode."""

from __future__ import annotations

import shutil
from pathlib import Path

__all__ = ["plain_tmux"]


def plain_tmux(folder: Path, *, logs: bool) -> Path:
    """A ``tmux`` as a sudo rule or a wrapper script may leave it: some of its words are refused."""
    refused = "-C" if logs else "-C | pipe-pane"
    folder.mkdir(exist_ok=True)
    program = folder / "tmux"
    program.write_text(
        f'#!/bin/sh\nfor word in "$@"; do\n'
        f'case $word in {refused}) echo "$word is not allowed" >&2; exit 1 ;; esac; done\n'
        f'exec {shutil.which("tmux")} "$@"\n'
    )
    program.chmod(0o755)
    return folder
