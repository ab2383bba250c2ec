"""The status line: where commands run, who answers, what it has cost, what may run unasked, what runs. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from .printable import one_line
from .themes import Line, Span

__all__ = ["Standing", "status_line"]


@dataclass(frozen=True, slots=True)
class Standing:
    """What the status line says. Tokens of 0 and texts that are empty are not known, or do not matter."""

    target: str
    pane: str = ""
    model: str = ""
    doing: str = ""
    context: int = 0
    limit: int = 0
    cost: float | None = None
    approvals: str = "ask"
    remaining: float | None = None
    jobs: int = 0
    queued: int = 0


def status_line(standing: Standing, width: int) -> Line:
    """The facts in one line; what does not fit goes, the least important first."""
    facts = [
        (0, one_line(standing.target, 40)),
        (4, one_line(standing.pane, 40)),
        (2, one_line(standing.model, 30) or "no model"),
        (0, one_line(standing.doing, 40)),
        (3, _tokens(standing)),
        (3, "" if standing.cost is None or not standing.context else f"${standing.cost:.2f}"),
        (1, _approvals(standing)),
        (1, f"{standing.jobs} job{'s' if standing.jobs > 1 else ''}" if standing.jobs else ""),
        (1, f"{standing.queued} queued" if standing.queued else ""),
    ]
    kept = [fact for fact in facts if fact[1]]
    while len(_joined(kept)) > width and any(rank for rank, _ in kept):
        kept.remove(max(kept, key=lambda fact: fact[0]))
    return (Span(_joined(kept)[: max(1, width)].ljust(width)),)


def _joined(facts: list[tuple[int, str]]) -> str:
    return f" {' · '.join(text for _, text in facts)}"


def _tokens(standing: Standing) -> str:
    if not standing.context:
        return ""
    used = _count(standing.context)
    return f"{used}/{_count(standing.limit)}" if standing.limit else f"{used} tokens"


def _count(tokens: int) -> str:
    return str(tokens) if tokens < 1000 else f"{tokens / 1000:.1f}k" if tokens < 100_000 else f"{tokens // 1000}k"


def _approvals(standing: Standing) -> str:
    if standing.approvals == "ask":
        return "asks"
    if standing.remaining is None:
        return "APPROVES ALL" if standing.approvals == "all" else "denies all"
    left = max(0.0, standing.remaining)
    return f"APPROVES ALL {f'{left / 60:.0f} min' if left >= 90 else f'{left:.0f} s'}"
