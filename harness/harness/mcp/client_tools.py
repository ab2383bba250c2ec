"""A tool of another server, as any other tool: through the same pipeline, policy and audit."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import anyio

from ..errors import ConnectError, ConnectionLost, ToolError
from ..toolkit.contract import Arguments, Tool, Traits
from ..toolkit.failures import MAYBE, timed_out
from ..toolkit.values import JsonObject, Subject, ToolResult
from .client import Connection, ServerRefusal
from .client_config import ServerConfig
from .client_content import origin_of, result_of
from .client_definitions import ToolDefinition
from .client_log import plain
from .client_schema import ArgumentSchema
from .client_stdio import TOO_LARGE
from .supervise import Supervisor

if TYPE_CHECKING:
    from mcp.types import CallToolResult

    from ..toolkit.context import ToolContext

__all__ = ["DisabledTool", "RemoteArguments", "RemoteTool", "is_mutating"]

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

    def place(self, args: RemoteArguments) -> str:
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

    def place(self, args: Arguments) -> str:
        return self._place

    async def run(self, args: Arguments, ctx: ToolContext) -> ToolResult:
        return _changed(self.server, self.remote_name)


def _changed(server: str, tool: str) -> ToolResult:
    text = f"the tool {tool} of server {server!r} changed since it was accepted; nothing was run"
    return ToolResult.failure("tool_changed", text, metadata=origin_of(server, tool))
