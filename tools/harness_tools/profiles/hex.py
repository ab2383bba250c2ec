"""The tool profile ``hex``: the tools with the names and arguments of Hex."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from pydantic import Field, create_model, model_validator

from harness.toolkit import Arguments, Json, JsonObject, OutputLimit, ToolResult
from harness.toolkit.tool_profiles import RenderedResult, ToolAdapter, ToolProfile

from ..agents import type_choices, type_lines
from ..texts import SomeContent
from .forms import (
    ALONE,
    CommandResult,
    available_skills,
    denied_by_user,
    facts,
    file_text,
    items,
    joined,
    ran,
    searched,
    text_of,
)

__all__ = [
    "profile",
]


# -- The user, the web, agents and skills.


ICONS = {"pending": "☐", "in_progress": "⏳", "completed": "✅"}
LONGEST_TASK = 1_800


# -- the user


class _Option(Arguments):
    label: str = Field(description="The answer, in a few words")
    description: str = Field("", description="What choosing it means")


class _Question(Arguments):
    question: str = Field(description="The whole question")
    header: str = Field(description="A title of one or two words")
    options: list[_Option] = Field(min_length=2, max_length=4, description="The answers to choose from")
    multiSelect: bool = Field(False, description="Several may be chosen")


class _Ask(Arguments):
    questions: list[_Question] = Field(min_length=1, max_length=4, description="What to ask")

    @model_validator(mode="before")
    @classmethod
    def _no_answers(cls, values: Any) -> Any:
        """Drop answers: Hex's user interface put them here, but the model must not."""
        if isinstance(values, dict):
            return {name: value for name, value in values.items() if name != "answers"}
        return values


def _asked(args: _Ask) -> JsonObject:
    return {"questions": [_with_own_names(question.model_dump()) for question in args.questions]}


def _with_own_names(question: dict[str, Json]) -> Json:
    return {"multi_select" if name == "multiSelect" else name: value for name, value in question.items()}


def _responses(args: _Ask, result: ToolResult) -> RenderedResult | None:
    """Return the user's answers in Hex's format: each question with its answers, and ``Other:`` before free text."""
    if result.is_error:
        return None
    lines = [f"{text_of(one, 'question')}: {', '.join(_answers(one))}" for one in items(facts(result), "answers")]
    return RenderedResult("\n".join(["User responses:", "", *lines]))


def _answers(answered: Mapping[str, Json]) -> Iterator[str]:
    chosen, other = answered.get("chosen"), text_of(answered, "other")
    yield from (str(label) for label in (chosen if isinstance(chosen, list) else ()))
    if other:
        yield f"Other: {other}"


ASK = ToolAdapter(
    tool="ask_user_question",
    name="ask_user_question",
    description="Ask the user one to four questions with answers to choose from, and wait.",
    arguments=_Ask,
    more=_asked,
    told={"questions": "questions", "multiSelect": "multi_select"},
    render=_responses,
)


class _Todo(Arguments):
    content: str = Field(description="What is to be done")
    activeForm: str = Field(description="Its name while it is in progress")
    status: Literal["pending", "in_progress", "completed"] = Field(description="Its state")


class _Todos(Arguments):
    todos: list[_Todo] = Field(min_length=1, description="The whole list")


def _listed(args: _Todos) -> JsonObject:
    return {
        "todos": [
            {"content": todo.content, "active_form": todo.activeForm or None, "status": todo.status}
            for todo in args.todos
        ]
    }


def _icons(args: _Todos, result: ToolResult) -> RenderedResult | None:
    if result.is_error:
        return None
    return RenderedResult("\n".join(_line(text_of(one, "status"), one) for one in items(facts(result), "todos")))


def _line(status: str, todo: Any) -> str:
    name = "active_form" if status == "in_progress" else "content"
    return f"{ICONS[status]} {text_of(todo, name) or text_of(todo, 'content')}"


TODO = ToolAdapter(
    tool="todo_write",
    name="todo_write",
    description="Write the to-do list, as a whole each time.",
    arguments=_Todos,
    more=_listed,
    told={"todos": "todos", "activeForm": "active_form"},
    render=_icons,
)


class _Skill(Arguments):
    command: str = Field(description="The skill's name")


SKILL = ToolAdapter(
    tool="skill",
    name="Skill",
    description="Load the instructions of a skill.",
    arguments=_Skill,
    fields={"command": "name"},
    further=available_skills,
)


# -- the web


class _Fetch(Arguments):
    url: str = Field(description="URL, http or https")
    prompt: str = Field(description="What you want to know")


FETCH = ToolAdapter(
    tool="fetch_url",
    name="web_fetch",
    description="Fetch a page from the web as Markdown.",
    arguments=_Fetch,
    fields={"url": "url", "prompt": "prompt"},
)


class _Search(Arguments):
    query: str = Field(description="What to search for")
    limit: int = Field(10, ge=1, description="Maximum number of results")
    allowed_domains: list[str] = Field([], description="Only results of these domains")
    blocked_domains: list[str] = Field([], description="No results of these domains")


SEARCH = ToolAdapter(
    tool="web_search",
    name="web_search",
    description="Search the web.",
    arguments=_Search,
    fields={name: name for name in _Search.model_fields},
)


# -- agents


class _Task(Arguments):
    prompt: str = Field(description="The task")
    description: str = Field(description="A short title")
    subagent_type: str = Field(description="Kind of agent")
    model: str | None = Field(None, description="The model to use")
    resume: str | None = Field(None, description="The agent to resume")
    timeout: float = Field(300, gt=0, description=f"Seconds, {LONGEST_TASK} at most")


TYPE_NAMES = {"general": "general-purpose", "explore": "Explore", "plan": "Plan", "reviewer": "code-reviewer"}
TASK = ToolAdapter(
    tool="task",
    name="task",
    description="Give a task to a sub-agent, and return its last message.",
    arguments=_Task,
    fields={name: name for name in _Task.model_fields if name != "timeout"},
    more=lambda args: {"timeout": math.ceil(min(args.timeout, LONGEST_TASK))},
    told={"timeout": "timeout"},
    further=lambda tool: type_lines(tool, TYPE_NAMES),
    choices=lambda tool: type_choices(tool, TYPE_NAMES),
)

FACES: tuple[ToolAdapter[Any], ...] = (ASK, TODO, SKILL, FETCH, SEARCH, TASK)


# -- Files, commands and search, and the whole profile.
#
# Intended differences: the output of a command is shown also if it fails or is ended, an existing file must be read
# before it is overwritten, and the output of a killed command stays readable.


SLICE = 60_000
"""Maximum bytes of a file that one call shows."""
READ_SHOWN = 12_000
TIMEOUT = 30
LONGEST = 300
MATCHES = 1_000
NAMES = 10_000
NOTHING = "(no output)"
AGENT_DEPTH = 5
"""``DefaultMaxAgentDepth`` of Hex."""


def _failed(text: str) -> str:
    return f"Error: {text}"


# -- files


class _Read(Arguments):
    path: str = Field(description="Path of the file")
    offset: int = Field(0, description="Byte to start at")
    limit: int | None = Field(None, description="Maximum number of bytes")


def _part(args: _Read) -> JsonObject:
    limit = READ_SHOWN if args.limit is None else args.limit
    return {"byte_offset": max(0, args.offset), "byte_limit": min(max(1, limit), SLICE)}


def _file(args: _Read, result: ToolResult) -> RenderedResult | None:
    if result.is_error:
        return None
    if args.limit is not None and args.limit <= 0:
        return RenderedResult(NOTHING)
    text, note = file_text(result)
    found = facts(result)
    start, end, size = (found.get(name) for name in ("from_byte", "to_byte", "size"))
    if not text and note and end != size:
        return RenderedResult(note)
    all_of_it = end == size or (args.limit is not None and end == _wanted(args))
    rest = f"[bytes {start} to {end} of {size}; continue with offset={end}]" if note and not all_of_it else ""
    return RenderedResult((joined(text, rest) if rest else text) or NOTHING)


def _wanted(args: _Read) -> int:
    return max(0, args.offset) + (args.limit or 0)


READ = ToolAdapter(
    tool="read_file",
    name="read_file",
    description="Read a text file, or a part of it by bytes.",
    arguments=_Read,
    fields={"path": "path"},
    more=_part,
    told={"offset": "byte_offset", "limit": "byte_limit"},
    render=_file,
)


class _Write(Arguments):
    path: str = Field(description="Path of the file")
    content: str = Field(description="New content")
    mode: Literal["create", "overwrite", "append"] = Field(
        "create", description="create: only if it does not exist; overwrite: only if it was read; append"
    )


def _written(args: _Write, result: ToolResult) -> RenderedResult | None:
    if result.error_code == "file_exists":
        return RenderedResult(_failed(f"file already exists: {args.path}; use mode 'overwrite'"), is_error=True)
    if result.is_error:
        return None
    return RenderedResult(f"Wrote {facts(result)['bytes_written']} bytes to {args.path}")


WRITE = ToolAdapter(
    tool="write_file",
    name="write_file",
    description="Write a file, creating missing directories.",
    arguments=_Write,
    fields={"path": "path", "content": "content", "mode": "mode"},
    render=_written,
)


class _Edit(Arguments):
    file_path: str = Field(description="Path of the file")
    old_string: SomeContent = Field(description="Text to replace; it must be unique unless replace_all is set")
    new_string: str = Field(description="New text")
    replace_all: bool = Field(False, description="Replace every occurrence")


EDIT = ToolAdapter(
    tool="edit",
    name="edit",
    description="Replace text in a file, exactly.",
    arguments=_Edit,
    fields={"file_path": "path"} | {name: name for name in ("old_string", "new_string", "replace_all")},
    limit=OutputLimit(5_000, 0),
)


# -- commands


class _Bash(Arguments):
    command: str = Field(description="Shell command")
    timeout: float = Field(TIMEOUT, gt=0, description=f"Timeout in seconds, at most {LONGEST}")
    working_dir: str | None = Field(None, description="Directory to run it in")
    run_in_background: bool = Field(False, description="Return at once; bash_output shows the output")


def _command(args: _Bash) -> JsonObject:
    if args.run_in_background:
        return {"run_in_background": True, **ALONE}
    return {"timeout": min(args.timeout, LONGEST), "on_timeout": "kill", **ALONE}


def _output(args: _Bash, result: ToolResult) -> RenderedResult | None:
    done = ran(result)
    if done is None:
        return denied_by_user(result, _failed("user denied permission"))
    if done.ended and done.exit_code == 0:
        return RenderedResult(joined(_streams(done) or NOTHING, *done.notices))
    if done.status == "running":
        started = "Started in the background" if args.run_in_background else result.text.partition("\n")[0]
        return RenderedResult(
            joined(f"{started}\nbash_id: {done.job_id}\nstatus: running", _streams(done), *done.notices)
        )
    why = f"command exited with code {done.exit_code}" if done.ended else result.text.partition("\n")[0]
    return RenderedResult(joined(_failed(why), _streams(done), *done.notices), is_error=True)


def _streams(done: CommandResult) -> str:
    return _sections(done.stdout, done.stderr)


def _sections(stdout: str, stderr: str) -> str:
    named = (("STDOUT", stdout), ("STDERR", stderr))
    return "\n\n".join(f"{name}:\n{text.removesuffix(chr(10))}" for name, text in named if text)


BASH = ToolAdapter(
    tool="run_shell",
    name="bash",
    description="Run a command with sh -c in a fresh shell and return its output.",
    arguments=_Bash,
    fields={"command": "command", "working_dir": "cwd"},
    more=_command,
    told={"timeout": "timeout", "run_in_background": "run_in_background"},
    render=_output,
    limit=OutputLimit(8_000, 4_000),
)


class _BashOutput(Arguments):
    bash_id: str = Field(description="The id from bash")
    filter: str | None = Field(None, description="Only lines that match this regular expression")


def _new_output(args: _BashOutput, result: ToolResult) -> RenderedResult | None:
    if result.is_error:
        return None
    found = facts(result)
    streams = _sections(text_of(found, "stdout"), text_of(found, "stderr")) or NOTHING
    code = f"exit_code: {found['exit_code']}" if found.get("exit_code") is not None else ""
    return RenderedResult(joined(f"status: {found['status']}", code, streams, *_left(found)))


def _left(found: Mapping[str, Json]) -> Iterator[str]:
    if found.get("lines") != found.get("matches"):
        yield f"[{found.get('matches')} of {found.get('lines')} new lines match]"
    for name, what in (
        ("lost", "were dropped, because the output is too large"),
        ("unread", "are unread: the next call continues"),
    ):
        if found.get(name):
            yield f"[{found[name]} bytes {what}]"


BASH_OUTPUT = ToolAdapter(
    tool="bash_output",
    name="bash_output",
    description="Show the new output of a background command since the last call. The error about a "
    "bash_id that does not exist names those that do.",
    arguments=_BashOutput,
    fields={"bash_id": "bash_id", "filter": "filter"},
    render=_new_output,
)


class _KillShell(Arguments):
    shell_id: str = Field(description="The bash_id from bash")


KILL_SHELL = ToolAdapter(
    tool="kill_shell",
    name="kill_shell",
    description="End a background command, with everything that it started.",
    arguments=_KillShell,
    fields={"shell_id": "shell_id"},
)


# -- search

_OPTIONS: dict[str, Any] = {  # names that are not identifiers
    "pattern": (str, Field(description="Regular expression")),
    "path": (str, Field(".", description="File or directory to search")),
    "output_mode": (
        Literal["files_with_matches", "content", "count"],
        Field("files_with_matches", description="What is shown of matching files"),
    ),
    "-i": (bool, Field(False, description="Ignore case")),
    "-A": (int | None, Field(None, ge=0, description="Lines shown after each match, with content")),
    "-B": (int | None, Field(None, ge=0, description="Lines shown before each match, with content")),
    "-C": (int | None, Field(None, ge=0, description="Lines shown around each match, with content")),
    "glob": (str | None, Field(None, description="Only files whose names match")),
    "type": (str | None, Field(None, description="Only files of this type, such as py or go")),
}
_Grep = create_model("_Grep", __base__=Arguments, **_OPTIONS)
GREP_FIELDS = {
    **{name: name for name in ("pattern", "path", "output_mode", "type")},
    "-i": "case_insensitive",
    "-A": "after",
    "-B": "before",
    "-C": "context",
    "glob": "include",
}


def _no_output(args: Arguments, result: ToolResult) -> RenderedResult | None:
    return searched(result, NOTHING)


GREP = ToolAdapter(
    tool="grep",
    name="grep",
    description="Search files with a regular expression. Hidden files, .git, node_modules and the like, and "
    "files ignored by .gitignore are not searched.",
    arguments=_Grep,
    fields=GREP_FIELDS,
    more=lambda args: {"max_results": MATCHES},
    render=_no_output,
    limit=OutputLimit(5_000, 300),
)


class _Glob(Arguments):
    pattern: str = Field(description="Pattern of paths; ** matches any number of directories")
    path: str = Field(".", description="Directory to start from")


GLOB = ToolAdapter(
    tool="glob",
    name="glob",
    description="Find files by a pattern, the newest first.",
    arguments=_Glob,
    fields={"pattern": "pattern", "path": "path"},
    more=lambda args: {"max_results": NAMES, "include_hidden": True, "no_default_excludes": True},
    render=_no_output,
    limit=OutputLimit(3_000, 300),
)


def profile() -> ToolProfile:
    """Return the profile."""
    own = (READ, WRITE, EDIT, BASH, BASH_OUTPUT, KILL_SHELL, GREP, GLOB)
    return ToolProfile("hex", (*own, *FACES), _failed, AGENT_DEPTH)
