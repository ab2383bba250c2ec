"""What the executor needs and does not do itself: policy, ledger, hooks, redaction, knowledge of files, sub-agents."""

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
    "Redactor",
    "ResultCacheBase",
    "Spawner",
    "Verdict",
]

if not TYPE_CHECKING:
    __getattr__ = renamed_names(__name__, Ledger="AuditLog")


Next = Callable[[ToolCall], Awaitable[CallOutcome]]
"""The rest of the pipeline."""
Middleware = Callable[[ToolCall, "ToolContext", Next], Awaitable[CallOutcome]]
"""Code around a call with valid arguments. It may answer without calling on, or call on with other arguments, which
are then validated again. It sees results as the model will: redacted and cut."""


@dataclass(frozen=True, slots=True)
class PermissionRequest:
    """A call, as the policy judges it. ``call`` has the canonical name and the arguments as they will run."""

    call: ToolCall
    tool: Tool[Any]
    subjects: tuple[Subject, ...]
    mutating: bool
    requires_approval: bool
    backend: str
    """The target's URL and identity; a grant for one target says nothing of another."""
    preview: str | None = None
    """What :meth:`Tool.preview` shows of it."""
    place: str = ""
    """Where it would run when that is not the target; see :meth:`Tool.place`."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the policy says. ``by`` names what decided (``rule 3 of the user's file``, ``mode deny``, ``operator``)."""

    allowed: bool
    reason: str
    by: str
    call: ToolCall | None = None
    """The call as the approver changed it; it is validated and judged again."""
    secret: bool = False
    """What is typed answers a question for a secret: nothing keeps its text."""


class Policy(ABC):
    """Decides whether a call may run. One decision place for every front end."""

    @abstractmethod
    async def decide(self, request: PermissionRequest, ctx: ToolContext) -> Verdict:
        """Decide, by rules or by asking a person.

        Raises:
            ToolError: ``permission_failure``: it could not be found out. The call does not run.
        """

    async def unreadable_paths(
        self, paths: Collection[str], ctx: ToolContext, *, top: str, holders: Collection[str] | None = None
    ) -> frozenset[str]:
        """Those of some files, by their real paths, of whose contents no tool may show anything.

        For tools that are allowed to search a directory, and find in it what nobody was asked about. The default
        withholds nothing.

        Args:
            top: the real path of the directory that was searched.
            holders: the directories from ``top`` on that hold a file which excludes others (``.aiexclude``), as the
                tool has seen; None when it has not looked.

        Raises:
            HarnessError: it could not be found out.
        """
        return frozenset()

    async def unwritable_paths(self, paths: Collection[str], ctx: ToolContext, *, tool: str) -> frozenset[str]:
        """Those of some files, by their real paths, that ``tool`` may not change or move, whoever allows it.

        For tools that are allowed to move a directory, and find in it what nobody was asked about. The default locks
        nothing.
        """
        return frozenset()


@dataclass(frozen=True, slots=True)
class CallEntry:
    """A call that is about to run, as the ledger keeps it. ``call`` is redacted."""

    call: ToolCall
    session_id: str
    backend: str
    mutating: bool
    started: float
    verdict: Verdict
    details: JsonObject = field(default_factory=dict)
    """What the caller said of it: risk, mutation, privesc, why."""
    status: CallStatus = CallStatus.DENIED
    """How a call counts that did not run."""


class AuditLog(ABC):
    """Keeps what is about to run and what came of it, so that nothing is forgotten when harness dies."""

    @abstractmethod
    async def begin(self, entry: CallEntry) -> None:
        """Keep a call; for a mutating one, on the disk before this returns.

        Raises:
            ToolError: a mutating call could not be kept, so it must not run.
        """

    @abstractmethod
    async def end(self, call_id: str, status: CallStatus, summary: str, job_id: str = "") -> None:
        """Keep what came of it. Never raises: the call has happened."""

    @abstractmethod
    async def refused(self, entry: CallEntry) -> None:
        """Keep in the audit that a call was refused; there is no intent for it. Never raises."""

    def started(self, call_id: str, job_id: str) -> None:  # noqa: B027  # optional: a ledger may not care
        """Keep which job on the target does the work of a running call. Never waits or raises."""


class Hook:
    """Code of the operator around every call, on this machine."""

    async def before(self, call: ToolCall, ctx: ToolContext) -> ToolCall | str:
        """Return the call, changed or not, or the reason why it may not run.

        Any exception, too, keeps it from running.
        """
        return call

    async def after(self, call: ToolCall, result: ToolResult, ctx: ToolContext) -> ToolResult:
        """Return the result, changed or not. An exception leaves it as it was."""
        return result


class Redactor(ABC):
    """Takes secrets out of what is shown, kept or sent."""

    @abstractmethod
    def text(self, text: str) -> str:
        """The text with each secret replaced."""

    def result(self, result: ToolResult) -> ToolResult:
        """A result with every text of it redacted."""
        from .redaction.redactor import redact_result

        return redact_result(result, self.text)

    def complete(self, text: str) -> int:
        """How many characters of a text, whose end has not come, can be shown: nothing after them changes that."""
        from .redaction.stream import safe_end

        return safe_end(text)

    def json(self, value: JsonObject) -> JsonObject:
        """An object with every text of it redacted."""
        from .redaction.redactor import redact_object

        return redact_object(value, self.text)


class ReadVersions(ABC):
    """What this session has read of each file: a tool may only write over what its caller has seen."""

    @abstractmethod
    def record_read(self, path: str, version: str, *, whole: bool) -> None:
        """A file was read, or written by us. ``path`` is its real path on the target; ``whole``: all of it."""

    def record_partial_read(self, path: str, version: str, start: int, end: int, size: int) -> None:
        """Bytes ``start`` to ``end`` of ``size`` were read. The default does not add parts up."""
        self.record_read(path, version, whole=start == 0 and end >= size)

    @abstractmethod
    def last_read_version(self, path: str, *, whole: bool) -> str | None:
        """The version that was read last; None when it was not read, or not as much of it as is asked for."""

    def missing(self, path: str) -> tuple[int, int] | None:
        """The first bytes (from, to) that were not read of the version that was read last; None when not known."""
        return None

    @abstractmethod
    def forget(self, path: str) -> None:
        """The file is gone."""

    saw = renamed_method("saw", "record_read")
    saw_part = renamed_method("saw_part", "record_partial_read")
    seen = renamed_method("seen", "last_read_version")


class OutputStoreBase(ABC):
    """Keeps the whole of outputs that are too long for a model."""

    @abstractmethod
    async def keep(self, call_id: str, text: str) -> str:
        """Keep a redacted text; returns the handle under which it can be paged, empty when it could not be kept."""


class ResultCacheBase(ABC):
    """Remembers results of calls that change nothing, until something may have changed."""

    @abstractmethod
    async def get(self, call: ToolCall, ctx: ToolContext) -> ToolResult | None:
        """The remembered result; None when there is none that still holds."""

    @abstractmethod
    async def put(self, call: ToolCall, result: ToolResult, ctx: ToolContext) -> None:
        """Remember a result."""

    @abstractmethod
    def changed(self, backend: str) -> None:
        """Something on that target may have changed: nothing that is remembered of it holds."""


class Spawner(ABC):
    """Runs sub-agents: it brings the model. :mod:`.delegation` does the rest."""

    def types(self) -> Sequence[AgentType]:
        """Further types of agents, beside the usual ones.

        Models read which there are at the start of a session; each call asks again.
        """
        return ()

    @abstractmethod
    async def spawn(self, request: SpawnRequest, executor: Executor) -> SpawnResult:
        """Run an agent to its end and return its last words.

        Args:
            request: ``resume`` names the session of an agent that goes on; ``rounds`` limits the model's answers.
            executor: takes the agent's calls. It has its tools and its limits, and is for this run alone.

        Raises:
            HarnessError: the agent could not go on; whoever asked is told.
        """

    def open_target(self, url: str) -> AbstractAsyncContextManager[ExecutionContext]:
        """Open another target for an agent, for as long as it works.

        Raises:
            UnsupportedOperation: this program works on one target.
        """
        raise UnsupportedOperation(f"no agent can be sent to {url} from here", hint="leave backend out")
