"""One pane and all panes of a session: state, log, screen, the program in front, and typing."""

from __future__ import annotations
