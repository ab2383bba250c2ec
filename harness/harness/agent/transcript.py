"""The messages of a conversation, in memory and on the disk. The disk comes first, and holds no secrets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import anyio
from pydantic_ai.messages import ModelMessage, ModelResponse, ModelResponsePart, TextPart

from ..toolkit.seams import Redactor
from .conversation.history import dumped
from .conversation.secretless import without_secrets
from .sessions import ConversationLog

__all__ = ["Transcript", "text_of", "with_words"]


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


def with_words(response: ModelResponse, text: str) -> ModelResponse:
    """The answer with other words, in the place of its first ones. Pure."""
    parts: list[ModelResponsePart] = []
    said = False
    for part in response.parts:
        if not isinstance(part, TextPart):
            parts.append(part)
        elif not said:
            said = True
            parts.append(replace(part, content=text))
    return replace(response, parts=parts)


def text_of(response: ModelResponse) -> str:
    """The words of an answer, without its reasoning. Pure."""
    return "".join(part.content for part in response.parts if isinstance(part, TextPart))
