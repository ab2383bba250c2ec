"""Panes that a closed connection holds are released after a while, if no other one has taken its place."""

from __future__ import annotations

import anyio
import anyio.lowlevel
import pytest

from harness.live.sessions import pane_leases
from harness.live.sessions.pane_leases import Lease, PaneLeases

ANNA: Lease = ("session", "main", "dashboard: anna")


@pytest.mark.parametrize(
    ("later", "released"),
    [
        ([], [ANNA]),
        ([("take_pane", "second")], []),
        ([("type", "second")], []),
        ([("release_pane", "first")], []),
        ([("pause", "second")], [ANNA]),
    ],
)
async def test_what_a_closed_connection_holds(
    later: list[tuple[str, str]], released: list[Lease], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pane_leases, "LEASE_GRACE", 0.1)
    leases, found = PaneLeases(), []

    async def release(lease: Lease) -> None:
        found.append(lease)

    leases.note(ANNA, "take_pane", "first")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(leases.release_left, "first", release)
        await anyio.lowlevel.checkpoint()
        for action, holder in later:
            leases.note(ANNA, action, holder)
    assert found == released
    assert leases.is_held_by("second") is (not released and later[0][1] == "second")


async def test_a_pane_is_kept_as_long_as_a_connection_that_took_it_or_typed_is_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pane_leases, "LEASE_GRACE", 0.0)
    leases, found = PaneLeases(), []

    async def release(lease: Lease) -> None:
        found.append(lease)

    leases.note(ANNA, "take_pane", "first")
    leases.note(ANNA, "type", "second")
    await leases.release_left("second", release)
    assert (found, leases.is_held_by("first"), leases.is_held_by("second")) == ([], True, False)
    await leases.release_left("first", release)
    assert found == [ANNA]
    assert not leases.is_held_by("first")
