"""What a question shows of a text that would be written."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.permits import Says, desk
from tests.support.toolbox import Toolbox, Trace, Words, toolbox

from harness.toolkit import CallStatus, ToolCall
from harness.toolkit.events import PermissionAsked
from harness.toolkit.permissions.approver import LASTING, LINES, WIDTH, preview_of
from harness.toolkit.permissions.policy import RulePolicy
from harness.toolkit.permissions.questions import ApprovalDecision, ApprovalScope
from harness.toolkit.permissions.rules.store import LoadedRules, RuleFile
from harness.toolkit.redaction.redactor import PatternRedactor
from harness_tools.files import WriteFile

ALL = tuple(ApprovalScope)
ONLY_ONCE = (ApprovalScope.ONCE, ApprovalScope.DENY_ONCE)


def shown(text: str | None) -> list[str]:
    return preview_of(text, ONLY_ONCE, str).split("\n")


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (None, [""]),
        ("", ["content, 0 bytes:"]),
        ("a", ["content, 1 byte:", "| a"]),
        ("a\nb\n", ["content, 4 bytes:", "| a", "| b"]),
        ("é\udcff", ["content, 3 bytes:", "| é\\udcff"]),
        ("\x1b[2J\r\t\u202e\u2028x", ["content, 13 bytes:", "| \\x1b[2J\\r\\t\\u202e\\u2028x"]),
    ],
)
def test_size_and_lines_are_shown(text: str | None, lines: list[str]) -> None:
    assert shown(text) == lines


def test_what_is_not_shown_is_counted() -> None:
    got = shown("x\n" * (LINES + 3))
    assert (len(got), got[-1]) == (LINES + 2, "… 3 more lines")
    assert shown("x" * (WIDTH + 5))[1] == f"| {'x' * WIDTH} … 5 more characters"


def test_only_a_question_with_lasting_answers_says_how_far_they_go() -> None:
    assert preview_of("a", ALL, str).endswith(f"\n{LASTING}")
    assert LASTING not in preview_of("a", ONLY_ONCE, str)


@given(st.text())
def test_no_line_of_the_text_passes_for_one_of_ours(text: str) -> None:
    got = shown(text)
    assert all(line.isprintable() for line in got)
    ours = [line for line in got if not line.startswith("| ")]
    assert len(ours) == 1 + (len(got) == LINES + 2)
    assert len(got) <= LINES + 2


def asked_for_each_write(approver: Says) -> Toolbox:
    made = toolbox([WriteFile()])
    services = replace(made.executor.services, policy=RulePolicy(approver=approver), redactor=Words(Trace()))
    return replace(made, executor=replace(made.executor, services=services))


async def test_the_question_of_write_file_shows_the_text_without_its_secrets() -> None:
    approver = Says(lambda question: ApprovalDecision(ApprovalScope.DENY_ONCE))
    made = asked_for_each_write(approver)
    with made.events.subscribe() as events:
        call = ToolCall("write_file", {"path": "/srv/a", "content": "one\npassword hunter2\n"})
        assert (await made.executor.call(call)).status is CallStatus.DENIED
        (asked,) = [event for event in events.drain() if isinstance(event, PermissionAsked)]
    lines = ["content, 21 bytes:", "| one", "| password [redacted]", LASTING]
    assert approver.questions[0].preview.split("\n") == lines
    assert asked.preview == approver.questions[0].preview


@pytest.mark.parametrize(
    ("tool", "cwd", "pane", "lines"),
    [
        ("run_shell", None, None, ["in the directory /home/user"]),
        ("run_shell", "/srv/prod", "db\n| x", ["in the directory /srv/prod", "in the pane db\\n| x"]),
        ("run_shell", "/srv/\x1b[2Ja\n| ls", None, ["in the directory /srv/\\x1b[2Ja\\n| ls"]),
        ("fetch_url", "/srv", "db", [""]),
        ("write_file", "/srv", "db", [""]),
    ],
)
async def test_a_command_says_where_it_starts(tool: str, cwd: str | None, pane: str | None, lines: list[str]) -> None:
    approver = Says()
    assert await desk(approver, cwd=cwd).allows(tool, "rm x", **({"pane": pane} if pane else {}))
    assert approver.questions[0].preview.split("\n") == lines


async def test_with_a_broken_file_no_rule_is_advised(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(RuleFile, "load", lambda self: LoadedRules(failure="it is broken"))
    approver = Says()
    made = desk(file=tmp_path / "permissions.json")
    reason = (await made.decide("write_file", "/srv/a")).reason
    assert "repair or remove the rule file first" in reason
    assert "permissions add" not in reason
    assert "mode" not in reason
    made.policy.approver = approver
    assert await made.allows("write_file", "/srv/a")
    assert approver.questions[0].broken


def test_lines_that_are_hidden_as_a_secret_are_counted() -> None:
    text = "#!/bin/sh\n: -----BEGIN PRIVATE KEY-----\ntouch x\n: -----END PRIVATE KEY-----\necho\n"
    got = preview_of(text, ONLY_ONCE, PatternRedactor().text).split("\n")
    assert got[1:] == [
        "| #!/bin/sh",
        "| : [redacted]",
        "| echo",
        "\u2026 2 of its line breaks are redacted with what looks like a secret",
    ]


async def test_a_name_with_a_line_end_is_one_name() -> None:
    approver = Says()
    assert await desk(approver).allows("write_file", "/srv/a\nwrite /srv/b")
    assert approver.questions[0].what.split("\n") == ["write /srv/a\\nwrite /srv/b"]
