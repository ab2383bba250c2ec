"""The values that pass through the toolkit: a call, its subjects, its result and its outcome."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final, Literal, Self

if TYPE_CHECKING:
    from ..errors import ToolError

__all__ = [
    "BLOCK_LIMIT",
    "Advice",
    "Block",
    "CallOutcome",
    "CallStatus",
    "Category",
    "Cut",
    "Image",
    "Json",
    "JsonObject",
    "Omitted",
    "ShownForm",
    "Subject",
    "SubjectKind",
    "Text",
    "ToolCall",
    "ToolResult",
    "subject_of",
]

BLOCK_LIMIT = 64 << 10
"""The maximum number of characters in one text block, regardless of the tool's limit."""
Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]
"""A JSON value."""
JsonObject = Mapping[str, Json]
"""A JSON object: arguments from a model, a schema, metadata."""


class Category(StrEnum):
    """What kind of thing a tool touches; the policy's defaults are per category."""

    FILE_READ = "file.read"
    FILE_WRITE = "file.write"
    SHELL = "shell"
    NETWORK = "network"
    MCP = "mcp"
    AGENT = "agent"
    PLUGIN = "plugin"
    NONE = "none"
    """Nothing outside the conversation, such as a clock or a to-do list."""


SubjectKind = Literal["command", "read", "write", "url", "keys", "screen", "sudo", "other"]


@dataclass(frozen=True, slots=True)
class Subject:
    """One thing that a call would touch, for the policy.

    ``text`` is the command, the path as given, the URL, or the keys (named ones in angle brackets: ``rm x<Enter>``).
    Of a ``sudo`` that waits for a password in a pane, it is the arguments.
    ``cwd`` is the directory in which the command or a relative path starts; None means the context's.
    ``pane`` is the pane that receives the keys, or whose screen is read; ``job:ID`` is the pane in which that job runs.
    ``user`` is the other user as whom the command runs.
    """

    kind: SubjectKind
    text: str
    cwd: str | None = None
    pane: str | None = None
    user: str | None = None


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call as received: ``arguments`` is an object, or the text from a provider that should contain one."""

    name: str
    arguments: JsonObject | str = field(default_factory=dict)
    call_id: str = ""
    """Globally unique: the key in the audit log. If empty, the executor chooses one."""
    provider_id: str = ""
    """The id under which the model's provider expects the result; providers reuse ids in other responses."""
    message_id: str = ""
    """The id of the model's message that requested the call."""
    agent_id: str = ""
    """The agent that made the call; empty if an operator or a script calls the executor directly."""


@dataclass(frozen=True, slots=True)
class Text:
    """A text block."""

    text: str


@dataclass(frozen=True, slots=True)
class Image:
    """An image: its bytes and its media type (``image/png``)."""

    data: bytes
    media_type: str


Block = Text | Image


@dataclass(frozen=True, slots=True)
class Advice:
    """A part of a result's text that only helps a caller with these arguments of the tool and these other tools.

    ``text`` is the part exactly as in the text, with the punctuation before it. A profile removes it or rewrites it
    with its own names.
    """

    text: str
    arguments: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ShownForm:
    """The limit of a result for the model: at most ``room``, as ``measure`` counts a text in the form that is shown.

    Args:
        tail: how much of ``room`` is for the end.
        stream: the number of characters shown of each stream of a command, and how many of them from its end; None:
            the streams share ``room``.
        gap: the text in place of the omitted part; ``{}`` is the amount.
    """

    room: int = BLOCK_LIMIT
    measure: Callable[[str], int] = len
    tail: int = BLOCK_LIMIT // 2
    stream: tuple[int, int] | None = None
    gap: str = "\n[... {} ...]\n"


@dataclass(frozen=True, slots=True)
class Omitted:
    """Output bytes omitted between the head and tail of a result's text, and where they can be read."""

    count: int
    whole: str = ""
    """The end of a sentence: ``; job 12 has all of it``."""


@dataclass(frozen=True, slots=True)
class Cut:
    """How the text of a result was truncated, so that a second truncation counts from the complete text.

    Args:
        head: characters of the text before the notice.
        tail: characters after it.
        total: the size of the complete text, in ``unit``.
        unit: ``characters`` or ``bytes``.
        whole: the end of the notice, which says where the complete text is.
    """

    head: int
    tail: int
    total: int
    unit: Literal["characters", "bytes"] = "characters"
    whole: str = ""


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The result of a tool call for the model.

    ``is_error`` tells the model to adapt: a missing file, a failed command, a refusal. If the tool could not run at
    all, it raises :class:`~harness.errors.ToolError` instead. ``error_code`` is one word for programs
    (``not_found``). ``data`` is the same result as a JSON value, where the tool has one. ``metadata`` is for callers
    and the audit log, never for the model. ``advice`` lists parts of the text and of the ``note`` and ``notices`` in
    the data.
    """

    content: tuple[Block, ...] = ()
    is_error: bool = False
    error_code: str = ""
    data: Json = None
    metadata: JsonObject = field(default_factory=dict)
    advice: tuple[Advice, ...] = ()
    omitted: Omitted | None = None
    """What the target has already omitted; the single truncation notice for the model includes it."""

    cut: Cut | None = None
    """How its only text was truncated."""

    @classmethod
    def of(
        cls, text: str, *, data: Json = None, metadata: JsonObject | None = None, advice: tuple[Advice, ...] = ()
    ) -> Self:
        """Return a result with one text."""
        return cls((Text(text),), data=data, metadata=metadata or {}, advice=advice)

    @classmethod
    def failure(
        cls,
        code: str,
        text: str,
        *,
        data: Json = None,
        metadata: JsonObject | None = None,
        advice: tuple[Advice, ...] = (),
    ) -> Self:
        """Return an error result that the model should adapt to."""
        return cls((Text(text),), True, code, data, metadata or {}, advice)

    @property
    def text(self) -> str:
        """The text blocks, joined by newlines."""
        return "\n".join(block.text for block in self.content if isinstance(block, Text))


class CallStatus(StrEnum):
    """How a call ended, as stored in the audit log."""

    OK = "ok"
    ERROR = "error"
    """The tool ran and failed, or could not run."""
    DENIED = "denied"
    """Nothing ran: the policy, a hook or the operator refused it."""
    CANCELLED = "cancelled"
    TIMEOUT = "timeout"
    UNKNOWN = "unknown"
    """The connection was lost while it ran: it may have been executed."""


@dataclass(frozen=True, slots=True)
class CallOutcome:
    """One call and how it ended. ``result`` is always set: every provider requires one for each call.

    ``call`` carries the tool's own name, or the profile's if there is one, and the id under which it ran. ``error``
    is set if the tool could not run; ``result`` then describes the same error to the model. ``seconds`` is the total
    time in the pipeline, of which ``waited`` was spent waiting for approval.
    """

    call: ToolCall
    result: ToolResult
    status: CallStatus
    seconds: float = 0.0
    error: ToolError | None = None
    cached: bool = False
    waited: float = 0.0

    @property
    def running(self) -> float:
        """Seconds without the wait for approval."""
        return max(0.0, self.seconds - self.waited)


SUBJECTS: Final = (
    "command",
    "path",
    "file_path",
    "url",
    "pattern",
    "query",
    "literal_text",
    "keys",
    "prompt",
    "text",
    "job_id",
)
"""Arguments that describe a call, in order of preference."""


def subject_of(call: ToolCall) -> str:
    """Return a description of a call in one line, not escaped."""
    arguments = call.arguments
    if isinstance(arguments, str):
        return arguments
    for name in SUBJECTS:
        if isinstance(value := arguments.get(name), str) and value:
            return value if "\n" not in value.strip() else _first_line(value.strip())
    if isinstance(asked := arguments.get("questions"), list):
        return " / ".join(str(one.get("question", "")) for one in asked if isinstance(one, Mapping))
    rest = {name: value for name, value in arguments.items() if name not in ("why", "risk", "mutation", "privesc")}
    return json.dumps(rest, ensure_ascii=False) if rest else ""


def _first_line(text: str) -> str:
    first, *more = text.split("\n")
    return f"{first} … ({len(more)} more lines)"
