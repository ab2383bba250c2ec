"""Approval in advance: for how long it holds, by which clock, and what it does not lift."""

from __future__ import annotations

import time

import pytest
from tests.support.permits import Clock, desk, says

from harness.toolkit.permissions.questions import ApprovalScope
from harness.toolkit.permissions.remembered_answers import TimedApproval
from harness.toolkit.permissions.rules.rule import Action, Rule
from harness.toolkit.permissions.rules.settings import Mode


def test_a_time_ends() -> None:
    clock = Clock()
    timed = TimedApproval(clock)
    timed.set("15m")
    assert (timed.state, timed.remaining) == ("all", 900)
    clock.now += 899.9
    assert timed.state == "all"
    clock.now += 0.1
    assert (timed.state, timed.remaining) == ("ask", None)
    timed.set("all")
    clock.now += 10**9
    assert (timed.state, timed.remaining) == ("all", None)
    timed.set("24h")
    assert timed.remaining == 86400


def test_a_time_goes_by_no_clock_that_anybody_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.time()
    timed = TimedApproval()
    timed.set("15m")
    for shift in (-10 * 86400, 10 * 86400):
        monkeypatch.setattr(time, "time", lambda shift=shift: now + shift)
        assert timed.state == "all"
        assert 800 < (timed.remaining or 0) <= 900


@pytest.mark.parametrize("text", ["", "0", "-5", "soon", "25h", "99999d"])
def test_what_is_no_time_changes_nothing(text: str) -> None:
    timed = TimedApproval(Clock())
    with pytest.raises(ValueError, match=r"."):
        timed.set(text)
    assert timed.state == "ask"


async def test_approval_in_advance_answers_until_its_time_is_over() -> None:
    made = desk()
    made.policy.timed.set("15m")
    assert (await made.decide("write_file", "/srv/a")).by == "timed approval"
    made.clock.now += 900
    assert not await made.allows("write_file", "/srv/a")


async def test_none_in_advance_denies_what_would_be_asked_and_asks_nobody() -> None:
    approver = says(ApprovalScope.SESSION)
    made = desk(approver)
    made.policy.timed.set("none")
    assert not await made.allows("write_file", "/srv/a")
    assert await made.allows("read_file", "/srv/a")
    assert approver.questions == []


async def test_approval_in_advance_lifts_no_denial() -> None:
    made = desk(rules=(Rule(Action.DENY, argument="/srv/a"),), allowed_tools=("write_file",))
    made.policy.timed.set("all")
    assert not await made.allows("write_file", "/srv/a")
    assert not await made.allows("write_file", "~/.ssh/id_rsa")
    assert not await made.allows("change")
    assert await made.allows("write_file", "/srv/b")
    assert not await desk(mode=Mode.DENY).allows("write_file", "/srv/b")


async def test_what_is_approved_in_advance_is_approved_on_one_target() -> None:
    made = desk()
    made.policy.timed.set("15m", "memory://elsewhere")
    assert not await made.allows("write_file", "/srv/a")
    made.policy.timed.set("15m", made.ctx.execution.identity)
    assert await made.allows("write_file", "/srv/a")
    made.policy.timed.set("all")
    assert await made.allows("write_file", "/srv/a")
    made.policy.timed.set("none", "memory://elsewhere")
    assert not await made.allows("write_file", "/srv/a")
