"""Messages and batches of a client on standard input, and our answers: JSON-RPC 2.0 as text. Pure."""

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


# -- Batches: several messages in one line, whose answers come in one line. Revision 2025-03-26 alone has them.


WITH_BATCHES = frozenset({"2025-03-26"})
"""Revisions of the protocol that have batches."""

Answer = types.JSONRPCResponse | types.JSONRPCError


@dataclass
class BatchAnswer(SessionMessage):
    """All the answers to a batch; ``message`` is the first."""

    answers: tuple[Answer, ...] = ()


@dataclass(slots=True)
class Batch:
    """A batch, the ids of whose requests wait for their answers."""

    waiting: set[str] = field(default_factory=set)
    answers: list[Answer] = field(default_factory=list)

    @property
    def message(self) -> BatchAnswer | None:
        """What is sent; None while something is waited for, and where there is nothing to say."""
        if self.waiting or not self.answers:
            return None
        return BatchAnswer(self.answers[0], answers=tuple(self.answers))


class Batches:
    """The batches of a client that have not been answered."""

    def __init__(self) -> None:
        self._of: dict[str, Batch] = {}

    def add(self, batch: Batch) -> None:
        """Wait for the answers to a batch."""
        self._of.update(dict.fromkeys(batch.waiting, batch))

    def answered(self, request_id: str, answer: Answer) -> tuple[bool, BatchAnswer | None]:
        """Whether the answer belongs to a batch, and the answer to that batch when this was the last one."""
        batch = self._of.pop(request_id, None)
        if batch is None:
            return False, None
        batch.waiting.discard(request_id)
        batch.answers.append(answer)
        return True, batch.message

    def dropped(self, request_id: str) -> BatchAnswer | None:
        """The answer to the batch, when nothing but this request, which is not answered, was waited for."""
        batch = self._of.pop(request_id, None)
        if batch is None:
            return None
        batch.waiting.discard(request_id)
        return batch.message


# -- Messages of a client on standard input, and our answers: JSON-RPC 2.0 as text. Pure.


MAX_MESSAGE = 16 << 20
"""Bytes of one message from the client; a longer one is refused and the next one read."""
PARSE_ERROR = -32700
INVALID_REQUEST = -32600
NO_ID = "the id of a request is a text or a whole number; nothing was run"
log = logging.getLogger("harness.mcp")


class Refused(types.JSONRPCError):
    """The answer to what was not handed on. It ends no request, also where it has the id of one that runs.

    The id is that of the message, as JSON-RPC has it: a number may have a fraction.
    """

    id: types.RequestId | float | None  # type: ignore[assignment]  # the protocol's own type has no fractions


@dataclass(frozen=True, slots=True)
class Refusal:
    """What the sender of a line is told that holds no message."""

    answer: Refused


def refusal(code: int, message: str, sender: types.RequestId | float | None = None) -> Refusal:
    """The refusal of a message, with its id where that is known."""
    return Refusal(Refused(jsonrpc="2.0", id=sender, error=types.ErrorData(code=code, message=message)))


def parse_message(line: bytes | OversizedMessage) -> types.JSONRPCMessage | Refusal:
    """A message, or what answers one that is none.

    A reply to a question of ours that is none becomes an error that says so: nobody waits for it any longer.
    """
    if isinstance(line, OversizedMessage):
        return _too_long(line)
    try:
        message = types.jsonrpc_message_adapter.validate_json(line, by_name=False)
    except ValueError as error:
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            return refusal(PARSE_ERROR, "this is not JSON")
        log.debug("not a message: %d mistakes", error.error_count() if isinstance(error, ValidationError) else 1)
        return _none(found)
    if isinstance(message, types.JSONRPCNotification) and b'"id"' in line and "id" in (found := json.loads(line)):
        return refusal(INVALID_REQUEST, NO_ID, _sender(found["id"]))
    return message


def _too_long(line: OversizedMessage) -> types.JSONRPCMessage | Refusal:
    text = f"a message of {line.size} bytes is too long; {MAX_MESSAGE} are the most"
    found = refusal(INVALID_REQUEST, text, line.request)
    return found.answer if line.request is not None and line.is_reply else found


def _sender(number: object) -> types.RequestId | float | None:
    """The id with which a message can be answered; None when it has none, or one that JSON-RPC does not know."""
    if isinstance(number, bool) or not isinstance(number, str | int | float):
        return None
    if isinstance(number, float) and not abs(number) < float("inf"):
        return None
    try:
        json.dumps(number, ensure_ascii=False).encode()  # half a character cannot be sent back
    except (UnicodeEncodeError, ValueError):
        return None
    return number


def _none(found: object) -> types.JSONRPCMessage | Refusal:
    """What becomes of JSON that is no message: who waits for an answer to it gets one."""
    values = found if isinstance(found, dict) else {}
    sender = _sender(values.get("id"))
    if sender is not None and "method" not in values and ("result" in values or "error" in values):
        return refusal(INVALID_REQUEST, "the reply is none that the protocol knows", sender).answer
    return refusal(INVALID_REQUEST, "this is not a JSON-RPC 2.0 message", sender if "method" in values else None)


def batch_of(line: bytes | OversizedMessage) -> list[bytes] | None:
    """The messages of a batch, each as a line; None when the line is none."""
    if isinstance(line, OversizedMessage) or not line.lstrip().startswith(b"["):
        return None
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return [json.dumps(one).encode() for one in found]


def encode_message(message: types.JSONRPCMessage) -> bytes:
    """One line."""
    if isinstance(message, types.JSONRPCError) and message.id is None:
        body = message.model_dump(by_alias=True, exclude_none=True) | {"id": None}  # JSON-RPC wants to see the null
        return json.dumps(body).encode() + b"\n"
    return message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"


def encode_batch(answers: Sequence[Any]) -> bytes:
    """The answers to a batch, in one line."""
    return b"[" + b",".join(encode_message(one).rstrip(b"\n") for one in answers) + b"]\n"
