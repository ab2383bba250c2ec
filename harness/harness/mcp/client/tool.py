"""A tool of another server, with its arguments checked, through the same pipeline, policy and audit as others."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches
from functools import reduce
from operator import or_
from types import NoneType
from typing import TYPE_CHECKING, Any, cast

import anyio

from ...errors import ConnectError, ConnectionLost, ToolError
from ...toolkit.arguments import coerce
from ...toolkit.contract import Arguments, Tool, Traits
from ...toolkit.pipeline import MAYBE, timed_out
from ...toolkit.values import Json, JsonObject, Subject, ToolResult
from .channel import plain
from .configuration import ServerConfig
from .definitions import ToolDefinition, origin_of, result_of
from .session import Connection, ServerRefusal, Supervisor
from .stdio import TOO_LARGE

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError
    from jsonschema.protocols import Validator
    from mcp.types import CallToolResult

    from ...toolkit.contract import ToolContext

__all__ = [
    "ArgumentSchema",
    "DisabledTool",
    "RemoteArguments",
    "RemoteTool",
    "SchemaError",
    "is_mutating",
    "usable_schema",
]


# -- Arguments checked against the schema that a server gives for its tool: somebody else's text, taken with care.


MAX_SCHEMA_NODES = 20_000
"""Values in one schema."""
WORK = 2_000
"""Schemas that one value may be held against, without those of its parts."""
MISTAKES = 5
NAMES = frozenset({"properties", "$defs", "definitions", "dependentSchemas"})
"""Their keys are names, not words of the language."""
LITERAL = frozenset({"default", "enum", "const", "examples"})
SAME_VALUE = ("allOf", "anyOf", "oneOf")
KINDS: Mapping[str, Any] = {
    "string": str, "integer": int, "number": float, "boolean": bool, "array": list, "object": dict, "null": NoneType,
}  # fmt: skip


class SchemaError(ValueError):
    """A schema that cannot be used; the text says why."""


def usable_schema(schema: JsonObject) -> JsonObject:
    """The schema as it is shown to models: an object, with a description of each argument that it requires. Pure.

    Raises:
        SchemaError: it describes no object, is too large, refers to elsewhere, or could not be worked off.
    """
    if schema.get("type", "object") != "object":
        raise SchemaError("its arguments are no object")
    _measure(schema)
    for reference in _references(schema):
        _target(schema, reference)
    try:
        known: dict[int, int] = {}
        for node in _schemas(schema):
            _work(schema, node, set(), known)
    except RecursionError:
        raise SchemaError("it is nested too deeply") from None
    properties, required = schema.get("properties", {}), schema.get("required", [])
    if not isinstance(properties, dict) or not isinstance(required, list):
        raise SchemaError("its properties are no object")
    missing: dict[str, Json] = {name: {} for name in required if isinstance(name, str) and name not in properties}
    return {**schema, "type": "object", "properties": {**properties, **missing}}


def _measure(schema: JsonObject) -> None:
    waiting: list[Any] = [schema]
    count = 0
    while waiting:
        node = waiting.pop()
        count += 1
        waiting += node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
        if count + len(waiting) > MAX_SCHEMA_NODES:
            raise SchemaError(f"it has more than {MAX_SCHEMA_NODES} parts")


def _schemas(node: Any) -> Iterator[dict[str, Any]]:
    """The schema and those in it."""
    if isinstance(node, list):
        for item in node:
            yield from _schemas(item)
    elif isinstance(node, dict):
        yield node
        for key, value in node.items():
            if key in NAMES and isinstance(value, dict):
                for item in value.values():
                    yield from _schemas(item)
            elif key not in LITERAL:
                yield from _schemas(value)


def _references(schema: JsonObject) -> set[str]:
    keys = ("$ref", "$dynamicRef", "$recursiveRef")
    found = {node[key] for node in _schemas(schema) for key in keys if isinstance(node.get(key), str)}
    if any("$id" in node for node in _schemas(schema)) and found:
        raise SchemaError("it gives its parts addresses of their own")
    return found


def _target(schema: JsonObject, reference: str) -> Any:
    """What a reference within the schema means."""
    if not reference.startswith("#"):
        raise SchemaError(f"it refers to {reference!r}, which is elsewhere")
    node: Any = schema
    for part in reference[1:].split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        node = node.get(key) if isinstance(node, dict) else None
    if not isinstance(node, dict | bool) or (len(reference) > 1 and not reference.startswith("#/")):
        raise SchemaError(f"it refers to {reference!r}, which is not there")
    return node


def _work(root: JsonObject, node: Any, above: set[int], known: dict[int, int]) -> int:
    """How many schemas one value is held against: a short text can mean endless work."""
    if not isinstance(node, dict):
        return 1
    if id(node) in above:
        raise SchemaError("it refers to itself without an end")
    if id(node) not in known:
        inside = above | {id(node)}
        cost = 1 + sum(_work(root, part, inside, known) for part in _same_value(root, node))
        if cost > WORK:
            raise SchemaError("to check a value against it would take too long")
        known[id(node)] = cost
    return known[id(node)]


def _same_value(root: JsonObject, node: dict[str, Any]) -> list[Any]:
    """The schemas that hold for the same value as this one."""
    found = [item for key in SAME_VALUE for item in (node[key] if isinstance(node.get(key), list) else [])]
    found += [node[key] for key in ("not", "if", "then", "else") if key in node]
    found += [_target(root, node[key]) for key in ("$ref", "$dynamicRef", "$recursiveRef") if key in node]
    dependent = node.get("dependentSchemas")
    return found + (list(dependent.values()) if isinstance(dependent, dict) else [])


def _without_patterns(node: Any, *, is_schema: bool = True) -> Any:
    """Without regular expressions: those of a stranger can take for ever, and the server checks them itself."""
    if isinstance(node, list):
        return [_without_patterns(item) for item in node]
    if not isinstance(node, dict):
        return node
    dropped = {"pattern", "patternProperties", "format"} if is_schema else set()
    if is_schema and "patternProperties" in node:
        dropped |= {"additionalProperties", "unevaluatedProperties"}
    return {
        key: value
        if is_schema and key in LITERAL
        else _without_patterns(value, is_schema=not is_schema or key not in NAMES)
        for key, value in node.items()
        if key not in dropped
    }


class ArgumentSchema:
    """Checks the arguments of one tool. Made when it is first needed: the library takes a while to load.

    Args:
        schema: as :func:`usable_schema` gives it.
    """

    def __init__(self, schema: JsonObject) -> None:
        self._schema = schema
        self._compiled: Validator | None = None

    def check(self, raw: JsonObject, tool: str) -> dict[str, Json]:
        """The arguments, with texts that mean numbers, truth values or lists taken as such where they are none else.

        Raises:
            ToolError: ``invalid_args``, with one line for each of the first mistakes.
        """
        mistakes = self._mistakes(raw)
        if not mistakes:
            return dict(raw)
        coerced = self._coerced(raw)
        mistakes = self._mistakes(coerced)
        if mistakes:
            raise ToolError(f"{tool}: " + "\n".join(mistakes), code="invalid_args")
        return coerced

    def _mistakes(self, values: JsonObject) -> list[str]:
        try:
            errors = sorted(self._validator().iter_errors(dict(values)), key=lambda error: error.json_path)
        except RecursionError:
            return ["the arguments are nested too deeply"]
        known = list(cast(dict[str, Any], self._schema["properties"]))
        return list(dict.fromkeys(_mistake(error, known) for error in errors))[:MISTAKES]

    def _validator(self) -> Validator:
        if self._compiled is None:
            from jsonschema.validators import Draft202012Validator, validator_for
            from referencing import Registry

            schema = _without_patterns(self._schema)
            kind = validator_for(schema, default=Draft202012Validator)
            self._compiled = kind(schema, registry=Registry())
        return self._compiled

    def verify(self) -> None:
        """Say at once whether it is a schema at all.

        Raises:
            SchemaError: it is none.
        """
        from jsonschema.exceptions import SchemaError as InvalidJsonSchema

        validator = self._validator()
        try:
            type(validator).check_schema(cast(dict[str, Any], validator.schema))
            next(iter(validator.iter_errors({})), None)
        except InvalidJsonSchema as error:
            raise SchemaError(f"its schema is wrong: {error.message[:200]}") from error
        except Exception as error:  # whatever else a stranger's schema does to the library
            raise SchemaError(f"its schema cannot be used: {type(error).__name__}") from error

    def _coerced(self, raw: JsonObject) -> dict[str, Json]:
        properties = cast(dict[str, Any], self._schema["properties"])
        return {name: _coerced(value, properties.get(name)) for name, value in raw.items()}


def _coerced(value: Json, schema: Any) -> Json:
    kinds = _kinds(schema)
    if not kinds:
        return value
    found = coerce(value, reduce(or_, kinds))
    return value if isinstance(found, float) and not math.isfinite(found) else found


def _kinds(schema: Any) -> list[Any]:
    """The types that a schema names; none when it may be anything."""
    if not isinstance(schema, dict):
        return []
    named = schema.get("type")
    if isinstance(named, str | list):
        names = [named] if isinstance(named, str) else named
        return [KINDS[name] for name in names if isinstance(name, str) and name in KINDS]
    choices = schema.get("anyOf", schema.get("oneOf"))
    found = [_kinds(choice) for choice in choices] if isinstance(choices, list) else []
    return [kind for kinds in found for kind in kinds] if all(found) else []


def _mistake(error: ValidationError, known: list[str]) -> str:
    where = error.json_path.removeprefix("$").removeprefix(".")
    if error.validator == "additionalProperties" and not where and isinstance(error.instance, dict):
        unknown = next((name for name in error.instance if name not in known), "")
        close = get_close_matches(unknown, known, n=1, cutoff=0.5)
        return f"{unknown}: no such argument; " + (
            f"did you mean {close[0]!r}?" if close else f"known: {', '.join(known)}"
        )
    if error.validator == "required" and isinstance(error.instance, dict) and isinstance(error.validator_value, list):
        names = [name for name in error.validator_value if name not in error.instance]
        return "; ".join(f"{where + '.' if where else ''}{name}: required" for name in names)
    return f"{where or 'arguments'}: {error.message[:300]}"


# -- A tool of another server, as any other tool: through the same pipeline, policy and audit.


UNAVAILABLE = "mcp_server_unavailable"
PROGRESS_TEXT = 500
PROGRESS_PAUSE = 0.05
"""Seconds between two reports that are shown."""


class RemoteArguments(Arguments):
    """The arguments of one call, as the server's schema allows them."""

    values: dict[str, Any]


def is_mutating(config: ServerConfig, definition: ToolDefinition) -> bool:
    """Whether a tool counts as one that changes something: the server's word counts only where it is trusted. Pure."""
    listed = config.read_only if isinstance(config.read_only, bool) else definition.name in config.read_only
    return not (listed or (config.trust_annotations and definition.read_only))


def _traits(config: ServerConfig, definition: ToolDefinition) -> Traits:
    return Traits(
        category=config.category, mutating=is_mutating(config, definition), parallelizable=config.parallelizable
    )


class RemoteTool(Tool[RemoteArguments]):
    """A tool that a server offers. ``remote_name`` is its name there.

    Args:
        schema: the usable form of the definition's schema.
        disabled: says at each call whether the tool has become another one, by its name there.
    """

    def __init__(
        self,
        name: str,
        definition: ToolDefinition,
        schema: JsonObject,
        supervisor: Supervisor,
        disabled: Callable[[str], bool],
    ) -> None:
        config = supervisor.config
        description = f"[{config.name}] {definition.description or definition.name}"
        super().__init__(name, description, RemoteArguments, _traits(config, definition))
        self.remote_name = definition.name
        self.server = config.name
        self._config = config
        self._schema = json.dumps(schema)
        self._arguments = ArgumentSchema(schema)
        self._supervisor = supervisor
        self._disabled = disabled

    @property
    def schema(self) -> JsonObject:
        fresh: dict[str, Any] = json.loads(self._schema)
        return fresh

    def parse(self, raw: JsonObject) -> RemoteArguments:
        return RemoteArguments(values=self._arguments.check(raw, self.name))

    def subjects(self, args: RemoteArguments) -> tuple[Subject, ...]:
        """``SERVER/TOOL {ARGUMENTS}``, the arguments as canonical JSON."""
        values = json.dumps(args.values, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return (Subject("other", f"{self.server}/{self.remote_name} {values}"),)

    def execution_place(self, args: RemoteArguments) -> str:
        return self._config.place

    async def run(self, args: RemoteArguments, ctx: ToolContext) -> ToolResult:
        try:
            connection = await self._supervisor.connection()
            if self._disabled(self.remote_name):  # after the start, which may have brought other tools
                return _changed(self.server, self.remote_name)
            return await self._within_time(connection, args, ctx)
        except ConnectError as error:
            return self._failure(UNAVAILABLE, f"{error}; nothing was run")
        except ConnectionLost as error:
            return self._lost(error)
        except ServerRefusal as error:
            return self._failure(*_refusal(error, self.server))
        except ValueError as error:
            text = f"server {self.server!r} has run it, and its answer cannot be understood: {plain(str(error))[:200]}"
            return self._failure("bad_answer", text)

    async def _within_time(self, connection: Connection, args: RemoteArguments, ctx: ToolContext) -> ToolResult:
        answer: CallToolResult | None = None
        with anyio.move_on_after(self._config.timeout):  # the library tells the server of the cancel
            answer = await connection.call(self.remote_name, args.values, _Reports(ctx))
        if answer is None:
            return timed_out(self._config.timeout, ctx.notes.partial)
        return result_of(answer, self.server, self.remote_name)

    def _lost(self, error: ConnectionLost) -> ToolResult:
        if self.traits.mutating:
            raise ToolError(f"{error.message}; {MAYBE}", code="backend_lost", hint=error.hint) from error
        return self._failure("mcp_server_lost", f"{error}; it changes nothing, so it may be called again")

    def _failure(self, code: str, text: str) -> ToolResult:
        return ToolResult.failure(code, text, metadata=origin_of(self.server, self.remote_name))


def _refusal(error: ServerRefusal, server: str) -> tuple[str, str]:
    if error.code == TOO_LARGE:
        return "answer_too_large", f"server {server!r} has run it; {error}"
    return "mcp_refused", f"server {server!r} refused the call: {plain(str(error))[:2000]} (code {error.code})"


class _Reports:
    """Shows people what a server says of its progress, not too often. The last report may be left out."""

    def __init__(self, ctx: ToolContext) -> None:
        self._ctx = ctx
        self._next = 0.0

    def __call__(self, progress: float, total: float | None, message: str | None) -> None:
        now = anyio.current_time()
        if now < self._next:
            return
        self._next = now + PROGRESS_PAUSE
        count = f"{progress:g}/{total:g}" if total is not None else f"{progress:g}"
        text = plain(message or "").replace("\n", " ")[:PROGRESS_TEXT]
        self._ctx.progress(f"{count} {text}".strip() + "\n", "note")


class DisabledTool(Tool[Arguments]):
    """Stands where a tool was whose definition changed: models do not see the new one before somebody accepts it."""

    def __init__(self, name: str, definition: ToolDefinition, config: ServerConfig) -> None:
        text = (
            f"[{config.name}] This tool is another than the one that was accepted, and disabled until it is accepted."
        )
        super().__init__(name, text, Arguments, _traits(config, definition))
        self._place = config.place
        self.remote_name = definition.name
        self.server = config.name

    def parse(self, raw: JsonObject) -> Arguments:
        return Arguments()

    def subjects(self, args: Arguments) -> tuple[Subject, ...]:
        return (Subject("other", f"{self.server}/{self.remote_name} disabled"),)

    def execution_place(self, args: Arguments) -> str:
        return self._place

    async def run(self, args: Arguments, ctx: ToolContext) -> ToolResult:
        return _changed(self.server, self.remote_name)


def _changed(server: str, tool: str) -> ToolResult:
    text = f"the tool {tool} of server {server!r} changed since it was accepted; nothing was run"
    return ToolResult.failure("tool_changed", text, metadata=origin_of(server, tool))
