"""Fixtures of the contract tests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
from tests.support.berths import BERTHS, Berths
from tests.support.engines import Engines
from tests.support.places import Place, a_place, open_context
from tests.support.program_targets import PROGRAMS, ProgramTargets

from harness import ExecutionContext


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    with a_place() as found:
        yield found


@pytest.fixture(scope="module")
def berths(engines: Engines) -> Iterator[Berths]:
    found = Berths(engines)
    with found.stack:
        yield found


@pytest.fixture(scope="module")
def programs(place: Place) -> Iterator[ProgramTargets]:
    found = ProgramTargets()
    with found.stack:
        yield found


@pytest.fixture(autouse=True)
def resources_of_programs(request: pytest.FixtureRequest) -> None:
    """What programs enter, only root may; ``kubectl`` is not everywhere."""
    spec = getattr(request.node, "callspec", None)
    for value in map(str, spec.params.values() if spec is not None else ()):
        if value.startswith(("exec-", "kubectl")):
            request.getfixturevalue("needs_root")
        if value.startswith("kubectl"):
            request.getfixturevalue("needs_kubectl")


@pytest.fixture
async def ctx(place: Place, berths: Berths, programs: ProgramTargets, backend: str) -> AsyncIterator[ExecutionContext]:
    name = backend.partition("+")[0]
    if name in BERTHS:
        opening = berths.context(backend)
    elif name in PROGRAMS:
        opening = programs.context(backend)
    else:
        opening = open_context(place, backend)
    async with opening as opened:
        yield opened


def pytest_itemcollected(item: pytest.Item) -> None:
    item.add_marker("contract")
