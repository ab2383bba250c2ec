"""Texts about the hosts of a fleet: how their commands ended, and notices that name each host's job."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ....results import ShellResult, Status
from ....settings import CommandLineChoices
from ...named_commands import any_host_options, complete_commands, host_options
from ...output import readable

__all__ = ["HostNotices", "ending_of", "host_label", "with_gap"]


def host_label(name: str) -> str:
    """Return a host's name as printed before a colon."""
    return readable(name.removesuffix(":"))


def ending_of(results: Mapping[str, ShellResult]) -> str:
    """Return how equal results of hosts ended, in a few words; empty for a success.

    Without an exit code, each host's job is named: the IDs of equal commands differ.
    """
    first = next(iter(results.values()))
    if first.ok:
        return ""
    if first.exit_code is not None and first.status is not Status.INTERRUPTED:
        return f"exit code {first.exit_code}"
    status = "still running" if first.status is Status.RUNNING else first.status.value.replace("_", " ")
    jobs = {host: result.job_id for host, result in results.items() if result.job_id}
    if len(results) == 1 and jobs:
        return f"{status} (job {first.job_id})"
    named = ", ".join(f"{host_label(host)}: job {job_id}" for host, job_id in jobs.items())
    return f"{status} ({named})" if named else status


def with_gap(data: bytes, gap: tuple[int, int] | None) -> bytes:
    """Return an output with a line that says how many bytes are omitted, where they are.

    Args:
        data: The output.
        gap: The position of the omitted bytes, and their number.
    """
    if gap is None:
        return data
    head, tail = data[: gap[0]], data[gap[0] :]
    start = b"\n" if head and not head.endswith(b"\n") else b""
    return head + start + f"[... {gap[1]:,} bytes are not shown ...]\n".encode() + tail


class HostNotices:
    """Notices about results of hosts, merged where they differ in the host and the job only.

    Args:
        choices: The command line.
    """

    def __init__(self, choices: CommandLineChoices) -> None:
        self._choices = choices
        self._found: dict[str, list[tuple[str, str]]] = {}

    def add(self, host: str, target: str, job_id: str | None, notice: str) -> None:
        """Add a notice's first line, which is about one host; commands in it get the host's option."""
        line = notice.partition("\n")[0]
        key = complete_commands(line, any_host_options(self._choices))
        if job_id:
            key = re.sub(rf"\b(job|show|wait) {re.escape(job_id)}\b", r"\1 JOB", key)
        own = complete_commands(line, host_options(target, self._choices))
        self._found.setdefault(key, []).append((host, own))

    def merged(self) -> dict[str, list[str]]:
        """Return the notices, each with the hosts that it is true of."""
        return {
            entries[0][1] if len(entries) == 1 else text: [host for host, _ in entries]
            for text, entries in self._found.items()
        }
