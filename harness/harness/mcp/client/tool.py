"""Tools of MCP servers, whose calls pass through the same pipeline, policy and audit log as all others."""

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


# -- Validation of arguments against a server's schema, which is untrusted


MAX_SCHEMA_NODES = 20_000
"""Maximum values in one schema."""
WORK = 2_000
"""Maximum schemas against which one value is checked, not counting those of its parts."""
MISTAKES = 5
NAMES = frozenset({"properties", "$defs", "definitions", "dependentSchemas"})
"""Keywords whose keys are names."""
LITERAL = frozenset({"default", "enum", "const", "examples"})
SAME_VALUE = ("allOf", "anyOf", "oneOf")
KINDS: Mapping[str, Any] = {
    "string": str, "integer": int, "number": float, "boolean": bool, "array": list, "object": dict, "null": NoneType,
}  # fmt: skip


class SchemaError(ValueError):
    """A schema that cannot be used; the text is the reason."""


def usable_schema(schema: JsonObject) -> JsonObject:
    """Return the schema for models: an object with a description of each required argument. Pure.

    Raises:
        SchemaError: it is not an object, is too large, has external references, or is too expensive to check.
    """
    if schema.get("type", "object") != "object":
        raise SchemaError("its arguments are not an object")
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
        raise SchemaError("its properties are not an object")
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
    """Yield the schema and its subschemas."""
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
        raise SchemaError("its parts have ids of their own, which are not supported")
    return found


def _target(schema: JsonObject, reference: str) -> Any:
    """Return the subschema of a reference within the schema."""
    if not reference.startswith("#"):
        raise SchemaError(f"it has the external reference {reference!r}")
    node: Any = schema
    for part in reference[1:].split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        node = node.get(key) if isinstance(node, dict) else None
    if not isinstance(node, dict | bool) or (len(reference) > 1 and not reference.startswith("#/")):
        raise SchemaError(f"its reference {reference!r} has no target")
    return node


def _work(root: JsonObject, node: Any, above: set[int], known: dict[int, int]) -> int:
    """Return against how many schemas one value is checked: a short schema can cause unbounded work."""
    if not isinstance(node, dict):
        return 1
    if id(node) in above:
        raise SchemaError("it has an endless reference to itself")
    if id(node) not in known:
        inside = above | {id(node)}
        cost = 1 + sum(_work(root, part, inside, known) for part in _same_value(root, node))
        if cost > WORK:
            raise SchemaError("checking a value against it would take too long")
        known[id(node)] = cost
    return known[id(node)]


def _same_value(root: JsonObject, node: dict[str, Any]) -> list[Any]:
    """Return the schemas that apply to the same value as this one."""
    found = [item for key in SAME_VALUE for item in (node[key] if isinstance(node.get(key), list) else [])]
    found += [node[key] for key in ("not", "if", "then", "else") if key in node]
    found += [_target(root, node[key]) for key in ("$ref", "$dynamicRef", "$recursiveRef") if key in node]
    dependent = node.get("dependentSchemas")
    return found + (list(dependent.values()) if isinstance(dependent, dict) else [])


def _without_patterns(node: Any, *, is_schema: bool = True) -> Any:
    """Return the schema without regular expressions, which may take forever; the server checks them itself."""
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
    """Validates the arguments of one tool. The library is loaded on first use, because that is slow.

    Args:
        schema: the result of :func:`usable_schema`.
    """

    def __init__(self, schema: JsonObject) -> None:
        self._schema = schema
        self._compiled: Validator | None = None

    def check(self, raw: JsonObject, tool: str) -> dict[str, Json]:
        """Return the arguments, with texts converted to numbers, booleans or lists where only those are valid.

        Raises:
            ToolError: ``invalid_args``, with one line for each of the first errors.
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
        """Check that the schema itself is valid.

        Raises:
            SchemaError: it is invalid.
        """
        from jsonschema.exceptions import SchemaError as InvalidJsonSchema

        validator = self._validator()
        try:
            type(validator).check_schema(cast(dict[str, Any], validator.schema))
            next(iter(validator.iter_errors({})), None)
        except InvalidJsonSchema as error:
            raise SchemaError(f"its schema is invalid: {error.message[:200]}") from error
        except Exception as error:  # an untrusted schema may cause any error in the library
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
    """Return the types that a schema allows; empty if it allows any."""
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


# -- The tools of servers


UNAVAILABLE = "mcp_server_unavailable"
PROGRESS_TEXT = 500
PROGRESS_PAUSE = 0.05
"""Minimum seconds between two progress reports that are shown."""


class RemoteArguments(Arguments):
    """The arguments of one call, as the server's schema allows them."""

    values: dict[str, Any]


def is_mutating(config: ServerConfig, definition: ToolDefinition) -> bool:
    """Return whether a tool counts as mutating; the server's claim counts only if it is trusted. Pure."""
    listed = config.read_only if isinstance(config.read_only, bool) else definition.name in config.read_only
    return not (listed or (config.trust_annotations and definition.read_only))


def _traits(config: ServerConfig, definition: ToolDefinition) -> Traits:
    return Traits(
        category=config.category, mutating=is_mutating(config, definition), parallelizable=config.parallelizable
    )


class RemoteTool(Tool[RemoteArguments]):
    """A tool that a server offers. ``remote_name`` is the server's name for it.

    Args:
        name: the name for models.
        definition: the server's definition.
        schema: the usable form of its schema.
        supervisor: the server's supervisor.
        disabled: returns for the server's name of a tool whether it is disabled; asked at each call.
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
            if self._disabled(self.remote_name):  # after the start, which may have changed the tools
                return _changed(self.server, self.remote_name)
            return await self._within_time(connection, args, ctx)
        except ConnectError as error:
            return self._failure(UNAVAILABLE, f"{error}; nothing was run")
        except ConnectionLost as error:
            return self._lost(error)
        except ServerRefusal as error:
            return self._failure(*_refusal(error, self.server))
        except ValueError as error:
            text = f"server {self.server!r} has run it, but its answer is invalid: {plain(str(error))[:200]}"
            return self._failure("bad_answer", text)

    async def _within_time(self, connection: Connection, args: RemoteArguments, ctx: ToolContext) -> ToolResult:
        answer: CallToolResult | None = None
        with anyio.move_on_after(self._config.timeout):  # the library notifies the server of the cancellation
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
    """Shows a server's progress reports to operators at a limited rate; the last report may be omitted."""

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
    """Replaces a tool whose definition has changed, hiding the new one from models until the operator accepts it."""

    def __init__(self, name: str, definition: ToolDefinition, config: ServerConfig) -> None:
        text = f"[{config.name}] This tool differs from the accepted one, and is disabled until it is accepted."
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
