"""Runs calls through the pipeline, one at a time or in a batch."""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import anyio

from ..errors import ToolError, UnsupportedOperation
from .arguments import decode
from .contract import CallNotes, Services, Tool, ToolContext
from .events import EventBus, InternalFailure, ToolCallCompleted, ToolCallRequested
from .hosts.session import FleetSession
from .hosts.tools import HostsTool
from .interfaces import MAX_AGENT_DEPTH, AgentType, Compactor, ReadVersions, SpawnRequest, SpawnResult
from .pipeline import (
    PathLocks,
    Pipeline,
    Prepared,
    cut_short,
    failure_of,
    redact_typed_input,
    redacted,
    status_of,
    without_private,
)
from .registry import Registry
from .tool_profiles import AdaptedCall, AdaptedTool
from .values import CallOutcome, CallStatus, ToolCall

if TYPE_CHECKING:
    from ..context import ExecutionContext
    from .session.notebook import Notebook
    from .session.questions import Questioner

__all__ = [
    "CONCURRENCY",
    "Executor",
    "Order",
    "Services",
    "Spawner",
    "groups",
    "run_batch",
]


# -- Several calls of one response: which run at the same time, and in which order their results are returned.


Order = Literal["in_order", "parallel_first"]
CONCURRENCY = 8
"""Maximum concurrent calls: sshd allows ten channels by default, and harness uses two itself."""


def groups(parallel: Sequence[bool], order: Order) -> list[list[int]]:
    """Return the indexes of the calls that run together, group by group. Pure."""
    if order == "parallel_first":
        first = [number for number, at_once in enumerate(parallel) if at_once]
        return [first] * bool(first) + [[number] for number, at_once in enumerate(parallel) if not at_once]
    found: list[list[int]] = []
    for number, at_once in enumerate(parallel):
        if at_once and number and parallel[number - 1]:
            found[-1].append(number)
        else:
            found.append([number])
    return found


async def run_batch(
    run: Callable[[ToolCall], Awaitable[CallOutcome]],
    calls: Sequence[ToolCall],
    parallel: Sequence[bool],
    order: Order,
    concurrency: int,
) -> list[CallOutcome]:
    """Run the calls in the groups of :func:`groups` and return outcomes in the order of the calls."""
    outcomes: dict[int, CallOutcome] = {}
    limiter = anyio.CapacityLimiter(concurrency)

    async def one(number: int) -> None:
        async with limiter:
            outcomes[number] = await run(calls[number])

    for group in groups(parallel, order):
        async with anyio.create_task_group() as tasks:
            for number in group:
                tasks.start_soon(one, number)
    return [outcomes[number] for number in range(len(calls))]


# -- Where the executors of sub-agents run: the program provides the model.


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


# -- The call path of agents, the command line, Python and MCP.
#
# The order is fixed: alias and lookup → decode → validate and coerce → ``ToolCallRequested`` → middleware, outermost
# first → hooks before (they may change the call: it is validated again) → permission → cached result → audit record →
# path lock → run, within its timeout → audit record → hooks after → redact → truncate → cache or invalidate →
# ``ToolCallCompleted``. A call under a profile's names is translated as soon as it is valid, and its result is
# converted to the profile's form last. A refused call has no intent record, but still exactly one completion.


@dataclass(frozen=True, slots=True)
class Executor:
    """Runs the calls of one session on one target. Safe to use from several tasks at once.

    Args:
        agent_id: the agent that makes the calls; empty for an operator or a script.
        depth: 0, and one more for each sub-agent above it.
        max_agent_depth: agents at this depth cannot start others, and are not offered the tool for it.
        handoff: seconds after which a running command is left running and its job id returned.
        hosts: the hosts of a session on a fleet; ``execution`` is then a :class:`~harness.fleets.FleetContext`.
        questioner, notebook, compactor: as tools find them in their context.
    """

    execution: ExecutionContext
    registry: Registry
    services: Services
    events: EventBus
    reads: ReadVersions
    session_id: str = ""
    agent_id: str = ""
    depth: int = 0
    max_agent_depth: int = MAX_AGENT_DEPTH
    model: str = ""
    cwd: str | None = None
    spawner: Spawner | None = None
    handoff: float | None = None
    questioner: Questioner | None = None
    notebook: Notebook | None = None
    compactor: Compactor | None = None
    hosts: FleetSession | None = None
    locks: PathLocks = field(default_factory=PathLocks)
    _running: dict[str, anyio.CancelScope] = field(default_factory=dict)

    async def call(self, call: ToolCall) -> CallOutcome:
        """Run one call through the pipeline. Every failure is an outcome; only cancellation of the caller is raised.

        Cancelling by :meth:`cancel` also gives an outcome: ``cancelled``.
        """
        call = replace(call, call_id=call.call_id or uuid.uuid4().hex, agent_id=call.agent_id or self.agent_id)
        started = anyio.current_time()
        ctx = self._context(call)
        if call.call_id in self._running:
            raise ValueError(f"a call {call.call_id!r} is already running; call ids must be unique")
        scope = self._running[call.call_id] = anyio.CancelScope()
        outcome: CallOutcome | None = None
        try:
            with scope:
                outcome = await self._outcome(call, ctx)
        except anyio.get_cancelled_exc_class():
            self._complete(self._cancelled(call, ctx), started, ctx)
            raise
        finally:
            del self._running[call.call_id]
        return self._complete(outcome or self._cancelled(call, ctx), started, ctx)

    async def batch(
        self, calls: Sequence[ToolCall], *, order: Order = "in_order", concurrency: int = CONCURRENCY
    ) -> list[CallOutcome]:
        """Run the calls of one model response and return outcomes in their order. A failure stops no other call.

        Args:
            order: ``in_order``: adjacent calls run together if they may; any other call waits for all before it, and
                all after it wait for it. ``parallel_first``: all that may run together, then the others one by one.
            concurrency: the maximum number of concurrent calls.
        """
        parallel = [self._parallelizable(call) for call in calls]
        return await run_batch(self.call, calls, parallel, order, concurrency)

    def cancel(self, call_id: str | None = None) -> None:
        """Cancel one running call, or all of them."""
        for name, scope in self._running.items():
            if call_id in (None, name):
                scope.cancel()

    @property
    def running(self) -> tuple[str, ...]:
        """The ids of the running calls."""
        return tuple(self._running)

    def _context(self, call: ToolCall) -> ToolContext:
        return ToolContext(
            execution=self.execution,
            registry=self.registry.own,
            offered=self.registry,
            events=self.events,
            reads=self.reads,
            redactor=self.services.redactor,
            session_id=self.session_id,
            call_id=call.call_id,
            message_id=call.message_id,
            agent_id=call.agent_id,
            depth=self.depth,
            model=self.model,
            cwd=self.cwd,
            spawner=self.spawner,
            handoff=self.handoff,
            questioner=self.questioner,
            notebook=self.notebook,
            compactor=self.compactor,
            web=self.services.web,
            executor=self,
            notes=CallNotes(),
        )

    def _parallelizable(self, call: ToolCall) -> bool:
        try:
            tool = self.registry.lookup(call.name)
            return tool.traits_of(tool.parse(decode(call.arguments, tool.name))).parallelizable
        except ToolError:
            return False

    async def _outcome(self, call: ToolCall, ctx: ToolContext) -> CallOutcome:
        try:
            return await self._requested(call, ctx)
        except anyio.get_cancelled_exc_class():
            raise
        except Exception as error:  # every call needs a result for the model, whatever failed
            result, failure = failure_of(error, call.name, ctx.notes.partial)
            safe = self.services.redactor.result(result)
            return CallOutcome(
                call, safe, status_of(result, failure), error=redacted(failure, self.services.redactor.text)
            )

    async def _requested(self, call: ToolCall, ctx: ToolContext) -> CallOutcome:
        tool = self.registry.get(call.name)
        if tool is None:
            return CallOutcome(call, self.registry.unknown(call.name), CallStatus.ERROR)
        prepared = _prepared(call, tool, ctx)
        assert not isinstance(prepared.call.arguments, str)
        redacted_values = self.services.redactor.json(prepared.call.arguments)
        shown = redact_typed_input(redacted_values, prepared.typed_into)  # the policy has not decided yet
        shown = without_private(shown, prepared.private)
        requested = ctx.notes.requested = replace(prepared.call, arguments=shown)
        pipeline = self._pipeline(prepared, ctx)
        self.events.publish(ToolCallRequested(call=requested, mutating=prepared.traits.mutating))
        return await pipeline.through(prepared)

    def _pipeline(self, prepared: Prepared, ctx: ToolContext) -> Pipeline:
        if self.hosts is None or not isinstance(prepared.tool, HostsTool):
            return Pipeline(self.services, self.locks, ctx)
        from .hosts.pipeline import FleetPipeline  # only sessions on many hosts need it

        return FleetPipeline(self.services, self.locks, ctx, session=self.hosts)

    def _cancelled(self, call: ToolCall, ctx: ToolContext) -> CallOutcome:
        return CallOutcome(call, cut_short(ctx.notes), CallStatus.CANCELLED)

    def _complete(self, outcome: CallOutcome, started: float, ctx: ToolContext) -> CallOutcome:
        outcome = replace(outcome, seconds=anyio.current_time() - started, waited=ctx.notes.waited)
        if outcome.error is not None:
            self.events.publish(InternalFailure(message=outcome.result.text, call_id=outcome.call.call_id))
        shown = ctx.notes.requested or replace(outcome.call, arguments={})  # invalid arguments may contain anything
        self.events.publish(ToolCallCompleted(outcome=replace(outcome, call=shown)))
        return outcome if ctx.notes.faced is None else ctx.notes.faced.shown(outcome, self.services.redactor)


def _prepared(call: ToolCall, tool: Tool[Any], ctx: ToolContext) -> Prepared:
    """Return the call under the tool's own name, with valid arguments.

    Raises:
        ToolError: ``invalid_args``.
    """
    faced = ctx.notes.faced = AdaptedCall(tool, call) if isinstance(tool, AdaptedTool) else None
    values = decode(call.arguments, tool.name)
    args = tool.parse(values)
    if faced is not None:
        tool, values, args = faced.own(args)
    return Prepared(replace(call, name=tool.name, arguments=values), tool, args)
