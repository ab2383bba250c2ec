"""The interface of a tool, the context that its calls receive, and the interfaces of the code around a call."""

from __future__ import annotations

import re
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from ..deprecated_names import renamed_method
from ..errors import HarnessError
from .arguments import parse_arguments, schema_of
from .events import Event, EventBus, ToolCallProgress
from .interfaces import AgentType, AuditLog, Compactor, OutputStoreBase, ReadVersions, Verdict
from .values import CallOutcome, Category, JsonObject, ShownForm, Subject, ToolCall, ToolResult
from .web_settings import WebSettings

if TYPE_CHECKING:
    from ..context import ExecutionContext
    from .redaction.redactor import Redactor
    from .redaction.stream import ProgressStream
    from .session.notebook import Notebook
    from .session.questions import Questioner

__all__ = [
    "HERE",
    "NAME",
    "A",
    "AgentTypeSource",
    "Arguments",
    "CallExecutor",
    "CallNotes",
    "FunctionTool",
    "Hook",
    "HostRequest",
    "Intent",
    "Middleware",
    "MutatingArguments",
    "Next",
    "OutputLimit",
    "PermissionRequest",
    "Policy",
    "PresentedCall",
    "ResultCacheBase",
    "Services",
    "Tool",
    "ToolContext",
    "ToolLookup",
    "Traits",
    "tool",
]


# -- What a tool receives in addition to its arguments.


PARTIAL_KEPT = 32 << 10
"""Characters of progress that are kept for a call that ends without a result."""


class ToolLookup(Protocol):
    """The tools of a session, as a call finds them; :class:`.registry.Registry`."""

    def get(self, name: str) -> Tool[Any] | None:
        """Return the tool of that name or alias, or None."""

    def lookup(self, name: str) -> Tool[Any]:
        """Return the tool of that name or alias.

        Raises:
            ToolError: unknown tool.
        """

    def source_of(self, name: str) -> str | None:
        """Return the source of the tool of that name or alias, or None."""

    @property
    def aside(self) -> tuple[Tool[Any], ...]:
        """The tools that only the choice of packs left out, by name: they can be listed but not called."""

    def definitions(self) -> tuple[JsonObject, ...]:
        """Return name, description and ``input_schema`` of each tool, by name."""

    def list(self) -> list[Tool[Any]]:
        """Return all tools, sorted by name."""


class CallExecutor(Protocol):
    """The executor that runs a call, as its context knows it; :class:`.executor.Executor`."""

    @property
    def services(self) -> Services:
        """Policy, audit log and other shared services."""


class AgentTypeSource(Protocol):
    """Additional types of sub-agents; :class:`.executor.Spawner`."""

    def types(self) -> Sequence[AgentType]:
        """Return additional agent types."""


class PresentedCall(Protocol):
    """A call as a profile presents it to the model; :class:`.tool_profiles.AdaptedCall`."""

    @property
    def form(self) -> ShownForm:
        """The size and form of the result that the model receives."""

    def shown(self, outcome: CallOutcome, redactor: Redactor) -> CallOutcome:
        """Return the outcome for the model."""


@dataclass(slots=True, eq=False, weakref_slot=True)
class CallNotes:
    """What a running tool reports to the executor in addition to its result."""

    job_id: str = ""
    """The job on the target that runs the call: the audit log asks it for the outcome after a lost connection."""
    begun: bool = False
    """The tool was started: from then on it may have changed something."""
    waited: float = 0.0
    """Seconds spent waiting for approval."""
    requested: ToolCall | None = None
    """The call as it may be shown, once its arguments are validated."""
    shown: str = ""
    """The end of the progress shown so far, redacted."""
    streams: dict[str, ProgressStream] = field(default_factory=dict)
    """The redacting buffers of the progress streams: they hold back what may be the start of a secret."""
    redactor: Redactor | None = None
    """Redacts the progress of this call instead of the executor's redactor."""
    on_job: Callable[[str], None] | None = None
    """Called with the job's id as soon as it is known, so that the audit log has it even if harness is killed."""
    judge: Callable[[tuple[Subject, ...]], Awaitable[Verdict]] | None = None
    """Asks the policy about what the running call accesses."""
    keys_command: Subject | None = None
    """The command that the policy has approved in place of the call's keys: it is run, and no keys are sent."""
    faced: PresentedCall | None = None
    """The call as a profile presents it to the model."""

    @property
    def partial(self) -> str:
        """The end of the output so far, for a call that is cancelled or times out."""
        return (self.shown + "".join(stream.rest for stream in self.streams.values()))[-PARTIAL_KEPT:]


@dataclass(frozen=True, slots=True)
class ToolContext:
    """The context of one call. All access to the target goes through ``execution``.

    ``registry`` has the tools under their own names, ``offered`` under the names that the model knows; without a
    profile, and if ``offered`` is None, they are the same.
    ``cwd`` is the directory in which relative paths of the call start; None means the context's own.
    ``depth`` is 0 for the first agent and one more for each level of sub-agents.
    """

    execution: ExecutionContext
    registry: ToolLookup
    events: EventBus
    reads: ReadVersions
    redactor: Redactor
    session_id: str = ""
    call_id: str = ""
    message_id: str = ""
    agent_id: str = ""
    depth: int = 0
    model: str = ""
    cwd: str | None = None
    host: str = ""
    """The name of the host in a session on a fleet; empty in a session on one target."""
    spawner: AgentTypeSource | None = None
    offered: ToolLookup | None = None
    handoff: float | None = None
    """Seconds after which a tool that can leave its work running does so and returns the id of the job, without an
    error, because its caller would not wait longer. None waits as long as the arguments say."""
    questioner: Questioner | None = None
    """Asks the user questions; None: there is no user to ask."""
    notebook: Notebook | None = None
    """To-do lists and memories."""
    compactor: Compactor | None = None
    """Can compact the conversation."""
    web: WebSettings = field(default_factory=WebSettings)
    executor: CallExecutor | None = None
    """The executor that runs this call: executors of sub-agents are derived from it."""
    clock: Callable[[], float] = time.time
    notes: CallNotes = field(default_factory=CallNotes)

    @property
    def shown(self) -> ShownForm:
        """The form in which the model receives the result: a tool that pages by offset fills it, and no more."""
        return ShownForm() if self.notes.faced is None else self.notes.faced.form

    def progress(self, text: str, stream: Literal["stdout", "stderr", "note"] = "stdout") -> None:
        """Show the operator a piece of output while the call runs; models never see it.

        A piece of ``stdout`` or ``stderr`` may end anywhere: what could be the start of a secret is held back until
        the next piece. A note is complete.
        """
        if stream == "note":
            self._show((self.notes.redactor or self.redactor).text(text), stream)
        else:
            self._show(self._progress(stream).feed(text), stream)

    def skip_progress(self, stream: Literal["stdout", "stderr"] = "stdout") -> None:
        """Report a gap in a stream: its next piece does not follow the last one."""
        self._progress(stream).skip()

    def _progress(self, stream: str) -> ProgressStream:
        from .redaction.stream import ProgressStream

        if stream not in self.notes.streams:
            self.notes.streams[stream] = ProgressStream(self.notes.redactor or self.redactor)
        return self.notes.streams[stream]

    def finish_progress(self) -> None:
        """Show what was held back; the executor calls this when the tool has ended."""
        for stream in ("stdout", "stderr"):
            if stream in self.notes.streams:
                self._show(self.notes.streams[stream].flush(), stream)

    def _show(self, text: str, stream: Literal["stdout", "stderr", "note"]) -> None:
        if text:
            self.notes.shown = (self.notes.shown + text)[-PARTIAL_KEPT:]
            self.events.publish(ToolCallProgress(call_id=self.call_id, text=text, stream=stream))

    async def permitted(self, subjects: tuple[Subject, ...]) -> Verdict:
        """Return the policy's decision about what the call accesses while it runs, such as a redirect's destination.

        Raises:
            ToolError: the decision failed.
        """
        if self.notes.judge is None:
            return Verdict(False, "no policy is configured to check access during the call", "no policy")
        return await self.notes.judge(subjects)

    async def unreadable_paths(
        self, paths: Collection[str], *, top: str, holders: Collection[str] | None = None
    ) -> frozenset[str]:
        """Return the files whose contents may not be shown; see :meth:`Policy.unreadable_paths`."""
        if self.executor is None or not paths:
            return frozenset()
        return await self.executor.services.policy.unreadable_paths(paths, self, top=top, holders=holders)

    async def unwritable_paths(self, paths: Collection[str], *, tool: str) -> frozenset[str]:
        """Return the files that a tool may not change or move; see :meth:`Policy.unwritable_paths`."""
        if self.executor is None or not paths:
            return frozenset()
        return await self.executor.services.policy.unwritable_paths(paths, self, tool=tool)

    def publish(self, event: Event) -> None:
        """Publish an event of this session."""
        self.events.publish(event)

    def started_job(self, job_id: str) -> None:
        """Record which job on the target runs this call."""
        self.notes.job_id = job_id
        if self.notes.on_job is not None:
            self.notes.on_job(job_id)

    withheld = renamed_method("withheld", "unreadable_paths")
    locked = renamed_method("locked", "unwritable_paths")


# -- A tool: a name, a description, arguments as a pydantic model, traits, and one method that does the work.
#
# As a function::
#
#     class Uptime(Arguments):
#         '''Show how long the target has been up.'''
#         pretty: bool = Field(False, description="in words")
#
#     @tool(Uptime, category=Category.SHELL, parallelizable=True)
#     async def uptime(args: Uptime, ctx: ToolContext) -> ToolResult:
#         done = await ctx.execution.run_shell("uptime -p" if args.pretty else "uptime")
#         return ToolResult.of(done.stdout)
#
# A tool with more behavior (its subjects, whether a call needs approval) is a subclass of :class:`Tool`.


NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""Tool names that every provider accepts."""
HERE = "this machine"
"""The machine on which harness runs, as approval requests call it."""


class Arguments(BaseModel):
    """Base of a tool's arguments: unknown ones are refused, and values are immutable after validation.

    Alternative names that are accepted as input and never advertised are the field's ``validation_alias``
    (``AliasChoices("path", "file_path")``, the canonical name first).
    """

    model_config = ConfigDict(
        extra="forbid", frozen=True, validate_by_name=True, validate_by_alias=True, defer_build=True
    )


class Intent(BaseModel):
    """What the caller states about a mutating call: shown to the approver and audited, never used for decisions."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    risk: Literal["low", "medium", "high"] | None = Field(None, description="how much harm this could do")
    mutation: bool | None = Field(None, description="whether it changes anything on the target")
    privesc: bool | None = Field(None, description="whether it uses the rights of another user (sudo, su)")
    why: str | None = Field(None, description="one sentence for the person who approves it")


class MutatingArguments(Arguments, Intent):
    """Base of the arguments of mutating tools."""


@dataclass(frozen=True, slots=True)
class OutputLimit:
    """How much of a result the model receives: characters, and how many of them from its end (0: only the head)."""

    characters: int = 15_000
    tail: int = 7_500


@dataclass(frozen=True, slots=True)
class Traits:
    """Properties of every call of a tool, unless :meth:`Tool.traits_of` overrides them for one call."""

    category: Category = Category.NONE
    mutating: bool = False
    """It changes something: it is recorded before it runs, and requires approval by default."""
    parallelizable: bool = False
    """Several calls of one batch may run at once."""
    cacheable: bool = False
    timeout: float | None = None
    """Seconds until the call is cancelled; None leaves it to the tool."""
    requires: tuple[str, ...] = ()
    """Programs that the target must have; ``tmux`` means a terminal."""
    aliases: tuple[str, ...] = ()
    """Other accepted names; never advertised."""
    limit: OutputLimit = field(default_factory=OutputLimit)
    packs: tuple[str, ...] = ()
    """The packs that it belongs to (``core``, ``search``, ``dev``)."""
    libraries: tuple[str, ...] = ()
    """Additional Python modules that it requires, by top-level name; without them the tool is not offered."""
    extra: str = ""
    """The package that installs them, as an argument of ``pip install``."""


A = TypeVar("A", bound=BaseModel)


class Tool(ABC, Generic[A]):
    """A named operation with a schema. One instance serves all calls; it stores no state of a call.

    Args:
        name: letters, digits, ``_`` and ``-``, at most 64.
        description: for the model: what it does, when to use it, what it returns.
        arguments: the model of its arguments.
    """

    def __init__(self, name: str, description: str, arguments: type[A], traits: Traits | None = None) -> None:
        if not NAME.fullmatch(name):
            raise ValueError(f"{name!r} is not a valid tool name: use letters, digits, _ and -, at most 64")
        self.name = name
        self.description = description
        self.arguments = arguments
        self.traits = traits or Traits()

    @property
    def own(self) -> Tool[Any]:
        """The tool that does the work: itself, unless a profile presents another tool under this name."""
        return self

    @property
    def schema(self) -> JsonObject:
        """The JSON schema of the arguments, as models see it: a new object on each access."""
        return schema_of(self.arguments)

    def parse(self, raw: JsonObject) -> A:
        """Parse arguments from a model; strings that mean numbers or booleans are converted.

        Raises:
            ToolError: ``invalid_args``, with one line for each error.
        """
        return parse_arguments(self.arguments, raw, tool=self.name)

    def traits_of(self, args: A) -> Traits:
        """Return the traits of one call."""
        return self.traits

    def subjects(self, args: A) -> tuple[Subject, ...]:
        """Return what the call would touch, for the policy. The default is the call itself."""
        return (Subject("other", self.name),)

    def covered_arguments(self) -> frozenset[str]:
        """Return the arguments that :meth:`subjects` covers completely, so that they need no further decision."""
        return frozenset()

    def private_arguments(self, args: A) -> frozenset[str]:
        """Return the arguments that may contain a password of no recognizable form.

        Hooks, events and the audit log do not receive them; approval requests show them redacted. Input for a pane
        is identified by its subject instead.
        """
        return frozenset()

    def preview(self, args: A) -> str | None:
        """Return what an approval request shows after the subjects, such as the new text of a file.

        It is redacted and truncated where it is shown. A permanent approval does not cover it: rules only match
        subjects.
        """
        return None

    def execution_place(self, args: A) -> str:
        """Return where the work is done if not on the target, such as :data:`HERE`; approval requests show it.

        The default is empty: the target.
        """
        return ""

    def requires_approval(self, args: A) -> bool:
        """Return whether the call requires approval if no rule decides."""
        return self.traits_of(args).mutating

    def paths(self, args: A) -> tuple[str, ...]:
        """Return the files on the target that the call changes: calls that share one never run at the same time."""
        return tuple(subject.text for subject in self.subjects(args) if subject.kind == "write")

    @abstractmethod
    async def run(self, args: A, ctx: ToolContext) -> ToolResult:
        """Run a call.

        Raises:
            ToolError: the call could not run at all. Other exceptions are defects and are converted to one.
        """


Work = Callable[[A, "ToolContext"], Awaitable[ToolResult]]


class FunctionTool(Tool[A]):
    """A tool that runs a function."""

    def __init__(self, name: str, description: str, arguments: type[A], traits: Traits, work: Work[A]) -> None:
        super().__init__(name, description, arguments, traits)
        self._work = work

    async def run(self, args: A, ctx: ToolContext) -> ToolResult:
        return await self._work(args, ctx)


def tool(
    arguments: type[A], *, name: str = "", description: str = "", **traits: Any
) -> Callable[[Work[A]], FunctionTool[A]]:
    """Create a tool from a function.

    Args:
        arguments: the model of its arguments.
        name: the default is the function's name.
        description: the default is the docstring of ``arguments``.
        traits: the fields of :class:`Traits`.
    """

    def make(work: Work[A]) -> FunctionTool[A]:
        text = description or (arguments.__doc__ or "").strip()
        called = name or getattr(work, "__name__", "")
        return FunctionTool(called, text, arguments, Traits(**traits), work)

    return make


# -- What surrounds a call: middleware, policy, hooks and the cache of results, shared by the executors of a process.


Next = Callable[[ToolCall], Awaitable[CallOutcome]]
"""The rest of the pipeline."""
Middleware = Callable[[ToolCall, ToolContext, Next], Awaitable[CallOutcome]]
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
class HostRequest:
    """What one host of a fleet would run of a call, for the policy; ``name`` is the host's name in the fleet."""

    name: str
    request: PermissionRequest
    ctx: ToolContext


class Policy(ABC):
    """Decides whether a call may run, in the same way for every user interface."""

    @abstractmethod
    async def decide(self, request: PermissionRequest, ctx: ToolContext) -> Verdict:
        """Decide on a call, by rules or by asking the operator.

        Raises:
            ToolError: ``permission_failure``: the decision failed. The call does not run.
        """

    async def decide_hosts(
        self, requests: Sequence[HostRequest], call: ToolCall, ctx: ToolContext
    ) -> list[Verdict | HarnessError]:
        """Decide on a call for each of its hosts, before it runs on any of them.

        The default decides one host after the other.

        Args:
            requests: what each host would run.
            call: the call for all hosts, for the approver.
            ctx: the context of that call.

        Returns:
            The verdict of each host, or the error why its decision failed: the call does not run there.
        """
        found: list[Verdict | HarnessError] = []
        for one in requests:
            try:
                found.append(await self.decide(one.request, one.ctx))
            except HarnessError as error:
                found.append(error)
        return found

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


class ResultCacheBase(ABC):
    """Caches results of read-only calls until the target may have changed."""

    @abstractmethod
    async def get(self, call: ToolCall, ctx: ToolContext) -> ToolResult | None:
        """Return the cached result if it is still valid, else None."""

    @abstractmethod
    async def put(self, call: ToolCall, result: ToolResult, ctx: ToolContext) -> None:
        """Store a result."""

    @abstractmethod
    def changed(self, backend: str) -> None:
        """Drop all results of a target on which something may have changed."""


@dataclass(frozen=True, slots=True)
class Services:
    """Policy, audit log and other shared services. There is no default policy: the creator must choose one."""

    policy: Policy
    ledger: AuditLog
    redactor: Redactor
    outputs: OutputStoreBase | None = None
    results: ResultCacheBase | None = None
    hooks: tuple[Hook, ...] = ()
    middleware: tuple[Middleware, ...] = ()
    web: WebSettings = field(default_factory=WebSettings)
