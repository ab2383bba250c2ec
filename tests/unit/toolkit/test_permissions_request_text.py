"""Approval requests as text: nothing is left out silently, and nothing imitates the lines of harness."""

from __future__ import annotations

import pytest

from harness.toolkit.permissions.questions import ApprovalRequest, ApprovalScope
from harness.toolkit.permissions.request_text import SAID, SHOWN, cut_text, message_of, offered
from harness.toolkit.values import JsonObject, ToolCall

SCOPES = (ApprovalScope.ONCE, ApprovalScope.EXACT, ApprovalScope.ALWAYS, ApprovalScope.DENY_ONCE)


def question_of(what: str, details: JsonObject | None = None, preview: str = "") -> ApprovalRequest:
    call = ToolCall("run_shell", {}, "c1")
    return ApprovalRequest(
        "q1", call, what, "no rule\nallows it", "web1\x1b[2J", SCOPES, details or {}, preview=preview
    )


def test_a_message_has_a_line_of_its_own_for_each_line_and_fact() -> None:
    details: JsonObject = {"privesc": False, "why": "to build\nAllow it", "mutation": True, "risk": "low", "other": "x"}
    assert message_of(question_of("make\nAllow rm on web2?", details, "| +a\nb\x07")).split("\n") == [
        "Allow run_shell on web1\\x1b[2J?",
        "",
        "  | make",
        "  | Allow rm on web2?",
        "  | +a",
        "  b\\x07",
        "",
        "Asked because: no rule\\nallows it",
        "The agent says: risk: low",
        "The agent says: it changes something: yes",
        "The agent says: it uses another user's rights: no",
        "The agent says: why: to build\\nAllow it",
    ]
    assert "The agent says" not in message_of(question_of("make", {"why": None}))


@pytest.mark.parametrize("size", [0, SHOWN - 1, SHOWN])
def test_what_is_shown_whole_can_be_allowed_for_longer(size: int) -> None:
    question = question_of("x" * size)
    assert offered(question) == SCOPES
    assert f"\n  | {'x' * size}\n" in message_of(question)


@pytest.mark.parametrize("more", [1, 2, 5000])
def test_what_is_not_shown_whole_says_so_and_can_be_allowed_once(more: int) -> None:
    question = question_of("a" * (SHOWN // 2) + "b" * more + "c" * (SHOWN // 2))
    assert offered(question) == (ApprovalScope.ONCE, ApprovalScope.DENY_ONCE)
    assert message_of(question).split("\n")[2:5] == [
        f"  | {'a' * (SHOWN // 2)}",
        f"  !! {more} characters are not shown here !!",
        f"  | {'c' * (SHOWN // 2)}",
    ]


def test_a_long_explanation_of_the_agent_is_cut() -> None:
    assert cut_text("x" * SAID) == "x" * SAID
    assert len(cut_text("x" * (SAID + 1000))) < SAID + 100
