"""Who watches a pane: all share one filtered stream, which ends with the last of them."""

from __future__ import annotations

from harness.results import Status
from harness_backends.tmux.pane.pane_state import Pane


async def no_picture(_: object) -> None:
    raise AssertionError("nobody asked for a screen")


def new_pane() -> Pane:
    return Pane("%3", "@1", "main", "uid", "bash", "nonce")


async def test_the_stream_is_shared_until_the_last_watcher_has_left() -> None:
    pane = new_pane()
    with pane.watch(100, no_picture) as first:
        shared = pane.watchers
        assert shared
        with pane.watch(100, no_picture) as second:
            assert pane.watchers is shared
            assert first is not second
        assert pane.watchers is shared, "the first one still watches"
    assert pane.watchers is None
    with pane.watch(100, no_picture):
        assert pane.watchers not in (None, shared)


async def test_a_watcher_sees_nothing_of_what_harness_types_also_if_it_comes_meanwhile() -> None:
    pane = new_pane()
    with pane.hidden(), pane.watch(100, no_picture):
        assert pane.watchers is not None
        assert pane.watchers.is_hidden
    with pane.watch(100, no_picture):
        assert pane.watchers is not None
        assert not pane.watchers.is_hidden
        with pane.hidden():
            assert pane.watchers.is_hidden
        assert not pane.watchers.is_hidden
        pane.lose(Status.UNKNOWN, "the pane was closed")
        assert pane.watchers.closed
