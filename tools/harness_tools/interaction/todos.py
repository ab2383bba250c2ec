"""The list of things to do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Literal

from pydantic import AliasChoices, Field

from harness.toolkit import Arguments, OutputLimit, Tool, ToolContext, ToolResult, Traits
from harness.toolkit.events import TodoChanged
from harness.toolkit.notebook import Todo, TodoStatus, todos_json

from .books import notebook_of
from .texts import Label, Note

__all__ = ["TodoWrite"]

DESCRIPTION = """\
Write the list of things to do in this session, all of it each time; an empty list clears it. People see it. Use it \
for work of several steps, and say at once when a step begins and when it is done."""
MARKS = {
    TodoStatus.PENDING: "[ ]",
    TodoStatus.IN_PROGRESS: "[>]",
    TodoStatus.COMPLETED: "[x]",
    TodoStatus.CANCELLED: "[-]",
}
MOST = 100


class _Todo(Arguments):
    content: Note = Field(description="what is to be done")
    status: Literal["pending", "in_progress", "completed", "cancelled"] = Field(description="how far it is")
    active_form: Label | None = Field(
        None,
        description="how it is called while it is done: Running the tests",
        validation_alias=AliasChoices("active_form", "activeForm"),
    )
    priority: Literal["high", "medium", "low"] | None = Field(None, description="how much it matters")

    def redacted(self, redact: Callable[[str], str]) -> Todo:
        active = redact(self.active_form) if self.active_form else ""
        return Todo(redact(self.content), TodoStatus(self.status), active, self.priority or "")


class _Arguments(Arguments):
    todos: list[_Todo] = Field(
        max_length=MOST, description="the whole list", validation_alias=AliasChoices("todos", "items")
    )


class TodoWrite(Tool[_Arguments]):
    """``todo_write``."""

    def __init__(self) -> None:
        traits = Traits(
            aliases=("todo", "TaskList", "TodoWrite"), packs=("interaction",), limit=OutputLimit(30_000, 15_000)
        )
        super().__init__("todo_write", DESCRIPTION, _Arguments, traits)

    async def run(self, args: _Arguments, ctx: ToolContext) -> ToolResult:
        todos = [todo.redacted(ctx.redactor.text) for todo in args.todos]
        await notebook_of(ctx).set_todos(ctx.session_id, todos)
        listed = todos_json(todos)
        ctx.publish(TodoChanged(todos=listed))
        ctx.progress(f"{_text(todos)}\n", "note")
        counts = {status.value: count for status, count in Counter(todo.status for todo in todos).items()}
        return ToolResult.of(_text(todos), data={"todos": listed, "counts": dict(counts)})


def _text(todos: Sequence[Todo]) -> str:
    if not todos:
        return "The list is empty"
    done = sum(todo.status is TodoStatus.COMPLETED for todo in todos)
    return "\n".join([f"{done} of {len(todos)} done", *(f"{MARKS[todo.status]} {_line(todo)}" for todo in todos)])


def _line(todo: Todo) -> str:
    called = todo.active_form if todo.status is TodoStatus.IN_PROGRESS and todo.active_form else todo.content
    return f"{called} ({todo.priority})" if todo.priority else called
