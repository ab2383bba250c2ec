"""The base set: run a command, read, write and edit a file, look at a pane and type into it, tell the time."""

from __future__ import annotations

from typing import Any

from harness.toolkit import Tool

from .clock import Time
from .edit import Edit
from .files import ReadFile, WriteFile
from .panes import CapturePane, SendKeys
from .shell import RunShell

__all__ = ["tools"]


def tools() -> list[Tool[Any]]:
    """One of each."""
    return [RunShell(), ReadFile(), WriteFile(), Edit(), CapturePane(), SendKeys(), Time()]
