"""Ctrl-C and the ends of the prompt, in every state, in a real terminal."""

from __future__ import annotations

import os

from tests.support.model_server import Answer, Call, Gate, Text, call, say
from tests.support.seats import Seat, Seats, seats

__all__ = ["seats"]

SLEEPING = "sleep 4321"
ALLOW = '[permissions]\nallow = ["echo begun*", "sleep *", "touch after"]'
SLEEP = {"command": "echo begun; sleep 4321", "why": "w"}
AFTER = {"command": "touch after", "why": "w"}
ASK = {"questions": [{"question": "Which?", "options": [{"label": "one"}, {"label": "two"}]}]}


async def idle(seat: Seat) -> None:
    """Wait until nothing is worked on."""
    await seat.on_screen("»", "· idle ·")


async def test_ctrl_c_cancels_the_turn_in_every_state(seats: Seats) -> None:
    thinking, streaming = Gate(), Gate()
    script = [
        Answer((thinking, Text("never seen"))),
        Answer((Text("First words, and "), streaming, Text("never seen"))),
        call("run_shell", {"command": "touch unasked", "why": "w"}),
        call("ask_user_question", ASK),
        call("run_shell", SLEEP),
        Answer(
            (Text("Two calls."), Call("run_shell", SLEEP), Call("run_shell", {"command": "touch after", "why": "w"}))
        ),
        say("still here"),
    ]
    seat = seats.take("--tmux", script=script, settings=ALLOW)
    await idle(seat)
    seat.enter("one")
    await thinking.reached()
    seat.press("C-c")
    await seat.sees_again("the turn was cancelled", 1)
    seat.enter("two")
    await streaming.reached()
    await seat.sees("First words")
    seat.type("a draft")
    await seat.on_screen("» a draft")
    seat.press("C-c")
    await seat.sees_again("the turn was cancelled", 2)
    await seat.on_screen("» a draft", "· idle ·")
    seat.press("C-c")  # nothing runs: the draft is forgotten
    await seat.until(lambda: "» a draft" not in seat.screen, "an empty line")
    seat.enter("three")
    await seat.sees("▲ may run_shell", "answer (denied after")
    seat.press("C-c")
    await seat.sees_again("the turn was cancelled", 3)
    await seat.sees("cancelled before it started")
    seat.enter("four")
    await seat.on_screen("answer:")
    seat.press("C-c")
    await seat.sees_again("the turn was cancelled", 4)
    await idle(seat)
    for number, prompt in ((5, "five"), (6, "six")):
        seat.enter(prompt)
        await seat.sees_again("│ begun", number - 4)
        await seat.until(lambda: seats.runs(SLEEPING), "the command")
        seat.press("C-c")
        await seat.sees_again("the turn was cancelled", number)
        await seat.until(lambda: not seats.runs(SLEEPING), "the end of the command")
        await seat.on_screen("pane %0 idle")
    seat.enter("seven")
    await seat.sees("still here")
    assert "never seen" not in seat.history
    assert not (seats.home / "unasked").exists()
    assert not (seats.home / "after").exists()
    assert seat.model is not None
    assert seat.model.refused == []
    assert len(seat.model.asked) == 7
    thinking.open()
    streaming.open()


async def test_commands_of_the_operator_run_without_a_model_and_end_with_ctrl_c(seats: Seats) -> None:
    seat = seats.take("--tmux", size=(100, 30))
    await seat.sees("no model is configured; !COMMAND", "[models.NAME]")
    seat.enter("!cd /usr && export WHERE=here; echo half; printf 'no end'")
    await seat.sees("half\nno end\n· exit code 0")
    seat.enter('!pwd; echo "$WHERE"; (exit 3)')
    await seat.sees("/usr\nhere\n· exit code 3")
    seat.enter("!sleep 4321")
    await seat.until(lambda: seats.runs(SLEEPING), "the command")
    await seat.on_screen("running your command")
    seat.enter("!echo queued")
    seat.press("C-c")
    await seat.sees("cancelled", "queued\n· exit code 0")
    await seat.until(lambda: not seats.runs(SLEEPING), "the end of the command")
    seat.enter("hello?")
    await seat.sees_again("no model is configured; !COMMAND", 2)
    seat.enter("/stauts")
    await seat.sees("did you mean /status?")
    seat.type("!ls /usr/lo")
    seat.press("Tab")
    await seat.on_screen("!ls /usr/local/")
    seat.press("C-c", "C-c")
    await seat.sees("to leave, press Ctrl-C again or Ctrl-D")
    seat.press("C-c")
    assert await seat.ended() == 0


async def test_what_waited_is_shown_again_when_it_begins(seats: Seats) -> None:
    gate = Gate()
    seat = seats.take("--tmux", script=[Answer((gate,)), say("Two."), say("Three.")])
    await idle(seat)
    seat.enter("first")
    await gate.reached()
    seat.enter("second")
    await seat.sees("queued as #2")
    seat.press("C-c")
    await seat.sees("paused by Ctrl-C: 1 queued prompt held", "the turn was cancelled")
    gate.open()
    await seat.on_screen("paused")
    assert "Two." not in seat.history
    seat.enter("/resume")
    await seat.sees("· now: second", "Two.")
    await idle(seat)
    seat.enter("!sleep 4321")
    await seat.until(lambda: seats.runs(SLEEPING), "the command")
    seat.enter("third")
    await seat.on_screen("» third")
    seat.press("C-c")
    await seat.sees("· now: third", "Three.")
    assert seat.history.count("· now: ") == 2


async def test_jobs_live_on_and_are_named_when_the_operator_leaves(seats: Seats) -> None:
    start = {"command": "sleep 4321", "wait": False, "why": "w"}
    script = [call("run_shell", start), say("it runs"), say("again")]
    seat = seats.take(script=script, settings='[permissions]\nmode = "auto"')
    await idle(seat)
    seat.enter("start it")
    await seat.sees("running in the background", "it runs", "1 job")
    seat.enter("/quit")
    assert await seat.ended() == 0
    assert "still running in the background" in seat.history
    assert "harness resume" in seat.history
    assert seats.runs(SLEEPING)


async def test_a_signal_ends_the_prompt_in_order(seats: Seats) -> None:
    seat = seats.take("--tmux", script=[call("run_shell", SLEEP)], settings='[permissions]\nmode = "auto"')
    await idle(seat)
    seat.enter("go")
    await seat.until(lambda: seats.runs(SLEEPING), "the command")
    seat.signal("SIGTERM")
    assert await seat.ended() == 143
    await seat.until(lambda: not seats.runs(SLEEPING), "the end of the command")
    assert "Traceback" not in seat.history


async def test_a_terminal_that_goes_ends_the_prompt(seats: Seats) -> None:
    seat = seats.take("--tmux", script=[call("run_shell", SLEEP)], settings='[permissions]\nmode = "auto"')
    await idle(seat)
    seat.enter("go")
    await seat.until(lambda: seats.runs(SLEEPING), "the command")
    seat.tmux("kill-server")
    await seat.until(lambda: not os.path.exists(f"/proc/{seat.pid}"), "the end of the program")
    await seat.until(lambda: not seats.runs(SLEEPING), "the end of the command")
