"""Times ``true`` in a bash session of SWE-ReX; prints the milliseconds of each call as JSON."""

import asyncio
import json
import sys
import time

from swerex.runtime.abstract import BashAction, CreateBashSessionRequest
from swerex.runtime.local import LocalRuntime


async def main(rounds: int) -> list[float]:
    runtime = LocalRuntime()
    await runtime.create_session(CreateBashSessionRequest(startup_timeout=15))
    values = []
    for number in range(rounds + 2):
        began = time.perf_counter()
        done = await runtime.run_in_session(BashAction(command="true"))
        assert done.exit_code == 0, done
        if number >= 2:
            values.append((time.perf_counter() - began) * 1e3)
    await runtime.close()
    return values


print(json.dumps(asyncio.run(main(int(sys.argv[1])))))
