"""The tool profile ``terse``: the tools with the names and arguments of terse-tools, which return JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

from pydantic import Field, model_validator

from harness.toolkit import Arguments, Json, JsonObject, OutputLimit, ToolResult
from harness.toolkit.tool_profiles import RenderedResult, ToolAdapter, ToolProfile

from .forms import ALONE, LIMIT, as_json, facts, file_text, items, joined, json_text, picked, ran

__all__ = [
    "profile",
]


# -- Tools that read source code and program output.


# -- sig


class _Sig(Arguments):
    file: str = Field(description="Source file.")
    all: bool = Field(False, description="Include private declarations.")


def _shape(args: _Sig, result: ToolResult) -> RenderedResult | None:
    if result.is_error:
        return None
    found = facts(result)
    shown = picked(found, ("file", "package"), ("imports",))
    shown |= _listed("types", [_type(one) for one in items(found, "types")])
    shown |= _listed("functions", [_function(one) for one in items(found, "functions")])
    for name in ("constants", "variables"):
        shown |= _listed(name, [picked(one, ("name",), ("type", "value", "line")) for one in items(found, name)])
    return as_json(shown | picked(found, (), ("dropped", "syntax_error_line")))


def _listed(name: str, values: list[dict[str, Json]]) -> dict[str, Json]:
    return {name: [*values]} if values else {}


def _type(found: Mapping[str, Json]) -> dict[str, Json]:
    fields = [picked(one, ("name",), ("type",)) for one in items(found, "fields")]
    methods = [_function(one) for one in items(found, "methods")]
    inner = [_type(one) for one in items(found, "types")]
    shown = picked(found, ("name", "kind", "line"))
    return shown | _listed("fields", fields) | _listed("methods", methods) | _listed("types", inner)


def _function(found: Mapping[str, Json]) -> dict[str, Json]:
    return picked(found, ("name", "signature", "line"), ("receiver",))


SIG = ToolAdapter(
    tool="sig",
    name="sig",
    description="List what a source file declares, without the bodies.",
    arguments=_Sig,
    fields={"file": "file", "all": "all"},
    render=_shape,
)


# -- errs


class _Errs(Arguments):
    input: str = Field(description="Output of a compiler or a linter.")
    format: str | None = Field(None, description="go, eslint, tsc, rust, gcc, dotnet; detected by default.")


def _errors(args: _Errs, result: ToolResult) -> RenderedResult | None:
    if result.is_error:
        return None
    return as_json(picked(facts(result), ("errors", "format", "count", "files", "summary"), ("left_out",)))


ERRS = ToolAdapter(
    tool="errs",
    name="errs",
    description="Find the errors in the output of a compiler or a linter.",
    arguments=_Errs,
    fields={"input": "input", "format": "format"},
    render=_errors,
)


# -- imports


class _Imports(Arguments):
    dir: str = Field(description="Directory.")
    ext: str | None = Field(None, description="Only files with this ending, such as .go.")
    recursive: bool = Field(False, description="Include subdirectories.")


def _imported(args: _Imports, result: ToolResult) -> RenderedResult | None:
    if result.is_error:
        return None
    left = ("files_left_out", "packages_left_out", "files_not_looked_at", "skipped", "errors")
    return as_json(picked(facts(result), ("dir", "files", "packages", "total_files"), left))


IMPORTS = ToolAdapter(
    tool="imports",
    name="imports",
    description="Map what the source files of a directory import.",
    arguments=_Imports,
    fields={name: name for name in _Imports.model_fields},
    render=_imported,
)


# -- conflicts


class _Conflicts(Arguments):
    file: list[str] = Field(description="Files to check.")
    context_lines: int = Field(1, description="Lines above and below each conflict.")


def _conflicts(args: _Conflicts, result: ToolResult) -> RenderedResult | None:
    if result.is_error:
        return None
    found = facts(result)
    files: list[Json] = [_conflicted(one) for one in items(found, "files")]
    rest = picked(found, ("total", "has_diff3", "summary"), ("left_out", "errors"))
    return as_json({"files": files, **rest})


def _conflicted(found: Mapping[str, Json]) -> Json:
    conflicts: list[Json] = [
        {
            name: value
            for name, value in one.items()
            if name not in ("file", "lines_left_out") or (value and name != "file")
        }
        for one in items(found, "conflicts")
    ]
    return {**picked(found, ("file",)), "conflicts": conflicts, **picked(found, ("count",), ("unterminated", "error"))}


CONFLICTS = ToolAdapter(
    tool="conflicts",
    name="conflicts",
    description="Find the conflicts of a merge in files.",
    arguments=_Conflicts,
    fields={"file": "file", "context_lines": "context_lines"},
    render=_conflicts,
)


# -- cleanDiff


class _Diff(Arguments):
    path: str | None = Field(None, description="Repository; the default is the current directory.")
    ref: str | None = Field(None, description="Reference or range, such as HEAD~1; the default is unstaged changes.")
    staged: bool = Field(False, description="Staged changes.")
    stat_only: bool = Field(False, description="Only the counts per file.")
    context_lines: int = Field(0, description="Lines around each change.")
    file_filter: list[str] = Field([], description="Only these files.")


def _diff(args: _Diff, result: ToolResult) -> RenderedResult | None:
    if result.is_error:
        return None
    found = facts(result)
    files: list[Json] = [_changed(one) for one in items(found, "files")]
    rest = picked(found, (), ("left_out", "untracked_left_out", "filters_not_run"))
    return as_json({**picked(found, ("summary",)), "files": files, **rest, **_incomplete(found)})


def _incomplete(found: Mapping[str, Json]) -> dict[str, Json]:
    """Return ``complete: false`` if git's output was truncated, for the whole or for a file."""
    return {"complete": False} if found.get("complete") is False else {}


def _changed(found: Mapping[str, Json]) -> Json:
    hunks: list[Json] = [
        {**picked(one, ("old_start", "new_start", "added", "removed"), ("context", "header", "lines_left_out"))}
        for one in items(found, "hunks")
    ]
    shown = picked(found, ("path", "status", "insertions", "deletions"), ("old_path", "binary", "withheld"))
    return {**shown, **({"hunks": hunks} if hunks else {}), **_incomplete(found)}


CLEAN_DIFF = ToolAdapter(
    tool="clean_diff",
    name="cleanDiff",
    description="Show the differences of a git repository, without the lines around them.",
    arguments=_Diff,
    fields={name: name for name in _Diff.model_fields},
    render=_diff,
)


# -- transform and tabcount


class _Transform(Arguments):
    exec: str | None = Field(None, description="Command whose output is a JSON array; or give file.")
    file: str | None = Field(None, description="File with a JSON array.")
    pipeline: list[dict[str, Any]] = Field(description='Steps, each {"op": "<name>", ...}.')

    @model_validator(mode="after")
    def _of_something(self) -> _Transform:
        if not (self.exec or self.file):
            raise ValueError("give exec or file")
        return self


def _one_source(args: _Transform) -> JsonObject:
    return {"exec": args.exec} if args.exec else {"file": args.file} if args.file else {}


def _transformed(args: _Transform, result: ToolResult) -> RenderedResult | None:
    found = facts(result)
    if result.is_error or "result" not in found:
        return None
    value = found["result"]
    if isinstance(value, str):
        return RenderedResult(value)
    return as_json({"result": value, "left_out": found["left_out"]} if found.get("left_out") else value, indent=2)


TRANSFORM = ToolAdapter(
    tool="transform",
    name="transform",
    description="Run a JSON array through steps: group_by, sort_by, filter, count, flatten, format.",
    arguments=_Transform,
    fields={"pipeline": "pipeline"},
    more=_one_source,
    told={"exec": "exec", "file": "file"},
    render=_transformed,
)


class _Tabcount(Arguments):
    file: str = Field(description="File.")
    start_line: int = Field(0, description="First line; 0 is the first.")
    end_line: int = Field(0, description="Last line; 0 is the last.")


def _tabs(args: _Tabcount, result: ToolResult) -> RenderedResult | None:
    return None if result.is_error else as_json(picked(facts(result), ("file", "lines", "total_lines"), ("left_out",)))


TABCOUNT = ToolAdapter(
    tool="tabcount",
    name="tabcount",
    description="Count the leading tabs of each line.",
    arguments=_Tabcount,
    fields={name: name for name in _Tabcount.model_fields},
    render=_tabs,
)

CODE_FACES: tuple[ToolAdapter[Any], ...] = (SIG, ERRS, IMPORTS, CONFLICTS, CLEAN_DIFF, TRANSFORM, TABCOUNT)


# -- Tools that change files.


def _form(always: Iterable[str], others: Iterable[str] = ()) -> Callable[[Any, ToolResult], RenderedResult | None]:
    """Return a renderer for these members of the data as JSON."""
    names, more = tuple(always), tuple(others)

    def render(args: Any, result: ToolResult) -> RenderedResult | None:
        return None if result.is_error else as_json(picked(facts(result), names, more))

    return render


class _Repfor(Arguments):
    search: str = Field(description="Text to search for. A newline matches any line end.")
    replace: str = Field(description="New text.")
    dir: list[str] = Field([], description="Directories; the default is the current one.")
    file: list[str] = Field([], description="Files to work on instead of directories.")
    ext: str | None = Field(None, description="Only files with this ending, such as .go.")
    case_insensitive: bool = Field(False, description="Ignore case.")
    whole_word: bool = Field(False, description="Match whole words only.")
    dry_run: bool = Field(False, description="Show the changes without writing them.")
    recursive: bool = Field(False, description="Include subdirectories.")
    exclude: list[str] = Field([], description="Skip lines that contain one of these texts.")


REPFOR = ToolAdapter(
    tool="repfor",
    name="repfor",
    description="Replace a text in files, exactly.",
    arguments=_Repfor,
    fields={name: name for name in _Repfor.model_fields},
    render=_form(("summary", "directories", "dry_run"), ("not_read", "skipped", "failed", "left_out", "dropped")),
)


class _Split(Arguments):
    file: str = Field(description="File to split.")
    lines: list[int] = Field(description="The last line of each part.")


SPLIT = ToolAdapter(
    tool="split",
    name="split",
    description="Write the parts of a file to separate files.",
    arguments=_Split,
    fields={"file": "file", "lines": "lines"},
    render=_form(("source", "parts"), ("ignored_lines",)),
)


class _Splice(Arguments):
    source: str = Field(description="File to insert.")
    target: str = Field(description="File to insert into.")
    mode: Literal["append", "prepend", "replace", "insert"] = Field(description="Where to put it.")
    line: int | None = Field(None, description="With insert: after this line.")


SPLICE = ToolAdapter(
    tool="splice",
    name="splice",
    description="Insert the content of one file into another.",
    arguments=_Splice,
    fields={name: name for name in _Splice.model_fields},
    render=_form(("source", "target", "mode", "lines_spliced", "bytes_written"), ("line", "created")),
)


class _Notab(Arguments):
    file: str = Field(description="File to normalize.")
    spaces: int = Field(4, description="Spaces for a tab.")
    tabs: bool = Field(False, description="The reverse: leading spaces become tabs.")


NOTAB = ToolAdapter(
    tool="notab",
    name="notab",
    description="Replace tabs with spaces, or leading spaces with tabs.",
    arguments=_Notab,
    fields={name: name for name in _Notab.model_fields},
    render=_form(("file", "replacements", "lines_changed", "changed"), ("mode",)),
)


class _Utf8(Arguments):
    file: str = Field(description="File to convert.")
    backup: bool = Field(True, description="Keep a backup of the old content.")


UTF8 = ToolAdapter(
    tool="utf8",
    name="utf8",
    description="Convert a file in UTF-16, or a damaged one, to UTF-8.",
    arguments=_Utf8,
    fields={name: name for name in _Utf8.model_fields},
    render=_form(("file", "status"), ("encoding", "bytes_before", "bytes_after", "replaced_characters", "backup")),
)


class _Delete(Arguments):
    path: str = Field(description="File or directory to move to the trash.")


DELETE = ToolAdapter(
    tool="delete",
    name="delete",
    description="Move a file or a directory to the target's trash.",
    arguments=_Delete,
    fields={"path": "path"},
    render=_form(("path", "trash_path", "restore"), ("type",)),
)

REWRITING_FACES: tuple[ToolAdapter[Any], ...] = (REPFOR, SPLIT, SPLICE, NOTAB, UTF8, DELETE)


# -- The whole profile.
#
# Intended differences: every tool that changes a file requires that it was read, backslashes in texts have no special
# meaning, version control directories and binary files are skipped, results are truncated by items, and deleted files
# are in the target's trash.


ITEMS = OutputLimit(20_000, 0)
"""Limit of a search, as lines: JSON is longer, and must not need truncation again."""
LINES = 2_000
SLICE = 30_000
"""Maximum bytes that are read with a byte offset."""
AROUND = 2_000
"""Characters of a result around the content of a file."""
TIMEOUT = 120


# -- files and commands


class _Read(Arguments):
    file_path: str = Field(description="Path of the file to read.")
    offset: int | None = Field(None, description="First line, counted from 1. The default is 1.")
    limit: int | None = Field(None, description=f"Maximum number of lines. The default is {LINES}.")
    byte_offset: int | None = Field(
        None, ge=0, description="Byte to start at instead, for the rest of a line that is too long; without numbers."
    )


def _part(args: _Read) -> JsonObject:
    if args.byte_offset is not None:
        return {"byte_offset": args.byte_offset, "byte_limit": SLICE}
    limit = args.limit if args.limit is not None and args.limit > 0 else LINES
    return {"offset": max(1, args.offset or 1), "limit": limit, "line_numbers": True}


def _file(args: _Read, result: ToolResult) -> RenderedResult | None:
    if result.is_error:
        return None
    found, (text, note) = facts(result), file_text(result)
    names = ("total_lines", "from_line", "to_line") if args.byte_offset is None else ("size", "from_byte", "to_byte")
    shown: dict[str, Json] = {"file": args.file_path, **{name: found.get(name) for name in names}, "content": text}
    return as_json(shown | ({"note": note} if note else {}))


READ = ToolAdapter(
    tool="read_file",
    name="read",
    description="Read a file by lines; each starts with its number.",
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
    content: str = Field(description="New content.")


def _written(args: _Write, result: ToolResult) -> RenderedResult | None:
    if result.is_error:
        return None
    found = facts(result)
    status = "created" if found.get("created") else "overwritten"
    return as_json({"file": args.file_path, "bytes_written": found["bytes_written"], "status": status})


WRITE = ToolAdapter(
    tool="write_file",
    name="write",
    description="Write a file, creating missing directories. An existing file must have been read.",
    arguments=_Write,
    fields={"file_path": "path", "content": "content"},
    render=_written,
)


class _Bash(Arguments):
    command: str = Field(description="Shell command.")
    timeout: int | None = Field(None, description=f"Timeout in seconds; {TIMEOUT} is the default and the maximum.")


def _wait_policy(args: _Bash) -> JsonObject:
    wanted = args.timeout if args.timeout is not None and args.timeout > 0 else TIMEOUT
    return {"timeout": min(wanted, TIMEOUT), "on_timeout": "kill", **ALONE}


def _output(args: _Bash, result: ToolResult) -> RenderedResult | None:
    done = ran(result)
    if done is None:
        return None
    if done.ended and done.exit_code == 0:
        notices: list[Json] = list(done.notices)
        value: dict[str, Json] = {"stdout": done.stdout, "stderr": done.stderr, "exit_code": 0}
        return as_json(value | ({"notices": notices} if notices else {}))
    why = f"exit code {done.exit_code}" if done.ended else result.text.partition("\n")[0]
    return RenderedResult(joined(why, done.stderr, done.stdout, *done.notices), is_error=result.is_error)


BASH = ToolAdapter(
    tool="run_shell",
    name="bash",
    description="Run a shell command in a fresh shell and return its output.",
    arguments=_Bash,
    fields={"command": "command"},
    more=_wait_policy,
    told={"timeout": "timeout"},
    render=_output,
    limit=OutputLimit(LIMIT - AROUND, LIMIT // 2),
    measure=lambda text: len(json_text(text)),
)


# -- search


class _Checkfor(Arguments):
    search: str = Field(description="Text to search for. A newline matches any line end.")
    dir: list[str] = Field([], description="Directories; without them and without files, the current one.")
    file: list[str] = Field([], description="Files to search instead of directories.")
    ext: str | None = Field(None, description="Only files with this ending, such as .go.")
    case_insensitive: bool = Field(False, description="Ignore case.")
    whole_word: bool = Field(False, description="Match whole words only.")
    context: int = Field(0, description="Lines before and after each match.")
    exclude: list[str] = Field([], description="Skip lines that contain one of these texts.")


def _matches(args: Arguments, result: ToolResult) -> RenderedResult | None:
    if result.is_error:
        return None
    return as_json(picked(facts(result), ("directories",), ("dropped", "not_searched")))


CHECKFOR = ToolAdapter(
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
    depth: int | None = Field(None, description="Depth; 0 is the directory itself, -1 everything.")
    include_ext: list[str] = Field([], description="Only files with these endings.")
    exclude_ext: list[str] = Field([], description="No files with these endings.")
    exclude_patterns: list[str] = Field([], description="Nothing whose path contains one of these texts.")
    show_size: bool | None = Field(None, description="With sizes.")
    show_hidden: bool | None = Field(None, description="Include hidden files.")


def _tree(args: _Stump, result: ToolResult) -> RenderedResult | None:
    if result.is_error:
        return None
    found = facts(result)
    stats = found.get("stats")
    shown = picked(found, ("tree",), ("skipped", "ignored", "unreadable"))
    if isinstance(stats, Mapping):
        shown["stats"] = picked(stats, ("dirs", "files", "filtered", "symlinks"), ("dropped",))
    return as_json(shown)


STUMP = ToolAdapter(
    tool="stump",
    name="stump",
    description="Show the tree below a directory.",
    arguments=_Stump,
    fields={name: name for name in _Stump.model_fields},
    render=_tree,
    limit=ITEMS,
)


def profile() -> ToolProfile:
    """Return the profile."""
    return ToolProfile("terse", (READ, WRITE, BASH, CHECKFOR, STUMP, *REWRITING_FACES, *CODE_FACES))
