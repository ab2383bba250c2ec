"""``harness exec`` at a terminal: what needs an approval is asked there, and standard output stays the answer's."""

from __future__ import annotations

import json
from typing import Any

from tests.support.model_server import Answer, call, say
from tests.support.seats import Seat, Seats, seats

__all__ = ["seats"]


def shell(command: str) -> Answer:
    return call("run_shell", {"command": command, "why": "to see", "risk": "low", "mutation": True, "privesc": False})


def results(seat: Seat) -> list[str]:
    """What the model was given of its calls, in their order."""
    assert seat.model is not None
    blocks: list[Any] = [
        block
        for message in seat.model.asked[-1].body["messages"]
        if isinstance(message["content"], list)
        for block in message["content"]
    ]
    return [json.dumps(block["content"]) for block in blocks if block["type"] == "tool_result"]


async def asked(seat: Seat, number: int) -> None:
    """Wait for the question of that number, and for the place for its answer."""
    await seat.until(lambda: seat.history.count("▲ may ") == number, f"question {number}")
    await seat.until(lambda: seat.screen.rstrip().endswith("):"), "the place for the answer")


async def test_answers_do_what_they_do_at_the_prompt_and_stdout_is_the_answer(seats: Seats) -> None:
    script = [shell(f"touch {name}") for name in ("once", "exact", "exact", "denied", "why", "before")]
    seat = seats.take("exec", "go", script=[*script, say("all done")], size=(160, 60), redirect="> out")
    await asked(seat, 1)
    assert "run_shell touch once" in seat.history.partition("▲ may ")[0]  # what has happened is above the question
    await seat.sees("| touch once", "risk: low · changes something · why: to see", "answer (denied after 60 s):")
    seat.enter("maybe")
    await seat.sees("answer with one of the letters")
    seat.enter("y")
    await asked(seat, 2)
    seat.enter("e")
    await asked(seat, 3)
    seat.enter("n")
    await asked(seat, 4)
    seat.enter("r")
    await seat.sees("why not:")
    seat.enter("not today")
    await asked(seat, 5)
    seat.enter("c")
    await seat.sees("change the command and press Enter", "  touch before")
    seat.enter("touch after")
    assert await seat.ended() == 0  # an operator who said no has answered
    assert (seats.home / "out").read_bytes() == b"all done\n"
    exist = {name: (seats.home / name).exists() for name in ("once", "exact", "denied", "why", "before", "after")}
    assert exist == {"once": True, "exact": True, "denied": False, "why": False, "before": False, "after": True}
    assert "not today" in results(seat)[4]
    assert seat.model is not None
    assert "What they approved instead: touch after" in json.dumps(seat.model.asked[-1].body)
    assert b"all done" not in seat.bytes


async def test_a_pipe_on_both_sides_keeps_its_data(seats: Seats) -> None:
    (seats.home / "data").write_text("y\ny\n")
    script = [shell("touch made"), say("done")]
    seat = seats.take("exec", "--json", "go", "-", script=script, redirect="< data | cat > out", size=(160, 50))
    await asked(seat, 1)
    assert not (seats.home / "made").exists()
    seat.enter("y")
    await seat.ended()
    events = [json.loads(one) for one in (seats.home / "out").read_text().splitlines()]
    assert events[-1]["exit_code"] == 0
    assert {"permission_asked", "permission_replied"} < {one["type"] for one in events}
    assert (seats.home / "made").exists()


async def test_ctrl_c_at_a_question_cancels_the_turn_and_ctrl_d_denies_the_call(seats: Seats) -> None:
    seat = seats.take("exec", "go", script=[shell("touch one"), shell("touch two")], size=(160, 50))
    await asked(seat, 1)
    seat.press("C-d")
    await asked(seat, 2)
    assert "the operator left the question without an answer" in seat.history
    seat.press("C-c")
    assert await seat.ended() == 130
    assert "to resume: harness exec --conversation" in seat.history
    assert not any((seats.home / name).exists() for name in ("one", "two"))


async def test_without_an_answer_in_time_it_is_denied_and_the_exit_code_says_so(seats: Seats) -> None:
    limit = "[permissions]\napproval_timeout = 1\n"
    script = [shell("touch made"), say("It was denied.")]
    seat = seats.take("exec", "go", script=script, settings=limit, size=(160, 50))
    assert await seat.ended() == 126
    assert "denied, no answer from the operator: run_shell touch made" in seat.history
    assert "the approval request timed out after 1 s" in results(seat)[0]


async def test_batch_and_streams_without_a_terminal_ask_nobody(seats: Seats) -> None:
    script = [shell("touch made"), say("It was denied.")]
    batch = seats.take("--batch", "exec", "go", script=script)
    assert await batch.ended() == 126
    assert "denied, no approver available: run_shell touch made" in batch.history.replace("\n", "")
    assert "▲ may" not in batch.history
    away = seats.take("exec", "go", script=script, redirect="< /dev/null > out 2>&1")
    assert await away.ended() == 126
    assert away.bytes == b""


async def test_questions_of_a_tool_are_answered_or_declined(seats: Seats) -> None:
    question = {"question": "Which color?", "header": "Color", "options": [{"label": "red"}, {"label": "blue"}]}
    script = [call("ask_user_question", {"questions": [question]}), say("done")]
    seat = seats.take("exec", "go", script=script, size=(160, 50))
    await seat.sees("Which color?", "2. blue", "answer:")
    seat.enter("2")
    assert await seat.ended() == 0
    assert "blue" in results(seat)[0]
