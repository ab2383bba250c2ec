"""The report, as Markdown. Pure but for :func:`machine`, which asks this machine what it is."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from .model import Check, Line, Row, format_value

__all__ = ["Machine", "machine", "render"]

BUSY = 1.0
"""A load average above this means that others used the machine."""

HEAD = """# Benchmarks

What the promises of this project measure at, next to other ways of doing the same, all in one run.

    {command}

{machine}
"""
REST = """
## Not measured here

- Nothing is lost, and nothing runs twice, when a harness, a link or a server dies at any point: `tests/faults`.
"""


@dataclass(frozen=True, slots=True)
class Machine:
    """Where and when a report was made. ``loads`` are the load averages (1 minute) before and after."""

    date: str
    cpu: str
    cores: int
    memory_gb: float
    system: str
    versions: tuple[tuple[str, str], ...]
    loads: tuple[float, float] = (0.0, 0.0)

    def describe(self) -> str:
        """Markdown lines."""
        names = ", ".join(f"{name} {number}" for name, number in self.versions)
        before, after = self.loads
        lines = [
            f"- {self.date}; {self.cores} cores ({self.cpu}), {self.memory_gb:.0f} GB, {self.system}; client and "
            "server on one machine, over loopback",
            f"- {names}",
            f"- load average before: {before:.2f}, after: {after:.2f}",
        ]
        if before > BUSY:
            lines.append("- **other work was running on this machine: the times below are too long, and uneven**")
        return "\n".join(lines)


def machine() -> Machine:
    """This one."""
    versions = [("harness", version("harness-ops")), ("Python", platform.python_version())]
    versions += [(name, version(name)) for name in ("asyncssh", "anyio", "libtmux")]
    versions += [("tmux", _first_line("tmux", "-V").removeprefix("tmux ")), ("OpenSSH", _ssh_version())]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    date = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    return Machine(date, _cpu(), os.cpu_count() or 0, memory, _system(), tuple(versions))


def _first_line(*argv: str) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    return (done.stdout or done.stderr).strip().partition("\n")[0]


def _ssh_version() -> str:
    return _first_line("ssh", "-V").partition(",")[0].removeprefix("OpenSSH_").partition(" ")[0]


def _cpu() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _system() -> str:
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except OSError:
        return platform.platform()


# -- the page


def render(rows: Sequence[Row], where: Machine, command: str) -> str:
    """The whole page."""
    parts = [HEAD.format(command=command, machine=where.describe()), _promises(rows)]
    parts += [_section(row) for row in rows]
    return "\n".join(parts) + REST


def _promises(rows: Iterable[Row]) -> str:
    checks = [check for row in rows for check in row.checks]
    met = sum(check.is_met for check in checks)
    table = ["| promise | measured | limit | |", "|---|--:|--:|---|", *map(_check_row, checks)]
    return f"## Promises\n\n{met} of {len(checks)} met.\n\n" + "\n".join(table) + "\n"


def _check_row(check: Check) -> str:
    verdict = "met" if check.is_met else f"**not met**{f': {check.reason}' if check.reason else ''}"
    return f"| {check.promise} | {_cell(check.value, check.unit)} | {_cell(check.limit, check.unit)} | {verdict} |"


def _cell(value: float, unit: str) -> str:
    return format_value(value, unit).replace(" ", "\u00a0")


def _section(row: Row) -> str:
    grouped = any(line.group for line in row.lines)
    head = ["| | |" if grouped else "| |", "|---|---|" if grouped else "|---|"]
    table = [f"{head[0]} N | best | median | p95 | ratio |", f"{head[1]}--:|--:|--:|--:|--:|"]
    firsts: dict[tuple[str, str], float] = {}
    seen = ""
    for line in row.lines:
        label = f"| {line.group if line.group != seen else ''} " if grouped else ""
        seen = line.group
        table.append(f"{label}| {line.what} {_numbers(line, firsts)}")
    notes = "".join(f"\n{note}\n" for note in row.notes)
    return f"## {row.title}\n{notes}\n" + "\n".join(table) + "\n"


def _numbers(line: Line, firsts: dict[tuple[str, str], float]) -> str:
    """The rest of a line's cells. Ratios are to the group's first line of the same unit, which is ours."""
    if not line.values:
        return f"| | | {line.note} | | |"
    base = firsts.setdefault((line.group, line.unit), line.median)
    ratio = f"{line.median / base:.2f}" if base else ""
    best, p95 = (_cell(value, line.unit) if len(line.values) > 1 else "" for value in (line.best, line.p95))
    return f"| {len(line.values)} | {best} | {_cell(line.median, line.unit)} | {p95} | {ratio} |"
