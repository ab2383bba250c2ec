"""What a tool is, and what its calls get."""

from __future__ import annotations

import re
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from ..deprecated_names import renamed_method
from .arguments import parse_arguments, schema_of
from .events import Event, EventBus, ToolCallProgress
from .interfaces import ReadVersions, Redactor, Spawner, Verdict
from .values import Category, JsonObject, ShownForm, Subject, ToolResult
from .web_settings import WebSettings

if TYPE_CHECKING:
    from ..context import ExecutionContext
    from .compaction import Compactor
    from .executor import Executor
    from .redaction.stream import ProgressStream
    from .registry import Registry
    from .session.notebook import Notebook
    from .session.questions import Questioner
    from .tool_profiles import AdaptedCall
    from .values import ToolCall

__all__ = [
    "HERE",
    "NAME",
    "A",
    "Arguments",
    "CallNotes",
    "FunctionTool",
    "Intent",
    "MutatingArguments",
    "OutputLimit",
    "Tool",
    "ToolContext",
    "Traits",
    "tool",
]


# -- What a tool is given beside its arguments.


PARTIAL_KEPT = 32 << 10
"""Characters of progress that are kept for a call that does not come to its result."""


@dataclass(slots=True, eq=False, weakref_slot=True)
class CallNotes:
    """What a running tool tells the executor beside its result."""

    job_id: str = ""
    """The job on the target that does the work: after a lost link the ledger asks it for the outcome."""
    begun: bool = False
    """The tool was started: from then on it may have changed something."""
    waited: float = 0.0
    """Seconds for which it waited for somebody's leave."""
    requested: ToolCall | None = None
    """The call as it may be shown, once its arguments are known to be valid."""
    shown: str = ""
    """The end of the progress that was shown so far, redacted."""
    streams: dict[str, ProgressStream] = field(default_factory=dict)
    """What redacts each stream of progress: it holds back what may be the beginning of a secret."""
    redactor: Redactor | None = None
    """Redacts the progress of this call instead of the executor's."""
    on_job: Callable[[str], None] | None = None
    """Told at once which job it is, so that the ledger knows also when harness is killed."""
    judge: Callable[[tuple[Subject, ...]], Awaitable[Verdict]] | None = None
    """Asks the policy about what the running call comes to touch."""
    keys_command: Subject | None = None
    """The command that the policy has judged instead of the keys of this call: it is run, and nothing is typed."""
    faced: AdaptedCall | None = None
    """How a profile shows the call to the model."""

    @property
    def partial(self) -> str:
        """The end of what it produced so far, for a call that is cancelled or runs out of time."""
        return (self.shown + "".join(stream.rest for stream in self.streams.values()))[-PARTIAL_KEPT:]


@dataclass(frozen=True, slots=True)
class ToolContext:
    """One call's surroundings. Everything on the target goes through ``execution``, and through nothing else.

    ``registry`` has the tools under their own names, ``offered`` as the model knows them; without a profile, and where
    ``offered`` is None, they are the same.
    ``cwd`` is the directory that relative paths of the call start from; None is the context's own.
    ``depth`` is 0 for the first agent and grows by one with each sub-agent.
    """

    execution: ExecutionContext
    registry: Registry
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
    spawner: Spawner | None = None
    offered: Registry | None = None
    handoff: float | None = None
    """Seconds after which a tool that can leave its work running does so and returns what names it, without an error:
    whoever asked would not wait any longer. None waits as long as the arguments say."""
    questioner: Questioner | None = None
    """Who asks the user; None: there is no user to ask."""
    notebook: Notebook | None = None
    """Things to do and memories."""
    compactor: Compactor | None = None
    """Who keeps the conversation and can shorten it."""
    web: WebSettings = field(default_factory=WebSettings)
    executor: Executor | None = None
    """What runs this call: the executor of a sub-agent is made from it."""
    clock: Callable[[], float] = time.time
    notes: CallNotes = field(default_factory=CallNotes)

    @property
    def shown(self) -> ShownForm:
        """In which form the model gets the result: a tool that is read on from an offset fills it, and no more."""
        return ShownForm() if self.notes.faced is None else self.notes.faced.form

    def progress(self, text: str, stream: Literal["stdout", "stderr", "note"] = "stdout") -> None:
        """Show people a piece of output while the call runs; models never see it.

        A piece of ``stdout`` or ``stderr`` may end anywhere: what could be the beginning of a secret is shown with
        what follows it. A note is whole.
        """
        if stream == "note":
            self._show((self.notes.redactor or self.redactor).text(text), stream)
        else:
            self._show(self._progress(stream).feed(text), stream)

    def skip_progress(self, stream: Literal["stdout", "stderr"] = "stdout") -> None:
        """The next piece of a stream does not follow the last one: what is between them is not shown."""
        self._progress(stream).skip()

    def _progress(self, stream: str) -> ProgressStream:
        from .redaction.stream import ProgressStream

        if stream not in self.notes.streams:
            self.notes.streams[stream] = ProgressStream(self.notes.redactor or self.redactor)
        return self.notes.streams[stream]

    def finish_progress(self) -> None:
        """Show what was held back; the executor does this when the tool has ended."""
        for stream in ("stdout", "stderr"):
            if stream in self.notes.streams:
                self._show(self.notes.streams[stream].flush(), stream)

    def _show(self, text: str, stream: Literal["stdout", "stderr", "note"]) -> None:
        if text:
            self.notes.shown = (self.notes.shown + text)[-PARTIAL_KEPT:]
            self.events.publish(ToolCallProgress(call_id=self.call_id, text=text, stream=stream))

    async def permitted(self, subjects: tuple[Subject, ...]) -> Verdict:
        """What the policy says of what the call comes to touch while it runs, such as where a redirect leads.

        Raises:
            ToolError: it could not be found out.
        """
        if self.notes.judge is None:
            return Verdict(False, "nobody judges what the call comes to touch", "no policy")
        return await self.notes.judge(subjects)

    async def unreadable_paths(
        self, paths: Collection[str], *, top: str, holders: Collection[str] | None = None
    ) -> frozenset[str]:
        """Return the found files of which nothing may be shown; see :meth:`Policy.unreadable_paths`."""
        if self.executor is None or not paths:
            return frozenset()
        return await self.executor.services.policy.unreadable_paths(paths, self, top=top, holders=holders)

    async def unwritable_paths(self, paths: Collection[str], *, tool: str) -> frozenset[str]:
        """Return the found files that a tool may not change or move; see :meth:`Policy.unwritable_paths`."""
        if self.executor is None or not paths:
            return frozenset()
        return await self.executor.services.policy.unwritable_paths(paths, self, tool=tool)

    def publish(self, event: Event) -> None:
        """Publish an event of this session."""
        self.events.publish(event)

    def started_job(self, job_id: str) -> None:
        """Say which job on the target does the work of this call."""
        self.notes.job_id = job_id
        if self.notes.on_job is not None:
            self.notes.on_job(job_id)

    withheld = renamed_method("withheld", "unreadable_paths")
    locked = renamed_method("locked", "unwritable_paths")


# -- What a tool is: a name, a description, arguments as a pydantic model, traits, and one method that does the work.
#
# As a function::
#
#     class Uptime(Arguments):
#         '''Tell how long the target has been up.'''
#         pretty: bool = Field(False, description="in words")
#
#     @tool(Uptime, category=Category.SHELL, parallelizable=True)
#     async def uptime(args: Uptime, ctx: ToolContext) -> ToolResult:
#         done = await ctx.execution.run_shell("uptime -p" if args.pretty else "uptime")
#         return ToolResult.of(done.stdout)
#
# A tool with more to say (what it would touch, whether this call needs approval) is a subclass of :class:`Tool`.


NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""What every provider takes as a tool's name."""
HERE = "this machine"
"""Where harness runs, in the words of a question."""


class Arguments(BaseModel):
    """Base of a tool's arguments: unknown ones are refused, and nothing changes after validation.

    Other spellings that are taken on input and never advertised are the field's ``validation_alias``
    (``AliasChoices("path", "file_path")``, the canonical name first).
    """

    model_config = ConfigDict(
        extra="forbid", frozen=True, validate_by_name=True, validate_by_alias=True, defer_build=True
    )


class Intent(BaseModel):
    """What the caller says of a mutating call: shown to the approver, kept in the audit, never decided by."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    risk: Literal["low", "medium", "high"] | None = Field(None, description="how much harm this could do")
    mutation: bool | None = Field(None, description="whether it changes anything on the target")
    privesc: bool | None = Field(None, description="whether it uses the rights of another user (sudo, su)")
    why: str | None = Field(None, description="one sentence for the person who approves it")


class MutatingArguments(Arguments, Intent):
    """Base of the arguments of tools that change something."""


@dataclass(frozen=True, slots=True)
class OutputLimit:
    """How much of a result the model gets: characters, and how many of them from the end (0: only the head)."""

    characters: int = 15_000
    tail: int = 7_500


@dataclass(frozen=True, slots=True)
class Traits:
    """What is true of every call of a tool, unless :meth:`Tool.traits_of` says otherwise for one call."""

    category: Category = Category.NONE
    mutating: bool = False
    """It changes something: the ledger keeps it before it runs, and it asks by default."""
    parallelizable: bool = False
    """Several calls of one batch may run at once."""
    cacheable: bool = False
    timeout: float | None = None
    """Seconds until the call is cancelled; None leaves it to the tool."""
    requires: tuple[str, ...] = ()
    """Programs that the target must have, and ``tmux`` for a terminal."""
    aliases: tuple[str, ...] = ()
    """Other names under which it may be called; never advertised."""
    limit: OutputLimit = field(default_factory=OutputLimit)
    packs: tuple[str, ...] = ()
    """Sets that it belongs to (``core``, ``search``, ``dev``)."""
    libraries: tuple[str, ...] = ()
    """Modules that must be installed beside harness, by their top names; without them it is not offered."""
    extra: str = ""
    """What brings them, as ``pip install`` takes it."""


A = TypeVar("A", bound=BaseModel)


class Tool(ABC, Generic[A]):
    """A named operation with a schema. One instance serves every call; it keeps no state of a call.

    Args:
        name: letters, digits, ``_`` and ``-``, 64 at most.
        description: for the model; what it does, when to use it, what it returns.
        arguments: the model of its arguments.
    """

    def __init__(self, name: str, description: str, arguments: type[A], traits: Traits | None = None) -> None:
        if not NAME.fullmatch(name):
            raise ValueError(f"{name!r} is no name of a tool: use letters, digits, _ and -, 64 at most")
        self.name = name
        self.description = description
        self.arguments = arguments
        self.traits = traits or Traits()

    @property
    def own(self) -> Tool[Any]:
        """The tool that does the work: itself, unless a profile shows another one under this name."""
        return self

    @property
    def schema(self) -> JsonObject:
        """The JSON schema of the arguments, as models see it: a fresh object at each access."""
        return schema_of(self.arguments)

    def parse(self, raw: JsonObject) -> A:
        """Arguments from what a model wrote; texts that mean numbers or truth values are taken as such.

        Raises:
            ToolError: ``invalid_args``, with one line for each mistake.
        """
        return parse_arguments(self.arguments, raw, tool=self.name)

    def traits_of(self, args: A) -> Traits:
        """The traits of one call."""
        return self.traits

    def subjects(self, args: A) -> tuple[Subject, ...]:
        """What the call would touch, for the policy. The default is the call itself."""
        return (Subject("other", self.name),)

    def covered_arguments(self) -> frozenset[str]:
        """The arguments that :meth:`subjects` tell all about, so that nothing is left of them to judge."""
        return frozenset()

    def private_arguments(self, args: A) -> frozenset[str]:
        """The arguments that may hold a password without a form of its own.

        Hooks, events and the audit do not get them; people who are asked do, redacted. What is typed into a pane is
        known by its subject.
        """
        return frozenset()

    def preview(self, args: A) -> str | None:
        """What a question about the call shows beside its subjects, such as the text of a file that would be written.

        It is redacted and cut where it is shown. A lasting answer does not cover it: rules know the subjects alone.
        """
        return None

    def execution_place(self, args: A) -> str:
        """Where the work is done when that is not the target, such as :data:`HERE`: people who are asked have to know.

        The default is the target.
        """
        return ""

    def requires_approval(self, args: A) -> bool:
        """Whether the call asks when no rule decides."""
        return self.traits_of(args).mutating

    def paths(self, args: A) -> tuple[str, ...]:
        """The files on the target that the call changes: two calls that share one never run at once."""
        return tuple(subject.text for subject in self.subjects(args) if subject.kind == "write")

    @abstractmethod
    async def run(self, args: A, ctx: ToolContext) -> ToolResult:
        """Do it.

        Raises:
            ToolError: it could not be done at all. Other exceptions are bugs and become one.
        """


Work = Callable[[A, "ToolContext"], Awaitable[ToolResult]]


class FunctionTool(Tool[A]):
    """A tool made of a function."""

    def __init__(self, name: str, description: str, arguments: type[A], traits: Traits, work: Work[A]) -> None:
        super().__init__(name, description, arguments, traits)
        self._work = work

    async def run(self, args: A, ctx: ToolContext) -> ToolResult:
        return await self._work(args, ctx)


def tool(
    arguments: type[A], *, name: str = "", description: str = "", **traits: Any
) -> Callable[[Work[A]], FunctionTool[A]]:
    """Make a tool of a function: its name and description are the function's name and the arguments' docstring.

    ``traits`` are the fields of :class:`Traits`.
    """

    def make(work: Work[A]) -> FunctionTool[A]:
        text = description or (arguments.__doc__ or "").strip()
        called = name or getattr(work, "__name__", "")
        return FunctionTool(called, text, arguments, Traits(**traits), work)

    return make
