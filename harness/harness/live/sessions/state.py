"""The state of a session as dashboards show it: redacted values of limited size."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal, Self

from ...wording import shorten

__all__ = [
    "MAX_LISTED",
    "MAX_TEXT_CHARS",
    "ForwardState",
    "HostCounts",
    "JobState",
    "ProcessFacts",
    "RunningCall",
    "SessionKind",
    "SessionState",
    "SubAgentState",
    "WaitingApproval",
    "short_text",
]

MAX_TEXT_CHARS = 2_000
"""Maximum characters of a text in the state, except what waits for approval."""
MAX_LISTED = 100
"""Maximum jobs, calls or agents of a session in its state; the newest ones."""

ProcessKind = Literal["prompt", "exec", "run", "mcp", "fleet", "forward", "python"]
"""The command that a process runs; ``python`` is a program that uses harness as a library."""
SessionKind = Literal["agent", "mcp", "run", "fleet", "forward", "python"]
Doing = Literal["thinking", "running", "waiting", "paused", "idle", "reconnecting", "lost"]
"""What a session does.

``waiting`` is for an operator's answer, ``reconnecting`` is a forward whose connection was lost, and ``lost`` is a
session whose process has died.
"""


def short_text(text: str, limit: int = MAX_TEXT_CHARS) -> str:
    """Return a text as short as a dashboard shows it."""
    return shorten(text, limit)


class _Document:
    """A value that is sent as a JSON object; unknown members are ignored, missing ones have their defaults."""

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        """Return the value of a JSON object."""
        names = {one.name for one in fields(cls)}  # type: ignore[arg-type]  # every subclass is a dataclass
        return cls(**{name: value for name, value in document.items() if name in names})

    def to_json(self) -> dict[str, Any]:
        """Return the value as a JSON object."""
        return asdict(self)  # type: ignore[call-overload, no-any-return]  # as above


@dataclass(frozen=True, slots=True)
class ProcessFacts(_Document):
    """A harness process. ``started`` is a Unix time, ``acts`` whether it takes actions from dashboards."""

    pid: int = 0
    kind: str = ""
    started: float = 0.0
    version: str = ""
    acts: bool = True


@dataclass(frozen=True, slots=True)
class RunningCall(_Document):
    """A call or a command that runs since a Unix time; ``agent`` is the sub-agent that made it."""

    call_id: str = ""
    tool: str = ""
    text: str = ""
    since: float = 0.0
    agent: str = ""


@dataclass(frozen=True, slots=True)
class WaitingApproval(_Document):
    """A call that waits for an operator's decision.

    ``text`` is what would run, ``preview`` has further lines. ``is_complete`` is False if it is too long to be shown
    here, so that only a denial is possible. ``scopes`` are the possible decisions, ``editable`` and ``edit_text`` the
    argument that may be changed. ``until`` is the Unix time at which the call is denied.
    """

    request_id: str = ""
    call_id: str = ""
    tool: str = ""
    text: str = ""
    target: str = ""
    reason: str = ""
    preview: str = ""
    why: str = ""
    is_complete: bool = True
    scopes: tuple[str, ...] = ()
    editable: str = ""
    edit_text: str = ""
    since: float = 0.0
    until: float = 0.0
    agent: str = ""


@dataclass(frozen=True, slots=True)
class JobState(_Document):
    """A job that a session left running; ``exit_code`` is None while it runs, or if it is unknown."""

    job_id: str = ""
    command: str = ""
    since: float = 0.0
    is_running: bool = True
    exit_code: int | None = None
    host: str = ""
    """The host, in a session on many hosts."""


@dataclass(frozen=True, slots=True)
class SubAgentState(_Document):
    """A sub-agent that runs since a Unix time."""

    agent_id: str = ""
    title: str = ""
    since: float = 0.0


@dataclass(frozen=True, slots=True)
class HostCounts(_Document):
    """How far a call on many hosts is."""

    total: int = 0
    running: int = 0
    ok: int = 0
    failed: int = 0


@dataclass(frozen=True, slots=True)
class ForwardState(_Document):
    """Running forwards: their name, and of each its kind, where it listens, and where it connects to."""

    name: str = ""
    forwards: tuple[Mapping[str, str], ...] = ()
    connections: int = 0


@dataclass(frozen=True, slots=True)
class SessionState(_Document):
    """One session of a harness process.

    ``title`` is what it works on: the prompt or the command. ``since`` is when ``doing`` became so; ``cost`` is in US
    dollars, None if no price is known. ``work`` are the ids of the turn or of the calls that run: what the action
    ``cancel`` is for; a session that is itself one command has none. ``taken_by`` is who has taken over which pane.
    ``attach`` is the command that attaches to its tmux session, ``actions`` what a client may ask for.
    """

    session: str = ""
    kind: str = ""
    target: str = ""
    title: str = ""
    doing: str = "idle"
    since: float = 0.0
    started: float = 0.0
    model: str = ""
    cost: float | None = None
    input_tokens: int = 0
    output_tokens: int = 0
    context: int = 0
    context_limit: int = 0
    queued: int = 0
    paused_by: str = ""
    work: tuple[str, ...] = ()
    running: tuple[RunningCall, ...] = ()
    approvals: tuple[WaitingApproval, ...] = ()
    jobs: tuple[JobState, ...] = ()
    agents: tuple[SubAgentState, ...] = ()
    hosts: HostCounts | None = None
    forward: ForwardState | None = None
    panes: tuple[str, ...] = ()
    taken_by: Mapping[str, str] = field(default_factory=dict)
    attach: tuple[str, ...] = ()
    actions: tuple[str, ...] = ()
    note: str = ""

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        """Return the state of a JSON object."""
        parts: dict[str, type[_Document]] = {
            "running": RunningCall,
            "approvals": WaitingApproval,
            "jobs": JobState,
            "agents": SubAgentState,
        }
        values: dict[str, Any] = {one.name: document[one.name] for one in fields(cls) if one.name in document}
        for name, value in values.items():
            if name in parts:
                values[name] = tuple(parts[name].from_json(one) for one in value)
            elif isinstance(value, list):
                values[name] = tuple(value)
        if values.get("hosts") is not None:
            values["hosts"] = HostCounts.from_json(values["hosts"])
        if values.get("forward") is not None:
            values["forward"] = ForwardState.from_json(values["forward"])
        return cls(**values)
