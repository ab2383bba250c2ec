"""The state of one session: files that were read, long outputs, notes, questions, skills, jobs."""

from __future__ import annotations

__all__: list[str] = []
