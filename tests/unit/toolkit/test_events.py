"""The event bus: order, numbers, and what a slow subscriber loses."""

from __future__ import annotations

import anyio

from harness.toolkit.events import PROGRESS_KEPT, EventBus, PermissionReplied, TodoChanged, ToolCallProgress


def test_numbers_grow_by_one_and_the_session_is_named() -> None:
    bus = EventBus("s")
    with bus.subscribe() as one:
        for _ in range(3):
            bus.publish(TodoChanged(todos=[]))
        assert [(event.number, event.session_id) for event in one.drain()] == [(1, "s"), (2, "s"), (3, "s")]


def test_a_subscriber_gets_what_is_published_while_it_is_one() -> None:
    bus = EventBus()
    bus.publish(TodoChanged(todos=1))
    with bus.subscribe() as one:
        bus.publish(TodoChanged(todos=2))
    bus.publish(TodoChanged(todos=3))
    assert [event.todos for event in one.drain() if isinstance(event, TodoChanged)] == [2]


def test_progress_is_dropped_for_the_slow_and_said_so_and_nothing_else_is() -> None:
    bus = EventBus()
    with bus.subscribe() as slow:
        for number in range(PROGRESS_KEPT + 10):
            bus.publish(ToolCallProgress(call_id="c", text=str(number)))
            bus.publish(PermissionReplied(request_id=str(number), allowed=True, by="test"))
        events = slow.drain()
        bus.publish(ToolCallProgress(call_id="c", text="later"))
        (later,) = slow.drain()
    assert sum(isinstance(event, PermissionReplied) for event in events) == PROGRESS_KEPT + 10
    assert sum(isinstance(event, ToolCallProgress) for event in events) == PROGRESS_KEPT
    assert isinstance(later, ToolCallProgress)
    assert later.missed == 10


async def test_a_waiting_subscriber_is_woken() -> None:
    bus = EventBus()
    got: list[int] = []

    async def watch(*, task_status: anyio.abc.TaskStatus[None]) -> None:
        with bus.subscribe() as events:
            task_status.started()
            async for event in events:
                got.append(event.number)
                if len(got) == 2:
                    return

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            await tasks.start(watch)
            bus.publish(TodoChanged(todos=1))
            await anyio.lowlevel.checkpoint()
            bus.publish(TodoChanged(todos=2))
    assert got == [1, 2]
