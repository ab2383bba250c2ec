"""An agent's writer, to be killed: ``sessions_child.py DIRECTORY SESSION FIRST``. Prints each step that returned.

Step n hands over the message ``{"n": n}``; every seventh begins a turn, every eleventh puts all messages together.
"""

from __future__ import annotations

import json
import sys
from itertools import count
from pathlib import Path

import anyio

from harness.agent.storage import ConversationStore


async def main(directory: str, session_id: str, first: str) -> None:
    async with ConversationStore(Path(directory)).writing(session_id) as log:
        print("ready", flush=True)  # noqa: T201  # how it talks
        for number in count(int(first)):
            if number % 7 == 0:
                await log.turn_started(f"t{number}", f"prompt {number}")
            if number % 11 == 0:
                await log.replaced([json.dumps({"to": number})], f"up to {number}")
            else:
                await log.append([json.dumps({"n": number})])
            if number % 7 == 6:
                await log.turn_ended(f"t{number - 6}", "completed")
            print(number, flush=True)  # noqa: T201  # how it talks


anyio.run(main, *sys.argv[1:])
