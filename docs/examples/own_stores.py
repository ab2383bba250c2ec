"""To-do lists and memories in stores of your own. Usage: own_stores.py [TARGET]"""

import sys
import time
from collections.abc import Sequence

import anyio

import harness
from harness.toolkit import Memory, MemoryLocation, Todo, ToolCall, open_toolkit


# --8<-- [start:stores]
class Todos:
    """A TodoStore in memory."""

    def __init__(self) -> None:
        self.lists: dict[str, tuple[Todo, ...]] = {}

    async def todos(self, session_id: str) -> Sequence[Todo]:
        return self.lists.get(session_id, ())

    async def set_todos(self, session_id: str, todos: Sequence[Todo]) -> None:
        self.lists[session_id] = tuple(todos)


class Memories:
    """A MemoryStore in memory."""

    def __init__(self) -> None:
        self.kept: list[Memory] = []
        self.last = 0

    async def remember(self, place: MemoryLocation, content: str, *, author: str = "") -> Memory:
        for memory in self.kept:
            if (memory.place, memory.content) == (place, content):
                return memory
        self.last += 1  # a number is never used again
        self.kept.append(Memory(self.last, place, content, time.time(), author))
        return self.kept[-1]

    async def forget(self, number: int, place: MemoryLocation | None = None) -> Memory | None:
        for memory in self.kept:
            if memory.number == number and place in (None, memory.place):
                self.kept.remove(memory)
                return memory
        return None

    async def memories(self, places: Sequence[MemoryLocation] | None = None) -> Sequence[Memory]:
        return [memory for memory in self.kept if places is None or memory.place in places]


async def main(target: str) -> None:
    todos, memories = Todos(), Memories()
    async with (
        harness.connect(target) as execution,
        open_toolkit(todo_store=todos, memory_store=memories) as toolkit,
        toolkit.executor(execution, session_id="s1") as executor,
    ):
        await executor.call(ToolCall("todo_write", {"todos": [{"content": "restart nginx", "status": "pending"}]}))
        await executor.call(ToolCall("remember", {"content": "nginx serves port 8080", "why": "to know it later"}))
        recalled = await executor.call(ToolCall("recall", {}))
    print([todo.content for todo in todos.lists["s1"]])
    print(recalled.result.text)
    # --8<-- [end:stores]


anyio.run(main, sys.argv[1] if len(sys.argv) > 1 else "local:")
