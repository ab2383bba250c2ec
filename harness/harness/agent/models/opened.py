"""A model that is ready to be asked."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .profiles import ModelProfile

if TYPE_CHECKING:
    from pydantic_ai.models import Model
    from pydantic_ai.settings import ModelSettings

__all__ = ["OpenModel"]


@dataclass(frozen=True, slots=True)
class OpenModel:
    """A profile's model with its HTTP client. ``settings`` go with every request."""

    profile: ModelProfile
    model: Model = field(repr=False)
    settings: ModelSettings
    context_limit: int = 0
    """Tokens that the model takes: the profile's, or what is known of the model; 0: not known."""
