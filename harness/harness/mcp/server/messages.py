"""Messages and batches of a client over stdio, and the replies: JSON-RPC 2.0 as text. Pure."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import mcp_types as types
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

from ..client.channel import OversizedMessage

__all__ = [
    "INVALID_REQUEST",
    "MAX_MESSAGE",
    "WITH_BATCHES",
    "Batch",
    "BatchAnswer",
    "Batches",
    "Refusal",
    "Refused",
    "batch_of",
    "encode_batch",
    "encode_message",
    "parse_message",
    "refusal",
]


# -- Batches: several messages in one line with their replies in one line, only in revision 2025-03-26


WITH_BATCHES = frozenset({"2025-03-26"})
"""Protocol revisions with batches."""

Answer = types.JSONRPCResponse | types.JSONRPCError


@dataclass
class BatchAnswer(SessionMessage):
    """All replies to a batch; ``message`` is the first."""

    answers: tuple[Answer, ...] = ()


@dataclass(slots=True)
class Batch:
    """A batch with the ids of its pending requests."""

    waiting: set[str] = field(default_factory=set)
    answers: list[Answer] = field(default_factory=list)

    @property
    def message(self) -> BatchAnswer | None:
        """The reply to send; None while requests are pending, and if there is nothing to reply."""
        if self.waiting or not self.answers:
            return None
        return BatchAnswer(self.answers[0], answers=tuple(self.answers))


class Batches:
    """The pending batches of a client."""

    def __init__(self) -> None:
        self._of: dict[str, Batch] = {}

    def add(self, batch: Batch) -> None:
        """Register a batch."""
        self._of.update(dict.fromkeys(batch.waiting, batch))

    def answered(self, request_id: str, answer: Answer) -> tuple[bool, BatchAnswer | None]:
        """Record a reply.

        Returns:
            Whether it belongs to a batch, and the reply to that batch if this was the last one.
        """
        batch = self._of.pop(request_id, None)
        if batch is None:
            return False, None
        batch.waiting.discard(request_id)
        batch.answers.append(answer)
        return True, batch.message

    def dropped(self, request_id: str) -> BatchAnswer | None:
        """Record a request that gets no reply, and return the reply to its batch if it was the last pending one."""
        batch = self._of.pop(request_id, None)
        if batch is None:
            return None
        batch.waiting.discard(request_id)
        return batch.message


# -- Messages as text


MAX_MESSAGE = 16 << 20
"""Maximum bytes of one message from the client; a longer one is refused, and the next one is read."""
PARSE_ERROR = -32700
INVALID_REQUEST = -32600
NO_ID = "the id of a request must be a string or an integer; nothing was run"
log = logging.getLogger("harness.mcp")


class Refused(types.JSONRPCError):
    """The reply to a message that was not passed on; it ends no request, even if it has the id of a pending one.

    As in JSON-RPC, the id is that of the message: a number may have a fraction.
    """

    id: types.RequestId | float | None  # type: ignore[assignment]  # the protocol's own type has no fractions


@dataclass(frozen=True, slots=True)
class Refusal:
    """The refusal of a line without a valid message."""

    answer: Refused


def refusal(code: int, message: str, sender: types.RequestId | float | None = None) -> Refusal:
    """Return the refusal of a message, with its id if that is known."""
    return Refusal(Refused(jsonrpc="2.0", id=sender, error=types.ErrorData(code=code, message=message)))


def parse_message(line: bytes | OversizedMessage) -> types.JSONRPCMessage | Refusal:
    """Return the message in a line, or its refusal.

    An invalid reply to a question of the server becomes an error reply, so that the question is not left pending.
    """
    if isinstance(line, OversizedMessage):
        return _too_long(line)
    try:
        message = types.jsonrpc_message_adapter.validate_json(line, by_name=False)
    except ValueError as error:
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            return refusal(PARSE_ERROR, "invalid JSON")
        log.debug("not a message: %d errors", error.error_count() if isinstance(error, ValidationError) else 1)
        return _none(found)
    if isinstance(message, types.JSONRPCNotification) and b'"id"' in line and "id" in (found := json.loads(line)):
        return refusal(INVALID_REQUEST, NO_ID, _sender(found["id"]))
    return message


def _too_long(line: OversizedMessage) -> types.JSONRPCMessage | Refusal:
    text = f"a message of {line.size} bytes is too long; the maximum is {MAX_MESSAGE}"
    found = refusal(INVALID_REQUEST, text, line.request)
    return found.answer if line.request is not None and line.is_reply else found


def _sender(number: object) -> types.RequestId | float | None:
    """Return the id for a reply to a message; None if it has none, or one that is invalid in JSON-RPC."""
    if isinstance(number, bool) or not isinstance(number, str | int | float):
        return None
    if isinstance(number, float) and not abs(number) < float("inf"):
        return None
    try:
        json.dumps(number, ensure_ascii=False).encode()  # a lone surrogate cannot be sent
    except (UnicodeEncodeError, ValueError):
        return None
    return number


def _none(found: object) -> types.JSONRPCMessage | Refusal:
    """Return the refusal for JSON that is not a message, or an error reply to a pending question."""
    values = found if isinstance(found, dict) else {}
    sender = _sender(values.get("id"))
    if sender is not None and "method" not in values and ("result" in values or "error" in values):
        return refusal(INVALID_REQUEST, "the reply is not valid in the protocol", sender).answer
    return refusal(INVALID_REQUEST, "not a JSON-RPC 2.0 message", sender if "method" in values else None)


def batch_of(line: bytes | OversizedMessage) -> list[bytes] | None:
    """Return the messages of a batch, each as a line; None if the line is not a batch."""
    if isinstance(line, OversizedMessage) or not line.lstrip().startswith(b"["):
        return None
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return [json.dumps(one).encode() for one in found]


def encode_message(message: types.JSONRPCMessage) -> bytes:
    """Return a message as one line."""
    if isinstance(message, types.JSONRPCError) and message.id is None:
        body = message.model_dump(by_alias=True, exclude_none=True) | {"id": None}  # JSON-RPC requires the null
        return json.dumps(body).encode() + b"\n"
    return message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"


def encode_batch(answers: Sequence[Any]) -> bytes:
    """Return the replies to a batch as one line."""
    return b"[" + b",".join(encode_message(one).rstrip(b"\n") for one in answers) + b"]\n"
