"""An executor on a target in memory, with everything around it simple and visible, for tests of the pipeline."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from harness.context import ExecutionContext
from harness.testing.memory import MemoryBackend, memory_context
from harness.toolkit import Executor, Registry, Services, Tool, ToolContext, ToolResult
from harness.toolkit.contract import Hook, Middleware, PermissionRequest, Policy, ResultCacheBase
from harness.toolkit.events import EventBus
from harness.toolkit.interfaces import AuditLog, CallEntry, OutputStoreBase, ReadVersions, Verdict
from harness.toolkit.redaction.redactor import Redactor
from harness.toolkit.values import CallStatus, ToolCall

ALLOWED = Verdict(True, "", "test")


@dataclass
class Trace:
    """What the pipeline's neighbours were asked, in order."""

    steps: list[str] = field(default_factory=list)

    def __call__(self, step: str) -> None:
        self.steps.append(step)


@dataclass
class PolicyOf(Policy):
    """A policy that says what it is told to say."""

    trace: Trace
    answer: Callable[[PermissionRequest], Verdict] = lambda request: ALLOWED
    requests: list[PermissionRequest] = field(default_factory=list)

    async def decide(self, request: PermissionRequest, ctx: ToolContext) -> Verdict:
        self.trace("permission")
        self.requests.append(request)
        return self.answer(request)


@dataclass
class LedgerOf(AuditLog):
    """A ledger in memory."""

    trace: Trace
    begun: list[CallEntry] = field(default_factory=list)
    ended: list[tuple[str, CallStatus, str, str]] = field(default_factory=list)
    denied: list[CallEntry] = field(default_factory=list)

    async def begin(self, entry: CallEntry) -> None:
        self.trace("intent")
        self.begun.append(entry)

    async def end(self, call_id: str, status: CallStatus, summary: str, job_id: str = "") -> None:
        self.trace("outcome")
        self.ended.append((call_id, status, summary, job_id))

    async def refused(self, entry: CallEntry) -> None:
        self.trace("refused")
        self.denied.append(entry)


@dataclass
class Words(Redactor):
    """Takes one word out."""

    trace: Trace
    secret: str = "hunter2"

    def text(self, text: str) -> str:
        return text.replace(self.secret, "[redacted]")

    def result(self, result: ToolResult) -> ToolResult:
        self.trace("redact")
        return super().result(result)


@dataclass
class ResultsOf(ResultCacheBase):
    """A cache without an end."""

    trace: Trace
    kept: dict[str, ToolResult] = field(default_factory=dict)

    async def get(self, call: ToolCall, ctx: ToolContext) -> ToolResult | None:
        self.trace("cache get")
        return self.kept.get(f"{call.name} {call.arguments}")

    async def put(self, call: ToolCall, result: ToolResult, ctx: ToolContext) -> None:
        self.trace("cache put")
        self.kept[f"{call.name} {call.arguments}"] = result

    def changed(self, backend: str) -> None:
        self.trace("cache clear")
        self.kept.clear()


@dataclass
class OutputsOf(OutputStoreBase):
    """Keeps outputs in memory."""

    trace: Trace
    kept: dict[str, str] = field(default_factory=dict)

    async def keep(self, call_id: str, text: str) -> str:
        self.trace("cut")
        self.kept[call_id] = text
        return f"output:{call_id}"


@dataclass
class Reads(ReadVersions):
    """What was read."""

    known: dict[str, str] = field(default_factory=dict)

    def record_read(self, path: str, version: str, *, whole: bool) -> None:
        self.known[path] = version

    def last_read_version(self, path: str, *, whole: bool) -> str | None:
        return self.known.get(path)

    def forget(self, path: str) -> None:
        self.known.pop(path, None)


@dataclass
class Toolbox:
    """The executor and its neighbours."""

    executor: Executor
    trace: Trace
    policy: PolicyOf
    ledger: LedgerOf
    results: ResultsOf
    outputs: OutputsOf
    events: EventBus
    backend: MemoryBackend


def toolbox(
    tools: Iterable[Tool[Any]],
    *,
    backend: MemoryBackend | None = None,
    execution: ExecutionContext | None = None,
    answer: Callable[[PermissionRequest], Verdict] = lambda request: ALLOWED,
    hooks: tuple[Hook, ...] = (),
    middleware: tuple[Middleware, ...] = (),
    trace: Trace | None = None,
) -> Toolbox:
    """Make one."""
    trace = trace or Trace()
    backend = backend or MemoryBackend()
    policy, ledger, redactor = PolicyOf(trace, answer), LedgerOf(trace), Words(trace)
    results, outputs, events = ResultsOf(trace), OutputsOf(trace), EventBus("s1")
    services = Services(policy, ledger, redactor, outputs, results, hooks, middleware)
    executor = Executor(execution or memory_context(backend), Registry(tools), services, events, Reads(), "s1", "agent")
    return Toolbox(executor, trace, policy, ledger, results, outputs, events, backend)
