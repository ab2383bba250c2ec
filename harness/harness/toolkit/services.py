"""What every executor of one process shares."""

from __future__ import annotations

from dataclasses import dataclass, field

from .seams import Hook, Ledger, Middleware, Outputs, Policy, Redactor, Results
from .websettings import WebSettings

__all__ = ["Services"]


@dataclass(frozen=True, slots=True)
class Services:
    """Policy, records and the rest. There is no default policy: whoever makes an executor says what may run."""

    policy: Policy
    ledger: Ledger
    redactor: Redactor
    outputs: Outputs | None = None
    results: Results | None = None
    hooks: tuple[Hook, ...] = ()
    middleware: tuple[Middleware, ...] = ()
    web: WebSettings = field(default_factory=WebSettings)
