"""The question at the terminal: what is shown, and what an operator's line means."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.cli.asking import TerminalApprover, approval_text, parse_answer
from harness.login import LoginQuestion, TerminalPrompter
from harness.toolkit import ToolCall
from harness.toolkit.permissions.questions import ApprovalRequest, ApprovalScope

ALL = tuple(ApprovalScope)
ONLY_ONCE = (ApprovalScope.ONCE, ApprovalScope.DENY_ONCE)


def question(what: str = "rm -r build", scopes: tuple[ApprovalScope, ...] = ALL) -> ApprovalRequest:
    details = {"why": "tidy\nup", "risk": "low"}
    return ApprovalRequest("q1", ToolCall("run_shell"), what, "it changes something", "ssh://web1", scopes, details)


@pytest.mark.parametrize(
    ("line", "scopes", "scope"),
    [
        ("y", ALL, ApprovalScope.ONCE),
        (" Yes ", ALL, ApprovalScope.ONCE),
        ("a", ALL, ApprovalScope.ALWAYS),
        ("always", ALL, ApprovalScope.ALWAYS),
        ("a", ONLY_ONCE, None),
        ("s", ONLY_ONCE, None),
        ("n", ALL, ApprovalScope.DENY_ONCE),
        ("no", ONLY_ONCE, ApprovalScope.DENY_ONCE),
        ("x", ONLY_ONCE, ApprovalScope.DENY_SESSION),
        ("", ALL, ApprovalScope.DENY_ONCE),
        ("yy", ALL, None),
        ("perhaps", ALL, None),
        ("ye", ALL, None),
    ],
)
def test_a_line_means_what_it_says_and_nothing_more(
    line: str, scopes: tuple[ApprovalScope, ...], scope: ApprovalScope | None
) -> None:
    assert parse_answer(line, question(scopes=scopes)) is scope


def test_the_question_shows_the_exact_text_and_obeys_none_of_it() -> None:
    text = approval_text(question("echo a\nrm \x1b[2Kb \u202e"))
    assert text.splitlines() == [
        "harness: may run_shell run on ssh://web1?",
        "  | echo a",
        "  | rm \\x1b[2Kb \\u202e",
        "  why: tidy up",
        "  risk: low",
        "  (it changes something)",
        "y = yes, a = always exactly this, n = no: ",
    ]
    assert approval_text(question(scopes=ONLY_ONCE)).endswith("y = yes, n = no: ")


def test_what_would_be_written_is_shown_below_what_is_asked() -> None:
    text = approval_text(replace(question("write /srv/a"), preview="content, 6 bytes:\n| hello\nand so on"))
    assert text.splitlines()[1:5] == [
        "  | write /srv/a",
        "  content, 6 bytes:",
        "  | hello",
        "  and so on",
    ]


class Typed(TerminalPrompter):
    """A terminal at which these lines are typed."""

    def __init__(self, *lines: str | None) -> None:
        super().__init__()
        self.lines = list(lines)

    async def answer(self, question: LoginQuestion) -> str | None:
        return self.lines.pop(0)


@pytest.mark.parametrize(
    ("lines", "scope"),
    [
        (("what?", "y"), ApprovalScope.ONCE),
        ((None,), ApprovalScope.DENY_ONCE),
        (("what?", "why?", "who?"), ApprovalScope.DENY_ONCE),
    ],
)
async def test_an_unclear_answer_is_never_a_yes(lines: tuple[str | None, ...], scope: ApprovalScope) -> None:
    assert (await TerminalApprover(Typed(*lines)).ask(question())).scope is scope
