"""The messages of a conversation, in memory and on the disk. The disk comes first, and holds no secrets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import anyio
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    ModelResponsePart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    UserPromptPart,
)

from ..toolkit.redaction import redact_object
from ..toolkit.seams import Redactor
from .conversation.history import dumped
from .sessions import ConversationLog

__all__ = ["Transcript", "text_of", "without_secrets"]


class Transcript:
    """All messages so far. Not for several tasks at once."""

    def __init__(self, log: ConversationLog, redactor: Redactor, messages: Sequence[ModelMessage] = ()) -> None:
        self._log = log
        self._redactor = redactor
        self.messages: list[ModelMessage] = list(messages)

    async def append(self, *messages: ModelMessage) -> None:
        """Keep messages; when this returns they are on the disk. A cancel does not come between.

        Raises:
            HarnessError: they could not be kept; they are in memory all the same.
        """
        self.messages.extend(messages)
        with anyio.CancelScope(shield=True):
            await self._log.append([self._kept(message) for message in messages])

    async def replace(self, messages: Sequence[ModelMessage], summary: str) -> None:
        """Put shorter ones in the place of all.

        Raises:
            HarnessError: they could not be kept; nothing is changed.
        """
        with anyio.CancelScope(shield=True):
            await self._log.replaced([self._kept(message) for message in messages], self._redactor.text(summary))
        self.messages = list(messages)

    def _kept(self, message: ModelMessage) -> str:
        return dumped(without_secrets(message, self._redactor.text))


def without_secrets(message: ModelMessage, redact: Callable[[str], str]) -> ModelMessage:
    """A message as it may be kept. Pure, as far as ``redact`` is.

    Reasoning that holds a secret loses its signature, which was for other words.
    """
    if isinstance(message, ModelRequest):
        return replace(message, parts=[_request_part(part, redact) for part in message.parts])
    return replace(message, parts=[_response_part(part, redact) for part in message.parts])


def _request_part(part: ModelRequestPart, redact: Callable[[str], str]) -> ModelRequestPart:
    if isinstance(part, UserPromptPart) and isinstance(part.content, str):
        return replace(part, content=redact(part.content))
    return part  # results come redacted


def _response_part(part: ModelResponsePart, redact: Callable[[str], str]) -> ModelResponsePart:
    if isinstance(part, TextPart):
        return replace(part, content=redact(part.content))
    if isinstance(part, ThinkingPart):
        clean = redact(part.content)
        return part if clean == part.content else replace(part, content=clean, signature=None)
    if isinstance(part, ToolCallPart):
        return replace(part, args=_arguments(part.args, redact))
    return part


def _arguments(value: Any, redact: Callable[[str], str]) -> Any:
    """Arguments, as the text or the object that the provider sent."""
    if isinstance(value, str):
        return redact(value)
    return redact_object(value, redact) if isinstance(value, dict) else value


def text_of(response: ModelResponse) -> str:
    """The words of an answer, without its reasoning. Pure."""
    return "".join(part.content for part in response.parts if isinstance(part, TextPart))
