"""The call path of a call on many hosts: hooks, permission, audit record and run for each host; one merged result."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field, replace

import anyio
from anyio.abc import TaskGroup

from ...context import ExecutionContext
from ...errors import HarnessError, ToolError
from ..contract import CallNotes, HostRequest, OutputLimit, PermissionRequest, Policy, ResultCacheBase, ToolContext
from ..events import Event, EventBus, InternalFailure, JobStarted, PermissionAsked, PermissionReplied, ToolCallProgress
from ..interfaces import CallEntry, Verdict
from ..permissions.paths.target_paths import tools_start
from ..pipeline import Pipeline, Prepared, failure_of, redacted, status_of
from ..results import BLOCK_LIMIT
from ..values import Advice, CallOutcome, ToolCall, ToolResult
from .merging import HostResult, MergedResult, merge_results, merged_status
from .session import FleetSession
from .tools import HOSTS, HostsArguments, HostsTool

__all__ = ["FleetPipeline", "JointDecision"]


# -- One decision for all hosts.

Decide = Callable[[Sequence[HostRequest]], Awaitable[list[Verdict | HarnessError]]]


class JointDecision:
    """Collects the requests of all hosts, has them decided at once, and hands out the verdicts.

    A host whose call the approver has changed is decided again, with the others of which that is true.

    Args:
        hosts: The names of the hosts; each must ask, or :meth:`leave`.
        decide: Decides the requests of all hosts.
        tasks: Runs the decision.
    """

    def __init__(self, hosts: Collection[str], decide: Decide, tasks: TaskGroup) -> None:
        self._order = tuple(hosts)
        self._missing = set(hosts)
        self._decide = decide
        self._tasks = tasks
        self._waiting: dict[str, HostRequest] = {}
        self._verdicts: dict[str, Verdict | HarnessError] = {}
        self._decided = anyio.Event()

    async def verdict(self, request: HostRequest) -> Verdict:
        """Wait until all hosts are decided, and return the verdict of this one.

        Raises:
            HarnessError: The decision failed.
        """
        decided = self._decided
        self._waiting[request.name] = request
        self._missing.discard(request.name)
        self._start()
        await decided.wait()
        verdict = self._verdicts[request.name]
        if isinstance(verdict, HarnessError):
            raise verdict
        return verdict

    def leave(self, name: str) -> None:
        """Decide without this host: its call has ended, or runs."""
        self._missing.discard(name)
        self._start()

    def _start(self) -> None:
        if self._waiting and not self._missing:
            requests = [self._waiting[name] for name in self._order if name in self._waiting]
            self._waiting = {}
            self._tasks.start_soon(self._run, requests)

    async def _run(self, requests: Sequence[HostRequest]) -> None:
        try:
            verdicts = await self._decide(requests)
        except HarnessError as error:
            verdicts = [error] * len(requests)
        except Exception as error:  # a decision that failed allows nothing
            problem = f"the decision whether it may run failed: {type(error).__name__}: {error}"
            verdicts = [ToolError(problem, code="permission_failure")] * len(requests)
        self._verdicts = dict(zip((one.name for one in requests), verdicts, strict=True))
        self._missing = {name for name, one in self._verdicts.items() if _is_changed(one)}
        self._decided.set()
        self._decided = anyio.Event()


def _is_changed(verdict: Verdict | HarnessError) -> bool:
    return isinstance(verdict, Verdict) and verdict.allowed and verdict.call is not None


class HostPolicy(Policy):
    """The policy as the call path of one host sees it: a decision about the call is made for all hosts.

    Args:
        name: The host's name.
        policy: The policy of the session, which decides what a running call accesses.
        decision: The decision of the call.
    """

    def __init__(self, name: str, policy: Policy, decision: JointDecision) -> None:
        self._name = name
        self._policy = policy
        self._decision = decision

    async def decide(self, request: PermissionRequest, ctx: ToolContext) -> Verdict:
        if ctx.notes.begun:
            return await self._policy.decide(request, ctx)
        return await self._decision.verdict(HostRequest(self._name, request, ctx))


# -- The call path.


@dataclass(frozen=True, slots=True)
class FleetPipeline(Pipeline):
    """The call path of one call on hosts of a fleet. The middleware runs once; the rest runs for each host."""

    session: FleetSession | None = None

    async def _hooked(self, prepared: Prepared, changes: int = 0) -> CallOutcome:
        assert isinstance(prepared.tool, HostsTool)
        assert self.session is not None
        single, args = prepared.tool.single, prepared.args
        assert isinstance(args, HostsArguments)
        assert not isinstance(prepared.call.arguments, str)
        values = {name: value for name, value in prepared.call.arguments.items() if name != HOSTS}
        on_host = Prepared(replace(prepared.call, arguments=values), single, args.own)
        results = await _HostCalls(self, self.session, prepared, on_host).run(args.names)
        merged = merge_results(results, prepared.traits.limit)
        result = await self._kept(merged)
        for one in results:
            if one.outcome.error is not None:
                text = f"{one.host}: {one.outcome.error}"
                self.ctx.publish(InternalFailure(message=text, call_id=self.ctx.call_id))
        return CallOutcome(prepared.call, self.services.redactor.result(result), merged_status(results))

    async def _kept(self, merged: MergedResult) -> ToolResult:
        """Return the result, with the handle of its complete text if that is longer."""
        outputs = self.services.outputs
        if not merged.whole:
            return merged.result
        handle = await outputs.keep(self.ctx.call_id, self.services.redactor.text(merged.whole)) if outputs else ""
        metadata = {**merged.result.metadata, "truncated": True, "full_output": handle}
        if not handle:
            return replace(merged.result, metadata=metadata)
        whole = f"\n\n[the whole is {handle}]"
        content = ToolResult.of(merged.result.text + whole).content
        advice = Advice(whole, tools=("read_output",))
        return replace(merged.result, content=content, metadata=metadata, advice=(advice,))


@dataclass(frozen=True, slots=True)
class _HostPipeline(Pipeline):
    """The call path of a call on one host of a fleet."""

    session: FleetSession | None = None
    whole: ToolContext | None = None

    async def _remembered(self, prepared: Prepared, verdict: Verdict) -> CallOutcome:
        assert self.session is not None
        assert self.whole is not None
        async with self.session.running:
            self.whole.notes.begun = True
            return await self._recorded(prepared, verdict)

    def _limit(self, prepared: Prepared) -> OutputLimit:
        """Return a large limit: the merged result is truncated, and equal results must be compared completely."""
        return replace(prepared.traits.limit, characters=BLOCK_LIMIT)


@dataclass(slots=True)
class _HostCalls:
    """One call on each of its hosts."""

    pipeline: FleetPipeline
    session: FleetSession
    prepared: Prepared
    on_host: Prepared
    outcomes: dict[str, CallOutcome] = field(default_factory=dict)

    async def run(self, names: Sequence[str]) -> list[HostResult]:
        """Run the call and return the outcomes in the order of the names."""
        async with anyio.create_task_group() as tasks:
            decision = JointDecision(names, self._decide, tasks)
            for name in names:
                tasks.start_soon(self._on_host, name, decision)
        return [HostResult(name, self.session.target(name), self.outcomes[name]) for name in names]

    async def _decide(self, requests: Sequence[HostRequest]) -> list[Verdict | HarnessError]:
        return await self.pipeline.services.policy.decide_hosts(requests, self.prepared.call, self.pipeline.ctx)

    async def _on_host(self, name: str, decision: JointDecision) -> None:
        ctx = self.pipeline.ctx
        try:
            execution = await self.session.connected(name)
        except Exception as error:
            await self._not_reached(name, error)
        else:
            lines = _HostLines(name, ctx)
            with lines.events.listening(lines.heard):
                path = self._path(name, execution, decision, lines.events)
                try:
                    self.outcomes[name] = await path._hooked(self.on_host)
                except Exception as error:  # the other hosts have their own outcomes
                    self.outcomes[name] = self._failed(error, path.ctx.notes.partial)
            lines.finish()
        finally:
            decision.leave(name)

    def _path(self, name: str, execution: ExecutionContext, decision: JointDecision, events: EventBus) -> _HostPipeline:
        whole, services = self.pipeline.ctx, self.pipeline.services
        notes = CallNotes(requested=whole.notes.requested, redactor=whole.notes.redactor)
        ctx = replace(
            whole,
            execution=execution,
            events=events,
            reads=self.session.reads(execution),
            cwd=tools_start(execution),
            host=name,
            notes=notes,
        )
        policy = HostPolicy(name, services.policy, decision)
        results = _InvalidationOnly(services.results) if services.results is not None else None
        own = replace(services, policy=policy, outputs=None, results=results, middleware=())
        return _HostPipeline(own, self.pipeline.locks, ctx, session=self.session, whole=whole)

    async def _not_reached(self, name: str, error: Exception) -> None:
        """Record that the call did not run on a host, because it could not be reached."""
        outcome = self.outcomes[name] = self._failed(error, "")
        verdict = Verdict(False, f"not reached: {outcome.result.text}", "nobody")
        entry = replace(self._entry(verdict), backend=self.session.target(name), status=outcome.status)
        await self.pipeline.services.ledger.refused(entry)

    def _entry(self, verdict: Verdict) -> CallEntry:
        return self.pipeline._entry(self.on_host, verdict)

    def _failed(self, error: Exception, partial: str) -> CallOutcome:
        result, failure = failure_of(error, self.on_host.tool.name, partial)
        redactor = self.pipeline.services.redactor
        safe, shown = redactor.result(result), redacted(failure, redactor.text)
        return CallOutcome(self.on_host.call, safe, status_of(result, failure), error=shown)


class _InvalidationOnly(ResultCacheBase):
    """A cache that returns and stores nothing, and drops what another session has stored of a changed target.

    Results are cached by call, and a call on many hosts has one id.
    """

    def __init__(self, results: ResultCacheBase) -> None:
        self._results = results

    async def get(self, call: ToolCall, ctx: ToolContext) -> ToolResult | None:
        return None

    async def put(self, call: ToolCall, result: ToolResult, ctx: ToolContext) -> None:
        """Store nothing."""

    def changed(self, backend: str) -> None:
        self._results.changed(backend)


class _HostLines:
    """Shows the output of one host as lines that begin with its name, and passes on what the operator must see."""

    def __init__(self, name: str, ctx: ToolContext) -> None:
        self.events = EventBus(ctx.session_id)
        self._name = name
        self._ctx = ctx
        self._rest = ""

    def heard(self, event: Event) -> None:
        """Show the complete lines of a progress event, which is redacted; pass on requests, jobs and failures."""
        if isinstance(event, ToolCallProgress):
            *lines, self._rest = (self._rest + event.text).split("\n")
            self._show(lines)
        elif isinstance(event, PermissionAsked | PermissionReplied):
            self._ctx.publish(event)
        elif isinstance(event, JobStarted):
            self._ctx.publish(replace(event, host=self._name))
        elif isinstance(event, InternalFailure):
            self._ctx.publish(replace(event, message=f"{self._name}: {event.message}"))

    def finish(self) -> None:
        """Show the last line, if it has no end."""
        self._show([self._rest] if self._rest else [])

    def _show(self, lines: Sequence[str]) -> None:
        if lines:
            self._ctx.progress("".join(f"{self._name}: {line}\n" for line in lines), "note")
