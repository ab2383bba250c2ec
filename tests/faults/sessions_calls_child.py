"""An agent in the middle of a turn, to be killed: ``sessions_calls_child.py DIRECTORY SESSION COMMAND...``.

Each command is one call of one answer, all at once.
"""

from __future__ import annotations

import sys
from pathlib import Path

import anyio

from harness import connect
from harness.agent.storage import ConversationStore, JobNotes
from harness.toolkit import ToolCall
from harness.toolkit.assembly import ToolkitSettings, open_executor
from harness.toolkit.permissions.rules.settings import Mode, PermissionSettings


async def main(directory: str, session_id: str, *commands: str) -> None:
    settings = ToolkitSettings(permissions=PermissionSettings(mode=Mode.AUTO))
    async with (
        ConversationStore(Path(directory)).writing(session_id) as log,
        connect("local:") as execution,
        open_executor(execution, settings, session_id=session_id) as executor,
    ):
        await log.turn_started("t1", "restart the web server")
        with executor.events.listening(JobNotes(log).heard):
            left = await executor.call(ToolCall("run_shell", {"command": commands[0], "wait": False}))
        assert not left.result.is_error, left
        await log.append(['{"answer": 1}'])
        async with anyio.create_task_group() as group:
            for command in commands[1:]:
                group.start_soon(executor.call, ToolCall("run_shell", {"command": command}))


anyio.run(main, *sys.argv[1:])
