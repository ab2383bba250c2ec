"""Fixtures that every test can use."""

from __future__ import annotations

import pytest

pytest_plugins = ["tests.support.noskip", "tests.support.sshd", "tests.support.program", "tests.support.engines"]


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Tests run on asyncio: the asyncssh engine needs it."""
    return "asyncio"
