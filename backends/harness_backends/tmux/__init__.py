"""The tmux engine: control mode over any transport, prompt markers, panes that people can watch."""

from __future__ import annotations

from .terminal import TmuxTerminal, open_terminal

__all__ = ["TmuxTerminal", "open_terminal"]
