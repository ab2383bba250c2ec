"""The terminal without control mode: plain tmux commands, and files on the target in place of a live stream."""

from __future__ import annotations
