"""The notifier: which events of a session it sends, and that it neither delays nor fails the session."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

import anyio
import pytest

from harness.agent.events import BudgetNearlyUsed, TurnCompleted, TurnStarted
from harness.errors import HarnessError
from harness.live.sessions.state import SessionState
from harness.notifications import notifier as module
from harness.notifications.channel import Channel, NotificationError
from harness.notifications.command_end import notified_end
from harness.notifications.notification import Notification, NotificationItem
from harness.notifications.notifier import Notifier
from harness.notifications.session_watch import SessionWatch
from harness.notifications.settings import NotificationSettings
from harness.results import ShellResult, Status
from harness.system.background_tasks import open_background_tasks
from harness.toolkit.events import (
    Event,
    EventBus,
    JobExited,
    JobStarted,
    PermissionAsked,
    PermissionReplied,
    QuestionAnswered,
    QuestionAsked,
)
from harness.toolkit.values import ToolCall

SECRET = "hunter2"


class Recorder(Channel):
    """A channel of the test, which does as it says."""

    def __init__(self, name: str = "recorder", work: Callable[[], Any] | None = None) -> None:
        self.name = name
        self.sent: list[Notification] = []
        self._work = work

    async def send(self, notification: Notification) -> str:
        self.sent.append(notification)
        if self._work is not None:
            await self._work()
        return ""


class Items:
    """What a watch asks for."""

    def __init__(self, *, is_attended: bool = False, **settings: Any) -> None:
        self.settings = NotificationSettings(bell=True, **settings)
        self.is_attended = is_attended
        self.items: dict[Any, NotificationItem] = {}

    def add(self, key: Any, item: NotificationItem, *, delay: float = 0.0, is_withdrawn_at_end: bool = False) -> None:
        self.items[key] = item

    def withdraw(self, key: Any) -> None:
        self.items.pop(key, None)

    def hear(self, *events: Event) -> list[NotificationItem]:
        state = SessionState(session="s1", target="ssh://web1", attach=("tmux", "attach"))
        watch = SessionWatch(self, lambda: state, lambda text: text.replace(SECRET, "[redacted]"))
        for event in events:
            watch.heard(event)
        return list(self.items.values())


def asked(name: str = "r1", **more: Any) -> PermissionAsked:
    call = ToolCall("run_shell", {}, "c", agent_id=more.pop("agent_id", "agent"))
    return PermissionAsked(request_id=name, call=call, what=f"rm {SECRET}", reason="why", **more)


def turn(status: Any = "completed", seconds: float = 60.0, **more: Any) -> TurnCompleted:
    return TurnCompleted(turn_id="t", status=status, seconds=seconds, text="the answer", failure="why not", **more)


# -- what is notified


def test_what_waits_is_withdrawn_by_its_answer() -> None:
    found = Items().hear(
        asked("r1"), asked("r2", agent_id="a7"), PermissionReplied(request_id="r1", allowed=True, by="x")
    )
    assert [(item.event, item.detail) for item in found] == [("approval_waiting", "")]
    assert found[0].summary == "run_shell waits for approval, requested by agent a7"
    question = QuestionAsked(request_id="q", questions=[{"question": "which?"}])
    assert [item.event for item in Items().hear(question)] == ["question_waiting"]
    assert Items().hear(question, QuestionAnswered(request_id="q")) == []


def test_commands_are_included_redacted_and_only_if_asked_for() -> None:
    (found,) = Items(include_command=True).hear(asked())
    assert found.detail == "rm [redacted]"


@pytest.mark.parametrize(
    ("events", "count"),
    [
        ([turn()], 1),
        ([turn(seconds=5.0)], 0),
        ([turn(parent_call="c1")], 0),
        ([turn(), TurnStarted(turn_id="t2", prompt="next")], 0),
        ([turn(), TurnStarted(turn_id="t2", prompt="of a sub-agent", parent_call="c1")], 1),
        ([turn("cancelled")], 1),
    ],
)
def test_an_agent_has_stopped_when_no_turn_follows(events: list[Event], count: int) -> None:
    assert len(Items().hear(*events)) == count


def test_answers_are_included_only_if_asked_for_and_limits_always() -> None:
    assert [item.detail for item in Items().hear(turn())] == [""]
    assert [item.detail for item in Items().hear(turn("failed"))] == [""]
    assert [item.detail for item in Items().hear(turn("limit"))] == ["why not"]
    assert [item.output for item in Items().hear(turn())] == [""]
    assert [item.output for item in Items(include_output=True).hear(turn())] == ["the answer"]


def test_an_operator_who_cancels_a_turn_knows_it() -> None:
    assert Items(is_attended=True).hear(turn("cancelled")) == []


def test_jobs_notify_of_their_end_from_a_duration_on() -> None:
    started, exited = JobStarted(job_id="7", command=f"sleep {SECRET}"), JobExited(job_id="7", exit_code=3)
    assert Items().hear(started, exited) == []
    (found,) = Items(min_duration=0.0, include_command=True).hear(started, exited)
    assert (found.summary, found.exit_code, found.detail) == ("job 7 has ended: exit code 3", 3, "sleep [redacted]")
    (unknown,) = Items().hear(JobExited(job_id="8", exit_code=None, host="web2"))
    assert unknown.summary == "job 8 on web2 has ended: its exit code is unknown"


def test_a_long_command_is_redacted_before_it_is_cut() -> None:
    started = JobStarted(job_id="7", command=f"{' ' * 1_996}{SECRET}")
    (found,) = Items(min_duration=0.0, include_command=True).hear(started, JobExited(job_id="7", exit_code=0))
    assert "hunt" not in found.detail


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
async def test_a_secret_that_the_omitted_bytes_cut_is_not_sent(stream: str) -> None:
    cut: dict[str, Any] = {f"{stream}_bytes": b"start hun" + b"er2 cut\nthe end", f"{stream}_gap": (9, 1_000)}
    recorder = Recorder()
    notifier = made(recorder, min_duration=0.0, include_output=True)

    async def work() -> None:
        with notified_end(notifier, SessionState, "job_ended", lambda text: text.replace(SECRET, "")) as end:
            end.take_result(ShellResult("x", Status.COMPLETED, exit_code=0, **cut))

    await opened(notifier, work)
    assert [one.items[0].output for one in recorder.sent] == ["the end"]


def test_a_budget_is_reported_with_its_use() -> None:
    (found,) = Items().hear(BudgetNearlyUsed(setting="turn_budget_usd", used=0.85, limit=1.0))
    assert found.summary == "85% of turn_budget_usd is used: $0.85 of $1.00"


# -- sending


async def opened(notifier: Notifier, work: Callable[[], Any]) -> float:
    """Run a session with a notifier, and return how long its end took."""
    async with open_background_tasks() as tasks:
        notifier.start(tasks)
        await work()
        started = time.monotonic()
        await notifier.finish()
        return time.monotonic() - started


def made(*channels: Channel, **settings: Any) -> Notifier:
    return Notifier(NotificationSettings(bell=True, **settings), channels, lambda session: f"url:{session}")


async def until(condition: Callable[[], object]) -> None:
    with anyio.fail_after(20):
        while not condition():  # noqa: ASYNC110  # of another task
            await anyio.sleep(0.01)


async def test_a_storm_of_jobs_is_few_notifications_with_every_job(monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = Recorder()
    notifier = made(recorder, max_per_minute=2)

    async def work() -> None:
        for number in range(3_000):
            notifier.add(number, NotificationItem("job_ended", f"job {number}", session="s1"))
            if number % 100 == 0:
                await anyio.sleep(0.01)

    await opened(notifier, work)
    assert len(recorder.sent) <= 3  # two, and what was left at the end
    assert sum(sum(one.counts.values()) for one in recorder.sent) == 3_000
    assert recorder.sent[0].url == "url:s1"


async def test_a_slow_channel_delays_no_other_and_the_end_by_a_limit_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CLOSE_TIMEOUT", 0.3)
    slow, fast = Recorder("slow", anyio.sleep_forever), Recorder("fast")
    notifier = made(slow, fast)

    async def work() -> None:
        for number in range(3):
            notifier.add(number, NotificationItem("job_ended", "x"))
            await until(lambda number=number: len(fast.sent) == number + 1)

    assert await opened(notifier, work) < 2.0
    assert (len(slow.sent), len(fast.sent)) == (1, 3)


async def test_a_failing_channel_is_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    async def fail() -> None:
        raise NotificationError("no")

    async def break_down() -> None:
        raise RuntimeError(SECRET)

    failing, broken = Recorder("failing", fail), Recorder("broken", break_down)
    notifier = made(failing, broken)

    async def work() -> None:
        for number in range(3):
            notifier.add(number, NotificationItem("job_ended", "x"))
            await until(lambda number=number: len(failing.sent) == len(broken.sent) == number + 1)

    with caplog.at_level(logging.WARNING):
        await opened(notifier, work)
    assert sorted(record.getMessage() for record in caplog.records) == [
        "cannot notify by broken: RuntimeError",
        "cannot notify by failing: no",
    ]


async def test_an_event_at_the_very_end_is_sent_and_what_waited_is_not() -> None:
    recorder = Recorder()
    notifier = made(recorder)

    async def work() -> None:
        notifier.add(1, NotificationItem("approval_waiting", "x"), delay=2.0, is_withdrawn_at_end=True)
        notifier.add(2, NotificationItem("agent_stopped", "x"), delay=2.0)
        await anyio.lowlevel.checkpoint()

    await opened(notifier, work)
    assert [one.counts for one in recorder.sent] == [{"agent_stopped": 1}]


async def test_a_channel_gets_its_events_and_a_dashboard_that_fails_is_no_failure() -> None:
    only = Recorder()
    only.events = ("approval_waiting",)

    def fail(session: str) -> str:
        raise OSError("no")

    notifier = Notifier(NotificationSettings(bell=True, events=("approval_waiting", "job_ended")), (only,), fail)

    async def work() -> None:
        notifier.add(1, NotificationItem("approval_waiting", "x"))
        notifier.add(2, NotificationItem("job_ended", "x"))
        notifier.add(3, NotificationItem("budget_nearly_used", "x"))

    await opened(notifier, work)
    assert [(one.counts, one.url) for one in only.sent] == [({"approval_waiting": 1}, "")]


@pytest.mark.parametrize("error", [TypeError("damaged"), RecursionError(), HarnessError("cannot be read")])
async def test_no_failure_of_the_dashboard_or_an_output_ends_the_command(error: Exception) -> None:
    recorder = Recorder()

    def fail(session: str) -> str:
        raise error

    async def unreadable() -> str:
        raise error

    notifier = Notifier(NotificationSettings(bell=True), (recorder,), fail)

    async def work() -> None:
        notifier.add(1, NotificationItem("job_ended", "first", read_output=unreadable))
        await until(lambda: recorder.sent)
        notifier.add(2, NotificationItem("job_ended", "last", read_output=unreadable), delay=5.0)

    await opened(notifier, work)
    assert [(one.url, one.items[0].summary) for one in recorder.sent] == [("", "first"), ("", "last")]


async def test_an_output_that_cannot_be_read_in_time_is_omitted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "OUTPUT_TIMEOUT", 0.2)
    recorder = Recorder()
    notifier = made(recorder)

    async def read() -> str:
        return f"line\x1b one\n{'x' * 1_000}"

    async def lost() -> str:
        raise HarnessError("the connection is lost")

    async def never() -> str:
        await anyio.sleep_forever()
        return "never"

    async def work() -> None:
        for number, source in enumerate((read, lost, never)):
            notifier.add(number, NotificationItem("job_ended", "x", read_output=source))

    await opened(notifier, work)
    first, *others = [item.output for item in recorder.sent[0].items]
    assert (first[:9], len(first), others) == ("line one\n", 309, ["", ""])


async def test_it_listens_only_while_it_is_open() -> None:
    recorder, events = Recorder(), EventBus("s1")
    notifier = made(recorder)

    async def work() -> None:
        with notifier.watching(lambda: SessionState(target="t"), events, str):
            events.publish(BudgetNearlyUsed(setting="turn_budget_usd", used=0.85, limit=1.0))
        events.publish(BudgetNearlyUsed(setting="turn_budget_usd", used=0.95, limit=1.0))

    await opened(notifier, work)
    assert [one.items[0].summary for one in recorder.sent] == ["85% of turn_budget_usd is used: $0.85 of $1.00"]
