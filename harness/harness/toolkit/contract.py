"""What a tool is: a name, a description, arguments as a pydantic model, traits, and one method that does the work.

As a function::

    class Uptime(Arguments):
        '''Tell how long the target has been up.'''
        pretty: bool = Field(False, description="in words")

    @tool(Uptime, category=Category.SHELL, parallelizable=True)
    async def uptime(args: Uptime, ctx: ToolContext) -> ToolResult:
        done = await ctx.execution.run_shell("uptime -p" if args.pretty else "uptime")
        return ToolResult.of(done.stdout)

A tool with more to say (what it would touch, whether this call needs approval) is a subclass of :class:`Tool`.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from .arguments import parse_arguments, schema_of
from .values import Category, JsonObject, Subject, ToolResult

if TYPE_CHECKING:
    from .context import ToolContext

__all__ = [
    "HERE",
    "NAME",
    "A",
    "Arguments",
    "FunctionTool",
    "Intent",
    "MutatingArguments",
    "OutputLimit",
    "Tool",
    "Traits",
    "tool",
]

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

    def told(self) -> frozenset[str]:
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

    def place(self, args: A) -> str:
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
