"""Files of the target."""

from __future__ import annotations

from typing import Literal

from pydantic import AliasChoices, Field

from harness.results import FileContent
from harness.toolkit import (
    Arguments,
    Category,
    Json,
    MutatingArguments,
    OutputLimit,
    Subject,
    Tool,
    ToolContext,
    ToolResult,
    Traits,
)
from harness.toolkit.reads import Written, guarded_write, read_seen
from harness.toolkit.results_cache import depends_on

from .texts import Content, Line

__all__ = ["ReadFile", "WriteFile", "whole_characters"]

SHOWN = 15_000
MOST_SHOWN = 60_000
"""Bytes of one answer: each is one character at most, so that the engine's own limit cuts nothing off."""
PATH = AliasChoices("path", "file_path", "file")


def whole_characters(data: bytes) -> bytes:
    """Without the beginning of a character at the end that the rest is missing of. Pure."""
    for back in range(1, min(4, len(data) + 1)):
        byte = data[-back]
        if byte & 0xC0 != 0x80:
            length = 2 if byte & 0xE0 == 0xC0 else 3 if byte & 0xF0 == 0xE0 else 4 if byte & 0xF8 == 0xF0 else 1
            return data[:-back] if length > back else data
    return data


class _Read(Arguments):
    path: Line = Field(description="the file; ~ is the user's home", validation_alias=PATH)
    byte_offset: int = Field(0, ge=0, description="where to start")
    byte_limit: int = Field(SHOWN, ge=1, le=MOST_SHOWN, description="how many bytes at most")


class ReadFile(Tool[_Read]):
    """``read_file``."""

    def __init__(self) -> None:
        traits = Traits(
            category=Category.FILE_READ,
            parallelizable=True,
            cacheable=True,
            aliases=("read",),
            packs=("core",),
            limit=OutputLimit(MOST_SHOWN + 1_000, 0),
        )
        text = "Read a text file of the target. A long one is read in parts; the answer says how to go on."
        super().__init__("read_file", text, _Read, traits)

    def subjects(self, args: _Read) -> tuple[Subject, ...]:
        return (Subject("read", args.path),)

    async def run(self, args: _Read, ctx: ToolContext) -> ToolResult:
        content = await read_seen(ctx, args.path, offset=args.byte_offset, limit=args.byte_limit)
        return _shown(args, content)


def _shown(args: _Read, content: FileContent) -> ToolResult:
    if b"\0" in content.data:
        return ToolResult.failure("binary", f"{args.path} is no text: it holds NUL bytes ({content.size} bytes in all)")
    end = args.byte_offset + len(content.data)
    cut = end < content.size
    data = whole_characters(content.data) if cut else content.data
    text = data.decode("utf-8", "surrogateescape")
    shown = args.byte_offset + len(data)
    if cut or args.byte_offset:
        rest = f"; go on with byte_offset={shown}" if cut else ""
        text = f"{text}\n[bytes {args.byte_offset} to {shown} of {content.size}{rest}]"
    facts: Json = {"path": content.path, "size": content.size, "version": content.version}
    return ToolResult.of(text or "(the file is empty)", data=facts, metadata=depends_on(content))


class _Write(MutatingArguments):
    path: Line = Field(description="the file; ~ is the user's home", validation_alias=PATH)
    content: Content = Field(description="what it is to hold", validation_alias=AliasChoices("content", "text"))
    mode: Literal["overwrite", "create", "append"] = Field(
        "overwrite", description="overwrite: all of it, read it first when it exists; create: only if there is none"
    )


class WriteFile(Tool[_Write]):
    """``write_file``."""

    def __init__(self) -> None:
        traits = Traits(category=Category.FILE_WRITE, mutating=True, aliases=("write",), packs=("core",))
        text = (
            "Write a file of the target, atomically, with the directories above it. One that exists must be read first."
        )
        super().__init__("write_file", text, _Write, traits)

    def subjects(self, args: _Write) -> tuple[Subject, ...]:
        return (Subject("write", args.path),)

    def preview(self, args: _Write) -> str:
        return args.content

    async def run(self, args: _Write, ctx: ToolContext) -> ToolResult:
        data = args.content.encode("utf-8", "surrogateescape")
        done = await guarded_write(ctx, args.path, data, mode=args.mode)
        return _written(done) if isinstance(done, Written) else done


def _written(done: Written) -> ToolResult:
    result = done.result
    made = "a new file" if result.created else "the file"
    facts: Json = {"path": done.path, "bytes_written": result.bytes_written, "created": result.created}
    return ToolResult.of(f"Wrote {result.bytes_written} bytes to {made} {done.path}", data=facts)
