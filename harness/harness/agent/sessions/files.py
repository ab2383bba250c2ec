"""Where conversations are kept on this machine."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ...state_home import state_home
from ...toolkit.database import Content, PrivateDatabase
from .schema import SCHEMA, VERSION

__all__ = ["sessions_database", "sessions_directory"]

CONTENT = Content(name="the conversations", file="sessions.db", version=VERSION, schema=SCHEMA, looked_through=8 << 20)


def sessions_directory(environ: Mapping[str, str] | None = None) -> Path:
    """``$XDG_STATE_HOME/harness/sessions``, or ``~/.local/state/harness/sessions``."""
    return state_home(environ) / "sessions"


def sessions_database(directory: Path | None = None) -> PrivateDatabase:
    """All conversations in a directory; in :func:`sessions_directory` when not given."""
    return PrivateDatabase(directory or sessions_directory(), CONTENT)
