"""One decision for all hosts of a call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import anyio

from harness.errors import HarnessError
from harness.toolkit.contract import HostRequest
from harness.toolkit.hosts.pipeline import JointDecision
from harness.toolkit.interfaces import Verdict


def request(name: str) -> HostRequest:
    unused: Any = None
    return HostRequest(name, unused, unused)


async def test_hosts_are_decided_in_the_order_of_the_call() -> None:
    decided: list[list[str]] = []

    async def decide(requests: Sequence[HostRequest]) -> list[Verdict | HarnessError]:
        decided.append([one.name for one in requests])
        return [Verdict(True, one.name, "test") for one in requests]

    found: dict[str, str] = {}
    async with anyio.create_task_group() as tasks:
        decision = JointDecision(("a", "b", "c"), decide, tasks)

        async def ask(name: str) -> None:
            found[name] = (await decision.verdict(request(name))).reason

        for name in ("c", "a"):
            tasks.start_soon(ask, name)
        await anyio.wait_all_tasks_blocked()
        assert decided == []
        decision.leave("b")
    assert (decided, found) == ([["a", "c"]], {"a": "a", "c": "c"})
