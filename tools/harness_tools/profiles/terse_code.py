"""The profile ``terse``: the tools that read source code and what its tools report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field, model_validator

from harness.toolkit import Arguments, Json, JsonObject, ToolResult
from harness.toolkit.profiles import Face, Shown

from .forms import facts, items
from .jsonforms import as_json, picked

__all__ = ["CODE_FACES"]


# -- sig


class _Sig(Arguments):
    file: str = Field(description="Source file.")
    all: bool = Field(False, description="Also what is private.")


def _shape(args: _Sig, result: ToolResult) -> Shown | None:
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


SIG = Face(
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
    format: str | None = Field(None, description="go, eslint, tsc, rust, gcc, dotnet; found out when it is left out.")


def _errors(args: _Errs, result: ToolResult) -> Shown | None:
    if result.is_error:
        return None
    return as_json(picked(facts(result), ("errors", "format", "count", "files", "summary"), ("left_out",)))


ERRS = Face(
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
    recursive: bool = Field(False, description="Also in the directories below.")


def _imported(args: _Imports, result: ToolResult) -> Shown | None:
    if result.is_error:
        return None
    left = ("files_left_out", "packages_left_out", "files_not_looked_at", "skipped", "errors")
    return as_json(picked(facts(result), ("dir", "files", "packages", "total_files"), left))


IMPORTS = Face(
    tool="imports",
    name="imports",
    description="Map what the source files of a directory import.",
    arguments=_Imports,
    fields={name: name for name in _Imports.model_fields},
    render=_imported,
)


# -- conflicts


class _Conflicts(Arguments):
    file: list[str] = Field(description="Files to look at.")
    context_lines: int = Field(1, description="Lines above and below each conflict.")


def _conflicts(args: _Conflicts, result: ToolResult) -> Shown | None:
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


CONFLICTS = Face(
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
    ref: str | None = Field(None, description="Reference or range, such as HEAD~1; left out, what is not staged.")
    staged: bool = Field(False, description="What is staged.")
    stat_only: bool = Field(False, description="Only the numbers of each file.")
    context_lines: int = Field(0, description="Lines around each change.")
    file_filter: list[str] = Field([], description="Only these files.")


def _diff(args: _Diff, result: ToolResult) -> Shown | None:
    if result.is_error:
        return None
    found = facts(result)
    files: list[Json] = [_changed(one) for one in items(found, "files")]
    rest = picked(found, (), ("left_out", "untracked_left_out", "filters_not_run"))
    return as_json({**picked(found, ("summary",)), "files": files, **rest, **_incomplete(found)})


def _incomplete(found: Mapping[str, Json]) -> dict[str, Json]:
    """That git had more to say than was read, of the whole or of a file."""
    return {"complete": False} if found.get("complete") is False else {}


def _changed(found: Mapping[str, Json]) -> Json:
    hunks: list[Json] = [
        {**picked(one, ("old_start", "new_start", "added", "removed"), ("context", "header", "lines_left_out"))}
        for one in items(found, "hunks")
    ]
    shown = picked(found, ("path", "status", "insertions", "deletions"), ("old_path", "binary", "withheld"))
    return {**shown, **({"hunks": hunks} if hunks else {}), **_incomplete(found)}


CLEAN_DIFF = Face(
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
    file: str | None = Field(None, description="File that holds a JSON array.")
    pipeline: list[dict[str, Any]] = Field(description='Steps, each {"op": "<name>", ...}.')

    @model_validator(mode="after")
    def _of_something(self) -> _Transform:
        if not (self.exec or self.file):
            raise ValueError("give exec or file")
        return self


def _one_source(args: _Transform) -> JsonObject:
    return {"exec": args.exec} if args.exec else {"file": args.file} if args.file else {}


def _transformed(args: _Transform, result: ToolResult) -> Shown | None:
    found = facts(result)
    if result.is_error or "result" not in found:
        return None
    value = found["result"]
    if isinstance(value, str):
        return Shown(value)
    return as_json({"result": value, "left_out": found["left_out"]} if found.get("left_out") else value, indent=2)


TRANSFORM = Face(
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


def _tabs(args: _Tabcount, result: ToolResult) -> Shown | None:
    return None if result.is_error else as_json(picked(facts(result), ("file", "lines", "total_lines"), ("left_out",)))


TABCOUNT = Face(
    tool="tabcount",
    name="tabcount",
    description="Count the tabs that each line begins with.",
    arguments=_Tabcount,
    fields={name: name for name in _Tabcount.model_fields},
    render=_tabs,
)

CODE_FACES: tuple[Face[Any], ...] = (SIG, ERRS, IMPORTS, CONFLICTS, CLEAN_DIFF, TRANSFORM, TABCOUNT)
