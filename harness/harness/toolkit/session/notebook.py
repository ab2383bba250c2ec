"""An agent's notes: to-do lists for its session, and memories with a scope.

A memory of a project applies to one directory of one target, one of a host to that target, a global one everywhere.
"""

from __future__ import annotations

import posixpath
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

from ...deprecated_names import renamed_names
from ...errors import HarnessError
from ..values import Json

if TYPE_CHECKING:
    from ...context import ExecutionContext

__all__ = [
    "MEMORY_LIMIT",
    "CallLocation",
    "Memory",
    "MemoryLocation",
    "MemoryScope",
    "MemoryStore",
    "Notebook",
    "NotebookFull",
    "StoreNotebook",
    "Todo",
    "TodoStatus",
    "TodoStore",
    "memory_json",
    "memory_number",
    "memory_text",
    "place_at",
    "place_of",
    "todos_json",
]

if not TYPE_CHECKING:
    __getattr__ = renamed_names(__name__, Place="MemoryLocation")


MEMORY_LIMIT = 2_000
"""Maximum characters of one memory."""
_ID = re.compile(r"m?([1-9][0-9]{0,17})", re.ASCII)


class TodoStatus(StrEnum):
    """The progress of a to-do item."""

    PENDING = "pending"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class Todo:
    """A to-do item. ``active_form`` is its text while it is in progress (``Running the tests``)."""

    content: str
    status: TodoStatus = TodoStatus.PENDING
    active_form: str = ""
    priority: str = ""


class MemoryScope(StrEnum):
    """Where a memory applies."""

    SESSION = "session"
    PROJECT = "project"
    HOST = "host"
    GLOBAL = "global"


@dataclass(frozen=True, slots=True)
class MemoryLocation:
    """The location of a memory; fields that its scope does not use are empty. ``target`` is the target's identity."""

    scope: MemoryScope
    session_id: str = ""
    target: str = ""
    cwd: str = ""


@dataclass(frozen=True, slots=True)
class Memory:
    """One memory. ``number`` is never reused; ``created`` is a Unix time."""

    number: int
    place: MemoryLocation
    content: str
    created: float
    author: str = ""
    """The session that wrote it; empty means the operator."""

    @property
    def memory_id(self) -> str:
        """Its number as models and operators write it: ``m12``."""
        return f"m{self.number}"


class NotebookFull(HarnessError):
    """The location has its maximum number of memories; one must be deleted first."""


class TodoStore(Protocol):
    """Stores the to-do lists of sessions; for ``open_toolkit(todo_store=...)``.

    A method raises :class:`~harness.errors.HarnessError` if the store cannot be read or written; the tool then fails
    with its message. Methods of one store may be awaited at the same time, for several sessions.
    """

    async def todos(self, session_id: str) -> Sequence[Todo]:
        """Return the list of a session, in its order; empty without one."""

    async def set_todos(self, session_id: str, todos: Sequence[Todo]) -> None:
        """Replace the list of a session; an empty one clears it."""


class MemoryStore(Protocol):
    """Stores memories; for ``open_toolkit(memory_store=...)``.

    The tools have checked the text (:func:`memory_text`), refused secrets, and requested approval where the policy
    requires it. The store keeps the memories of each location apart; a :class:`MemoryLocation` is hashable. Errors and
    concurrency are as in :class:`TodoStore`.
    """

    async def remember(self, place: MemoryLocation, content: str, *, author: str = "") -> Memory:
        """Store a memory under a unique number, or return the one with the same location and content.

        Raises:
            NotebookFull: the location has its maximum number of memories.
        """

    async def forget(self, number: int, place: MemoryLocation | None = None) -> Memory | None:
        """Delete the memory of that number if it is in that location; without ``place`` in any location.

        Returns:
            The deleted memory, or None if there was none.
        """

    async def memories(self, places: Sequence[MemoryLocation] | None = None) -> Sequence[Memory]:
        """Return the memories of these locations, or without ``places`` all of them, oldest first."""


class Notebook(ABC):
    """Stores to-do lists and memories durably.

    Every method raises :class:`~harness.errors.HarnessError` if the notebook cannot be read or written.
    """

    @abstractmethod
    async def todos(self, session_id: str) -> tuple[Todo, ...]:
        """Return the list of a session; empty without one."""

    @abstractmethod
    async def set_todos(self, session_id: str, todos: Sequence[Todo]) -> None:
        """Replace the list of a session; an empty one clears it."""

    @abstractmethod
    async def remember(self, place: MemoryLocation, content: str, *, author: str = "") -> Memory:
        """Store a memory; an equal one that already exists is returned unchanged.

        Raises:
            NotebookFull: the location has its maximum number of memories.
        """

    @abstractmethod
    async def forget(self, number: int, place: MemoryLocation | None = None) -> Memory | None:
        """Delete a memory, in that location or any, and return it; None if there was none."""

    @abstractmethod
    async def memories(self, places: Sequence[MemoryLocation] | None = None) -> tuple[Memory, ...]:
        """Return the memories of these locations, or all of them, oldest first."""


class StoreNotebook(Notebook):
    """A notebook of two stores, each of which a program may replace by its own."""

    def __init__(self, todo_store: TodoStore, memory_store: MemoryStore) -> None:
        self._todos = todo_store
        self._memories = memory_store

    async def todos(self, session_id: str) -> tuple[Todo, ...]:
        """See :class:`TodoStore`."""
        return tuple(await self._todos.todos(session_id))

    async def set_todos(self, session_id: str, todos: Sequence[Todo]) -> None:
        """See :class:`TodoStore`."""
        await self._todos.set_todos(session_id, todos)

    async def remember(self, place: MemoryLocation, content: str, *, author: str = "") -> Memory:
        """See :class:`MemoryStore`."""
        return await self._memories.remember(place, content, author=author)

    async def forget(self, number: int, place: MemoryLocation | None = None) -> Memory | None:
        """See :class:`MemoryStore`."""
        return await self._memories.forget(number, place)

    async def memories(self, places: Sequence[MemoryLocation] | None = None) -> tuple[Memory, ...]:
        """See :class:`MemoryStore`."""
        return tuple(await self._memories.memories(places))


class CallLocation(Protocol):
    """Where a tool call is made; a :class:`~harness.toolkit.ToolContext` has these members."""

    @property
    def session_id(self) -> str:
        """The session that makes the call."""

    @property
    def execution(self) -> ExecutionContext:
        """The target."""

    @property
    def cwd(self) -> str | None:
        """The directory in which relative paths of the call start; None for the target's own."""


def place_of(scope: MemoryScope, ctx: CallLocation) -> MemoryLocation:
    """Return the location of a scope for a call: its session, directory, target, or everywhere."""
    if scope is MemoryScope.SESSION:
        return MemoryLocation(scope, session_id=ctx.session_id)
    return place_at(scope, ctx.execution.identity, ctx.execution.capabilities.home, ctx.cwd)


def place_at(scope: MemoryScope, identity: str, home: str, cwd: str | None) -> MemoryLocation:
    """Return the location of a lasting scope; a relative or missing ``cwd`` starts from the home directory. Pure."""
    if scope is MemoryScope.GLOBAL:
        return MemoryLocation(scope)
    below = (cwd or "").removeprefix("~/") if cwd != "~" else ""
    directory = posixpath.normpath(posixpath.join(home or "/", below)) if scope is MemoryScope.PROJECT else ""
    return MemoryLocation(scope, target=identity, cwd=directory)


def memory_text(text: str) -> str:
    """Return a memory's text as stored.

    Raises:
        ValueError: it is empty, too long, or not valid text.
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"it contains {text[error.start]!a}, a single surrogate") from None
    if "\0" in text:
        raise ValueError("it contains a NUL")
    if not text.strip():
        raise ValueError("it is empty")
    if len(text) > MEMORY_LIMIT:
        raise ValueError(f"it is longer than {MEMORY_LIMIT} characters")
    return text.strip()


def memory_number(memory_id: str) -> int | None:
    """Parse the number of a memory from ``m12`` or ``12``; None if it is invalid. Pure."""
    match = _ID.fullmatch(memory_id.strip())
    return int(match[1]) if match else None


def todos_json(todos: Sequence[Todo]) -> Json:
    """Return to-do items as events and results contain them. Pure."""
    return [
        {
            "content": todo.content,
            "status": todo.status.value,
            **({"active_form": todo.active_form} if todo.active_form else {}),
            **({"priority": todo.priority} if todo.priority else {}),
        }
        for todo in todos
    ]


def memory_json(memory: Memory) -> Json:
    """Return a memory as results and the command line contain it. Pure."""
    place = memory.place
    return {
        "memory_id": memory.memory_id,
        "scope": place.scope.value,
        "content": memory.content,
        "created": round(memory.created, 3),
        **({"target": place.target} if place.target else {}),
        **({"cwd": place.cwd} if place.cwd else {}),
        **({"session_id": place.session_id} if place.session_id else {}),
    }
