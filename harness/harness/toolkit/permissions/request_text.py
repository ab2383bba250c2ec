"""Approval requests as text, for clients that show it to their user: complete, and marked line by line. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ...wording import escape_invisible, shorten
from .questions import ApprovalRequest, ApprovalScope

__all__ = ["MEANINGS", "SHOWN", "cut_text", "message_of", "offered", "one_line"]

SURROGATE = re.compile(r"[\ud800-\udfff]")
SHOWN = 20_000
"""Maximum characters of a call that an approval request shows; a longer call can be allowed only once."""
SAID = 300
"""Maximum characters of the agent's explanation of its call."""
MEANINGS = {
    ApprovalScope.ONCE: "allow this once",
    ApprovalScope.EXACT: "allow exactly this, in this session",
    ApprovalScope.DIRECTORY: "allow this tool every file in the same directory, in this session",
    ApprovalScope.TOOL: "allow every call of this tool, in this session",
    ApprovalScope.SESSION: "allow everything, in this session",
    ApprovalScope.ALWAYS: "allow exactly this, from now on",
    ApprovalScope.DENY_ONCE: "deny this once",
    ApprovalScope.DENY_SESSION: "deny exactly this, in this session",
}


def offered(question: ApprovalRequest) -> tuple[ApprovalScope, ...]:
    """Return the possible decisions: no lasting one about a call that is not shown completely. Pure."""
    if len(question.what) <= SHOWN:
        return question.scopes
    return tuple(scope for scope in question.scopes if scope in (ApprovalScope.ONCE, ApprovalScope.DENY_ONCE))


def message_of(question: ApprovalRequest) -> str:
    """Return the request as text, with each line of the agent's marked so that it cannot imitate harness's. Pure."""
    lines = [
        f"Allow {question.call.name} on {one_line(question.target)}?",
        "",
        *_quoted(question.what),
        *(f"  {one_line(line)}" for line in question.preview.splitlines()),
        "",
        f"Asked because: {one_line(question.reason)}",
        *(f"The agent says: {one_line(said)}" for said in _said(question.details)),
    ]
    return "\n".join(lines)


def _quoted(text: str) -> list[str]:
    left_out = len(text) - SHOWN
    if left_out <= 0:
        return [f"  | {one_line(line)}" for line in text.split("\n")]
    half = SHOWN // 2
    between = f"  !! {left_out} characters are not shown here !!"
    return [*_quoted(text[:half]), between, *_quoted(text[-half:])]


def one_line(text: str) -> str:
    """Return one printable line; control characters and invisible characters are escaped."""
    return escape_invisible(SURROGATE.sub("\ufffd", text))


def _said(details: Mapping[str, object]) -> list[str]:
    names = {
        "risk": "risk",
        "mutation": "it changes something",
        "privesc": "it uses another user's rights",
        "why": "why",
    }
    words = {True: "yes", False: "no"}
    return [
        f"{meaning}: {words[value] if isinstance(value, bool) else cut_text(str(value))}"
        for name, meaning in names.items()
        if (value := details.get(name)) is not None
    ]


def cut_text(text: str) -> str:
    """Return the start of a text of the agent, with the number of omitted characters."""
    return shorten(text, SAID)
