"""A harness that is killed while a sub-agent works: what is said of it when the conversation goes on."""

from __future__ import annotations

import json
import re

from tests.support.model_server import Answer, Asked, call, say
from tests.support.seats import Seats, seats

__all__ = ["seats"]

AUTO = '[permissions]\nmode = "auto"\n'


def answer(asked: Asked) -> Answer:
    """The agent gives the work away, the sub-agent does it, and the one that was resumed says that it knows."""
    messages = asked.body["messages"]
    if "THE WORK" in json.dumps(messages[0]):
        return call("run_shell", {"command": "echo begun; sleep 301"})
    return call("task", {"prompt": "THE WORK", "description": "work"}) if len(messages) == 1 else say("I see")


async def test_a_command_of_a_sub_agent_that_still_runs_is_named_and_not_run_again(seats: Seats) -> None:
    seat = seats.take("--tmux", script=answer, settings=AUTO, size=(160, 50))
    await seat.on_screen("»", "scripted")
    seat.enter("do it")
    await seat.sees("echo begun; sleep 301", "│ begun")
    await seat.until(lambda: seats.runs("sleep 301"), "the command")
    seat.signal("SIGKILL")
    await seat.ended()
    again = seats.take("resume", "--last", script=answer, settings=AUTO, size=(160, 50))
    await again.on_screen("»", "scripted")
    await again.sees("was interrupted when harness exited", "task work: outcome unknown")
    still = r"- run_shell echo begun; sleep 301 \(of general-\w+\): its command is still running, job \d+"
    await again.until(lambda: re.search(still, again.history), "what still runs")
    again.enter("go on")
    await again.sees("I see")
    assert again.model is not None
    assert re.search(still, again.model.asked[0].text)
    again.enter("/kill " + re.findall(r"still running, job (\d+)", again.history)[0])
    await again.until(lambda: not seats.runs("sleep 301"), "the end of the command")
    assert again.model.refused == []
