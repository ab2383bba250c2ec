"""Code around calls: ``async (call, ctx, next) -> CallOutcome``. The first in ``Services.middleware`` is outermost.

What a middleware refuses has not reached hooks and policy; the audit keeps that it was refused.
"""

from __future__ import annotations

from .around import Logging, Redaction, Timeout, Truncation
from .budget import Budget, CostBudget
from .gates import AllowList, DenyList, NoMarks, RateLimit
from .loops import StuckLoop

__all__ = [
    "AllowList",
    "Budget",
    "CostBudget",
    "DenyList",
    "Logging",
    "NoMarks",
    "RateLimit",
    "Redaction",
    "StuckLoop",
    "Timeout",
    "Truncation",
]
