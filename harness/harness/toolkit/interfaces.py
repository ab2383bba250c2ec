"""Interfaces that the executor depends on: policy, audit log, hooks, read versions, sub-agents."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..deprecated_names import renamed_method, renamed_names
from ..errors import UnsupportedOperation
from .values import CallOutcome, CallStatus, JsonObject, Subject, ToolCall, ToolResult

if TYPE_CHECKING:
    from ..context import ExecutionContext
    from .contract import Tool, ToolContext
    from .delegation import AgentType, SpawnRequest, SpawnResult
    from .executor import Executor

__all__ = [
    "AuditLog",
    "CallEntry",
    "Hook",
    "Middleware",
    "Next",
    "OutputStoreBase",
    "PermissionRequest",
    "Policy",
    "ReadVersions",
    "ResultCacheBase",
    "Spawner",
    "Verdict",
]

if not TYPE_CHECKING:
    __getattr__ = renamed_names(__name__, Ledger="AuditLog")


Next = Callable[[ToolCall], Awaitable[CallOutcome]]
"""The rest of the pipeline."""
Middleware = Callable[[ToolCall, "ToolContext", Next], Awaitable[CallOutcome]]
"""Code around a call with valid arguments. It may return an outcome without calling the next step, or pass other
arguments on, which are validated again. It gets results as the model does: redacted and truncated."""


@dataclass(frozen=True, slots=True)
class PermissionRequest:
    """A call for the policy to decide on. ``call`` has the canonical name and the arguments as they will run."""

    call: ToolCall
    tool: Tool[Any]
    subjects: tuple[Subject, ...]
    mutating: bool
    requires_approval: bool
    backend: str
    """The target's URL and identity; a grant for one target does not apply to another."""
    preview: str | None = None
    """The preview of the call from :meth:`Tool.preview`."""
    place: str = ""
    """Where the call would run if not on the target; see :meth:`Tool.execution_place`."""


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


class Policy(ABC):
    """Decides whether a call may run, in the same way for every user interface."""

    @abstractmethod
    async def decide(self, request: PermissionRequest, ctx: ToolContext) -> Verdict:
        """Decide on a call, by rules or by asking the operator.

        Raises:
            ToolError: ``permission_failure``: the decision failed. The call does not run.
        """

    async def unreadable_paths(
        self, paths: Collection[str], ctx: ToolContext, *, top: str, holders: Collection[str] | None = None
    ) -> frozenset[str]:
        """Return those of the given files whose contents no tool may show.

        For tools that are allowed to search a directory and find files there that no approval request named. The
        default withholds nothing.

        Args:
            paths: the real paths of the files.
            top: the real path of the directory that was searched.
            holders: the directories from ``top`` down that contain an ignore file (``.aiexclude``), as the tool has
                found them; None if it has not searched for them.

        Raises:
            HarnessError: the target could not be asked.
        """
        return frozenset()

    async def unwritable_paths(self, paths: Collection[str], ctx: ToolContext, *, tool: str) -> frozenset[str]:
        """Return those of the given files that ``tool`` may not change or move, regardless of any approval.

        For tools that are allowed to move a directory and find files there that no approval request named. The
        default protects nothing.

        Args:
            paths: the real paths of the files.
            tool: the tool's name.
        """
        return frozenset()


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


class Hook:
    """Code of the operator that runs around every call, on this machine."""

    async def before(self, call: ToolCall, ctx: ToolContext) -> ToolCall | str:
        """Return the call, changed or not, or the reason why it may not run.

        Any exception also prevents the call.
        """
        return call

    async def after(self, call: ToolCall, result: ToolResult, ctx: ToolContext) -> ToolResult:
        """Return the result, changed or not. An exception leaves the result unchanged."""
        return result


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


class ResultCacheBase(ABC):
    """Caches results of read-only calls until the target may have changed."""

    @abstractmethod
    async def get(self, call: ToolCall, ctx: ToolContext) -> ToolResult | None:
        """Return the cached result; None if there is none that is still valid."""

    @abstractmethod
    async def put(self, call: ToolCall, result: ToolResult, ctx: ToolContext) -> None:
        """Store a result."""

    @abstractmethod
    def changed(self, backend: str) -> None:
        """Drop all results of a target on which something may have changed."""


class Spawner(ABC):
    """Runs sub-agents by providing the model; :mod:`.delegation` does the rest."""

    def types(self) -> Sequence[AgentType]:
        """Return additional agent types.

        Models read the list when a conversation starts; each call of the tool reads it again.
        """
        return ()

    @abstractmethod
    async def spawn(self, request: SpawnRequest, executor: Executor) -> SpawnResult:
        """Run an agent to its end and return its final message.

        Args:
            request: ``resume`` names the conversation of an agent to resume; ``rounds`` limits the model's responses.
            executor: runs the agent's calls. It has the agent's tools and limits and is for this run only.

        Raises:
            HarnessError: the agent could not continue; the caller receives the error.
        """

    def open_target(self, url: str) -> AbstractAsyncContextManager[ExecutionContext]:
        """Open another target for an agent, for the duration of its run.

        Raises:
            UnsupportedOperation: this program works with one target only.
        """
        raise UnsupportedOperation(f"sub-agents cannot work on {url} here", hint="omit backend")
