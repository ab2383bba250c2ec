"""The prompt before it is there: what is typed blind, in a real terminal."""

from __future__ import annotations

import shlex
import subprocess

from tests.support.model_server import say
from tests.support.program import options_of
from tests.support.seats import Seat, Seats, seats
from tests.support.sshd import SshServer

__all__ = ["seats"]

WAITS = "echo wait''ing; until [ -e go ]; do sleep 0.1; done; exec "


async def blind(seats: Seats, *lines: str, typed: str = "") -> Seat:
    """A prompt before which these lines were entered, and a text was typed."""
    (seats.home / "go").unlink(missing_ok=True)
    seat = seats.take("-c", WAITS + shlex.quote(seats.program), script=[say("one."), say("two.")], program="/bin/sh")
    await seat.sees("waiting")
    for line in lines:
        seat.enter(line)
    seat.type(typed)
    await seat.sees(*lines, typed)
    (seats.home / "go").touch()
    return seat


async def test_a_line_that_was_entered_blind_counts_and_what_follows_is_in_the_line(seats: Seats) -> None:
    seat = await blind(seats, "why is / full?", typed="and how")
    await seat.sees("one.")
    await seat.on_screen("» and how", "· idle ·")
    seat.press("Enter")
    await seat.sees("two.")
    assert seat.model is not None
    assert [one.body["messages"][-1]["content"][0]["text"] for one in seat.model.asked] == ["why is / full?", "and how"]


async def test_a_command_that_was_entered_blind_waits_for_an_enter_that_sees_it(seats: Seats) -> None:
    seat = await blind(seats, "!touch made")
    await seat.on_screen("» !touch made", "· idle ·")
    assert not (seats.home / "made").exists()
    seat.press("Enter")
    await seat.sees("exit code 0")
    assert (seats.home / "made").exists()


async def test_after_a_question_of_the_login_a_line_that_was_entered_blind_waits(seats: Seats, sshd: SshServer) -> None:
    words = ("ssh-keygen", "-q", "-p", "-P", "", "-N", "open sesame", "-f", str(sshd.identity))
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    line = "exec " + shlex.join([seats.program, *options_of(sshd)])
    seat = seats.take("-c", line, script=[], program="/bin/sh")
    await seat.sees("Enter passphrase", timeout=60)
    seat.paste("open sesame\ntoo late\n", bracketed=False)  # at once: the second line is there before the prompt
    await seat.on_screen("» too late", "· idle ·")
    assert seat.model is not None
    assert seat.model.asked == []
    assert b"sesame" not in seat.bytes
