"""The contract of backends: checks that every target must pass.

Each :class:`Check` is an async function that takes an open :class:`~harness.ExecutionContext` and raises when the
requirement does not hold. To test a backend of your own with pytest::

    @pytest.mark.parametrize("item", checks(), ids=lambda item: item.name)
    async def test_contract(item):
        async with connect("k8s://pod") as ctx:
            await run_check(item, ctx)

A transport alone can be tested the same way, with :func:`transport_checks` and :func:`run_transport_check`. Without
pytest, ``await run_contract(opener)``. A backend's known gap is data, a :class:`Gap` with its reason, and
is reported as soon as it closes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

from ...context import ExecutionContext

# Importing these modules fills the registry.
from . import _commands, _files, _jobs, _limits, _terminal  # noqa: F401  # for their checks
from ._registry import CHECK_TIMEOUT, Check, Needs, check, checks, run_check, scratch, until
from ._transport import TransportCheck, run_program, run_transport_check, transport_checks

__all__ = [
    "CHECK_TIMEOUT",
    "Check",
    "Gap",
    "Needs",
    "Outcome",
    "TransportCheck",
    "check",
    "checks",
    "run_check",
    "run_contract",
    "run_program",
    "run_transport_check",
    "scratch",
    "transport_checks",
    "until",
]

Opener = Callable[[], AbstractAsyncContextManager[ExecutionContext]]


@dataclass(frozen=True, slots=True)
class Gap:
    """A requirement that a backend is known not to meet."""

    backend: str
    check: str
    reason: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one check: ``error`` is None if it passed; a ``gap`` whose check passed should be removed."""

    check: Check
    error: Exception | None = None
    gap: Gap | None = None

    @property
    def ok(self) -> bool:
        """True if the check passed, or failed as its gap expects."""
        return (self.error is None) == (self.gap is None)


async def run_contract(opener: Opener, *, gaps: Collection[Gap] = ()) -> list[Outcome]:
    """Run every applicable check, each in its own context; a failed check raises nothing."""
    outcomes = []
    known = {gap.check: gap for gap in gaps}
    for item in checks():
        error: Exception | None = None
        async with opener() as ctx:
            if not item.applies_to(terminal=ctx.has_terminal):
                continue
            try:
                await run_check(item, ctx)
            except Exception as raised:
                error = raised
        outcomes.append(Outcome(item, error, known.get(item.name)))
    return outcomes
