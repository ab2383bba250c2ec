"""Fixtures that every test can use."""

from __future__ import annotations

import gc
import logging
import os
from collections.abc import Iterator

import pytest

pytest_plugins = [
    "tests.support.noskip",
    "tests.support.slow",
    "tests.support.resources",
    "tests.support.sshd",
    "tests.support.program",
    "tests.support.engines",
    "tests.support.examples",
    "tests.support.traces.plugin",
]


for _name in ("PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE", "PYTHONUTF8", "PYTHONIOENCODING", "PYTHONWARNINGS"):
    os.environ.pop(_name, None)  # the programs that tests start run as they do for people


def pytest_collection_finish() -> None:
    """Leave what collecting made out of every later search for garbage: it stays until the end."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Tests run on asyncio: the asyncssh engine needs it."""
    return "asyncio"


@pytest.fixture(autouse=True)
def _log_level() -> Iterator[None]:
    """A command line that is run inside the test process may ask for debugging; the next test did not."""
    root = logging.getLogger()
    level = root.level
    yield
    root.setLevel(level)
