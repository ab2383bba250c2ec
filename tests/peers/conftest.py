"""Suites of other projects, which come with their packages: run in an environment of their own (`.venv/peers`)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support.engines import Engines
from tests.support.places import Place, a_place

if TYPE_CHECKING:
    from inspect_ai.util import SandboxEnvironment
    from tests.peers.sandboxes import Sandboxes

INSTALLED = find_spec("inspect_ai") is not None


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leave these tests to the environment that has inspect_ai; scripts/test runs them there."""
    return True if collection_path.parent == Path(__file__).parent and not INSTALLED else None


def pytest_itemcollected(item: pytest.Item) -> None:
    """A check that adds an account to the target needs root for that."""
    names = getattr(item, "fixturenames", None)
    if getattr(item, "originalname", "") == "test_exec_as_user" and names is not None and "needs_root" not in names:
        names.append("needs_root")


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    with a_place() as found:
        yield found


@pytest.fixture(scope="module")
def sandboxes(place: Place, engines: Engines, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandboxes]:
    from tests.peers.sandboxes import Sandboxes

    with ExitStack() as stack:
        yield Sandboxes(place, engines, tmp_path_factory.mktemp("settings"), stack)


@pytest.fixture
async def sandbox_env(request: pytest.FixtureRequest, sandboxes: Sandboxes) -> AsyncIterator[SandboxEnvironment]:
    """The sandbox of one check; what that sandbox cannot pass by design must fail."""
    from tests.peers.sandboxes import alone, gap_of

    check, name = request.node.originalname, request.param
    gap = gap_of(check, name)
    if gap is not None:
        request.applymarker(pytest.mark.xfail(reason=gap.reason, strict=True))
    async with sandboxes.open(name) as sandbox:
        with alone(check, name):
            yield sandbox
