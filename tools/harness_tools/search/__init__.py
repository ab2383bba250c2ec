"""Finding files and text on the target: names, contents, what is in a directory."""

from __future__ import annotations

from typing import Any

from harness.toolkit import Tool

from .checkfor import Checkfor
from .glob import Glob
from .grep import Grep
from .listing import Ls
from .stump import Stump

__all__ = ["tools"]


def tools() -> list[Tool[Any]]:
    """One of each."""
    return [Glob(), Grep(), Checkfor(), Stump(), Ls()]
