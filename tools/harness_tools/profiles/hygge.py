"""The tool profile ``hygge``: the tools with the names and arguments of Hygge.

Intended differences: a file that changed since it was read is not overwritten, the output of a command at its timeout
is shown, and standard error follows standard output. ``recall`` is an addition: memories are shown to the model on
request instead of in its instructions.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from harness.toolkit import Arguments, Json, JsonObject, ToolResult
from harness.toolkit.tool_profiles import RenderedResult, ToolAdapter, ToolProfile

from ..agents import type_choices, type_lines
from ..texts import Label, Note
from .forms import ALONE, available_skills, facts, file_text, joined, ran, searched

__all__ = ["profile"]

LINES = 2_000
TIMEOUT = 30_000
LONGEST = 600_000
MEBI = 1 << 20
TAB = "\t"
"""Follows the number of a line."""


# -- files


class _Read(Arguments):
    path: str = Field(description="Path of the file")
    offset: int = Field(1, ge=1, description="First line")
    limit: int = Field(LINES, ge=1, description="Maximum number of lines")
    byte_offset: int | None = Field(
        None,
        ge=0,
        description="Byte to start at instead, for the rest of a line that is too long; without line numbers",
    )


def _numbered(args: _Read, result: ToolResult) -> RenderedResult | None:
    if result.is_error:
        return None
    text, note = file_text(result)
    if args.byte_offset is not None:
        return RenderedResult(joined(text, note))
    first = facts(result)["from_line"]
    assert isinstance(first, int)
    lines = text.removesuffix("\n").split("\n") if text else []
    shown = (f"{first + number}: {line.partition(TAB)[2]}" for number, line in enumerate(lines))
    return RenderedResult("\n".join([*shown, *([note] if note else [])]))


READ = ToolAdapter(
    tool="read_file",
    name="read",
    description="Read a text file; each line starts with its number. Files must be read before they are changed.",
    arguments=_Read,
    fields={name: name for name in _Read.model_fields},
    more=lambda args: {
        "line_numbers": args.byte_offset is None
    },  # longer than this profile's numbers, so that everything read is shown
    render=_numbered,
)


class _Write(Arguments):
    path: str = Field(description="Path of the file")
    content: str = Field(description="New content")


WRITE = ToolAdapter(
    tool="write_file",
    name="write",
    description="Write a file, creating missing directories. An existing file must have been read in this session.",
    arguments=_Write,
    fields={name: name for name in _Write.model_fields},
)


class _Edit(Arguments):
    path: str = Field(description="Path of the file")
    oldString: str = Field(description="Text to replace, exactly; it must be unique unless replaceAll is set")
    newString: str = Field(description="New text")
    replaceAll: bool = Field(False, description="Replace every occurrence")


EDIT = ToolAdapter(
    tool="edit",
    name="edit",
    description="Replace text in a file that was read in this session.",
    arguments=_Edit,
    fields={"path": "path", "oldString": "old_string", "newString": "new_string", "replaceAll": "replace_all"},
)


# -- commands


class _Bash(Arguments):
    command: str = Field(description="Shell command")
    timeout_ms: int = Field(TIMEOUT, ge=1, le=LONGEST, description="Timeout in milliseconds")
    description: str | None = Field(None, description="What it does, shown to the user for approval")


def _output(args: _Bash, result: ToolResult) -> RenderedResult | None:
    done = ran(result)
    if done is None:
        return None
    output = joined(done.stdout, done.stderr, *done.notices)
    if done.ended and done.exit_code == 0:
        return RenderedResult(output)
    why = f"command exited with code {done.exit_code}" if done.ended else result.text.partition("\n")[0]
    return RenderedResult(joined(output, why), is_error=result.is_error)


BASH = ToolAdapter(
    tool="run_shell",
    name="bash",
    description="Run a command with sh -c in a fresh shell and return its output.",
    arguments=_Bash,
    fields={"command": "command", "description": "description"},
    more=lambda args: {"timeout": args.timeout_ms / 1000, "on_timeout": "kill", **ALONE},
    told={"timeout_ms": "timeout"},
    render=_output,
)


# -- search


class _Grep(Arguments):
    pattern: str = Field(description="Regular expression")
    path: str | None = Field(None, description="File or directory to search")
    include: str | None = Field(None, description="Only files whose names match this pattern")
    max_results: int = Field(100, ge=1, le=1_000, description="Maximum number of matches")


def _matches(args: Arguments, result: ToolResult) -> RenderedResult | None:
    return searched(result, "no matches")


GREP = ToolAdapter(
    tool="grep",
    name="grep",
    description="Search files with a regular expression; each match is path:line:text. Hidden files, .git, "
    "node_modules and the like, and files ignored by .gitignore are not searched.",
    arguments=_Grep,
    fields={name: name for name in _Grep.model_fields},
    more=lambda args: {"output_mode": "content"},
    render=_matches,
)


class _Glob(Arguments):
    pattern: str = Field(description="Pattern of paths; ** matches any number of directories")
    path: str | None = Field(None, description="Directory to start from")
    max_results: int = Field(500, ge=1, le=10_000, description="Maximum number of files")


GLOB = ToolAdapter(
    tool="glob",
    name="glob",
    description="Find files by a pattern, the newest first. Hidden files, .git, node_modules and the like, and "
    "files ignored by .gitignore are not shown.",
    arguments=_Glob,
    fields={name: name for name in _Glob.model_fields},
    more=lambda args: {"sort": "mtime"},
    render=_matches,
)


# -- the web, the user, the session


class _Fetch(Arguments):
    url: str = Field(description="URL, http or https")
    max_bytes: int = Field(MEBI, ge=1, le=5 * MEBI, description="Maximum number of bytes")


FETCH = ToolAdapter(
    tool="fetch_url",
    name="webfetch",
    description="Fetch a page from the web. Its content is untrusted.",
    arguments=_Fetch,
    fields={name: name for name in _Fetch.model_fields},
)


class _Todo(Arguments):
    content: str = Field(description="What is to be done")
    status: Literal["pending", "in_progress", "completed", "cancelled"] = Field(description="Its state")
    priority: Literal["high", "medium", "low"] | None = Field(None, description="Its priority")


class _Todos(Arguments):
    items: list[_Todo] = Field(description="The whole list; an empty one clears it")


TODO = ToolAdapter(
    tool="todo_write",
    name="todo",
    description="Write the to-do list, as a whole each time.",
    arguments=_Todos,
    fields={"items": "todos"},
)


class _Question(Arguments):
    question: Note = Field(description="What to ask")
    options: list[Label] = Field(min_length=2, max_length=9, description="The answers to choose from")

    @field_validator("options")
    @classmethod
    def _different(cls, options: list[str]) -> list[str]:
        if len(set(options)) < len(options):
            raise ValueError("two options are the same")
        return options


def _asked(args: _Question) -> JsonObject:
    options: list[Json] = list(args.options)
    return {"questions": [{"question": args.question, "options": options}]}


def _answer(args: _Question, result: ToolResult) -> RenderedResult | None:
    return None if result.is_error else RenderedResult(result.text.removeprefix(f"{args.question}: "))


QUESTION = ToolAdapter(
    tool="ask_user_question",
    name="question",
    description="Ask the user to choose, and return the answer.",
    arguments=_Question,
    more=_asked,
    told={"question": "questions"},
    render=_answer,
)


class _Remember(Arguments):
    content: str = Field(description="One fact")
    scope: Literal["session", "project", "global"] = Field("session", description="Where it applies")
    confirmed_by_user: bool = Field(False, description="The user asked to remember this")


REMEMBER = ToolAdapter(
    tool="remember",
    name="remember",
    description="Store a fact, which recall shows. Never a secret.",
    arguments=_Remember,
    fields={name: name for name in _Remember.model_fields},
)


class _Forget(Arguments):
    memory_id: str = Field(description="The memory's id")
    scope: Literal["session", "project", "global"] = Field("session", description="Its scope")


FORGET = ToolAdapter(
    tool="forget",
    name="forget",
    description="Delete a memory.",
    arguments=_Forget,
    fields={name: name for name in _Forget.model_fields},
)


class _Recall(Arguments):
    scope: Literal["session", "project", "global"] | None = Field(None, description="Only those of this scope")
    query: str = Field("", description="Only those that contain this text")


RECALL = ToolAdapter(
    tool="recall",
    name="recall",
    description="Show the stored memories, of this session and earlier ones.",
    arguments=_Recall,
    fields={name: name for name in _Recall.model_fields},
)


class _Skill(Arguments):
    name: str = Field(description="The skill's name")


SKILL = ToolAdapter(
    tool="skill",
    name="skill",
    description="Load the instructions of a skill.",
    arguments=_Skill,
    fields={"name": "name"},
    further=available_skills,
)


class _Nothing(Arguments):
    pass


COMPACT = ToolAdapter(
    tool="compact",
    name="compact",
    description="Replace the older messages of this conversation with a summary.",
    arguments=_Nothing,
)


class _Subagent(Arguments):
    subagent_type: str = Field(description="Kind of agent")
    description: str = Field(description="A short title of the mission")
    prompt: str = Field(description="The mission")


SUBAGENT = ToolAdapter(
    tool="task",
    name="subagent",
    description="Give a mission to a sub-agent, and return its last message.",
    arguments=_Subagent,
    fields={name: name for name in _Subagent.model_fields},
    further=type_lines,
    choices=type_choices,
)


def profile() -> ToolProfile:
    """Return the profile."""
    own = (READ, WRITE, EDIT, BASH, GREP, GLOB)
    return ToolProfile("hygge", (*own, FETCH, TODO, QUESTION, REMEMBER, RECALL, FORGET, SKILL, COMPACT, SUBAGENT))
