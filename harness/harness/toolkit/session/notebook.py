"""What an agent writes down: things to do, for its session, and memories, for as long and as wide as their scope says.

A memory of a project holds for one directory of one target, one of a host for that target, a global one everywhere.
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
    from ..contract import ToolContext

__all__ = [
    "MEMORY_LIMIT",
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
"""Characters of one memory."""
_ID = re.compile(r"m?([1-9][0-9]{0,17})", re.ASCII)


class TodoStatus(StrEnum):
    """How far a thing to do is."""

    PENDING = "pending"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class Todo:
    """One thing to do. ``active_form`` is how it is called while it is done (``Running the tests``)."""

    content: str
    status: TodoStatus = TodoStatus.PENDING
    active_form: str = ""
    priority: str = ""


class MemoryScope(StrEnum):
    """How far a memory holds."""

    SESSION = "session"
    PROJECT = "project"
    HOST = "host"
    GLOBAL = "global"


@dataclass(frozen=True, slots=True)
class MemoryLocation:
    """Where a memory holds; what its scope does not need is empty. ``target`` is ``ExecutionContext.identity``."""

    scope: MemoryScope
    session_id: str = ""
    target: str = ""
    cwd: str = ""


@dataclass(frozen=True, slots=True)
class Memory:
    """One memory. ``number`` is unique for ever; ``created`` is in seconds since the epoch."""

    number: int
    place: MemoryLocation
    content: str
    created: float
    author: str = ""
    """The session that wrote it; empty is the operator."""

    @property
    def memory_id(self) -> str:
        """Its number as models and people write it: ``m12``."""
        return f"m{self.number}"


class NotebookFull(HarnessError):
    """There are as many memories in that place as it may hold; one must be forgotten first."""


class TodoStore(Protocol):
    """Keeps the to-do lists of sessions; for ``open_toolkit(todo_store=...)``.

    A method raises :class:`~harness.errors.HarnessError` when the store cannot be read or written; the tool then fails
    with its message. Methods of one store may be awaited at the same time, for several sessions.
    """

    async def todos(self, session_id: str) -> Sequence[Todo]:
        """Return the list of a session, in its order; empty when there is none."""

    async def set_todos(self, session_id: str, todos: Sequence[Todo]) -> None:
        """Replace the list of a session; an empty one clears it."""


class MemoryStore(Protocol):
    """Keeps memories; for ``open_toolkit(memory_store=...)``.

    The tools have checked the text (:func:`memory_text`), refused secrets, and asked where the policy says so. The
    store keeps the memories of each location apart; a :class:`MemoryLocation` is hashable. Errors and concurrency are
    as in :class:`TodoStore`.
    """

    async def remember(self, place: MemoryLocation, content: str, *, author: str = "") -> Memory:
        """Keep a memory with a number that no other has, or return the one with the same place and content.

        Raises:
            NotebookFull: the place holds no more.
        """

    async def forget(self, number: int, place: MemoryLocation | None = None) -> Memory | None:
        """Remove the memory of that number, if it is in that place; without ``place`` wherever it is.

        Returns:
            The memory that was removed, or None if there was none.
        """

    async def memories(self, places: Sequence[MemoryLocation] | None = None) -> Sequence[Memory]:
        """Return the memories of these places, or without ``places`` all there are, the oldest first."""


class Notebook(ABC):
    """Keeps them. What was written when a method returned is not lost, whatever becomes of this process.

    Every method raises :class:`~harness.errors.HarnessError` when the notebook cannot be read or written.
    """

    @abstractmethod
    async def todos(self, session_id: str) -> tuple[Todo, ...]:
        """The list of a session; empty when there is none."""

    @abstractmethod
    async def set_todos(self, session_id: str, todos: Sequence[Todo]) -> None:
        """Replace the list of a session; an empty one clears it."""

    @abstractmethod
    async def remember(self, place: MemoryLocation, content: str, *, author: str = "") -> Memory:
        """Keep a memory; one that is there already is returned as it is.

        Raises:
            NotebookFull: the place holds no more.
        """

    @abstractmethod
    async def forget(self, number: int, place: MemoryLocation | None = None) -> Memory | None:
        """Remove a memory, in that place or wherever it is; returns it, or None when there was none."""

    @abstractmethod
    async def memories(self, places: Sequence[MemoryLocation] | None = None) -> tuple[Memory, ...]:
        """The memories of these places, or all there are, oldest first."""


class StoreNotebook(Notebook):
    """A notebook of two stores, each of which a program may have replaced by its own."""

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


def place_of(scope: MemoryScope, ctx: ToolContext) -> MemoryLocation:
    """The place that a scope means for a call: its session, its directory on its target, its target, or everywhere."""
    if scope is MemoryScope.SESSION:
        return MemoryLocation(scope, session_id=ctx.session_id)
    return place_at(scope, ctx.execution.identity, ctx.execution.capabilities.home, ctx.cwd)


def place_at(scope: MemoryScope, identity: str, home: str, cwd: str | None) -> MemoryLocation:
    """The place that a lasting scope means on a target; a relative ``cwd``, or none, starts from the home. Pure."""
    if scope is MemoryScope.GLOBAL:
        return MemoryLocation(scope)
    below = (cwd or "").removeprefix("~/") if cwd != "~" else ""
    directory = posixpath.normpath(posixpath.join(home or "/", below)) if scope is MemoryScope.PROJECT else ""
    return MemoryLocation(scope, target=identity, cwd=directory)


def memory_text(text: str) -> str:
    """A memory's text as it is kept.

    Raises:
        ValueError: it is empty, too long, or no text.
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"it holds {text[error.start]!a}, half of a surrogate pair, which is no text") from None
    if "\0" in text:
        raise ValueError("it holds a NUL")
    if not text.strip():
        raise ValueError("it is empty")
    if len(text) > MEMORY_LIMIT:
        raise ValueError(f"it is longer than {MEMORY_LIMIT} characters")
    return text.strip()


def memory_number(memory_id: str) -> int | None:
    """The number of a memory from how people and models write it: ``m12``, ``12``; None when it is none. Pure."""
    match = _ID.fullmatch(memory_id.strip())
    return int(match[1]) if match else None


def todos_json(todos: Sequence[Todo]) -> Json:
    """Things to do as events and results have them. Pure."""
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
    """A memory as results and the command line have it. Pure."""
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
