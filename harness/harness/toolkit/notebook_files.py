"""Where the notebook is kept on this machine, and what its database holds."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ..state_home import state_home
from .database import Content, PrivateDatabase

__all__ = ["notebook_database", "notebook_directory"]

CONTENT = Content(
    name="the notebook",
    file="notebook.db",
    version=1,
    schema=(
        """CREATE TABLE todos (
          changed INTEGER PRIMARY KEY AUTOINCREMENT,
          session_id TEXT NOT NULL UNIQUE,
          items TEXT NOT NULL
        )""",
        """CREATE TABLE memories (
          number INTEGER PRIMARY KEY AUTOINCREMENT,
          scope TEXT NOT NULL CHECK (scope IN ('session', 'project', 'host', 'global')),
          session_id TEXT NOT NULL,
          target TEXT NOT NULL,
          cwd TEXT NOT NULL,
          content TEXT NOT NULL,
          created REAL NOT NULL,
          author TEXT NOT NULL
        )""",
        "CREATE INDEX places ON memories (scope, session_id, target, cwd)",
    ),
)


def notebook_directory(environ: Mapping[str, str] | None = None) -> Path:
    """``$XDG_STATE_HOME/harness/notebook``, or ``~/.local/state/harness/notebook``."""
    return state_home(environ) / "notebook"


def notebook_database(directory: Path | None = None) -> PrivateDatabase:
    """The notebook in a directory; in :func:`notebook_directory` when not given."""
    return PrivateDatabase(directory or notebook_directory(), CONTENT)
