"""Which of the jobs of a target a list shows. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from .results import Job

__all__ = ["asked_for"]


def asked_for(jobs: Iterable[Job], *, helpers: bool = False) -> list[Job]:
    """Those that somebody asked for; with ``helpers`` also what tools ran for their own work."""
    return [job for job in jobs if helpers or not job.helper]
