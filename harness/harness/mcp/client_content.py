"""What a server's tool answered, as a result for the model. All of it is somebody else's text."""

from __future__ import annotations

import base64
import binascii
import json
from typing import TYPE_CHECKING

from ..toolkit.values import Block, Image, Json, JsonObject, Text, ToolResult

if TYPE_CHECKING:
    from mcp.types import CallToolResult, ContentBlock, EmbeddedResource

__all__ = ["origin_of", "result_of"]

IMAGES = 5 << 20
"""Bytes of pictures in one result."""
NOTHING = "(no output)"


def result_of(answer: CallToolResult, server: str, tool: str) -> ToolResult:
    """Text and pictures as they are; resources and links as text that says what they are."""
    data: Json = answer.structured_content
    content = _limited([_block(block) for block in answer.content])
    if not content:
        content = (Text(NOTHING if data is None else json.dumps(data, ensure_ascii=False)),)
    code = "tool_failed" if answer.is_error else ""
    return ToolResult(content, answer.is_error is True, code, data, origin_of(server, tool))


def origin_of(server: str, tool: str) -> JsonObject:
    """Whose words a result is made of."""
    return {"untrusted": True, "mcp_server": server, "mcp_tool": tool}


def _limited(blocks: list[Block]) -> tuple[Block, ...]:
    left, kept = IMAGES, list[Block]()
    for block in blocks:
        if isinstance(block, Image):
            left -= len(block.data)
            kept.append(block if left >= 0 else Text(f"[a picture of {len(block.data)} bytes is left out]"))
        else:
            kept.append(block)
    return tuple(kept)


def _block(block: ContentBlock) -> Block:
    from mcp.types import AudioContent, EmbeddedResource, ImageContent, TextContent

    if isinstance(block, TextContent):
        return Text(block.text)
    if isinstance(block, ImageContent):
        return _picture(block.data, block.mime_type, "picture")
    if isinstance(block, AudioContent):
        return Text(f"[a sound, {block.mime_type}, {_size(block.data)}, which cannot be shown]")
    if isinstance(block, EmbeddedResource):
        return _resource(block)
    title = f" ({block.description})" if block.description else ""
    return Text(f"[a link to the resource {block.name}: {block.uri}{title}]")


def _resource(block: EmbeddedResource) -> Block:
    from mcp.types import TextResourceContents

    resource = block.resource
    if isinstance(resource, TextResourceContents):
        return Text(f"[the resource {resource.uri}]\n{resource.text}")
    kind = resource.mime_type or "application/octet-stream"
    if kind.startswith("image/"):
        return _picture(resource.blob, kind, f"resource {resource.uri}")
    return Text(f"[the resource {resource.uri}, {kind}, {_size(resource.blob)}, which cannot be shown]")


def _picture(data: str, kind: str, what: str) -> Block:
    try:
        return Image(base64.b64decode(data, validate=True), kind)
    except (binascii.Error, ValueError):
        return Text(f"[a {what}, {kind}, that is damaged]")


def _size(data: str) -> str:
    return f"{len(data) * 3 // 4} bytes"
