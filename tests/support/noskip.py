"""A pytest plugin: with ``CI=true`` or ``--no-skips`` a skipped test is a failure, so that no check is lost."""

from __future__ import annotations

import os
from collections.abc import Generator
from typing import TypeVar

import pytest

Report = TypeVar("Report", pytest.TestReport, pytest.CollectReport)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--no-skips", action="store_true", help="a skipped test is a failure (the default when CI=true)")


def strict(config: pytest.Config) -> bool:
    """True when nothing may be skipped in this run."""
    return bool(config.getoption("--no-skips")) or os.environ.get("CI", "").lower() in ("true", "1")


def refuse(report: Report) -> Report:
    """Turn a skip into a failure that gives its reason; expected failures stay what they are."""
    if report.outcome == "skipped" and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = f"nothing may be skipped here. {reason}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    return refuse(report) if strict(item.config) else report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    return refuse(report) if strict(collector.config) else report
