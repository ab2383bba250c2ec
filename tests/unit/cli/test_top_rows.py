"""The rows of ``harness top`` as texts, filtered and sorted."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.cli.top.rows import ORDERS, cells_of, details_of, elapsed, filtered, ordered, rows_of, summary_of
from harness.live.overview import LiveProcess
from harness.live.sessions.state import HostCounts, JobState, ProcessFacts, SessionState, SubAgentState, WaitingApproval
from harness.system.process_identity import ProcessId

PROCESS = LiveProcess(Path("/x/7-1"), ProcessId("u", "h", "b", "s", 7, "1"), ProcessFacts(7, "prompt"))
ASKED = WaitingApproval("r", "c", "run_shell", "touch a\nrm b\x1b[2J", "web1", "no rule", until=70.0, why="w")
SESSIONS = [
    SessionState(session="a", kind="agent", target="ssh://web1", title="look", doing="idle", since=1, cost=0.5),
    SessionState(session="b", kind="agent", target="ssh://db1", doing="waiting", since=5, approvals=(ASKED,)),
    SessionState(session="c", kind="fleet", target="web[1-9]", title="uptime", doing="running", since=3),
    SessionState(session="d", kind="agent", target="local", doing="lost", since=2, cost=1.5),
]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-3, "0s"), (59.9, "59s"), (60, "1m00s"), (3599, "59m59s"), (3600, "1h00m"), (86399, "23h59m"), (90000, "1d01h")],
)
def test_durations_are_short(seconds: float, text: str) -> None:
    assert elapsed(seconds) == text


def keys(order: str, *, backward: bool = False) -> str:
    groups = rows_of((PROCESS, session) for session in SESSIONS)
    return "".join(row.session.session for row in ordered(groups, order, backward=backward))


def test_what_needs_attention_comes_first() -> None:
    assert keys("state") == "bdca"
    assert keys("cost") == "dabc"
    assert keys("target") == "dbac"
    assert keys("time") == "adcb"
    assert keys("time", backward=True) == "bcda"
    assert set(ORDERS) == {"state", "target", "kind", "time", "cost", "started"}


@pytest.mark.parametrize(
    ("text", "found"), [("", 4), ("WEB1", 1), ("approve?", 1), ("agent", 3), ("web up", 1), ("7", 4), ("zz", 0)]
)
def test_each_word_of_a_filter_must_occur(text: str, found: int) -> None:
    assert len(filtered(rows_of((PROCESS, session) for session in SESSIONS), text)) == found


def test_jobs_and_sub_agents_are_below_their_session() -> None:
    jobs = (JobState("7", "tail -f x", 5.0), JobState("8", "true", 5.0, False, 0))
    session = SessionState(session="s", kind="agent", jobs=jobs, agents=(SubAgentState("explore-1", "look", 4.0),))
    (rows,) = rows_of([(PROCESS, session)])
    assert [cells_of(row, 10.0)[1:5:2] for row in rows] == [
        ("agent", ""),
        ("sub", "└ agent explore-1: look"),
        ("job", "└ job 7: tail -f x"),
    ]
    assert summary_of(rows) == "1 session: 1 idle"


def test_cells_and_details_are_printable_and_the_waiting_call_is_complete() -> None:
    (row,) = rows_of([(PROCESS, SESSIONS[1])])[0]
    assert cells_of(row, 12.0) == ("APPROVE?", "agent", "ssh://db1", "touch a rm b\\x1b[2J", "7s", "")
    lines = details_of(row, 12.0)
    assert lines[1:] == [
        "may run_shell run on web1? (denied in 58s)",
        "  | touch a",
        "  | rm b\\x1b[2J",
        "  why: w",
        "  no rule",
    ]


def test_a_fleet_shows_how_far_it_is() -> None:
    session = SessionState(session="c", kind="fleet", title="uptime", doing="running", hosts=HostCounts(9, 2, 3, 1))
    (row,) = rows_of([(PROCESS, session)])[0]
    assert cells_of(row, 0.0)[3] == "4/9 hosts, 1 failed: uptime"
