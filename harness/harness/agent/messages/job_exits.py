"""Notices for the model about background jobs that have ended: equal ends on many hosts are one notice."""

from __future__ import annotations

from collections.abc import Iterable

from ...toolkit.events import JobExited
from ...toolkit.hosts.merging import jobs_on_hosts
from ...wording import counted

__all__ = ["job_exit_notice"]


def job_exit_notice(exited: Iterable[JobExited]) -> str:
    """Return the notice about jobs that have ended. Pure.

    Args:
        exited: The jobs, at least one, in the order in which they ended.
    """
    by_code: dict[int | None, list[JobExited]] = {}
    lines = []
    for event in exited:
        if event.host:
            by_code.setdefault(event.exit_code, []).append(event)
        else:
            how = _ending(event.exit_code)
            lines.append(f"the background job {event.job_id} has ended, {how}. Read its output with its job id.")
    lines += [_on_hosts(code, jobs) for code, jobs in by_code.items()]
    return f"[harness: {' '.join(lines)}]"


def _on_hosts(exit_code: int | None, jobs: list[JobExited]) -> str:
    named = jobs_on_hosts((job.job_id, job.host) for job in jobs)
    if len(jobs) == 1:
        text = f"the background job {named} has ended, {_ending(exit_code)}."
        return f"{text} Read its output with its job id and its host."
    hosts = len({job.host for job in jobs})
    text = f"{len(jobs)} background jobs on {counted(hosts, 'host')} have ended, {_ending(exit_code)}: {named}."
    return f"{text} Read an output with the job id and the host."


def _ending(exit_code: int | None) -> str:
    return "with an unknown exit code" if exit_code is None else f"with exit code {exit_code}"
