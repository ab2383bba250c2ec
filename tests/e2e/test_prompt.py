"""The interactive prompt in a real terminal: a conversation, what is shown of it, and how it ends."""

from __future__ import annotations

import pytest
from tests.support.model_server import Answer, Call, Gate, Reasoning, Text, say
from tests.support.seats import Seat, Seats, seats

__all__ = ["seats"]

LOOK = {"command": "echo hid''den; printf '\\033]0;title\\007\\033[31mred\\033[0m\\n'", "risk": "low", "why": "to see"}
HOSTILE = "\x1b]0;owned\x07\x1b[2J\x1b[999;1Hover \u202eltr &#x202e; <b>html</b>"


async def begun(seat: Seat) -> None:
    """Wait until a model answers."""
    await seat.on_screen("»", "scripted")


@pytest.mark.parametrize("size", [(80, 24), (200, 50)])
async def test_a_conversation_is_shown_as_it_comes(seats: Seats, size: tuple[int, int]) -> None:
    gate, script = Gate(), []
    script = [
        Answer(
            (Reasoning("first I\nthink"), Text("# Report\n\nThe disk is **fu"), gate, Text("ll**.\n\n- one\n- two\n"))
        ),
        Answer((Text(f"Hostile: {HOSTILE}"), Call("run_shell", LOOK))),
        say("It is 日本語 wide: " + "広" * 60 + " end."),
    ]
    seat = seats.take("--tmux", script=script, size=size)
    await begun(seat)
    await seat.sees("watch: ", "attach-session")
    seat.enter("why is the disk full?")
    await gate.reached()
    await seat.on_screen("» why is the disk full?", "Report", "The disk is", "answering")
    gate.open()
    await seat.sees("The disk is full.", " • one", "thought for")
    seat.press("C-o")
    await seat.sees("│ first I", "│ think")
    seat.enter("and now \u202e?")
    await seat.sees("● run_shell", "code 0", "│ hidden", "│ red", "wide:", "広", "end.")
    await seat.on_screen("idle", "»", "/200k", "asks")
    assert "over \\u202eltr &#x202e; <b>html</b>" in seat.history
    await seat.until(lambda: "".join(seat.history.split()).count("広") == 60, "every wide character")
    seat.press("C-d")
    assert await seat.ended() == 0
    assert "harness resume" in seat.history
    for raw in (b"\x1b]0;", b"\x1b[2J", b"\x1b[31mred", "\u202e".encode(), b"a-key-nobody-may-see"):
        assert raw not in seat.bytes
    assert seat.model is not None
    assert seat.model.refused == []
