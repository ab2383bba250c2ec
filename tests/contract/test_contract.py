"""Every backend keeps the whole contract; what one does not keep is written down, with the reason."""

from __future__ import annotations

import pytest

from harness import ExecutionContext
from harness.testing.contract import Check, Gap, checks, run_check

BACKENDS = ("local", "local+tmux", "ssh-openssh", "ssh-openssh+tmux", "ssh-asyncssh", "ssh-asyncssh+tmux")

CONTAINERS = ("docker+tmux", "docker-busybox+tmux", "podman-busybox")
"""Few of the ways into a container, for time's sake: what differs between the others is in the transports' contract."""

PROGRAMS = ("exec-chroot+tmux", "exec-chroot-busybox", "exec-nsenter", "exec-nsenter+tmux", "exec-unshare")
CLUSTERS = ("kubectl+tmux",)

EVERY = (*BACKENDS, *CONTAINERS, *PROGRAMS, *CLUSTERS)
GAPS: tuple[Gap, ...] = ()


CASES = [
    pytest.param(backend, item, id=f"{backend}-{item.name}")
    for backend in EVERY
    for item in checks()
    if item.applies_to(terminal=backend.endswith("+tmux"))
]


@pytest.mark.parametrize(("backend", "item"), CASES)
async def test_contract(ctx: ExecutionContext, backend: str, item: Check) -> None:
    gap = next((gap for gap in GAPS if (gap.backend, gap.check) == (backend, item.name)), None)
    if gap is None:
        await run_check(item, ctx)
        return
    try:
        await run_check(item, ctx)
    except Exception:
        return
    pytest.fail(f"{backend} keeps {item.name!r} now: remove its gap ({gap.reason})")


def test_every_gap_names_a_check_and_gives_a_reason() -> None:
    names = {item.name for item in checks()}
    assert [gap for gap in GAPS if gap.check not in names or gap.backend not in EVERY or not gap.reason] == []


def test_every_check_states_its_requirement_in_one_sentence() -> None:
    assert [item.name for item in checks() if not item.requirement.endswith(".") or "\n" in item.requirement] == []
    assert len({item.name for item in checks()}) == len(checks())
