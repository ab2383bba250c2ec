"""Tool calls as the protocol shows them: kind, title, files, diffs and output. Pure."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from acp.helpers import text_block, tool_content, tool_diff_content
from acp.schema import ContentToolCallContent, FileEditToolCallContent, ToolCallLocation

from ..mcp.client.channel import plain
from ..toolkit.permissions.paths.target_paths import at_home
from ..toolkit.registry import Registry
from ..toolkit.values import CallOutcome, Category, Text, ToolCall

__all__ = ["Place", "ShownCall", "clean", "fenced", "output_content", "result_content", "shown_call"]

Kind = Literal["read", "edit", "delete", "search", "execute", "think", "fetch", "other"]
Content: TypeAlias = ContentToolCallContent | FileEditToolCallContent
KINDS: Mapping[Category, Kind] = {
    Category.FILE_READ: "read",
    Category.FILE_WRITE: "edit",
    Category.SHELL: "execute",
    Category.NETWORK: "fetch",
    Category.AGENT: "think",
}
OWN_KINDS: Mapping[str, Kind] = {"grep": "search", "glob": "search", "ls": "search", "delete": "delete"}
SUBJECTS = ("command", "path", "file_path", "url", "pattern", "query", "prompt", "job_id")
"""Arguments of which the first one is shown in a title."""
PATHS, OLD, NEW = ("path", "file_path"), ("old_string", "old_str"), ("new_string", "new_str")
CONTENTS = ("content", "text", "file_text")
MAX_TITLE_CHARS = 160
MAX_OUTPUT_CHARS = 8_000
"""Maximum characters of a call's output that are shown: the last ones."""
MAX_DIFF_CHARS = 200_000
FENCE = re.compile(r"`{3,}")


@dataclass(frozen=True, slots=True)
class Place:
    """Where relative paths start (empty if unknown), and whether the files are on the client's machine."""

    directory: str
    home: str
    is_local: bool

    def absolute(self, path: str) -> str:
        """Return a path of a call as an absolute path of the target, or unchanged if that is not known."""
        whole = at_home(path, self.home)
        if whole.startswith("~") or not (whole.startswith("/") or self.directory):
            return path
        return posixpath.normpath(posixpath.join(self.directory, whole))


@dataclass(frozen=True, slots=True)
class ShownCall:
    """What is known of a call before it runs."""

    title: str
    kind: Kind
    arguments: Mapping[str, Any]
    diffs: tuple[FileEditToolCallContent, ...] = ()
    locations: tuple[ToolCallLocation, ...] = field(default=())


def clean(text: str) -> str:
    """Return a text that JSON and an editor can represent: without control characters and bytes that are not UTF-8."""
    return plain(text.encode("utf-8", "replace").decode())


def fenced(text: str) -> str:
    """Return a text as a code block: editors show texts as Markdown, which the text must not leave."""
    longest = max((len(found) for found in FENCE.findall(text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}\n{text.removesuffix(chr(10))}\n{fence}"


def shown_call(call: ToolCall, registry: Registry, place: Place) -> ShownCall:
    """Return how a call is shown, from its redacted arguments."""
    arguments = call.arguments if isinstance(call.arguments, Mapping) else {}
    tool = registry.get(call.name)
    own = tool.own if tool is not None else None
    name = own.name if own is not None else call.name
    kind = OWN_KINDS.get(name) or (KINDS.get(own.traits.category, "other") if own is not None else "other")
    path = _first(arguments, PATHS)
    file = place.absolute(path) if path and kind in ("read", "edit", "delete") else ""
    return ShownCall(
        _title(call, arguments),
        kind,
        {clean(str(key)): value for key, value in arguments.items()},
        _diffs(arguments, file) if kind == "edit" else (),
        (ToolCallLocation(path=clean(file)),) if file.startswith("/") and place.is_local else (),
    )


def _title(call: ToolCall, arguments: Mapping[str, Any]) -> str:
    subject = " ".join(_first(arguments, SUBJECTS).split())
    hosts = _first(arguments, ("hosts",))
    subject += f" on {hosts}" if hosts else ""
    agent = f"[{call.agent_id}] " if call.agent_id not in ("", "agent") else ""
    title = clean(f"{agent}{call.name} {subject}".strip()).replace("`", "'")
    return title if len(title) <= MAX_TITLE_CHARS else f"{title[: MAX_TITLE_CHARS - 1]}…"


def _first(arguments: Mapping[str, Any], names: Sequence[str]) -> str:
    return next((value for name in names if isinstance(value := arguments.get(name), str) and value), "")


def _diffs(arguments: Mapping[str, Any], file: str) -> tuple[FileEditToolCallContent, ...]:
    """Return the replaced text and the new one, or all of the new content; an appended text is not a change of text."""
    if not file:
        return ()
    old, new = _first(arguments, OLD), next((arguments[name] for name in NEW if name in arguments), None)
    if old and isinstance(new, str):
        return _diff(file, old, new)
    content = next((arguments[name] for name in CONTENTS if name in arguments), None)
    if isinstance(content, str) and arguments.get("mode") != "append":
        return _diff(file, None, content)
    return ()


def _diff(file: str, old: str | None, new: str) -> tuple[FileEditToolCallContent, ...]:
    if len(old or "") + len(new) > MAX_DIFF_CHARS:
        return ()
    before = None if old is None else clean(old)
    return (tool_diff_content(clean(file), clean(new), before),)


def output_content(text: str) -> list[Content]:
    """Return the output so far of a running call."""
    return [tool_content(text_block(fenced(clean(text[-MAX_OUTPUT_CHARS:]))))]


def result_content(outcome: CallOutcome, shown: ShownCall) -> list[Content]:
    """Return the result of a call: its diffs if it succeeded, and the text that the model gets."""
    text = "\n".join(
        block.text if isinstance(block, Text) else f"[{block.media_type}, {len(block.data)} bytes]"
        for block in outcome.result.content
    )
    left_out = len(text) - MAX_OUTPUT_CHARS
    if left_out > 0:
        text = f"[{left_out} characters are left out]\n{text[-MAX_OUTPUT_CHARS:]}"
    diffs: list[Content] = [] if outcome.result.is_error else list(shown.diffs)
    return [*diffs, tool_content(text_block(fenced(clean(text))))]
