"""``transform``: a list of JSON values, from a command, a file or the call itself, through a pipeline of steps."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

from anyio import to_thread
from pydantic import AliasChoices, Field, model_validator

from harness.results import ShellResult
from harness.toolkit import (
    Category,
    Json,
    JsonObject,
    MutatingArguments,
    Subject,
    Text,
    Tool,
    ToolContext,
    ToolResult,
    Traits,
)
from harness.toolkit.reads import target_path
from harness.toolkit.results_cache import depends_on
from harness.toolkit.shellresults import note_job, progress_of, shell_result

from ..texts import Content, Line
from .fitted import REPORT, clip, dumps, fit
from .transform_run import StepError, parse_json, run_steps
from .transform_steps import Step

__all__ = ["Transform"]

SIZE = 16 << 20
"""Bytes of the data."""
TIMEOUT = 30.0
"""Seconds that the command may take."""
DEPTH = 100
"""Lists and objects in one another; what handles a result after this would come to its own limits."""
PRINTED = 8 << 10
"""Bytes of each stream of a command that failed: its beginning and its end are shown."""
ERRORS = 2_000
"""Characters of a command's standard error that are shown beside the result."""

DESCRIPTION = """\
Work on a list of JSON values without a script: group, sort, filter, count, flatten, format. The list is what a shell \
command prints (exec), what is in a file, or input itself; one value in each line is a list, too. Returns JSON."""


class _Arguments(MutatingArguments):
    exec: Line | None = Field(
        None,
        description="shell command of the target that prints the data, within 30 s",
        validation_alias=AliasChoices("exec", "command"),
    )
    file: Line | None = Field(
        None, description="file of the target that holds it", validation_alias=AliasChoices("file", "path", "file_path")
    )
    input: Content | None = Field(None, max_length=SIZE, description="the data itself, as JSON text")
    pipeline: list[Step] = Field(
        min_length=1,
        max_length=100,
        description="the steps (group_by, sort_by, filter, count, flatten, format), each on what the one before made",
    )

    @model_validator(mode="after")
    def _one_source(self) -> _Arguments:
        given = [name for name in ("exec", "file", "input") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"give one of exec, file and input, not {' and '.join(given) or 'none'}")
        return self


_READS = Traits(
    category=Category.FILE_READ, parallelizable=True, cacheable=True, packs=("dev",), limit=REPORT, timeout=120
)
_INSIDE = Traits(parallelizable=True, packs=("dev",), limit=REPORT, timeout=120)


class Transform(Tool[_Arguments]):
    """``transform``."""

    def __init__(self) -> None:
        traits = Traits(category=Category.SHELL, mutating=True, packs=("dev",), limit=REPORT)
        super().__init__("transform", DESCRIPTION, _Arguments, traits)

    def traits_of(self, args: _Arguments) -> Traits:
        """A command may do anything; to read a file, or to look at what the call brings, changes nothing."""
        return self.traits if args.exec is not None else _READS if args.file is not None else _INSIDE

    def subjects(self, args: _Arguments) -> tuple[Subject, ...]:
        if args.exec is not None:
            return (Subject("command", args.exec),)
        return (Subject("read", args.file),) if args.file is not None else super().subjects(args)

    def told(self) -> frozenset[str]:
        """The pipeline works here, on what the command printed."""
        return frozenset({"exec", "pipeline"})

    async def run(self, args: _Arguments, ctx: ToolContext) -> ToolResult:
        if args.exec is not None:
            return await _of_command(args, args.exec, ctx)
        if args.file is not None:
            return await _of_file(args, args.file, ctx)
        return await to_thread.run_sync(_transformed, args.input or "", "the input", args.pipeline)


async def _of_command(args: _Arguments, command: str, ctx: ToolContext) -> ToolResult:
    done = await ctx.execution.run_shell(
        command,
        timeout=TIMEOUT,
        on_timeout="kill",
        cwd=ctx.cwd,
        tty=False,
        on_output=progress_of(ctx),
        max_output=SIZE,
    )
    note_job(done, ctx)
    if not done.ok:
        return shell_result(_shortened(done))
    if done.truncated:
        size = done.truncated + len(done.stdout_bytes) + len(done.stderr_bytes)
        return ToolResult.failure("too_large", f"the command printed {size} bytes; {SIZE} are taken at most")
    made = await to_thread.run_sync(_transformed, done.stdout, "what the command printed", args.pipeline)
    return _with_notes(made, done)


def _shortened(done: ShellResult) -> ShellResult:
    """The outcome with the beginning and the end of what was printed: all of it would be rendered, and then cut."""
    whole = (done.stdout_bytes, done.stderr_bytes)
    parts = [data if len(data) <= PRINTED else data[: PRINTED // 2] + data[-PRINTED // 2 :] for data in whole]
    left_out = sum(map(len, whole)) - sum(map(len, parts))
    return replace(done, stdout_bytes=parts[0], stderr_bytes=parts[1], truncated=done.truncated + left_out)


def _with_notes(result: ToolResult, done: ShellResult) -> ToolResult:
    """The result, with what the command said beside its data."""
    notes = [f"stderr:\n{clip(done.stderr.rstrip(chr(10)), ERRORS)}"] if done.stderr else []
    notes += [f"notice: {notice}" for notice in done.notices]
    content = (*result.content, *((Text("\n".join(notes)),) if notes else ()))
    return ToolResult(content, result.is_error, result.error_code, result.data, result.metadata)


async def _of_file(args: _Arguments, path: str, ctx: ToolContext) -> ToolResult:
    content = await ctx.execution.read_file(target_path(ctx, path), limit=SIZE + 1)
    if content.size > SIZE:
        return ToolResult.failure("too_large", f"{path} has {content.size} bytes; {SIZE} are taken at most")
    return await to_thread.run_sync(_transformed, content.text, path, args.pipeline, depends_on(content))


def _transformed(text: str, source: str, steps: Sequence[Step], metadata: JsonObject | None = None) -> ToolResult:
    try:
        made = run_steps(parse_json(text.removeprefix("\ufeff")), steps)
    except StepError as error:
        return ToolResult.failure("bad_step", str(error), metadata=metadata)
    except ValueError as error:
        return ToolResult.failure("bad_json", _no_json(text, source, error), metadata=metadata)
    try:
        shown = _result(made, metadata)
    except RecursionError:
        shown = None
    if shown is None or _depth(shown.data) > DEPTH:
        return ToolResult.failure("too_deep", "the result is nested too deeply to be shown: format the fields you need")
    return shown


def _depth(value: Json) -> int:
    """How deeply lists and objects are in one another."""
    deepest = 0
    level: list[Json] = [value]
    while level:
        deepest += 1
        inner = [one.values() if isinstance(one, dict) else one for one in level if isinstance(one, dict | list)]
        level = [item for items in inner for item in items]
    return deepest


def _no_json(text: str, source: str, error: ValueError) -> str:
    if not text.strip():
        return f"{source} is empty: it has to be a JSON list"
    where = text[error.pos : error.pos + 40] if isinstance(error, json.JSONDecodeError) else ""
    return f"{source} is no JSON: {error}" + (f"; there is {where!r}" if where else "")


def _result(made: Json, metadata: JsonObject | None) -> ToolResult:
    """The JSON of the result; of a list that is too long its first items, with the number of the others."""
    if not isinstance(made, list):
        return ToolResult.of(dumps(made), data={"result": made, "left_out": 0}, metadata=metadata)
    kept, _ = fit(_candidates(made), lambda some: dumps(list(some), indent=2), list)
    dropped = len(made) - len(kept)
    data: Json = {"result": kept, "count": len(made), "left_out": dropped}
    content = (Text(dumps(kept, indent=2)), *((Text(_left_out(kept, made)),) if dropped else ()))
    return ToolResult(content, data=data, metadata=metadata or {})


def _candidates(made: Sequence[Json]) -> list[Json]:
    """The first items that could fit: to write all of a long list with its indents takes its time."""
    room = REPORT.characters
    for number, item in enumerate(made):
        room -= len(dumps(item))
        if room < 0:
            return list(made[:number])
    return list(made)


def _left_out(kept: Sequence[Json], made: Sequence[Json]) -> str:
    advice = "filter or format the items" if kept else "the first item alone is too long: format its fields"
    return f"[the first {len(kept)} of {len(made)} items; {advice}]"
