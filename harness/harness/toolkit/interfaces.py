"""Interfaces and values that the contract of tools is built on: audit log, read versions, compaction, sub-agents."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..deprecated_names import renamed_method, renamed_names
from .values import CallStatus, JsonObject, ToolCall

__all__ = [
    "CALLS",
    "MAX_AGENT_DEPTH",
    "ROUNDS",
    "AgentType",
    "AuditLog",
    "CallEntry",
    "Compaction",
    "Compactor",
    "OutputStoreBase",
    "ReadVersions",
    "SpawnRequest",
    "SpawnResult",
    "Verdict",
]

if not TYPE_CHECKING:
    __getattr__ = renamed_names(__name__, Ledger="AuditLog")


@dataclass(frozen=True, slots=True)
class Verdict:
    """The policy's decision. ``by`` names what decided (``rule 3 of the user's file``, ``mode deny``, ``operator``)."""

    allowed: bool
    reason: str
    by: str
    call: ToolCall | None = None
    """The call as the approver changed it; it is validated and decided on again."""
    secret: bool = False
    """The typed input answers a question for a secret: its text is not stored."""


@dataclass(frozen=True, slots=True)
class CallEntry:
    """A call that is about to run, as the audit log stores it. ``call`` is redacted."""

    call: ToolCall
    session_id: str
    backend: str
    mutating: bool
    started: float
    verdict: Verdict
    details: JsonObject = field(default_factory=dict)
    """What the caller stated about the call: risk, mutation, privesc, why."""
    status: CallStatus = CallStatus.DENIED
    """The status of a call that did not run."""


class AuditLog(ABC):
    """Records what is about to run and how it ended, so that the records survive a crash of harness."""

    @abstractmethod
    async def begin(self, entry: CallEntry) -> None:
        """Record a call before it runs; a mutating one is on disk when this returns.

        Raises:
            ToolError: a mutating call could not be recorded, so it must not run.
        """

    @abstractmethod
    async def end(self, call_id: str, status: CallStatus, summary: str, job_id: str = "") -> None:
        """Record how a call ended. Never raises: the call has run."""

    @abstractmethod
    async def refused(self, entry: CallEntry) -> None:
        """Record that a call was refused; it has no intent record. Never raises."""

    def started(self, call_id: str, job_id: str) -> None:  # noqa: B027  # optional: an audit log may ignore it
        """Record the job on the target that runs the call. Never waits or raises."""


class ReadVersions(ABC):
    """The file versions that this session has read: a tool may only overwrite what its caller has seen."""

    @abstractmethod
    def record_read(self, path: str, version: str, *, whole: bool) -> None:
        """Record that a file was read, or written by harness.

        Args:
            path: the real path on the target.
            version: the version that was read.
            whole: whether all of it was read.
        """

    def record_partial_read(self, path: str, version: str, start: int, end: int, size: int) -> None:
        """Record that bytes ``start`` to ``end`` of ``size`` were read. The default does not combine ranges."""
        self.record_read(path, version, whole=start == 0 and end >= size)

    @abstractmethod
    def last_read_version(self, path: str, *, whole: bool) -> str | None:
        """Return the version that was read last.

        Returns:
            None if the file was not read, or with ``whole`` not completely.
        """

    def missing(self, path: str) -> tuple[int, int] | None:
        """Return the first byte range (from, to) of the last read version that was not read; None if unknown."""
        return None

    @abstractmethod
    def forget(self, path: str) -> None:
        """Forget a file that no longer exists."""

    saw = renamed_method("saw", "record_read")
    saw_part = renamed_method("saw_part", "record_partial_read")
    seen = renamed_method("seen", "last_read_version")


class OutputStoreBase(ABC):
    """Stores complete outputs that are too long for a model."""

    @abstractmethod
    async def keep(self, call_id: str, text: str) -> str:
        """Store a redacted text and return the handle for reading it in pages; empty if it could not be stored."""


@dataclass(frozen=True, slots=True)
class Compaction:
    """A compaction: the number of messages before and after, and the summary that replaced the removed ones."""

    before: int
    after: int
    summary: str = ""


class Compactor(ABC):
    """Stores a conversation, and can replace its older messages by a summary."""

    @abstractmethod
    async def compact(self, session_id: str) -> Compaction | None:
        """Compact the conversation; return None if there is nothing to compact yet.

        Raises:
            HarnessError: compaction failed; the conversation is unchanged.
        """


# -- Sub-agents: the values of a request to start one.


ROUNDS = 8
"""Maximum model responses in one run of a sub-agent."""
CALLS = 64
"""Maximum calls in one run of a sub-agent."""
MAX_AGENT_DEPTH = 2
"""The default depth at which agents cannot start others; the operator's agent is at depth 0."""


@dataclass(frozen=True, slots=True)
class AgentType:
    """A type of sub-agent.

    ``tools`` are tool names, None for all. Names in ``usual`` are skipped if the tool is not offered; any other
    unknown name is an error. ``system`` precedes the conversation. ``model`` is used unless the call names one.
    ``declared_at`` is the file and line of a type that is declared in a file, for messages.
    """

    name: str
    about: str
    tools: tuple[str, ...] | None = None
    system: str = ""
    usual: frozenset[str] = frozenset()
    model: str = ""
    declared_at: str = ""


@dataclass(frozen=True, slots=True)
class SpawnRequest:
    """A request to run a sub-agent. ``timeout`` is in seconds.

    ``session_id`` is chosen by :func:`.delegation.run_agent`: a new session, or that of the agent to resume.
    """

    prompt: str
    kind: AgentType
    description: str = ""
    system: str = ""
    model: str = ""
    tools: tuple[str, ...] | None = None
    resume: str = ""
    timeout: float = 300.0
    backend: str = ""
    rounds: int = ROUNDS
    calls: int = CALLS
    session_id: str = ""

    @property
    def agent_id(self) -> str:
        """The agent's name in messages and in the audit log: ``explore-3f2a9c01b7d4``."""
        return f"{self.kind.name}-{self.session_id.rpartition('.')[2]}"


@dataclass(frozen=True, slots=True)
class SpawnResult:
    """The final message of a sub-agent. ``usage`` is its cost, as the model's provider counts it."""

    text: str
    is_error: bool = False
    usage: JsonObject = field(default_factory=dict)
