"""``transform``: process JSON values from a command, a file or the call in a pipeline of steps."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from difflib import get_close_matches
from typing import Annotated, Any, Literal

from anyio import to_thread
from pydantic import AliasChoices, BaseModel, BeforeValidator, ConfigDict, Field, GetJsonSchemaHandler, model_validator
from pydantic_core import CoreSchema

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
from harness.toolkit.result_cache import depends_on
from harness.toolkit.results import note_job, progress_of, shell_result
from harness.toolkit.session.file_versions import target_path

from ..texts import REPORT, Content, Line, clip, dumps, fit

__all__ = [
    "Transform",
    "parse_json",
    "text_of",
    "value_at",
]


# -- The steps of a pipeline, as a model writes them.


TEMPLATE = 10_000
"""Maximum characters of a template."""


def _as_text(value: object) -> object:
    """Return numbers and booleans as texts, because values are compared as texts."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value) if isinstance(value, int | float) else value


Key = Annotated[
    str,
    Field(min_length=1, max_length=1_000, description="field of each item; a.b is field b of the object in field a"),
]
Value = Annotated[str, BeforeValidator(_as_text)]


class _Step(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    @model_validator(mode="before")
    @classmethod
    def _known(cls, values: Any) -> Any:
        """Suggest the argument that was meant, because the general message does not reach this depth."""
        unknown = [name for name in values if name not in cls.model_fields] if isinstance(values, dict) else []
        if unknown:
            close = get_close_matches(str(unknown[0]), list(cls.model_fields), n=1, cutoff=0.5)
            advice = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(cls.model_fields)}"
            raise ValueError(f"no such argument {str(unknown[0])[:100]!r}; {advice}")
        return values


class GroupBy(_Step):
    """Groups in the order of their first items: {key, items}."""

    op: Literal["group_by"]
    key: Key


class SortBy(_Step):
    """Numbers by size, before texts; items without the field first."""

    op: Literal["sort_by"]
    key: Key
    desc: bool = Field(False, description="descending order")


class Filter(_Step):
    """Keep the items for which one condition holds; values are compared as texts."""

    op: Literal["filter"]
    key: Key
    eq: Value | None = Field(None, description="equals this")
    neq: Value | None = Field(None, description="does not equal this")
    contains: Value | None = Field(None, description="contains this text; for a list: has this member")
    exists: bool | None = Field(None, description="true: exists and is not null; false: does not")

    @model_validator(mode="after")
    def _one_condition(self) -> Filter:
        given = [name for name in ("eq", "neq", "contains", "exists") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"give one of eq, neq, contains and exists, not {' and '.join(given) or 'none'}")
        return self


class Count(_Step):
    """The number of items; with a key, the number per value: {key, count}."""

    op: Literal["count"]
    key: Key | None = None


class Flatten(_Step):
    """Undo group_by, and join nested lists into one."""

    op: Literal["flatten"]


class Format(_Step):
    """Each item as a text."""

    op: Literal["format"]
    template: str = Field(
        min_length=1, max_length=TEMPLATE, description="text with {field} or {a.b}; {{ and }} are braces"
    )


class _PlainChoice:
    """A schema with plain alternatives, because a discriminator refers to definitions that no provider resolves."""

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        schema = dict(handler(core))
        schema.pop("discriminator", None)
        schema["anyOf"] = schema.pop("oneOf", schema.get("anyOf", []))
        return schema


Step = Annotated[GroupBy | SortBy | Filter | Count | Flatten | Format, Field(discriminator="op"), _PlainChoice()]


# -- Applying the steps. Pure, with a size limit.


MADE = 16 << 20
"""Maximum characters that one ``format`` may produce."""


class StepError(Exception):
    """A step that cannot be applied; the message names it."""


class _Group(dict[str, Any]):
    """A group of ``group_by``, which ``flatten`` distinguishes from an object of the same form."""


# -- values


def parse_json(text: str) -> Json:
    """Parse one JSON value, or one per line as a list.

    Raises:
        ValueError: The text is neither.
    """
    try:
        return _parsed(text)
    except json.JSONDecodeError as error:
        if not error.msg.startswith("Extra data"):
            raise
        return _lines(text, error)


def _parsed(text: str) -> Json:
    try:
        value: Json = json.loads(text, parse_constant=_refuse_constant, parse_float=_finite)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    return value


def _lines(text: str, whole: json.JSONDecodeError) -> Json:
    found: list[Json] = []
    for line in text.split("\n"):
        if line.strip():
            try:
                found.append(_parsed(line))
            except ValueError:
                raise whole from None
    return found


def _refuse_constant(word: str) -> Json:
    raise ValueError(f"{word} is not JSON")


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"{text[:40]} is out of the range of numbers")
    return value


def value_at(item: Json, path: str) -> Json:
    """Return the value at ``a.b`` of an item, or at ``a.0`` of a list, or None; a name with dots has precedence."""
    rest = path.removeprefix(".")
    while True:
        if isinstance(item, dict) and rest in item:
            return item[rest]
        name, dot, rest = rest.partition(".")
        item = _member(item, name)
        if item is None or not dot:
            return item


def _member(item: Json, name: str) -> Json:
    if isinstance(item, dict):
        return item.get(name)
    if isinstance(item, list) and name.isascii() and name.isdecimal() and len(name) < 10 and int(name) < len(item):
        return item[int(name)]
    return None


def text_of(value: Json) -> str:
    """Return a value as text: empty for null, 2 for 2.0, JSON for lists and objects."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return dumps(value)


# -- steps


def run_steps(value: Json, steps: Sequence[Step]) -> Json:
    """Apply all steps.

    Raises:
        StepError: A step cannot be applied.
    """
    for number, step in enumerate(steps, 1):
        try:
            value = _apply(value, step)
        except (ValueError, RecursionError) as error:
            raise StepError(f"step {number} ({step.op}): {error}") from error
    return value


def _apply(value: Json, step: Step) -> Json:
    if isinstance(step, Count) and step.key is None:
        return len(value) if isinstance(value, list | dict) else 1
    return _WORK[type(step)](_items(value), step)


def _items(value: Json) -> list[Json]:
    if isinstance(value, list):
        return value
    keys = f" with the keys {', '.join(list(value)[:20])[:500] or 'none'}" if isinstance(value, dict) else ""
    raise ValueError(f"it needs a list, but the data is {_kind(value)}{keys}")


def _kind(value: Json) -> str:
    if value is None:
        return "null"
    names = {str: "a text", bool: "a boolean", int: "a number", float: "a number", dict: "an object"}
    return next(name for kind, name in names.items() if isinstance(value, kind))


def _group_by(items: list[Json], step: GroupBy) -> Json:
    groups: dict[str, list[Json]] = {}
    for item in items:
        groups.setdefault(text_of(value_at(item, step.key)), []).append(item)
    return [_Group(key=key, items=members) for key, members in groups.items()]


def _sort_by(items: list[Json], step: SortBy) -> Json:
    return sorted(items, key=lambda item: _rank(value_at(item, step.key)), reverse=step.desc)


def _rank(value: Json) -> tuple[int, float, str]:
    if value is None:
        return 0, 0, ""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return 1, value, ""
    return 2, 0, text_of(value)


def _filter(items: list[Json], step: Filter) -> Json:
    return [item for item in items if _holds(value_at(item, step.key), step)]


def _holds(value: Json, step: Filter) -> bool:
    if step.exists is not None:
        return (value is not None) == step.exists
    if step.eq is not None:
        return text_of(value) == step.eq
    if step.neq is not None:
        return text_of(value) != step.neq
    wanted = step.contains or ""
    return any(text_of(member) == wanted for member in value) if isinstance(value, list) else wanted in text_of(value)


def _count(items: list[Json], step: Count) -> Json:
    counts: dict[str, int] = {}
    for item in items:
        key = text_of(value_at(item, step.key or ""))
        counts[key] = counts.get(key, 0) + 1
    return [{"key": key, "count": count} for key, count in counts.items()]


def _flatten(items: list[Json], step: Flatten) -> Json:
    flat: list[Json] = []
    for item in items:
        if isinstance(item, _Group):
            flat += item["items"]
        elif isinstance(item, list):
            flat += item
        else:
            flat.append(item)
    return flat


def _format(items: list[Json], step: Format) -> Json:
    pieces = _pieces(step.template)
    made: list[Json] = []
    room = MADE
    for item in items:
        line, room = _rendered(pieces, item, room)
        made.append(line)
    return made


def _rendered(pieces: Sequence[tuple[bool, str]], item: Json, room: int) -> tuple[str, int]:
    """Return one line, and the remaining size."""
    texts = []
    known: dict[str, str] = {}
    for is_field, text in pieces:
        if is_field and text not in known:
            known[text] = text_of(value_at(item, text))
        texts.append(known[text] if is_field else text)
        room -= len(texts[-1])
        if room < 0:
            raise ValueError(f"it would produce more than {MADE} characters")
    return "".join(texts), room


def _pieces(template: str) -> list[tuple[bool, str]]:
    """Split a template into fields (True) and texts."""
    found: list[tuple[bool, str]] = []
    at = 0
    while at < len(template):
        two, one = template[at : at + 2], template[at]
        end = template.find("}", at) if one == "{" and two != "{{" else -1
        if two in ("{{", "}}"):
            found.append((False, one))
            at += 2
        elif end > 0:
            found.append((True, template[at + 1 : end]))
            at = end + 1
        else:
            plain = _plain_end(template, at + 1)
            found.append((False, template[at:plain]))
            at = plain
    return found


def _plain_end(template: str, at: int) -> int:
    """Return where the text ends: at the next brace."""
    ends = [end for end in (template.find("{", at), template.find("}", at)) if end >= 0]
    return min(ends, default=len(template))


_WORK: dict[type[Any], Callable[[list[Json], Any], Json]] = {
    GroupBy: _group_by,
    SortBy: _sort_by,
    Filter: _filter,
    Count: _count,
    Flatten: _flatten,
    Format: _format,
}


# -- The tool.


SIZE = 16 << 20
"""Maximum bytes of the data."""
TIMEOUT = 30.0
"""Timeout of the command in seconds."""
DEPTH = 100
"""Maximum nesting of the result, below the limits of what processes it later."""
PRINTED = 8 << 10
"""Maximum bytes of each stream of a failed command: its start and its end are shown."""
ERRORS = 2_000
"""Maximum characters of a command's standard error that are shown with the result."""

DESCRIPTION = """\
Process a list of JSON values without a script: group, sort, filter, count, flatten, format. The list is the \
output of a shell command (exec), the content of a file, or input; one value per line is also a list. Returns JSON."""


class _Arguments(MutatingArguments):
    exec: Line | None = Field(
        None,
        description="shell command on the target that prints the data within 30 s",
        validation_alias=AliasChoices("exec", "command"),
    )
    file: Line | None = Field(
        None, description="file on the target with the data", validation_alias=AliasChoices("file", "path", "file_path")
    )
    input: Content | None = Field(None, max_length=SIZE, description="the data itself, as JSON text")
    pipeline: list[Step] = Field(
        min_length=1,
        max_length=100,
        description="the steps (group_by, sort_by, filter, count, flatten, format), each on the previous result",
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
        """Return the traits: a command may change anything; a file or an input is only read."""
        return self.traits if args.exec is not None else _READS if args.file is not None else _INSIDE

    def subjects(self, args: _Arguments) -> tuple[Subject, ...]:
        if args.exec is not None:
            return (Subject("command", args.exec),)
        return (Subject("read", args.file),) if args.file is not None else super().subjects(args)

    def covered_arguments(self) -> frozenset[str]:
        """Return the arguments that the policy covers: the pipeline runs locally, on the output of the command."""
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
        return ToolResult.failure("too_large", f"the command printed {size} bytes, more than the limit of {SIZE}")
    made = await to_thread.run_sync(_transformed, done.stdout, "the command's output", args.pipeline)
    return _with_notes(made, done)


def _shortened(done: ShellResult) -> ShellResult:
    """Return the result with the start and the end of the output, to avoid rendering all of it."""
    whole = (done.stdout_bytes, done.stderr_bytes)
    parts = [data if len(data) <= PRINTED else data[: PRINTED // 2] + data[-PRINTED // 2 :] for data in whole]
    left_out = sum(map(len, whole)) - sum(map(len, parts))
    return replace(done, stdout_bytes=parts[0], stderr_bytes=parts[1], truncated=done.truncated + left_out)


def _with_notes(result: ToolResult, done: ShellResult) -> ToolResult:
    """Return the result with the command's standard error and notices."""
    notes = [f"stderr:\n{clip(done.stderr.rstrip(chr(10)), ERRORS)}"] if done.stderr else []
    notes += [f"notice: {notice}" for notice in done.notices]
    content = (*result.content, *((Text("\n".join(notes)),) if notes else ()))
    return ToolResult(content, result.is_error, result.error_code, result.data, result.metadata)


async def _of_file(args: _Arguments, path: str, ctx: ToolContext) -> ToolResult:
    content = await ctx.execution.read_file(target_path(ctx, path), limit=SIZE + 1)
    if content.size > SIZE:
        return ToolResult.failure("too_large", f"{path} has {content.size} bytes, more than the limit of {SIZE}")
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
    """Return the nesting depth of lists and objects."""
    deepest = 0
    level: list[Json] = [value]
    while level:
        deepest += 1
        inner = [one.values() if isinstance(one, dict) else one for one in level if isinstance(one, dict | list)]
        level = [item for items in inner for item in items]
    return deepest


def _no_json(text: str, source: str, error: ValueError) -> str:
    if not text.strip():
        return f"{source} is empty: it must be a JSON list"
    where = text[error.pos : error.pos + 40] if isinstance(error, json.JSONDecodeError) else ""
    return f"{source} is not JSON: {error}" + (f"; found {where!r}" if where else "")


def _result(made: Json, metadata: JsonObject | None) -> ToolResult:
    """Return the result as JSON; of a list that is too long the first items, and a count of the others."""
    if not isinstance(made, list):
        return ToolResult.of(dumps(made), data={"result": made, "left_out": 0}, metadata=metadata)
    kept, _ = fit(_candidates(made), lambda some: dumps(list(some), indent=2), list)
    dropped = len(made) - len(kept)
    data: Json = {"result": kept, "count": len(made), "left_out": dropped}
    content = (Text(dumps(kept, indent=2)), *((Text(_left_out(kept, made)),) if dropped else ()))
    return ToolResult(content, data=data, metadata=metadata or {})


def _candidates(made: Sequence[Json]) -> list[Json]:
    """Return the first items that could fit, because formatting a whole long list is slow."""
    room = REPORT.characters
    for number, item in enumerate(made):
        room -= len(dumps(item))
        if room < 0:
            return list(made[:number])
    return list(made)


def _left_out(kept: Sequence[Json], made: Sequence[Json]) -> str:
    advice = "filter or format the items" if kept else "the first item alone is too long: format its fields"
    return f"[the first {len(kept)} of {len(made)} items; {advice}]"
