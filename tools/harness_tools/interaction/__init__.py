"""What an agent has with its user: questions, a list of things to do, memories, skills."""

from __future__ import annotations

from typing import Any

from harness.toolkit import Tool

from .compaction import Compact
from .memories import Forget, Recall, Remember
from .questions import AskUserQuestion
from .skills import Skill
from .todos import TodoWrite

__all__ = ["tools"]


def tools() -> list[Tool[Any]]:
    """One of each."""
    return [AskUserQuestion(), TodoWrite(), Remember(), Recall(), Forget(), Skill(), Compact()]
