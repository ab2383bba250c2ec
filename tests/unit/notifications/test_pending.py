"""When notifications are sent: delays, merging and the rate."""

from __future__ import annotations

from harness.notifications.notification import Notification, NotificationItem
from harness.notifications.pending import MAX_PENDING, PendingItems, RateLimit


def job(number: int) -> NotificationItem:
    return NotificationItem("job_ended", f"job {number}")


def test_what_was_answered_in_time_is_not_sent() -> None:
    pending = PendingItems()
    pending.add("a", job(1), 2.0)
    pending.add("b", job(2), 2.5)
    assert pending.due_at(RateLimit(9)) == 2.0
    pending.withdraw("a")
    assert pending.due_at(RateLimit(9)) == 2.5
    pending.withdraw("b")
    pending.withdraw("unknown")
    assert (pending.due_at(RateLimit(9)), pending.take(9.0), pending.take_last()) == (None, None, None)


def test_events_that_are_due_together_are_one_notification() -> None:
    pending = PendingItems()
    for number, due in enumerate((2.0, 2.9, 9.0)):
        pending.add(number, job(number), due)
    first, rest = pending.take(2.0), pending.take(9.0)
    assert first is not None
    assert rest is not None
    assert [dict(one.counts) for one in (first, rest)] == [{"job_ended": 2}, {"job_ended": 1}]


def test_a_storm_is_bounded_and_counted() -> None:
    pending = PendingItems()
    for number in range(MAX_PENDING * 3):
        pending.add(number, job(number), 0.0)
    assert len(pending._items) == MAX_PENDING
    found = pending.take(0.0)
    assert found is not None
    assert (dict(found.counts), pending.due_at(RateLimit(9))) == ({"job_ended": 3 * MAX_PENDING}, None)


def test_a_storm_of_ends_hides_nothing_that_waits() -> None:
    pending = PendingItems()
    for number in range(MAX_PENDING * 3):
        pending.add(number, job(number), 0.0)
    for number in range(MAX_PENDING * 3):
        pending.add(f"a{number}", NotificationItem("approval_waiting", "x"), 0.0)
    assert len(pending._items) == MAX_PENDING * 2
    pending.withdraw("a0")
    found = pending.take(0.0)
    assert found is not None
    assert {item.event for item in found.items} == {"approval_waiting"}
    assert found.counts == {"job_ended": 3 * MAX_PENDING, "approval_waiting": 3 * MAX_PENDING - 1}


def test_at_the_end_what_waited_for_an_answer_is_dropped() -> None:
    pending = PendingItems()
    pending.add("a", NotificationItem("approval_waiting", "x"), 1e9, is_withdrawn_at_end=True)
    pending.add("b", job(1), 1e9)
    found = pending.take_last()
    assert found is not None
    assert found.counts == {"job_ended": 1}


def test_no_minute_has_more_than_the_rate() -> None:
    rate, sent, now = RateLimit(3), [], 100.0
    for _ in range(12):
        now = max(now + 1.0, rate.allowed_at("job_ended"))
        rate.note(Notification.of([job(1)]), now)
        sent.append(now)
    assert sent[:4] == [101.0, 102.0, 103.0, 161.0]
    assert all(sum(start <= moment < start + 60.0 for moment in sent) <= 3 for start in sent)


def test_ends_do_not_hold_back_what_waits() -> None:
    rate, pending = RateLimit(1), PendingItems()
    rate.note(Notification.of([job(1)]), 100.0)
    pending.add("a", job(2), 101.0)
    assert pending.due_at(rate) == 160.0
    pending.add("b", NotificationItem("approval_waiting", "x"), 103.0)
    assert pending.due_at(rate) == 103.0
    found = pending.take(103.0)
    assert found is not None
    assert (found.is_urgent, dict(found.counts)) == (True, {"job_ended": 1, "approval_waiting": 1})
    rate.note(found, 103.0)
    assert (rate.allowed_at("job_ended"), rate.allowed_at("question_waiting")) == (160.0, 163.0)
