"""What a call is about, in one line. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from .values import ToolCall

__all__ = ["subject_of"]

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
