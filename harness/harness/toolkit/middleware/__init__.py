"""Code around calls: ``async (call, ctx, next) -> CallOutcome``. The first in ``Services.middleware`` is outermost.

What a middleware refuses has not reached hooks, policy and ledger: the events show it, the audit does not. For rules
that have to be audited there is the policy.
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
