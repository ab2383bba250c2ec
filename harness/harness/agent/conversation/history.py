"""The messages of a conversation: valid for every provider whatever happened to it, and as text that is stored."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import ConfigDict, TypeAdapter
from pydantic_ai.messages import ModelMessage

__all__ = ["dumped", "loaded", "repaired", "suited"]

_MESSAGE: TypeAdapter[ModelMessage] = TypeAdapter(
    ModelMessage, config=ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")
)


def repaired(messages: Sequence[ModelMessage]) -> list[ModelMessage]:
    """The messages as every provider takes them; those that need no change are the same objects."""
    return list(messages)


def suited(messages: Sequence[ModelMessage], *, provider: str, url: str = "") -> list[ModelMessage]:
    """The messages for one provider: without the signatures, ids and details that another one gave.

    Args:
        provider: ``model.system`` of the model that is asked.
        url: its ``model.base_url``; another address is another provider, whatever its name.
    """
    return list(messages)


def dumped(message: ModelMessage) -> str:
    """A message as JSON text; :func:`loaded` makes the same of it again."""
    return _MESSAGE.dump_json(message).decode()


def loaded(text: str) -> ModelMessage:
    """The message that :func:`dumped` wrote.

    Raises:
        ValueError: it is none.
    """
    return _MESSAGE.validate_json(text)
