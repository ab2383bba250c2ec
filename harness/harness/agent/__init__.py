"""The agent: one conversation of a model with tools on a target, for prompts, scripts and programs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy_names import lazy_names

if TYPE_CHECKING:
    from .agent import Agent
    from .events import AnswerCompleted, AnswerDelta
    from .models import ModelProfile, load_models
    from .opening import HumanHandlers, ResumedConversation, open_agent
    from .pydantic_ai_toolset import ExecutorToolset, toolset
    from .settings import AgentSettings
    from .storage import ConversationStore

__all__ = [
    "Agent",
    "AgentSettings",
    "AnswerCompleted",
    "AnswerDelta",
    "ConversationStore",
    "ExecutorToolset",
    "HumanHandlers",
    "ModelProfile",
    "ResumedConversation",
    "load_models",
    "open_agent",
    "toolset",
]

_NAMES: dict[str, tuple[str, ...]] = {
    "agent": ("Agent",),
    "events": ("AnswerCompleted", "AnswerDelta"),
    "models": ("ModelProfile", "load_models"),
    "opening": ("HumanHandlers", "ResumedConversation", "open_agent"),
    "pydantic_ai_toolset": ("ExecutorToolset", "toolset"),
    "settings": ("AgentSettings",),
    "storage": ("ConversationStore",),
}
"""The modules that define the names."""

if not TYPE_CHECKING:  # a type checker would accept any name
    __getattr__, __dir__ = lazy_names(__name__, _NAMES)
