"""Approvals and questions at the prompt, in a real terminal: each answer, and what is no answer."""

from __future__ import annotations

import json

import pytest
from tests.support.model_server import Answer, Call, Gate, Text, call, say
from tests.support.seats import Seat, Seats, seats

__all__ = ["seats"]


def shell(command: str, why: str = "to see") -> Answer:
    return call("run_shell", {"command": command, "why": why, "risk": "low", "mutation": True, "privesc": False})


def write(path: str) -> Answer:
    return call("write_file", {"path": path, "content": "x\n", "why": "to note"})


async def asked(seat: Seat, number: int) -> None:
    """Wait for the question of that number, and for the keyboard to be its."""
    await seat.until(lambda: seat.history.count("▲ may ") == number, f"question {number}")
    await seat.until(lambda: "\nanswer (denied after" in seat.screen, "the place for the answer")


async def test_every_answer_does_what_it_says(seats: Seats) -> None:
    home = seats.home
    script = [
        *(shell("touch once"), shell("touch once"), shell("touch exact"), shell("touch exact")),
        *(write("d/one"), write("d/two"), shell("touch denied"), shell("touch never"), shell("touch never")),
        *(shell("touch before"), shell("touch hard"), shell("touch always"), shell("touch tool"), shell("touch more")),
        *(write("e/one"), call("fetch_url", {"url": "http://127.0.0.1:9/", "why": "w"}), say("all done")),
    ]
    seat = seats.take(script=script, size=(200, 50))
    await seat.on_screen("»", "scripted")
    seat.enter("go")

    await asked(seat, 1)
    await seat.sees("| touch once", "risk: low · changes something · why: to see", "no rule allows it")
    seat.enter("maybe")
    await seat.sees("answer with one of the letters")
    seat.enter("")
    await seat.sees_again("answer with one of the letters", 2)
    seat.enter("y")
    await asked(seat, 2)
    assert (home / "once").exists()
    seat.type("r")
    await seat.sees("enter the reason")
    seat.enter("it is there already")
    await asked(seat, 3)
    seat.enter("e")
    await asked(seat, 4)  # the second "touch exact" was not asked about
    assert seat.history.count("● run_shell touch exact · exit code 0") == 2
    await seat.sees("may write_file run on")
    seat.enter("d")
    await asked(seat, 5)
    assert (home / "d/one").exists()
    assert (home / "d/two").exists()
    seat.press("C-d")
    await asked(seat, 6)
    assert not (home / "denied").exists()
    seat.enter("x")
    await asked(seat, 7)  # the second "touch never" was denied unasked
    assert seat.history.count("touch never · denied") == 2

    seat.enter("c")
    await seat.sees("> touch before")
    seat.type(" after")
    seat.press("Enter")
    await asked(seat, 8)
    assert (home / "after").exists()
    assert "run_shell touch before after · exit code 0" in seat.history
    seat.enter("c")
    await seat.sees("> touch hard")
    seat.press("C-u")
    seat.enter("cat ~/.ssh/id_rsa")
    await asked(seat, 9)  # the changed call was judged again, and denied
    assert "cat ~/.ssh/id_rsa · denied" in seat.history
    seat.enter("a")
    await asked(seat, 10)
    rules = json.loads((seats.private / "config/harness/permissions.json").read_text())
    assert "touch always" in json.dumps(rules)
    seat.enter("t")
    await asked(seat, 11)  # "touch more" was not asked about
    assert (home / "more").exists()
    seat.enter("s")
    await seat.sees("all done")
    assert seat.history.count("▲ may ") == 11
    assert seat.model is not None
    assert seat.model.refused == []
    told = [one.text for one in seat.model.asked]
    assert "it is there already" in told[2]
    assert "they changed it" in told[10]


async def test_what_was_allowed_ends_with_the_conversation(seats: Seats) -> None:
    script = [shell("touch one"), say("first done"), shell("touch two"), shell("touch three"), say("second done")]
    seat = seats.take(script=[*script, shell("touch four"), say("third done")], size=(120, 40))
    await seat.on_screen("»", "scripted")
    seat.enter("/approve all")
    await seat.on_screen("APPROVES ALL")
    seat.enter("go")
    await seat.sees("first done")
    assert "▲ may " not in seat.history
    seat.enter("/session new")
    await seat.sees("advance approval ended with the previous conversation")
    seat.enter("go")
    await asked(seat, 1)
    seat.enter("s")
    await seat.sees("second done")  # "touch three" was not asked about
    seat.enter("/session new")
    await seat.sees_again("new conversation: ", 2)
    seat.enter("go")
    await asked(seat, 2)
    await seat.sees("| touch four", "in the directory")
    seat.enter("n")
    await seat.sees("third done")
    assert sorted(path.name for path in seats.home.iterdir() if path.name in ("one", "two", "three", "four")) == [
        "one",
        "three",
        "two",
    ]


async def test_a_question_takes_no_key_that_was_meant_for_the_line(seats: Seats) -> None:
    gate = Gate()
    script = [Answer((Text("I look."), gate, Call("run_shell", {"command": "touch made", "why": "w"}))), say("done")]
    seat = seats.take(script=script)
    await seat.on_screen("»", "scripted")
    seat.enter("go")
    await gate.reached()
    seat.type("y")
    await seat.on_screen("» y")
    gate.open()
    await seat.sees("▲ may run_shell", "a question waits: Ctrl-O answers it")
    seat.type("es")
    await seat.on_screen("» yes", "waiting")
    seat.press("C-o")
    await asked(seat, 1)
    assert not (seats.home / "made").exists()
    seat.enter("y")
    await seat.sees("done")
    assert (seats.home / "made").exists()
    await seat.on_screen("» yes", "idle")


async def test_questions_of_a_tool_are_answered_or_declined(seats: Seats) -> None:
    question = {
        "question": "Which \x1b[2Jweb server?",
        "header": "server",
        "options": [{"label": "nginx"}, {"label": "caddy"}],
    }
    script = [call("ask_user_question", {"questions": [question]}) for _ in range(3)]
    seat = seats.take(script=[*script, say("asked enough")])
    await seat.on_screen("»", "scripted")
    seat.enter("go")
    await seat.sees("Which \\x1b[2Jweb server?", "2. caddy")
    await seat.on_screen("answer:")
    seat.enter("7")
    await seat.sees("unknown option")
    seat.enter("2")
    await seat.until(lambda: seat.history.count("2. caddy") == 2, "the second question")
    await seat.on_screen("answer:")
    seat.enter("neither: 日本")
    await seat.until(lambda: seat.history.count("2. caddy") == 3, "the third question")
    await seat.on_screen("answer:")
    seat.press("C-d")
    await seat.sees("asked enough")
    assert seat.model is not None
    told = [one.text for one in seat.model.asked]
    assert "caddy" in told[1]
    assert "neither: 日本" in told[2]
    assert seat.model.refused == []


@pytest.mark.parametrize("term", ["screen-256color", "dumb"])
async def test_what_is_typed_while_the_time_of_a_question_runs_out_is_no_prompt(seats: Seats, term: str) -> None:
    # One word each: the echo of a person's Enter may come between two.
    script = [shell("touch late"), say("stopped"), say("finished")]
    seat = seats.take(script=script, settings="[permissions]\napproval_timeout = 8\n", term=term)
    await seat.sees("harness on local", "»" if term != "dumb" else "harness>")
    seat.enter("go")
    await asked(seat, 1)
    seat.type("r" if term != "dumb" else "n ")
    seat.type("because it is da")
    await seat.sees("denied: the approval request timed out after 8 s")
    seat.press("Enter")
    await seat.sees("stopped")
    seat.enter("next")
    seat.press("Enter")
    await seat.sees("finished")
    assert seat.model is not None
    assert len(seat.model.asked) == 3
    assert "because" not in seat.model.asked[2].text
    assert not (seats.home / "late").exists()
