"""The argument of a call that an approver may change before approving it, and the changed call. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from ..redaction.redactor import MARK
from ..values import Json, ToolCall
from .questions import ApprovalRequest

__all__ = ["EDITABLE", "changed_call", "editable"]

EDITABLE: Final = ("command", "path", "file_path", "url", "text", "literal_text", "content")
"""Arguments that can be changed, in order of preference."""


def editable(question: ApprovalRequest) -> tuple[str, str] | None:
    """Return the name and text of the call's argument that the approver may change.

    Returns:
        None without one, or if the call contains a secret, as the shown text is not what would run.
    """
    arguments = question.call.arguments
    if not isinstance(arguments, Mapping) or _holds_mark(dict(arguments)):
        return None
    found = ((name, arguments.get(name)) for name in EDITABLE)
    return next(((name, value) for name, value in found if isinstance(value, str) and value), None)


def changed_call(question: ApprovalRequest, text: str) -> ToolCall:
    """Return the call with another text in its :func:`editable` argument, which must exist."""
    found = editable(question)
    assert found is not None
    arguments = dict(question.call.arguments) if isinstance(question.call.arguments, Mapping) else {}
    return replace(question.call, arguments={**arguments, found[0]: text})


def _holds_mark(value: Json) -> bool:
    if isinstance(value, str):
        return MARK in value
    if isinstance(value, Mapping):
        return any(_holds_mark(item) for item in value.values())
    return any(_holds_mark(item) for item in value) if isinstance(value, list) else False
