"""What a client is told of a command that runs on: how to see its output, and how it ends. Pure."""

from __future__ import annotations

from collections.abc import Collection
from urllib.parse import quote

from ..toolkit.values import CallOutcome

__all__ = ["DEFAULT_HANDOFF", "handle_note", "log_uri", "running_job"]

DEFAULT_HANDOFF = 45.0
"""Seconds after which a call returns the handle of its job: common clients give up after 60."""


def log_uri(job_id: str) -> str:
    """The resource with a job's output."""
    return f"harness://job/{quote(job_id, safe='')}/log"


def running_job(outcome: CallOutcome) -> str:
    """The job that goes on after the call; empty when there is none."""
    data = outcome.result.data
    if outcome.result.is_error or not isinstance(data, dict) or data.get("status") != "running":
        return ""
    job_id = data.get("job_id")
    return job_id if isinstance(job_id, str) else ""


def handle_note(job_id: str, tools: Collection[str]) -> str:
    """What to do about a job that goes on, with the tools that are offered."""
    ways = [f"read the resource {log_uri(job_id)}"]
    if "capture_pane" in tools:
        ways.append("call capture_pane to see its screen")
    return (
        f"The command was not ended and must not be started again: it goes on as job {job_id}. "
        f"To follow it, {' or '.join(ways)}; that resource also says when it has ended."
    )
