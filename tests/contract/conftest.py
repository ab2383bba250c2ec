"""Fixtures of the contract tests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
from tests.support.places import Place, a_place, open_context

from harness import ExecutionContext


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    with a_place() as found:
        yield found


@pytest.fixture
async def ctx(place: Place, backend: str) -> AsyncIterator[ExecutionContext]:
    async with open_context(place, backend) as opened:
        yield opened
