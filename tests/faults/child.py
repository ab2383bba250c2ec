"""A harness in a process of its own, to be stopped and killed. Run by :func:`tests.faults.children.start`."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from harness import connect
from harness.config import Config


def say(**words: Any) -> None:
    print(json.dumps(words), flush=True)  # noqa: T201  # how it talks


async def run(ctx: Any, job: dict[str, Any]) -> None:
    result = await ctx.run_shell(job["command"], **job.get("options", {}))
    say(status=str(result.status), code=result.exit_code, out=result.stdout, job=result.job_id, tag=job.get("tag"))


async def main() -> None:
    request = json.loads(sys.stdin.readline())
    settings: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in request["config"].items()
    }
    async with connect(request["target"], tmux=request["tmux"], config=Config(**settings)) as ctx:
        say(ready=True)
        jobs = [json.loads(line) for line in iter(sys.stdin.readline, "run\n")]
        say(running=True)
        if request["together"]:
            await asyncio.gather(*(run(ctx, job) for job in jobs))
        else:
            for job in jobs:
                await run(ctx, job)
    say(closed=True)


asyncio.run(main())
