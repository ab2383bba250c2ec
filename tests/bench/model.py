"""What the bench measures: lines of samples, checks of promises, and rows made of both. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["Check", "Line", "Row", "at_least", "at_most", "cut_tails", "format_value", "median_of", "row_json"]


@dataclass(frozen=True, slots=True)
class Line:
    """One side of a comparison. ``values`` are in ``unit``; ``group`` is what lines must share to be compared."""

    what: str
    values: tuple[float, ...]
    unit: str = "ms"
    group: str = ""
    note: str = ""

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def best(self) -> float:
        """The least; on a machine with other work, the nearest to what it costs."""
        return min(self.values)

    @property
    def p95(self) -> float:
        """The 95th percentile; the greatest value of fewer than 20."""
        if len(self.values) < 20:
            return max(self.values)
        return statistics.quantiles(self.values, n=20, method="inclusive")[-1]


@dataclass(frozen=True, slots=True)
class Check:
    """A promise, and what was measured of it."""

    promise: str
    value: float
    limit: float
    unit: str
    is_met: bool
    reason: str = ""
    """Why it is not met, as far as that is known."""


@dataclass(frozen=True, slots=True)
class Row:
    """One subject of the report. The first line of each group is ours; ratios are to it."""

    name: str
    title: str
    lines: tuple[Line, ...] = ()
    checks: tuple[Check, ...] = ()
    notes: tuple[str, ...] = ()
    is_failed: bool = False


def at_most(promise: str, value: float, limit: float, unit: str = "ms", reason: str = "") -> Check:
    """A promise that something costs no more than ``limit``."""
    return Check(promise, value, limit, unit, value <= limit, reason if value > limit else "")


def at_least(promise: str, value: float, limit: float, unit: str, reason: str = "") -> Check:
    """A promise that something reaches ``limit``."""
    return Check(promise, value, limit, unit, value >= limit, reason if value < limit else "")


def median_of(lines: Iterable[Line], what: str, group: str = "") -> float:
    """The median of the line of that name."""
    return next(line.median for line in lines if line.what == what and line.group == group)


def cut_tails(values: Sequence[float]) -> tuple[float, float]:
    """Medians of the first and of the last tenth."""
    tenth = max(1, len(values) // 10)
    return statistics.median(values[:tenth]), statistics.median(values[-tenth:])


def format_value(value: float, unit: str) -> str:
    """A number as people read it: three digits that matter, thousands separated."""
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    return f"{value:,.{digits}f} {unit}".rstrip()


def row_json(row: Row) -> dict[str, Any]:
    """A row for a program to read, with every sample."""
    lines = [
        {
            "what": line.what,
            "group": line.group,
            "unit": line.unit,
            "count": len(line.values),
            "median": line.median,
            "p95": line.p95,
            "best": line.best,
            "values": list(line.values),
            "note": line.note,
        }
        for line in row.lines
        if line.values
    ]
    missing = [{"what": line.what, "group": line.group, "note": line.note} for line in row.lines if not line.values]
    checks = [
        {
            "promise": check.promise,
            "value": check.value,
            "limit": check.limit,
            "unit": check.unit,
            "met": check.is_met,
            "reason": check.reason,
        }
        for check in row.checks
    ]
    return {
        "name": row.name,
        "title": row.title,
        "failed": row.is_failed,
        "lines": lines,
        "not_measured": missing,
        "checks": checks,
        "notes": list(row.notes),
    }
