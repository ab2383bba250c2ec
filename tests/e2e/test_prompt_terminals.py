"""The prompt in other terminals: dumb ones, narrow ones, without colours, behind SSH, and with what is pasted."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import anyio
import pytest
from tests.support.model_server import Answer, Call, Gate, Text, call, say
from tests.support.program import options_of
from tests.support.seats import Seat, Seats, seats
from tests.support.sshd import SshServer, master_pids

__all__ = ["seats"]

SLEEPING = "sleep 4321"


async def test_a_dumb_terminal_gets_lines_and_nothing_else(seats: Seats) -> None:
    gate = Gate()
    script = [
        Answer((Text("**Fir"), gate, Text("st** words.\n"))),
        call("run_shell", {"command": "touch \x1b[2Jmade; echo it''ran", "why": "w"}),
        say("It is done."),
        call("run_shell", {"command": "echo begun; sleep 4321", "why": "w"}),
        say("Goes on."),
    ]
    seat = seats.take(script=script, term="dumb", settings='[permissions]\nallow = ["echo begun*", "sleep *"]')
    await seat.sees("harness on local", "harness>")
    seat.enter("first")
    await gate.reached()
    seat.enter("second")
    await seat.sees("queued as #2")
    gate.open()
    await seat.sees("**First** words.", "▲ may run_shell run on local", "| touch \\x1b[2Jmade", "answer (denied after")
    seat.enter("perhaps")
    await seat.sees("answer with one of the letters")
    seat.enter("c")
    await seat.sees("  touch \\x1b[2Jmade; echo it''ran\n>")
    seat.enter("touch made; echo it''ran")
    await seat.sees("| itran", "exit code 0", "It is done.")
    assert (seats.home / "made").exists()
    seat.enter("third")
    await seat.until(lambda: seats.runs(SLEEPING), "the command")
    await seat.sees("| begun")
    seat.press("C-c")
    await seat.sees("the turn was cancelled")
    await seat.until(lambda: not seats.runs(SLEEPING), "the end of the command")
    seat.enter("!printf 'a\\nb'; sleep 4321")
    await seat.until(lambda: seats.runs(SLEEPING), "the command of the operator")
    await seat.sees("sleep 4321\na\n")
    seat.press("C-c")
    await seat.sees("\nb\n", "· cancelled")
    seat.paste("one\ntwo\nthree\n", bracketed=False)
    await seat.sees("Goes on.\nharness>")
    seat.press("C-c")
    await seat.sees("to leave, press Ctrl-C again or Ctrl-D")
    seat.press("C-d")
    assert await seat.ended() == 0
    assert b"\x1b" not in seat.bytes
    assert seat.model is not None
    assert seat.model.refused == []
    assert "one\\ntwo\\nthree" in seat.model.asked[-1].text


async def test_what_is_pasted_is_one_prompt_and_a_resize_leaves_no_traces(seats: Seats) -> None:
    gate = Gate()
    seat = seats.take(
        script=[Answer((Text("I read. "), gate, Text("Done."))), say("Short.")], variables={"NO_COLOR": "1"}
    )
    await seat.on_screen("»", "scripted")
    lines = [f"line {number} 広" for number in range(1000)]
    seat.paste("\n".join(lines))
    await seat.on_screen("line 999")
    assert "line 0 広" not in seat.history
    seat.press("Enter")
    await gate.reached()
    await seat.sees("» line 0", "… 988 more lines")
    for size in ((50, 15), (120, 40), (80, 24)):
        seat.tmux("resize-window", "-x", str(size[0]), "-y", str(size[1]))
        await seat.on_screen("thinking" if size[0] < 60 else "answering")
    seat.type("typed \\")
    seat.press("Enter")
    seat.type("in two lines")
    await seat.on_screen("» typed", "  in two lines")
    gate.open()
    await seat.sees("Done.")
    seat.press("Enter")
    await seat.sees("Short.")
    assert seat.model is not None
    assert seat.model.asked[0].body["messages"][0]["content"][0]["text"].splitlines()[-1] == "line 999 広"
    assert "typed \\nin two lines" in seat.model.asked[1].text
    seat.press("C-r")
    seat.type("line 99")
    await seat.on_screen("line 999", "I-search backward")
    seat.press("C-c", "C-c", "Up")
    await seat.on_screen("in two lines")
    assert not re.search(rb"\x1b\[[0-9;]*3[0-7]m", seat.bytes)  # no colours
    assert seat.screen.count("asks") == 1


async def test_the_assistants_words_alone_go_to_a_pipe(seats: Seats) -> None:
    words = seats.private / "words"
    script = [call("run_shell", {"command": "echo hidden", "why": "w"}), say("# Only *this*.")]
    seat = seats.take(script=script, redirect=f"> {words}")
    await seat.on_screen("»", "scripted")
    seat.enter("go")
    await seat.sees("│ hidden", "Only *this*.")
    seat.press("C-d")
    assert await seat.ended() == 0
    assert words.read_text() == "# Only *this*.\n"


FLOOD = "".join(f"line {number} of many, each a paragraph of its own\n\n" for number in range(4_000))
"""More than a terminal keeps that is not read; to render it takes some seconds of processor time."""


@pytest.mark.parametrize("term", ["screen-256color", "dumb"])
async def test_while_the_terminal_takes_nothing_time_limits_hold_and_the_turn_goes_on(seats: Seats, term: str) -> None:
    gate = Gate()
    limited = Call("run_shell", {"command": SLEEPING, "timeout": 2, "on_timeout": "kill"})
    script = [Answer((Text("Looking. "), gate, Text(FLOOD), limited)), say("It took too long.")]
    seat = seats.take(script=script, settings='[permissions]\nmode = "auto"', term=term)
    await seat.sees("scripted" if term != "dumb" else "harness>")
    seat.enter("go")
    await gate.reached()
    emulator = int(seat.tmux("display-message", "-p", "#{pid}"))
    assert seat.model is not None
    os.kill(emulator, signal.SIGSTOP)
    try:
        gate.open()
        with anyio.fail_after(90):  # a busy machine renders the flood slowly
            while len(seat.model.asked) < 2:  # noqa: ASYNC110  # the model's server is a thread
                await anyio.sleep(0.05)
        assert not seats.runs(SLEEPING)
    finally:
        os.kill(emulator, signal.SIGCONT)
    await seat.sees("line 3999 of many", "It took too long.")
    seat.press("C-d")
    assert await seat.ended() == 0
    shown = [int(number) for number in re.findall(rb"line (\d+) of many", seat.bytes)]
    kept = [number for number, before in zip(shown, [-1, *shown], strict=False) if number != before]
    assert kept == list(range(4_000))  # a line of which the next piece has not come yet may be drawn twice


async def test_a_terminal_that_takes_nothing_holds_up_nobody_who_ends_the_prompt(seats: Seats) -> None:
    gate = Gate()
    seat = seats.take(script=[Answer((Text("Looking. "), gate, Text(FLOOD)))])
    await seat.on_screen("»", "scripted")
    seat.enter("go")
    await gate.reached()
    emulator = int(seat.tmux("display-message", "-p", "#{pid}"))
    os.kill(emulator, signal.SIGSTOP)
    try:
        gate.open()
        await anyio.sleep(1)  # the flood has come, and nothing says so
        seat.signal("SIGTERM")
        assert await seat.ended(drawn=False) == 143
    finally:
        os.kill(emulator, signal.SIGCONT)


@pytest.mark.usefixtures("ssh_terminal")
async def test_the_prompt_on_a_host_behind_ssh(seats: Seats, sshd: SshServer) -> None:
    script = [call("run_shell", {"command": "pwd", "why": "w"}), say("There.")]
    seat = seats.take(*options_of(sshd), "--tmux", script=script, size=(100, 30))
    await seat.sees("watch: ssh ", timeout=60)
    await seat.on_screen("»", "scripted", "ssh://")
    seat.enter("!cd /usr")
    await seat.sees("exit code 0")
    seat.enter("where are you?")
    await seat.sees("│ /usr", "There.")
    assert seat.model is not None
    assert "the operator ran" in seat.model.asked[0].text
    seat.enter("/attach")
    await seat.on_screen("[harness")
    seat.press("C-b", "d")
    await seat.on_screen("»", "ssh://")
    seat.type("!echo sto''pped")
    await stopped_and_continued(seat)
    seat.press("Enter")
    await seat.sees("\nstopped\n· exit code 0")
    seat.press("C-d")
    assert await seat.ended() == 0


ASKS = """
import sys
import anyio
from prompt_toolkit.completion import DummyCompleter
from prompt_toolkit.history import InMemoryHistory
from harness.cli.prompt.app import PromptPrompter
from harness.cli.prompt.line_mode import LineSurface
from harness.cli.prompt.screen import ScreenSurface
from harness.cli.prompt.surface import DEFAULT, line
from harness.login import LoginQuestion

async def main():
    screen = ScreenSurface(1, theme=DEFAULT, history=InMemoryHistory(), completer=DummyCompleter())
    surface = LineSurface(1) if sys.argv[1] == "plain" else screen
    if sys.argv[1] == "no prompt":
        answer = await PromptPrompter().answer(LoginQuestion("password", "Password: ", True, "ssh://web1"))
        print("length " + str(len(answer or "")))
        return
    prompter, answered = PromptPrompter(), anyio.Event()

    async def ask():
        question = LoginQuestion("password", "Banner\\x1b[2J\\nPassword: ", True, "ssh://web1")
        answer = await prompter.answer(question)
        surface.show(line("length " + str(len(answer or ""))))
        answered.set()

    await prompter.give_terminal_to(surface)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask)  # before the surface is drawn
        await anyio.lowlevel.checkpoint()
        async with surface.serve():
            await answered.wait()

anyio.run(main)
"""


async def stopped_and_continued(seat: Seat) -> None:
    """What a shell does to a program with Ctrl-Z and fg: meanwhile it has set the terminal as it likes it."""
    terminal = seat.tmux("display-message", "-p", "#{pane_tty}").strip()
    seat.signal("SIGSTOP")
    await seat.until(lambda: Path(f"/proc/{seat.pid}/stat").read_text().split(") ")[1][0] == "T", "the stop")
    subprocess.run(["stty", "-F", terminal, "sane"], check=True, timeout=60)
    seat.signal("SIGCONT")
    shown = ["stty", "-F", terminal, "-a"]
    await seat.until(lambda: b" -echo " in subprocess.run(shown, capture_output=True, timeout=60).stdout, "its return")


@pytest.mark.parametrize("kind", ["screen", "plain", "no prompt"])
async def test_a_password_that_a_login_asks_for_is_never_on_the_screen(seats: Seats, kind: str) -> None:
    path = seats.private / "asks.py"
    path.write_text(ASKS)
    seat = seats.take(str(path), kind, program=sys.executable)
    if kind != "no prompt":
        await seat.sees("ssh://web1 asks:", "Banner\\x1b[2J")
    await seat.on_screen("Password:")
    await stopped_and_continued(seat)
    seat.enter("hunter2 + 広")
    await seat.sees("length 11")
    assert await seat.ended() == 0
    assert b"hunter2" not in seat.bytes
    assert "広".encode() not in seat.bytes


WITHOUT = """
import sys

class Without:
    def find_spec(self, name, path=None, target=None):
        if name == "httpx":
            raise ModuleNotFoundError("No module named 'httpx'", name=name)

sys.meta_path.insert(0, Without())
"""


@pytest.mark.parametrize("option", ["--plain", "--no-color"])
async def test_a_library_that_is_missed_only_behind_the_prompt_is_named(seats: Seats, option: str) -> None:
    (seats.private / "sitecustomize.py").write_text(WITHOUT)
    seat = seats.take(option, script=[], variables={"PYTHONPATH": str(seats.private)})
    assert await seat.ended() == 125
    await seat.sees("on local", "needs a library that is not installed: httpx (pip install")
    assert "internal error" not in seat.history


def cut(seats: Seats, sshd: SshServer) -> None:
    """Kill the master and its session, which may end with its client."""
    for pid in (*master_pids(seats.private / "run"), *sshd.session_pids()):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


async def test_a_link_that_asks_for_a_passphrase_again_holds_up_nobody_who_leaves(
    seats: Seats, sshd: SshServer
) -> None:
    words = ("ssh-keygen", "-q", "-p", "-P", "", "-N", "open sesame", "-f", str(sshd.identity))
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    seat = seats.take(*options_of(sshd), "--tmux", script=[], size=(100, 30))
    await seat.sees("Enter passphrase")
    seat.enter("open sesame")
    await seat.on_screen("»", "scripted", "idle")
    cut(seats, sshd)
    seat.enter("!echo again")
    await seat.sees("asks:", "running your command")
    await seat.on_screen("Enter passphrase")
    seat.signal("SIGTERM")
    assert await seat.ended() == 143
    assert b"sesame" not in seat.bytes


@pytest.mark.parametrize("terminal", [(), ("--tmux",)], ids=["no terminal", "tmux"])
async def test_a_link_that_was_lost_and_is_back_is_told_once(
    seats: Seats, sshd: SshServer, terminal: tuple[str, ...]
) -> None:
    seat = seats.take(*options_of(sshd), *terminal, script=[], size=(100, 30))
    await seat.on_screen("»", "scripted")
    cut(seats, sshd)
    seat.enter("!echo a''gain")
    await seat.sees("\nagain\n", "reconnected after", "· exit code 0")
    seat.press("C-d")
    assert await seat.ended() == 0
    assert seat.history.count("reconnected after") == 1
