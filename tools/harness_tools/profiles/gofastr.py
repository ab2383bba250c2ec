"""The tool profile ``gofastr``: the tools with the names and arguments of GoFastr.

Intended differences: an existing file must be read before it is overwritten, ending a command also ends what it
started, and truncation is reported.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from harness.toolkit import Arguments, Json, JsonObject, ToolResult
from harness.toolkit.tool_profiles import RenderedResult, ToolAdapter, ToolProfile

from ..texts import readable_name
from .forms import ALONE, facts, file_text, items, joined, ran, searched, text_of

__all__ = ["profile"]

SLICE = 60_000
"""Maximum bytes of a file that one call shows."""
LINES = 2_000
TIMEOUT = 120_000
LONGEST = 600_000
MATCHES = 1_000
NAMES = 10_000
EVERYWHERE = {"include_hidden": True, "no_default_excludes": True}


# -- files


class _Read(Arguments):
    path: str = Field(description="Path of the file")
    offset: int = Field(0, ge=0, description="Byte to start at")
    limit: int | None = Field(None, ge=1, description="Maximum number of lines")


def _part(args: _Read) -> JsonObject:
    """Return a part by bytes in any case, because otherwise the result would continue with a line number."""
    fewer = LINES - 1  # LINES itself is the default, which is no limit when reading by bytes
    lines: dict[str, Json] = {} if args.limit is None else {"limit": fewer if args.limit == LINES else args.limit}
    return {"byte_offset": args.offset, "byte_limit": SLICE, **lines}


def _file(args: _Read, result: ToolResult) -> RenderedResult | None:
    if result.is_error:
        return None
    text, note = file_text(result)
    if not note:
        return RenderedResult(text)
    # only missing parts of the requested lines are reported; the following byte is the next offset
    end, size = facts(result).get("to_byte"), facts(result).get("size")
    if not isinstance(end, int) or not isinstance(size, int):
        return RenderedResult(joined(text, note))
    rest = f"[bytes {args.offset} to {end} of {size}; continue with offset={end}]" if end < size else ""
    return RenderedResult(joined(text, rest) if rest else text or note)


READ = ToolAdapter(
    tool="read_file",
    name="Read",
    description="Read a text file from a byte offset, up to a number of lines.",
    arguments=_Read,
    fields={"path": "path"},
    more=_part,
    told={"offset": "byte_offset", "limit": "limit"},
    render=_file,
)


class _Write(Arguments):
    path: str = Field(description="Path of the file")
    content: str = Field(description="New content")
    mode: int | None = Field(
        None, ge=0, le=0o777, description="Permission bits of a new file; 420 is 0644. An existing file keeps its own"
    )


def _written(args: _Write, result: ToolResult) -> RenderedResult | None:
    if result.is_error:
        return None
    return RenderedResult(f"wrote {facts(result)['bytes_written']} bytes to {args.path}")


WRITE = ToolAdapter(
    tool="write_file",
    name="Write",
    description="Write a file, creating missing directories. An existing file must have been read.",
    arguments=_Write,
    fields={"path": "path", "content": "content"},
    more=lambda args: {} if args.mode is None else {"permissions_if_new": f"{args.mode:04o}"},
    told={"mode": "permissions_if_new"},
    render=_written,
)


class _Edit(Arguments):
    path: str = Field(description="Path of the file")
    old_string: str = Field(description="Text to replace; it must be unique unless replace_all is set")
    new_string: str = Field(description="New text")
    replace_all: bool = Field(False, description="Replace every occurrence")


EDIT = ToolAdapter(
    tool="edit",
    name="Edit",
    description="Replace text in a file, exactly.",
    arguments=_Edit,
    fields={name: name for name in _Edit.model_fields},
)


class _Ls(Arguments):
    path: str = Field(".", description="Directory to list")


def _names(args: _Ls, result: ToolResult) -> RenderedResult | None:
    if result.is_error:
        return None
    found = facts(result)
    named = (
        readable_name(text_of(one, "name")) + ("/" if one.get("type") == "d" else "") for one in items(found, "entries")
    )
    more = f"[{found['dropped']} more of {found['count']} names are not shown]" if found.get("dropped") else ""
    return RenderedResult(joined("\n".join(named), more) or "(empty directory)")


LS = ToolAdapter(
    tool="ls",
    name="Ls",
    description="List a directory; directories end with a slash.",
    arguments=_Ls,
    fields={"path": "path"},
    more=lambda args: {"all": True},
    render=_names,
)


# -- commands


class _Bash(Arguments):
    cmd: str = Field(description="Shell command")
    cwd: str | None = Field(None, description="Directory to run it in")
    timeout_ms: int = Field(TIMEOUT, ge=1, description=f"Timeout in milliseconds, at most {LONGEST}")
    env: dict[str, str] = Field({}, description="Additional environment variables")


def _command(args: _Bash) -> JsonObject:
    seconds = min(args.timeout_ms, LONGEST) / 1000
    return {"timeout": seconds, "on_timeout": "kill", "env": dict(args.env), **ALONE}


def _output(args: _Bash, result: ToolResult) -> RenderedResult | None:
    done = ran(result)
    if done is None:
        return None
    output = joined(done.stdout, done.stderr)
    if done.ended and done.exit_code == 0:
        return RenderedResult(joined(output, *done.notices))
    why = f"exit code {done.exit_code}" if done.ended else result.text.partition("\n")[0]
    return RenderedResult(joined(output, *done.notices, f"[{why}]"), is_error=result.is_error)


BASH = ToolAdapter(
    tool="run_shell",
    name="Bash",
    description="Run a command with /bin/sh -c and return its output.",
    arguments=_Bash,
    fields={"cmd": "command", "cwd": "cwd"},
    more=_command,
    told={"timeout_ms": "timeout", "env": "env"},
    render=_output,
)


# -- search


class _Grep(Arguments):
    pattern: str = Field(description="Regular expression")
    path: str | None = Field(None, description="File or directory to search")
    glob: str | None = Field(None, description="Only files whose names match")


GREP = ToolAdapter(
    tool="grep",
    name="Grep",
    description="Search files with a regular expression; each match is path:line:text.",
    arguments=_Grep,
    fields={"pattern": "pattern", "path": "path", "glob": "include"},
    more=lambda args: {"output_mode": "content", "max_results": MATCHES, **EVERYWHERE},
    render=lambda args, result: searched(result, "(no matches)"),
)


class _Glob(Arguments):
    pattern: str = Field(description="Pattern of paths; ** matches any number of directories")
    root: str | None = Field(None, description="Directory to start from")


GLOB = ToolAdapter(
    tool="glob",
    name="Glob",
    description="Find files by a pattern, by name.",
    arguments=_Glob,
    fields={"pattern": "pattern", "root": "path"},
    more=lambda args: {"sort": "name", "max_results": NAMES, **EVERYWHERE},
    render=lambda args, result: searched(result, "(no matches)"),
)


# -- the rest


class _Fetch(Arguments):
    url: str = Field(description="URL, http or https")
    headers: dict[str, str] = Field({}, description="Additional request headers")


FETCH = ToolAdapter(
    tool="fetch_url",
    name="WebFetch",
    description="Fetch a page from the web.",
    arguments=_Fetch,
    fields={"url": "url", "headers": "headers"},
)


class _Task(Arguments):
    content: str = Field(description="What is to be done")
    status: Literal["pending", "in_progress", "completed"] = Field(description="Its state")
    activeForm: str | None = Field(None, description="Its name while it is in progress")


class _Tasks(Arguments):
    tasks: list[_Task] = Field(description="The whole list")


def _todos(args: _Tasks) -> JsonObject:
    return {"todos": [_renamed(task.model_dump(exclude_none=True)) for task in args.tasks]}


def _renamed(task: dict[str, Json]) -> Json:
    return {"active_form" if name == "activeForm" else name: value or None for name, value in task.items()}


TASKS = ToolAdapter(
    tool="todo_write",
    name="TaskList",
    description="Write the to-do list, as a whole each time.",
    arguments=_Tasks,
    fields={"tasks": "todos"},
    more=_todos,
    told={"activeForm": "active_form"},
)


class _Agent(Arguments):
    prompt: str = Field(description="The task of the agent")
    description: str | None = Field(None, description="A short title")
    system: str | None = Field(None, description="The focus of the agent")


AGENT = ToolAdapter(
    tool="task",
    name="Agent",
    description="Start a sub-agent with a task, and return its last message.",
    arguments=_Agent,
    fields={name: name for name in _Agent.model_fields},
)


class _Find(Arguments):
    query: str = Field(description="Words to find in names and descriptions")
    limit: int = Field(8, ge=1, le=50, description="Maximum number of tools")


TOOLS = ToolAdapter(
    tool="tool_search",
    name="ToolSearch",
    description="Find tools by name and description.",
    arguments=_Find,
    fields={"query": "query", "limit": "limit"},
)


def profile() -> ToolProfile:
    """Return the profile."""
    return ToolProfile("gofastr", (READ, WRITE, EDIT, LS, BASH, GREP, GLOB, FETCH, TASKS, AGENT, TOOLS))
