"""Tools of MCP servers in a conversation: what the model sees of them is what they are at the moment."""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from pathlib import Path

import anyio
from tests.support.mcp_servers import SERVERS
from tests.support.model_server import Asked, call, model_server, say
from tests.support.seats import Seat, Seats, seats, settings_for

__all__ = ["seats"]

HARNESS = str(Path(sys.executable).with_name("harness"))
RAW = json.dumps([sys.executable, str(SERVERS / "raw.py")])
SETTINGS = f"""
[permissions]
mode = "auto"
[mcp.servers.free]
command = {RAW}
[mcp.servers.pinned]
command = {RAW}
pin_tools = true
"""


def told(asked: Asked) -> dict[str, str]:
    """The tools of the servers in a request, with what is said of them."""
    tools = [tool for tool in asked.body["tools"] if tool["name"].startswith(("free_", "pinned_"))]
    return {tool["name"]: tool["description"] for tool in tools}


async def described(seat: Seat, name: str, text: str) -> None:
    """Wait until a tool is described so at the prompt, which is when it is to the model."""
    for _ in range(10):
        seat.enter(f"/tools {name}")
        with suppress(AssertionError):
            return await seat.sees(text, timeout=6)
    raise AssertionError(seat.history)


async def test_a_tool_that_changes_in_a_conversation_is_another_one_from_the_next_request_on(seats: Seats) -> None:
    script = [call("pinned_poison", {}), call("free_change", {}), say("changed")]
    more = [call("pinned_echo", {"text": "x"}), call("free_brand_new", {}), say("looked"), say("another one")]
    seat = seats.take(script=[*script, *more], settings=SETTINGS, size=(160, 50))
    await seat.on_screen("»", "scripted")
    seat.enter("go")
    await seat.sees("disabled until it is accepted", "brand_new of server 'free' is new", "changed\n", "idle")
    await described(seat, "free_brand_new", "Do brand_new.")
    await described(seat, "pinned_echo", "This tool differs from the accepted one")
    seat.enter("look again")
    await seat.sees("nothing was run", "● free_brand_new", "looked")
    assert seat.model is not None
    assert "Do echo." in told(seat.model.asked[0])["pinned_echo"]
    now = told(seat.model.asked[3])
    assert "Do echo." not in now["pinned_echo"]
    assert "id_ed25519" not in now["pinned_echo"]
    assert {name for name in now if name.startswith("free_")} == {"free_echo", "free_brand_new"}
    seat.enter("/session new")
    await seat.sees("new conversation: ")
    seat.enter("hello")
    await seat.sees("another one")
    assert told(seat.model.asked[6]) == now
    assert seat.model.refused == []


async def test_the_tools_of_servers_and_declared_ones_are_offered_next_to_those_of_a_profile(seats: Seats) -> None:
    with model_server([say("seen")]) as server:
        settings = seats.private / "config/harness/config.toml"
        settings.parent.mkdir(parents=True)
        settings.write_text(settings_for(server, SETTINGS))
        declared = settings.parent / "tools/disks.toml"
        declared.parent.mkdir()
        declared.write_text('[[tool]]\nname = "disks"\ndescription = "Show disks."\nbinary = "df"\nmutating = false\n')
        declared.chmod(0o600)
        words = [HARNESS, "exec", "--tool-profile", "gofastr", "look"]
        with anyio.fail_after(60):
            done = await anyio.run_process(words, env=seats.environment, cwd=seats.home, check=False)
        assert (done.returncode, done.stdout) == (0, b"seen\n")
        assert told(server.asked[0]).keys() >= {"free_echo", "pinned_echo"}
        assert {tool["name"] for tool in server.asked[0].body["tools"]} >= {"disks", "Read"}
