"""The tmux engine: control mode over any transport, prompt markers, panes that operators can watch."""

from __future__ import annotations

from .sessions import open_sessions
from .terminal import TmuxTerminal, open_terminal

__all__ = ["TmuxTerminal", "open_sessions", "open_terminal"]
