"""Conversion of tools and outcomes to the protocol's types. Pure."""

from __future__ import annotations

import base64
import re
from collections.abc import Collection, Mapping
from typing import Any, cast
from urllib.parse import quote

import mcp_types as types

from ...toolkit.contract import Tool
from ...toolkit.values import Block, CallOutcome, Category, Json, JsonObject, Text

__all__ = [
    "CALL_ID",
    "DEFAULT_HANDOFF",
    "STATUS",
    "handle_note",
    "log_uri",
    "plain",
    "result_of",
    "running_job",
    "structured",
    "title_of",
    "tool_of",
]


# -- Running jobs: how a client follows a command that is still running. Pure.


DEFAULT_HANDOFF = 45.0
"""Seconds after which a call returns the handle of its job: common clients time out after 60."""


def log_uri(job_id: str) -> str:
    """Return the address of a job's output."""
    return f"harness://job/{quote(job_id, safe='')}/log"


def running_job(outcome: CallOutcome) -> str:
    """Return the id of the job that is still running after the call, or an empty string."""
    data = outcome.result.data
    if outcome.result.is_error or not isinstance(data, dict) or data.get("status") != "running":
        return ""
    job_id = data.get("job_id")
    return job_id if isinstance(job_id, str) else ""


def handle_note(job_id: str, tools: Collection[str]) -> str:
    """Return the advice about a running job, with the offered tools."""
    ways = [f"read the resource {log_uri(job_id)}"]
    if "capture_pane" in tools:
        ways.append("call capture_pane to see its screen")
    return (
        f"The command was not ended and must not be started again: it continues as job {job_id}. "
        f"To follow it, {' or '.join(ways)}; that resource also says when it has ended."
    )


# -- Tools and outcomes in the protocol's types. Pure.


OPEN_WORLD = frozenset({Category.SHELL, Category.NETWORK, Category.MCP, Category.AGENT, Category.PLUGIN})
"""Categories of tools that may reach beyond the target: a command can call anything."""
CALL_ID = "harness/call_id"
"""The key in a result's ``_meta`` of the call's id in the audit log."""
STATUS = "harness/status"
SURROGATE = re.compile("[\ud800-\udfff]")
NO_OUTPUT = "(no output)"


def tool_of(tool: Tool[Any]) -> types.Tool:
    """Convert a tool's definition; its hints state the worst of its calls."""
    traits, title = tool.traits, title_of(tool.name)
    return types.Tool(
        name=tool.name,
        title=title,
        description=tool.description,
        input_schema=cast("dict[str, Any]", {"type": "object", **tool.schema}),
        annotations=types.ToolAnnotations(
            title=title,
            read_only_hint=not traits.mutating,
            destructive_hint=traits.mutating and traits.category is not Category.NONE,
            idempotent_hint=not traits.mutating,
            open_world_hint=traits.category in OPEN_WORLD,
        ),
    )


def title_of(name: str) -> str:
    """Return a title: ``Read file`` for ``read_file``."""
    words = name.replace("_", " ").replace("-", " ").strip()
    return words[:1].upper() + words[1:]


def result_of(outcome: CallOutcome) -> types.CallToolResult:
    """Convert the outcome of a call; a tool that could not run is a result, too, so that the model reads the reason."""
    result = outcome.result
    return types.CallToolResult(
        content=[_block(block) for block in result.content] or [types.TextContent(type="text", text=NO_OUTPUT)],
        structured_content=structured(result.data),
        is_error=result.is_error,
        _meta={CALL_ID: outcome.call.call_id, STATUS: str(outcome.status)},
    )


def _block(block: Block) -> types.ContentBlock:
    if isinstance(block, Text):
        return types.TextContent(type="text", text=plain(block.text))
    data = base64.b64encode(block.data).decode()
    return types.ImageContent(type="image", data=data, mime_type=block.media_type)


def structured(data: Json) -> dict[str, Any] | None:
    """Return a result's data as an object, as the protocol requires; other values become its ``result``."""
    if data is None:
        return None
    value = _plain_json(data)
    return value if isinstance(value, dict) else {"result": value}


def _plain_json(value: Json) -> Json:
    if isinstance(value, str):
        return plain(value)
    if isinstance(value, Mapping):
        return {plain(name): _plain_json(item) for name, item in cast(JsonObject, value).items()}
    if isinstance(value, list):
        return [_plain_json(item) for item in value]
    return value


def plain(text: str) -> str:
    """Return text that JSON can represent: bytes that are not UTF-8 become U+FFFD."""
    return text if text.isascii() else SURROGATE.sub("\ufffd", text)
