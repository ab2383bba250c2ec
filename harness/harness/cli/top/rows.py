"""The rows of the dashboard: sessions, their sub-agents and jobs; filtered, sorted, and as texts. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ...live.overview import LiveProcess
from ...live.sessions.state import JobState, SessionState, SubAgentState, WaitingApproval
from ...wording import counted
from ..output import readable

__all__ = [
    "COLUMNS",
    "MAX_TARGET",
    "ORDERS",
    "Row",
    "cells_of",
    "details_of",
    "elapsed",
    "filtered",
    "ordered",
    "rows_of",
    "sessions_of",
    "snapshot",
    "summary_of",
    "tail_arguments",
]

COLUMNS: Final = ("STATE", "KIND", "TARGET", "WHAT", "FOR", "COST")
STATES: Final[Mapping[str, str]] = {
    "waiting": "APPROVE?",
    "running": "running",
    "thinking": "thinking",
    "paused": "paused",
    "idle": "idle",
    "reconnecting": "reconnecting",
    "lost": "LOST",
}
URGENCY: Final = ("waiting", "lost", "reconnecting", "paused", "running", "thinking", "idle")
"""States in the order of attention that they need."""
MAX_TARGET = 24
MAX_WHAT = 200


@dataclass(frozen=True, slots=True)
class Row:
    """A session, or one of its jobs or sub-agents."""

    process: LiveProcess
    session: SessionState
    job: JobState | None = None
    agent: SubAgentState | None = None

    @property
    def key(self) -> str:
        """The name of the row that no other one has."""
        part = f"/job {self.job.job_id}" if self.job else f"/agent {self.agent.agent_id}" if self.agent else ""
        return f"{self.process.key}/{self.session.session}{part}"

    @property
    def is_session(self) -> bool:
        """Whether the row is a session itself."""
        return self.job is None and self.agent is None

    @property
    def state(self) -> str:
        """The state as a word of :data:`URGENCY`, or ``ended`` for a job."""
        if self.session.doing == "lost":
            return "lost"
        if self.job is not None:
            return "running" if self.job.is_running else "ended"
        return "running" if self.agent is not None else self.session.doing

    @property
    def approval(self) -> WaitingApproval | None:
        """The request that waits longest, of a session."""
        return self.session.approvals[0] if self.is_session and self.session.approvals else None

    @property
    def since(self) -> float:
        """The Unix time at which the state began."""
        return self.job.since if self.job else self.agent.since if self.agent else self.session.since


def rows_of(sessions: Iterable[tuple[LiveProcess, SessionState]]) -> list[list[Row]]:
    """Return the rows, those of each session together: itself, its sub-agents, its jobs that run."""
    return [
        [
            Row(process, session),
            *(Row(process, session, agent=agent) for agent in session.agents),
            *(Row(process, session, job=job) for job in session.jobs if job.is_running),
        ]
        for process, session in sessions
    ]


def sessions_of(processes: Iterable[LiveProcess]) -> list[tuple[LiveProcess, SessionState]]:
    """Return every session with its process; a process without one, such as a prompt without a model, is idle."""
    found = []
    for process in processes:
        found += [(process, session) for session in process.sessions.values()]
        if not process.sessions and process.client is not None and process.is_complete:
            facts = process.facts
            found.append((process, SessionState(kind=facts.kind, since=facts.started, started=facts.started)))
    return found


# -- texts


def elapsed(seconds: float) -> str:
    """Return a duration in at most six characters: ``12s``, ``4m05s``, ``2h05m``, ``3d04h``."""
    whole = max(0, int(seconds))
    if whole < 60:
        return f"{whole}s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes}m{rest:02}s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02}m" if hours < 24 else f"{hours // 24}d{hours % 24:02}h"


def what_of(row: Row) -> str:
    """Return what a row does: what waits for approval, what runs, or what it worked on last."""
    session = row.session
    if row.job is not None:
        return f"└ job {row.job.job_id}: {row.job.command}"
    if row.agent is not None:
        return f"└ agent {row.agent.agent_id}: {row.agent.title}"
    if row.approval is not None:
        return row.approval.text
    if session.hosts is not None:
        hosts = session.hosts
        counts = f"{hosts.ok + hosts.failed}/{hosts.total} hosts, {hosts.failed} failed"
        return f"{counts}: {session.title}"
    if session.doing == "running" and session.running:
        return session.running[-1].text or session.running[-1].tool
    return session.title or session.note


def cells_of(row: Row, now: float) -> tuple[str, ...]:
    """Return the printable cells of a row."""
    session = row.session
    cost = "" if session.cost is None or not row.is_session else f"${session.cost:.2f}"
    target = session.target if len(session.target) <= MAX_TARGET else f"{session.target[: MAX_TARGET - 1]}…"
    return (
        STATES.get(row.state, row.state),
        session.kind if row.is_session else "job" if row.job else "sub",
        readable(target),
        readable(what_of(row)[:MAX_WHAT]),
        elapsed(now - row.since),
        cost,
    )


def tail_arguments(row: Row) -> dict[str, str] | None:
    """Return the arguments of the stream with a row's output; None if it has none."""
    session = row.session
    if row.job is not None:
        return {"job_id": row.job.job_id}
    if session.running and session.running[-1].call_id:
        return {"call_id": session.running[-1].call_id}
    if session.jobs:
        return {"job_id": session.jobs[-1].job_id}
    return {} if session.kind == "run" and session.running else None


# -- filter and order


def filtered(groups: Sequence[Sequence[Row]], text: str) -> list[Sequence[Row]]:
    """Return the sessions in which each word of the filter occurs, in any column or job, whatever its case."""
    words = text.lower().split()
    return [rows for rows in groups if all(word in _haystack(rows) for word in words)]


def _haystack(rows: Sequence[Row]) -> str:
    session = rows[0].session
    parts = [session.session, session.target, session.kind, session.doing, session.model, session.title]
    parts += [STATES.get(session.doing, ""), str(rows[0].process.facts.pid), rows[0].process.facts.kind]
    parts += [what_of(row) for row in rows]
    return "\n".join(parts).lower()


Order = Callable[[Sequence[Row]], tuple[object, ...]]
ORDERS: Final[Mapping[str, Order]] = {
    "state": lambda rows: (_urgency(rows[0]), rows[0].session.started),
    "target": lambda rows: (rows[0].session.target, rows[0].session.started),
    "kind": lambda rows: (rows[0].session.kind, rows[0].session.started),
    "time": lambda rows: (rows[0].since,),
    "cost": lambda rows: (-(rows[0].session.cost or 0.0), rows[0].session.started),
    "started": lambda rows: (rows[0].session.started,),
}
"""The orders of sessions, by name."""


def _urgency(row: Row) -> int:
    return URGENCY.index(row.state) if row.state in URGENCY else len(URGENCY)


def ordered(groups: Iterable[Sequence[Row]], name: str, *, backward: bool = False) -> list[Row]:
    """Return the rows in an order of :data:`ORDERS`; the jobs of a session stay below it."""
    return [row for rows in sorted(groups, key=ORDERS[name], reverse=backward) for row in rows]


# -- details


def details_of(row: Row, now: float) -> list[str]:
    """Return the lines about a row, printable; what waits for approval is complete."""
    session, facts = row.session, row.process.facts
    where = f"session {session.session}, on {session.target}" if session.session else "no session"
    lines = [f"{facts.kind or 'harness'} (process {facts.pid}), {where}"]
    if session.doing == "lost":
        lines.append("the process has died; what it left running on its target continues (harness jobs)")
    if row.process.acting_problem:
        lines.append(f"read only: {row.process.acting_problem}")
    for asked in session.approvals if row.is_session else ():
        lines += _approval_lines(asked, now)
    if row.job is not None:
        lines.append(f"job {row.job.job_id}: {row.job.command}")
    if session.title:
        lines.append(f"works on: {session.title}")
    lines += [f"runs {one.tool} for {elapsed(now - one.since)}: {one.text}" for one in session.running]
    lines += [f"pane {pane} is taken over by {by}" for pane, by in session.taken_by.items()]
    if session.paused_by:
        lines.append(f"paused by {session.paused_by}")
    if session.model:
        lines.append(_usage_line(session))
    return [readable(part) for line in lines for part in line.split("\n")]


def _approval_lines(asked: WaitingApproval, now: float) -> Iterator[str]:
    left = f" (denied in {elapsed(asked.until - now)})" if asked.until else ""
    yield f"may {asked.tool} run on {asked.target}?{left}"
    yield from (f"  | {line}" for line in asked.text.split("\n"))
    yield from (f"  {line}" for line in asked.preview.splitlines())
    if asked.why:
        yield f"  why: {asked.why}"
    yield f"  {asked.reason}"
    if not asked.is_complete:
        yield "  !! not all of it is shown: it can only be denied here"


def _usage_line(session: SessionState) -> str:
    cost = "unknown cost" if session.cost is None else f"${session.cost:.4f}"
    context = f", context {session.context}/{session.context_limit}" if session.context_limit else ""
    return f"{session.model}: {session.input_tokens} tokens in, {session.output_tokens} out, {cost}{context}"


def summary_of(rows: Sequence[Row]) -> str:
    """Return the counts for the line above the table."""
    sessions = [row for row in rows if row.is_session]
    counts = {name: sum(row.state == name for row in sessions) for name in URGENCY}
    words = [f"{count} {name}" for name, count in counts.items() if count]
    return counted(len(sessions), "session") + (f": {', '.join(words)}" if words else "")


def snapshot(processes: Iterable[LiveProcess]) -> dict[str, object]:
    """Return everything as a JSON object."""
    return {
        "processes": [
            {
                **process.facts.to_json(),
                "lost": process.lost_at or None,
                "problem": process.problem,
                "sessions": [session.to_json() for session in process.sessions.values()],
            }
            for process in processes
        ]
    }
