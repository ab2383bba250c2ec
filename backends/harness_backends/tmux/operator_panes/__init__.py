"""The operator's own tmux, as ``--tmux current``: its panes are captured, and those that are lent are typed into."""

from __future__ import annotations

from .terminal import OperatorTerminal, open_operator_terminal

__all__ = ["OperatorTerminal", "open_operator_terminal"]
