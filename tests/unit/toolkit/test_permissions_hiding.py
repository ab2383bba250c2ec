"""What is hidden in a question as a secret, and must not be what would run."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.support.permits import Desk, desk, says

from harness.cli.asking import PreApproved
from harness.cli.exec.run import AutoApproval
from harness.toolkit.permissions.approver import Approver
from harness.toolkit.permissions.deny_all import DenyAllApprover
from harness.toolkit.permissions.questions import ApprovalScope
from harness.toolkit.permissions.rules.settings import Mode
from harness.toolkit.redaction.redactor import PatternRedactor

UNSEEN = [
    ("run_shell", ": -----BEGIN PRIVATE KEY-----\ntouch x\n: -----END PRIVATE KEY-----"),
    ("run_shell", "echo \"password: '\" ; touch x ; echo ''"),
    ("run_shell", "echo 'password: \"'; touch x; echo '\"'"),
    ("run_shell", "PASSWORD=/bin/rm${IFS}-rf x"),
    ("run_shell", "curl -V; env -u x 1abcdefg"),
    ("change", 'server/tool {"script":"echo \\"password: \'\\" ; touch x ; echo \'"}'),
    ("write_file", "/srv/password=a1b2c3/../../etc/x"),
]
SEEN = [
    ("run_shell", "touch x"),
    ("run_shell", "mysql -p;touch x"),
    ("run_shell", "mysql -pa1b2c3d4 -e 'drop table t'"),
    ("run_shell", "PASSWORD=a1b2c3d4 touch x"),
    ("run_shell", "curl -u bob:a1b2c3d4 -X POST https://web1/x"),
    ("fetch_url", "https://bob:a&b(c)@web1/x"),
    ("change", 'server/tool {"password":"a1b2c3d4"}'),
]


def guarded(approver: Approver | None, mode: Mode = Mode.ASK) -> Desk:
    made = desk(approver, mode=mode)
    return replace(made, ctx=replace(made.ctx, redactor=PatternRedactor(["1abcdefg"])))


@pytest.mark.parametrize(("tool", "text"), UNSEEN)
async def test_nobody_approves_what_is_hidden_from_them(tool: str, text: str) -> None:
    assert PatternRedactor(["1abcdefg"]).text(text) != text
    approver = says(ApprovalScope.ALWAYS)
    verdict = await guarded(approver).decide(tool, text)
    assert (verdict.allowed, approver.questions) == (False, [])
    assert "redacted" in verdict.reason
    assert "keep the secret in a file or a variable" in verdict.reason


@pytest.mark.parametrize(("tool", "text"), SEEN)
async def test_a_secret_that_is_only_a_secret_is_hidden_and_asked_about(tool: str, text: str) -> None:
    approver = says(ApprovalScope.ONCE)
    assert await guarded(approver).allows(tool, text)
    assert [question.unseen for question in approver.questions] == [""]


@pytest.mark.parametrize("approver", [PreApproved(), AutoApproval()])
async def test_a_word_that_was_given_in_advance_looks_at_nothing(approver: Approver) -> None:
    assert await guarded(approver).allows(*UNSEEN[1])


async def test_where_nobody_is_asked_the_call_is_denied() -> None:
    verdict = await guarded(DenyAllApprover()).decide(*UNSEEN[1])
    assert not verdict.allowed
    assert "no approver is available" in verdict.reason


async def test_what_was_approved_unseen_is_not_looked_at() -> None:
    assert await guarded(None, Mode.AUTO).allows(*UNSEEN[1])
    made = guarded(says(ApprovalScope.DENY_ONCE))
    made.policy.timed.set("all")
    assert await made.allows(*UNSEEN[1])
