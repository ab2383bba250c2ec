"""Fixtures that every test can use."""

from __future__ import annotations

import gc
import logging
import os
import sys
from collections.abc import Iterator

import pytest

pytest_plugins = [
    "tests.support.noskip",
    "tests.support.slow",
    "tests.support.resources",
    "tests.support.sshd",
    "tests.support.program",
    "tests.support.dask_cluster",
    "tests.support.fleet_hosts",
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
def _no_remembered_secrets() -> Iterator[None]:
    """Forget the secrets that a test has let the process redact: they are words that other tests use."""
    yield
    redactor = sys.modules.get("harness.toolkit.redaction.redactor")
    if redactor is not None:
        redactor._remembered = redactor.Literals(())


@pytest.fixture(autouse=True)
def _log_level() -> Iterator[None]:
    """Restore the log levels that a command line sets when it runs inside the test process."""
    loggers = [logging.getLogger(name) for name in ("", "harness", "harness_backends", "py.warnings")]
    levels = [logger.level for logger in loggers]
    yield
    for logger, level in zip(loggers, levels, strict=True):
        logger.setLevel(level)
