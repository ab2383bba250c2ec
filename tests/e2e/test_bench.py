"""``scripts/bench`` still measures, and its report says what it measured."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.bench.model import Check, Line, Row, at_least, at_most, format_value
from tests.bench.report import Machine, render

ROOT = Path(__file__).parents[2]
WHERE = Machine("2030-01-02 03:04 UTC", "a CPU", 2, 4.0, "a system", (("tmux", "3.3a"),), (0.1, 0.2))


@pytest.mark.usefixtures("needs_process")
def test_the_bench_measures_here_and_over_ssh(tmp_path: Path) -> None:
    samples = tmp_path / "samples.json"
    words = ["--quick", "--no-peers", "--rows", "local,ssh-plain", "--json", str(samples)]
    done = subprocess.run(
        [sys.executable, "-m", "tests.bench", *words], cwd=ROOT, capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stderr
    rows = {row["name"]: row for row in json.loads(samples.read_text())["rows"]}
    assert set(rows) == {"local", "ssh-plain"}
    for row in rows.values():
        assert row["checks"]
        assert all(value > 0 for line in row["lines"] for value in line["values"])
    shells = {line["group"] for line in rows["local"]["lines"]}
    assert {"bash", "dash", "zsh"} <= shells
    assert "## A command over plain SSH" in done.stdout


@pytest.mark.usefixtures("needs_process")
def test_an_unknown_row_is_refused_with_the_names_of_all() -> None:
    words = [sys.executable, "-m", "tests.bench", "--rows", "nonsense"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "no such row: nonsense; there are local, " in done.stderr


def test_a_report_counts_promises_and_compares_each_line_with_ours() -> None:
    lines = (
        Line("ours", (1.0, 2.0, 3.0), group="0 ms"),
        Line("theirs", (5.0,), group="0 ms"),
        Line("absent", (), group="0 ms", note="could not be installed"),
    )
    checks = (at_most("fast", 2.0, 1.0, reason="it sleeps"), at_least("many", 2500.0, 2000.0, "/s"))
    page = render([Row("x", "A title", lines, checks, ("A note.",))], WHERE, "scripts/bench")
    assert "1 of 2 met." in page
    assert "| fast | 2.00\u00a0ms | 1.00\u00a0ms | **not met**: it sleeps |" in page
    assert "| many | 2,500\u00a0/s | 2,000\u00a0/s | met |" in page
    assert "| 0 ms | ours | 3 | 1.00\u00a0ms | 2.00\u00a0ms | 3.00\u00a0ms | 1.00 |" in page
    assert "|  | theirs | 1 |  | 5.00\u00a0ms |  | 2.50 |" in page
    assert "|  | absent | | | could not be installed | | |" in page
    assert "other work was running" not in page


@pytest.mark.parametrize(
    ("check", "is_met"),
    [
        (at_most("", 1.0, 1.0), True),
        (at_most("", 1.1, 1.0), False),
        (at_least("", 1.0, 1.0, "/s"), True),
        (at_least("", 0.9, 1.0, "/s"), False),
    ],
)
def test_a_limit_itself_is_within_the_limit(check: Check, is_met: bool) -> None:
    assert check.is_met is is_met


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [(0.1234, "ms", "0.12 ms"), (12.34, "ms", "12.3 ms"), (1234.5, "/s", "1,234 /s"), (7.0, "", "7.00")],
)
def test_numbers_show_the_digits_that_matter(value: float, unit: str, text: str) -> None:
    assert format_value(value, unit) == text


@pytest.mark.usefixtures("needs_ssh")
@pytest.mark.timeout(200)
def test_the_row_of_a_fleet_measures_programs(tmp_path: Path) -> None:
    row = measure_quickly("fleet", tmp_path)
    measured = {(line["group"], line["what"]) for line in row["lines"]}
    assert ("3 hosts, 1 MB, live round", "harness.fleet(), openssh") in measured
    assert ("3 hosts, 1 MB, peak memory", "xargs -P 64 ssh") in measured
    assert {line["what"] for line in row["not_measured"]} >= {"Fabric 3.2.3, ThreadingGroup"}


@pytest.mark.usefixtures("needs_process")
def test_the_row_of_simulated_hosts_checks_every_outcome(tmp_path: Path) -> None:
    checks = measure_quickly("fleet-simulated", tmp_path)["checks"]
    assert [check["met"] for check in checks if "every outcome is right" in check["promise"]] == [True]


@pytest.mark.usefixtures("needs_browser", "needs_tmux")
@pytest.mark.timeout(200)
def test_the_row_of_a_pane_in_a_browser_measures_keys_viewers_and_a_flood(tmp_path: Path) -> None:
    row = measure_quickly("view", tmp_path)
    measured = {(line["group"], line["what"]) for line in row["lines"]}
    for group in ("key to screen", "20 viewers, processor", "20 viewers, memory"):
        assert {(group, "harness web"), (group, "tmux alone")} <= measured
    assert {line["what"] for line in row["not_measured"]} == {"ttyd 1.7.7"}
    assert len(row["checks"]) == 2


def measure_quickly(row: str, directory: Path) -> dict[str, Any]:
    samples = directory / "samples.json"
    words = ["--quick", "--no-peers", "--rows", row, "--json", str(samples)]
    done = subprocess.run(
        [sys.executable, "-m", "tests.bench", *words], cwd=ROOT, capture_output=True, text=True, timeout=180
    )
    assert done.returncode == 0, done.stderr
    (found,) = json.loads(samples.read_text())["rows"]
    assert found["name"] == row
    return found
