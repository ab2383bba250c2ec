"""What every provider's protocol has to say to the server."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from .values import Answer, Cut, Failure, Gate, ReportedUsage

__all__ = ["Dialect", "Sent", "Setting", "event", "usage_of"]

Sent = bytes | Gate | Cut


@dataclass(frozen=True)
class Setting:
    """What of the request an answer depends on. ``number`` counts the requests from 1."""

    model: str
    number: int
    asked: int
    """Characters of the request's body."""


class Dialect(Protocol):
    """One provider's protocol."""

    name: str

    def stream(self, answer: Answer, setting: Setting) -> Iterator[Sent]:
        """The events of a streamed answer."""
        ...

    def whole(self, answer: Answer, setting: Setting) -> Mapping[str, Any]:
        """The answer as one document."""
        ...

    def error(self, failure: Failure) -> Mapping[str, Any]:
        """The body of an error."""
        ...

    def problem(self, body: Mapping[str, Any]) -> str:
        """What the provider refuses in this request; empty when it is valid."""
        ...


def event(document: Mapping[str, Any], name: str = "") -> bytes:
    """One server-sent event."""
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(document)}\n\n".encode()


def usage_of(answer: Answer, setting: Setting) -> ReportedUsage:
    """The tokens of the answer, made up when the script gives none."""
    return answer.usage or ReportedUsage(input=setting.asked // 4 + 1, output=answer.size // 4 + 1)
