"""The profile ``terse``: the tools with the names and arguments of terse-tools, which answer in JSON.

What differs on purpose: every tool that changes a file needs that it was read, no backslash in a text means anything,
directories of version control and binary files are left alone, results are cut by items, and what was deleted is in the
trash of the target.
"""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field

from harness.toolkit import Arguments, Json, JsonObject, OutputLimit, ToolResult
from harness.toolkit.profiles import Face, Profile, Shown

from .forms import ALONE, facts, file_text, joined, ran
from .jsonforms import LIMIT, as_json, json_text, picked
from .terse_code import CODE_FACES
from .terse_rewriting import REWRITING_FACES

__all__ = ["profile"]

ITEMS = OutputLimit(20_000, 0)
"""Of a search, as lines: as JSON it is longer, and nothing of it has to be left out again."""
LINES = 2_000
SLICE = 30_000
"""Bytes that are read from a byte on, at most."""
AROUND = 2_000
"""Characters of a result around the content of a file."""
TIMEOUT = 120


# -- files and commands


class _Read(Arguments):
    file_path: str = Field(description="Path of the file to read.")
    offset: int | None = Field(None, description="First line, counted from 1. The default is 1.")
    limit: int | None = Field(None, description=f"How many lines at most. The default is {LINES}.")
    byte_offset: int | None = Field(
        None, ge=0, description="Byte to start at instead, for the rest of a line that is too long; without numbers."
    )


def _part(args: _Read) -> JsonObject:
    if args.byte_offset is not None:
        return {"byte_offset": args.byte_offset, "byte_limit": SLICE}
    limit = args.limit if args.limit is not None and args.limit > 0 else LINES
    return {"offset": max(1, args.offset or 1), "limit": limit, "line_numbers": True}


def _file(args: _Read, result: ToolResult) -> Shown | None:
    if result.is_error:
        return None
    found, (text, note) = facts(result), file_text(result)
    names = ("total_lines", "from_line", "to_line") if args.byte_offset is None else ("size", "from_byte", "to_byte")
    shown: dict[str, Json] = {"file": args.file_path, **{name: found.get(name) for name in names}, "content": text}
    return as_json(shown | ({"note": note} if note else {}))


READ = Face(
    tool="read_file",
    name="read",
    description="Read a file by lines; each begins with its number.",
    arguments=_Read,
    fields={"file_path": "path"},
    more=_part,
    told={"offset": "offset", "limit": "limit", "byte_offset": "byte_offset"},
    render=_file,
    limit=OutputLimit(LIMIT - AROUND, 0),
    measure=lambda text: len(json_text(text)),
)


class _Write(Arguments):
    file_path: str = Field(description="Path of the file to write.")
    content: str = Field(description="What it is to hold.")


def _written(args: _Write, result: ToolResult) -> Shown | None:
    if result.is_error:
        return None
    found = facts(result)
    status = "created" if found.get("created") else "overwritten"
    return as_json({"file": args.file_path, "bytes_written": found["bytes_written"], "status": status})


WRITE = Face(
    tool="write_file",
    name="write",
    description="Write a file with the directories above it. One that exists must have been read.",
    arguments=_Write,
    fields={"file_path": "path", "content": "content"},
    render=_written,
)


class _Bash(Arguments):
    command: str = Field(description="Shell command.")
    timeout: int | None = Field(None, description=f"Seconds until it is ended; {TIMEOUT} by default and at most.")


def _patience(args: _Bash) -> JsonObject:
    wanted = args.timeout if args.timeout is not None and args.timeout > 0 else TIMEOUT
    return {"timeout": min(wanted, TIMEOUT), "on_timeout": "kill", **ALONE}


def _output(args: _Bash, result: ToolResult) -> Shown | None:
    done = ran(result)
    if done is None:
        return None
    if done.ended and done.exit_code == 0:
        notices: list[Json] = list(done.notices)
        value: dict[str, Json] = {"stdout": done.stdout, "stderr": done.stderr, "exit_code": 0}
        return as_json(value | ({"notices": notices} if notices else {}))
    why = f"exit code {done.exit_code}" if done.ended else result.text.partition("\n")[0]
    return Shown(joined(why, done.stderr, done.stdout, *done.notices), is_error=result.is_error)


BASH = Face(
    tool="run_shell",
    name="bash",
    description="Run a shell command in a fresh shell and return its output.",
    arguments=_Bash,
    fields={"command": "command"},
    more=_patience,
    told={"timeout": "timeout"},
    render=_output,
    limit=OutputLimit(LIMIT - AROUND, LIMIT // 2),
    measure=lambda text: len(json_text(text)),
)


# -- search


class _Checkfor(Arguments):
    search: str = Field(description="Text to search for. A newline in it is a line's end.")
    dir: list[str] = Field([], description="Directories; without them and without files, the current one.")
    file: list[str] = Field([], description="Files to search instead of directories.")
    ext: str | None = Field(None, description="Only files with this ending, such as .go.")
    case_insensitive: bool = Field(False, description="Ignore case.")
    whole_word: bool = Field(False, description="Match whole words alone.")
    context: int = Field(0, description="Lines before and after each match.")
    exclude: list[str] = Field([], description="Leave out lines that hold one of these texts.")


def _matches(args: Arguments, result: ToolResult) -> Shown | None:
    if result.is_error:
        return None
    return as_json(picked(facts(result), ("directories",), ("dropped", "not_searched")))


CHECKFOR = Face(
    tool="checkfor",
    name="checkfor",
    description="Find a text in the files that are directly in some directories.",
    arguments=_Checkfor,
    fields={name: name for name in _Checkfor.model_fields},
    render=_matches,
    limit=ITEMS,
)


class _Stump(Arguments):
    dir: str = Field(description="Directory.")
    depth: int | None = Field(None, description="How deep; 0 is what is directly in it, -1 everything.")
    include_ext: list[str] = Field([], description="Only files with these endings.")
    exclude_ext: list[str] = Field([], description="No files with these endings.")
    exclude_patterns: list[str] = Field([], description="Nothing whose path contains one of these texts.")
    show_size: bool | None = Field(None, description="With sizes.")
    show_hidden: bool | None = Field(None, description="Also names that begin with a dot.")


def _tree(args: _Stump, result: ToolResult) -> Shown | None:
    if result.is_error:
        return None
    found = facts(result)
    stats = found.get("stats")
    shown = picked(found, ("tree",), ("skipped", "ignored", "unreadable"))
    if isinstance(stats, Mapping):
        shown["stats"] = picked(stats, ("dirs", "files", "filtered", "symlinks"), ("dropped",))
    return as_json(shown)


STUMP = Face(
    tool="stump",
    name="stump",
    description="Show the tree below a directory.",
    arguments=_Stump,
    fields={name: name for name in _Stump.model_fields},
    render=_tree,
    limit=ITEMS,
)


def profile() -> Profile:
    """The profile."""
    return Profile("terse", (READ, WRITE, BASH, CHECKFOR, STUMP, *REWRITING_FACES, *CODE_FACES))
