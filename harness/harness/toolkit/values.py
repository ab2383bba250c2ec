"""The values that go through the toolkit: a call, what it would touch, its result and its outcome."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Literal, Self

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
]

BLOCK_LIMIT = 64 << 10
"""Characters of one text block, whatever a tool allows."""
Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]
"""A JSON value."""
JsonObject = Mapping[str, Json]
"""A JSON object: arguments as a model writes them, a schema, metadata."""


class Category(StrEnum):
    """What kind of thing a tool touches; defaults of the policy are by category."""

    FILE_READ = "file.read"
    FILE_WRITE = "file.write"
    SHELL = "shell"
    NETWORK = "network"
    MCP = "mcp"
    AGENT = "agent"
    PLUGIN = "plugin"
    NONE = "none"
    """Nothing outside the conversation: a clock, a list of things to do."""


SubjectKind = Literal["command", "read", "write", "url", "keys", "other"]


@dataclass(frozen=True, slots=True)
class Subject:
    """One thing that a call would touch, as the policy judges it.

    ``text`` is the command, the path as given, the URL, or the keys (named ones in angle brackets: ``rm x<Enter>``).
    ``cwd`` is the directory that a relative path or the command starts from; None is the context's.
    ``pane`` is the pane that keys go to; ``job:ID`` is the one in which that job runs.
    """

    kind: SubjectKind
    text: str
    cwd: str | None = None
    pane: str | None = None


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call as it came: ``arguments`` is an object, or the text that a provider sent and that should be one."""

    name: str
    arguments: JsonObject | str = field(default_factory=dict)
    call_id: str = ""
    """Unique for ever: the ledger's key. Empty lets the executor choose one."""
    provider_id: str = ""
    """The id under which the model's provider expects the result; providers use one again in another answer."""
    message_id: str = ""
    """The message of the model that asked for it."""
    agent_id: str = ""
    """The agent that asked; empty is a person or a script, who calls the executor directly."""


@dataclass(frozen=True, slots=True)
class Text:
    """A text block."""

    text: str


@dataclass(frozen=True, slots=True)
class Image:
    """A picture: its bytes and its media type (``image/png``)."""

    data: bytes
    media_type: str


Block = Text | Image


@dataclass(frozen=True, slots=True)
class Advice:
    """A piece of a result's text that helps only whoever has these arguments of the tool, and these other tools.

    ``text`` is the piece as it stands there, with the punctuation before it. A profile leaves it out, or tells it in
    its own names.
    """

    text: str
    arguments: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ShownForm:
    """How much of a result the model gets: ``room``, as ``measure`` counts a text in the form in which it is shown.

    Args:
        tail: how much of ``room`` is for the end.
        stream: how many characters of each stream of a command are shown, and how many of them from its end; None:
            the streams share ``room``.
        gap: stands where a stream is cut; ``{}`` is the amount.
    """

    room: int = BLOCK_LIMIT
    measure: Callable[[str], int] = len
    tail: int = BLOCK_LIMIT // 2
    stream: tuple[int, int] | None = None
    gap: str = "\n[... {} ...]\n"


@dataclass(frozen=True, slots=True)
class Omitted:
    """Bytes of an output that the text of a result lacks between its head and its tail, and where they are."""

    count: int
    whole: str = ""
    """The end of a sentence: ``; job 12 has all of it``."""


@dataclass(frozen=True, slots=True)
class Cut:
    """How the text of a result was cut, so that a further cut counts from the whole.

    Args:
        head: characters of the text before the notice.
        tail: characters after it.
        total: of the whole, in ``unit``.
        unit: ``characters`` or ``bytes``.
        whole: the end of the notice, which says where the whole is.
    """

    head: int
    tail: int
    total: int
    unit: Literal["characters", "bytes"] = "characters"
    whole: str = ""


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a tool hands to the model.

    ``is_error`` tells the model to adapt: no such file, a command that failed, a refusal. That the tool could not run
    at all is a :class:`~harness.errors.ToolError` instead. ``error_code`` is one word for programs (``not_found``).
    ``data`` is the same result as a JSON value, where the tool has one. ``metadata`` is for callers and the audit,
    never for the model. ``advice`` are pieces of the text, and of the ``note`` and ``notices`` of the data.
    """

    content: tuple[Block, ...] = ()
    is_error: bool = False
    error_code: str = ""
    data: Json = None
    metadata: JsonObject = field(default_factory=dict)
    advice: tuple[Advice, ...] = ()
    omitted: Omitted | None = None
    """What the target kept back already; the notice of the one cut that the model sees counts it, too."""

    cut: Cut | None = None
    """How its only text was cut."""

    @classmethod
    def of(
        cls, text: str, *, data: Json = None, metadata: JsonObject | None = None, advice: tuple[Advice, ...] = ()
    ) -> Self:
        """A result of one text."""
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
        """An error that the model should adapt to."""
        return cls((Text(text),), True, code, data, metadata or {}, advice)

    @property
    def text(self) -> str:
        """The text blocks, one after the other."""
        return "\n".join(block.text for block in self.content if isinstance(block, Text))


class CallStatus(StrEnum):
    """How a call ended, as the ledger keeps it."""

    OK = "ok"
    ERROR = "error"
    """The tool ran and failed, or could not run."""
    DENIED = "denied"
    """Nothing ran: the policy, a hook or a person refused it."""
    CANCELLED = "cancelled"
    TIMEOUT = "timeout"
    UNKNOWN = "unknown"
    """The link was lost while it ran: it may have happened."""


@dataclass(frozen=True, slots=True)
class CallOutcome:
    """One call and what came of it. There is always a ``result``: every provider wants one for each call.

    ``call`` carries the tool's own name, or the profile's where there is one, and the id under which it ran. ``error``
    is set when the tool could not run; ``result`` then says the same to the model. ``seconds`` is the whole time in the
    pipeline, of which it waited ``waited`` for somebody's leave.
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
        """Seconds without the wait for leave."""
        return max(0.0, self.seconds - self.waited)
