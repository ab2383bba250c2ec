"""What is too long for a message is cut or refused, and ends neither the connection nor the program."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest

from harness.errors import HarnessError
from harness.live.announcement import announce
from harness.live.client import open_client
from harness.live.protocol import StreamItem, encode
from harness.live.sessions.event_streams import _item
from harness.live.sessions.session import LiveSession
from harness.live.sessions.state import JobState, SessionState, WaitingApproval
from harness.live.sockets import listed_processes
from harness.system.process_identity import this_process

LONG = "\N{GRINNING FACE}" * 2_000


class LongSession(LiveSession):
    """A session with more than a message has room for."""

    session_id = "long"

    def state(self) -> SessionState:
        jobs = tuple(JobState(str(number), LONG) for number in range(100))
        approvals = tuple(WaitingApproval(str(number), text=LONG * 20) for number in range(5))
        return SessionState("long", title="a title", jobs=jobs, approvals=approvals)

    async def query(self, query: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"jobs": [LONG] * 100} if query == "jobs" else {"panes": []}


@pytest.mark.usefixtures("needs_process")
async def test_a_session_with_much_to_show_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with anyio.fail_after(30):
        async with announce("python") as announcement:
            with announcement.session(LongSession()):
                (path,) = listed_processes(this_process())
                changed = anyio.Event()

                def heard() -> None:
                    changed.set()

                async with open_client(path, heard) as client:
                    await client.watch()
                    while not client.is_complete:
                        await changed.wait()
                        changed = anyio.Event()
                    found = client.sessions["long"]
                    assert found.title == "a title"
                    assert found.approvals[0].request_id == "0"
                    assert found.jobs[-1].job_id == "99"
                    with pytest.raises(HarnessError, match="bytes"):
                        await client.request("long", "jobs")
                    assert await client.request("long", "panes") == {"panes": []}


def test_an_event_with_long_texts_has_room_in_a_message() -> None:
    item = _item({"type": "tool_call_completed", "texts": [LONG * 100] * 5})
    assert item["type"] == "tool_call_completed"
    encode(StreamItem(1, item))
