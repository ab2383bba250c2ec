"""How commands reach a tmux server: a client in control mode, or plain commands where it is not available."""

from __future__ import annotations
