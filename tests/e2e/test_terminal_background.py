"""Commands that nobody waits for get panes of their own, also when several come at once."""

from __future__ import annotations

import anyio
from tests.support.desk import Desk, OpenDesk, open_desk

from harness.results import Status

__all__ = ["open_desk"]

TIME = 60.0
CALLERS = 3


async def start_at_once(desk: Desk, command: str) -> list[str]:
    """Start the command for each caller in the same moment; returns the panes."""
    panes: list[str] = []

    async def start() -> None:
        result = await desk.ctx.run_shell(command, wait=False)
        assert result.status is Status.RUNNING
        panes.append(result.pane or "")

    async with anyio.create_task_group() as tasks:
        for _ in range(CALLERS):
            tasks.start_soon(start)
    return sorted(panes)


async def test_callers_at_once_get_a_pane_each_new_or_idle(open_desk: OpenDesk) -> None:
    desk = await open_desk()
    with anyio.fail_after(TIME):
        gate = desk.home / "gate"
        expected = [f"bg-{number + 1}" for number in range(CALLERS)]
        for _ in range(2):  # first the panes are new, then they are idle
            assert await start_at_once(desk, f"until [ -e {gate} ]; do sleep 0.05; done") == expected
            gate.touch()
            for job in await desk.ctx.jobs():
                assert (await desk.ctx.wait(job.job_id, timeout=20)).exit_code == 0
            gate.unlink()
