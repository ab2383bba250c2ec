"""Fixtures of the contract tests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
from tests.support.berths import BERTHS, Berths
from tests.support.engines import Engines
from tests.support.places import Place, a_place, open_context

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


@pytest.fixture
async def ctx(place: Place, berths: Berths, backend: str) -> AsyncIterator[ExecutionContext]:
    in_container = backend.partition("+")[0] in BERTHS
    async with berths.context(backend) if in_container else open_context(place, backend) as opened:
        yield opened


def pytest_itemcollected(item: pytest.Item) -> None:
    item.add_marker("contract")
