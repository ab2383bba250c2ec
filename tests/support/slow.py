"""A pytest plugin: the tests that took long in a whole run are marked ``slow``, by a table that such a run writes.

``scripts/test --all --record-slow`` writes the table. Of each file the quickest test is never slow, so that the usual
run looks at everything.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest

__all__ = ["LIMIT", "is_slow", "slow_of"]

LIMIT = 1.0
"""Seconds of setup, test and teardown together, with twice as many tests at a time as there are processors."""
FILE = Path(__file__).parents[1] / "data/slow_tests.txt"


@cache
def _kept() -> frozenset[str]:
    return frozenset(FILE.read_text().splitlines()) if FILE.exists() else frozenset()


def is_slow(item: pytest.Item) -> bool:
    """Whether the table names the test."""
    return item.nodeid in _kept()


def slow_of(seconds: Mapping[str, float]) -> set[str]:
    """The slow ones among tests, by how long each took. Pure."""
    quickest: dict[str, str] = {}
    for name in sorted(seconds, key=lambda name: (seconds[name], name)):
        quickest.setdefault(name.partition("::")[0], name)
    return {name for name, took in seconds.items() if took > LIMIT} - set(quickest.values())


class Recorder:
    """Adds up how long each test takes, and writes the table at the end."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds[report.nodeid] = self.seconds.get(report.nodeid, 0.0) + report.duration

    def pytest_sessionfinish(self) -> None:
        """What did not run keeps its place."""
        others = {name for name in _kept() if name not in self.seconds}
        FILE.write_text("".join(f"{name}\n" for name in sorted(slow_of(self.seconds) | others)))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--record-slow", action="store_true", help="write the table of slow tests")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--record-slow") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Recorder(), "slow-recorder")
