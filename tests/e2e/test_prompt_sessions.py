"""``/session new`` and ``/session resume`` by hand, in every state, in a real terminal."""

from __future__ import annotations

import os
import re
import signal
import sqlite3
from contextlib import suppress

import anyio
import pytest
from tests.support.model_server import Answer, Gate, call, say
from tests.support.program import options_of
from tests.support.seats import Seat, Seats, seats
from tests.support.sshd import SshServer, master_pids

__all__ = ["seats"]

SLEEPING = "sleep 4321"
ID = r"[0-9a-z]{4}-[0-9a-z]{4}-[0-9a-z]{4}"
ASKS = call("run_shell", {"command": "touch made", "why": "w"})


async def idle(seat: Seat) -> None:
    """Wait until nothing is worked on."""
    await seat.on_screen("»", "· idle ·")


def database(seats: Seats, change: str, *values: str) -> None:
    """Change what is stored of conversations, as a disk might."""
    with sqlite3.connect(seats.private / "state/harness/sessions/sessions.db") as db:
        db.execute(change, values)
    db.close()


@pytest.mark.timeout(300)
async def test_what_is_entered_after_another_conversation_was_asked_for_is_for_that_one(seats: Seats) -> None:
    script = [say("One."), say("Two."), say("Three."), ASKS, say("Four.")]
    seat = seats.take("--tmux", script=script, size=(150, 40))
    await idle(seat)
    seat.enter("say alpha")
    await seat.sees("One.")
    await idle(seat)
    seat.paste("/session new\rsay beta\r", bracketed=False)
    await seat.sees("new conversation: ", "Two.")
    await idle(seat)
    seat.enter("!sleep 4321")
    await seat.until(lambda: seats.runs(SLEEPING), "the command")
    seat.enter("/session new")
    seat.enter("say gamma")
    await seat.on_screen("2 queued")
    seat.press("C-c")
    await seat.sees("now: say gamma", "Three.")
    await idle(seat)
    first, second = re.findall(rf"new conversation: ({ID})", seat.history)
    assert seat.model is not None
    prompts = [[text in one.text for text in ("say alpha", "say beta", "say gamma")] for one in seat.model.asked]
    assert prompts == [[True, False, False], [False, True, False], [False, False, True]]

    seat.enter("ask me")
    await seat.on_screen("answer (denied after")
    seat.enter("/session new")  # it is no answer either
    await seat.sees("answer with one of the letters")
    seat.enter("n")
    await seat.sees("Four.")
    await idle(seat)
    assert not (seats.home / "made").exists()

    numbers = "(SELECT number FROM sessions WHERE session_id = ?)"
    database(seats, f"UPDATE messages SET body = '{{\"kind\": 1}}' WHERE session = {numbers}", first)
    seat.enter(f"/session resume {first}")
    await seat.sees("a message of the stored conversation is damaged")
    database(seats, "UPDATE sessions SET turns = 'many' WHERE session_id = ?", first)
    seat.enter("/session list")
    await seat.sees(f"the conversation {first} is damaged", "say alpha", f"{second}")
    seat.enter(f"/session resume {second[:9]}")
    await seat.sees(f"conversation {second} is already open")


@pytest.mark.timeout(300)
async def test_a_job_of_the_conversation_before_is_told_of_when_it_ends(seats: Seats) -> None:
    waits = {"command": "until [ -e end ]; do sleep 0.1; done", "wait": False, "why": "w"}
    seat = seats.take(script=[call("run_shell", waits), say("It runs.")], settings='[permissions]\nmode = "auto"')
    await idle(seat)
    seat.enter("start it")
    await seat.sees("It runs.")
    await seat.on_screen("· idle ·", "1 job")
    seat.enter("/session new")
    await seat.sees("new conversation: ")
    await seat.on_screen("· idle ·", "1 job")
    await anyio.sleep(1.5)  # nothing else that happens may be what shows the status line anew
    (seats.home / "end").touch()
    await seat.sees("has ended: exit code 0")
    await seat.until(lambda: "1 job" not in seat.screen, "no job in the status line")
    seat.press("C-d")
    assert await seat.ended() == 0
    assert "still running in the background" not in seat.history


@pytest.mark.timeout(300)
async def test_a_conversation_that_a_lost_link_holds_up_is_given_up_with_ctrl_c(seats: Seats, sshd: SshServer) -> None:
    gate = Gate()
    script = [Answer((gate,)), say("Still the first.")]
    seat = seats.take(*options_of(sshd), "--tmux", script=script, size=(100, 30))
    await idle(seat)
    seat.enter("begin")
    await gate.reached()
    seat.enter("/session new")
    await seat.sees("/session: not while a turn is running")
    seat.press("C-c")
    await seat.sees("the turn was cancelled")
    await idle(seat)
    os.kill(sshd.pid, signal.SIGSTOP)
    try:
        for pid in (*master_pids(seats.private / "run"), *sshd.session_pids()):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        seat.enter("/session new")
        await seat.on_screen("» /session new", "· opening ·")
        seat.press("C-c")
        await seat.sees("/session: cancelled: no conversation was opened")
    finally:
        os.kill(sshd.pid, signal.SIGCONT)
    seat.enter("where are we?")
    await seat.sees("Still the first.")
    gate.open()
