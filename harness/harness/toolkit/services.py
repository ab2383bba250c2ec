"""What every executor of one process shares."""

from __future__ import annotations

from dataclasses import dataclass

from .seams import Hook, Ledger, Middleware, Outputs, Policy, Redactor, Results

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
