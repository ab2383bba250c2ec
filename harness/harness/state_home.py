"""Where this machine keeps what harness keeps for its user between runs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from .account import home_directory

__all__ = ["state_home"]


def state_home(environ: Mapping[str, str] | None = None) -> Path:
    """``$XDG_STATE_HOME/harness``, or ``~/.local/state/harness`` where that variable names no absolute path.

    Args:
        environ: ``os.environ`` when not given.
    """
    env = os.environ if environ is None else environ
    state = env.get("XDG_STATE_HOME", "")
    base = Path(state) if state.startswith("/") else home_directory(env) / ".local" / "state"
    return base / "harness"
