"""Tool definitions of servers, compared with those accepted earlier, and conversion of tool results."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ...system.private_files import hold_lock, make_directories, replace_file, state_home
from ...toolkit.contract import NAME
from ...toolkit.values import Block, Image, Json, JsonObject, Text, ToolResult
from .channel import plain
from .configuration import ServerConfig

if TYPE_CHECKING:
    from mcp.types import CallToolResult, ContentBlock, EmbeddedResource, Tool

__all__ = [
    "DefinitionStore",
    "KnownTools",
    "ToolDefinition",
    "changed_tools",
    "definition_from",
    "definition_of",
    "is_nameable",
    "local_name",
    "origin_of",
    "result_of",
    "state_directory",
]


# -- Results of a server's tools for the model; their content is untrusted.


IMAGES = 5 << 20
"""Maximum bytes of images in one result."""
NOTHING = "(no output)"


def result_of(answer: CallToolResult, server: str, tool: str) -> ToolResult:
    """Convert a result: text and images unchanged; resources and links as descriptive text."""
    data: Json = answer.structured_content
    content = _limited([_block(block) for block in answer.content])
    if not content:
        content = (Text(NOTHING if data is None else json.dumps(data, ensure_ascii=False)),)
    code = "tool_failed" if answer.is_error else ""
    return ToolResult(content, answer.is_error is True, code, data, origin_of(server, tool))


def origin_of(server: str, tool: str) -> JsonObject:
    """Return the metadata about the origin of a result."""
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


# -- Tool definitions as plain values that can be compared and stored


DESCRIPTION = 8_000
"""Maximum characters of a description."""


@dataclass(frozen=True, slots=True)
class ToolDefinition:
    """A tool of a server. ``name`` is the server's; ``read_only`` is the server's claim."""

    name: str
    description: str = ""
    schema: JsonObject = field(default_factory=dict)
    read_only: bool = False

    @property
    def digest(self) -> str:
        """A digest of everything that matters to models and policies."""
        return hashlib.sha256(json.dumps(self.as_json(), sort_keys=True).encode()).hexdigest()

    def as_json(self) -> JsonObject:
        """Return the form for a file."""
        return {
            "name": self.name,
            "description": self.description,
            "schema": dict(self.schema),
            "read_only": self.read_only,
        }


def definition_of(tool: Tool) -> ToolDefinition:
    """Convert the protocol's form; remove invisible characters, which operators cannot review, from descriptions."""
    title = tool.title or ""
    text = tool.description or title
    hints = tool.annotations
    return ToolDefinition(
        name=tool.name,
        description=plain(text)[:DESCRIPTION],
        schema=_visible(tool.input_schema),
        read_only=hints is not None and hints.read_only_hint is True,
    )


def definition_from(value: object) -> ToolDefinition:
    """Convert the form of :meth:`ToolDefinition.as_json`.

    Raises:
        ValueError: the value is invalid.
    """
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        raise ValueError("not a tool definition")
    description, schema, read_only = value.get("description"), value.get("schema"), value.get("read_only")
    if not isinstance(description, str) or not isinstance(schema, dict) or not isinstance(read_only, bool):
        raise ValueError("not a tool definition")
    return ToolDefinition(value["name"], description, schema, read_only)


def _visible(schema: Mapping[str, Json]) -> JsonObject:
    return {key: _visible_value(key, value) for key, value in schema.items()}


def _visible_value(key: str, value: Json) -> Json:
    if isinstance(value, str):
        return plain(value) if key in {"description", "title"} else value
    if isinstance(value, list):
        return [_visible_value(key, item) for item in value]
    if isinstance(value, dict):
        return dict(_visible(value))
    return value


# -- Names for the tools of servers that are valid for every provider, and unique. Pure.


OTHER = re.compile(r"[^A-Za-z0-9_-]")
LONGEST = 64
DIGITS = 8
REMOTE_LONGEST = 128


def is_nameable(remote: str) -> bool:
    """Return whether a tool's own name can be shown and used in rules: printable, without spaces."""
    return 0 < len(remote) <= REMOTE_LONGEST and remote.isprintable() and " " not in remote


def local_name(server: str, remote: str, servers: Iterable[str] = ()) -> str:
    """Return ``SERVER_TOOL``, independent of anything that the server may change later.

    A name that had to be changed, or could also belong to a tool of another server, ends in eight digits of the digest
    of both names, so that names are unique and never pass from one tool to another.

    Args:
        server: the name of the server.
        remote: the tool's name there.
        servers: the names of all servers.
    """
    wanted = f"{server}_{remote}"
    ambiguous = any(wanted.startswith(f"{other}_") for other in servers if other.startswith(f"{server}_"))
    if NAME.fullmatch(wanted) and not ambiguous:
        return wanted
    digest = hashlib.sha256(f"{server}\0{remote}".encode()).hexdigest()[:DIGITS]
    return f"{OTHER.sub('_', wanted)[: LONGEST - DIGITS - 1]}_{digest}"


# -- Stored definitions: for a start without waiting for the server, and to know which were accepted


VERSION = 1
LIMIT = 64 << 20
LOCK_LIMIT = 5.0


@dataclass(frozen=True, slots=True)
class KnownTools:
    """The last listed tools, and the digests under which they were first seen or accepted.

    ``damaged``: the stored record was unreadable, so nothing counts as accepted.
    """

    definitions: tuple[ToolDefinition, ...] = ()
    accepted: Mapping[str, str] = field(default_factory=dict)
    seen: bool = False
    damaged: bool = False

    def accepting(self, definitions: Iterable[ToolDefinition]) -> KnownTools:
        """Return a copy in which these definitions are accepted."""
        digests = {definition.name: definition.digest for definition in definitions}
        return replace(self, accepted={**self.accepted, **digests}, seen=True, damaged=False)


def changed_tools(known: KnownTools, definitions: Iterable[ToolDefinition]) -> frozenset[str]:
    """Return the tools that differ from the accepted ones. Pure.

    All tools of the first list are accepted; tools that are added later count as changed.
    """
    if not known.seen and not known.damaged:
        return frozenset()
    return frozenset(item.name for item in definitions if known.accepted.get(item.name) != item.digest)


def state_directory(environ: Mapping[str, str]) -> Path:
    """Return the directory of the records: ``$XDG_STATE_HOME/harness/mcp``, or ``~/.local/state/harness/mcp``."""
    return state_home(environ) / "mcp"


@dataclass(frozen=True, slots=True)
class DefinitionStore:
    """Private files, one per server and command or URL. Blocks on file access: use it in a thread."""

    directory: Path

    def load(self, config: ServerConfig) -> KnownTools:
        """Return the stored record, or an empty one if it does not exist."""
        try:
            with self._path(config).open("rb") as file:
                return _parse(json.loads(file.read(LIMIT)))
        except FileNotFoundError:
            return KnownTools()
        except (OSError, ValueError, RecursionError):
            return KnownTools(damaged=True)

    def update(self, config: ServerConfig, change: Callable[[KnownTools], KnownTools]) -> KnownTools:
        """Change the record under a lock between processes, and return the new one.

        Raises:
            OSError: it could not be stored.
        """
        make_directories(self.directory)
        with hold_lock(self.directory / ".lock", LOCK_LIMIT):
            before = self.load(config)
            after = change(before)
            if after != before or before.damaged:
                self.save(config, after)
            return after

    def save(self, config: ServerConfig, known: KnownTools) -> None:
        """Store the record atomically.

        Raises:
            OSError: it could not be stored.
        """
        document = {
            "version": VERSION,
            "server": config.name,
            "tools": [dict(definition.as_json()) for definition in known.definitions],
            "accepted": dict(known.accepted),
        }
        make_directories(self.directory)
        replace_file(self._path(config), json.dumps(document).encode("ascii"))

    def _path(self, config: ServerConfig) -> Path:
        return self.directory / f"{config.name}-{config.identity[:16]}.json"


def _parse(document: object) -> KnownTools:
    if not isinstance(document, dict) or document.get("version") != VERSION:
        raise ValueError("unknown version of the record")
    tools, accepted = document.get("tools"), document.get("accepted")
    if not isinstance(tools, list) or not isinstance(accepted, dict):
        raise ValueError("invalid record")
    if not all(isinstance(digest, str) for digest in accepted.values()):
        raise ValueError("invalid record")
    return KnownTools(tuple(definition_from(tool) for tool in tools), accepted, seen=True)
