"""Going on with a conversation that is open elsewhere, whose model has changed, or that is on another target."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.support.model_server import Answer, Call, Gate, ModelServer, model_server, say
from tests.support.program import Program, options_of
from tests.support.seats import Seats, seats
from tests.support.sshd import SshServer

__all__ = ["seats"]

WHY = {"risk": "low", "mutation": True, "privesc": False, "why": "a test"}


def configure(program: Program, server: ModelServer, *names: str, default: str = "") -> None:
    """Settings with models of those names, all of which the server plays."""
    folder = program.home / "config/harness"
    folder.mkdir(parents=True, exist_ok=True)
    more = f'base_url = "{server.openai_url}"\nretries = 0\nkey = {{ env = "TEST_KEY" }}\n'
    tables = [f'[models.{name}]\nprovider = "openai"\nmodel = "model-{name}"\n{more}' for name in names]
    (folder / "config.toml").write_text("\n".join([*([f'[agent]\nmodel = "{default}"'] if default else []), *tables]))
    program.environ["TEST_KEY"] = "sk-the-key-of-this-test-0123456789"


def answered(program: Program, *words: str, code: int = 0) -> tuple[str, str]:
    """What the program says: on its standard output, and on the other one."""
    done = program.run(*words)
    assert done.returncode == code, done.stderr
    return done.stdout.decode(), done.stderr.decode()


def models_asked(server: ModelServer) -> list[str]:
    return [asked.body["model"] for asked in server.asked]


@pytest.mark.timeout(300)
def test_a_run_goes_on_with_the_model_of_its_conversation(program: Program) -> None:
    with model_server([say(f"answer {number}") for number in range(7)]) as server:
        configure(program, server, "one", "two", default="one")
        said = answered(program, "exec", "--last", "go on", code=125)[1]
        assert "no conversation with local: is stored" in said
        answered(program, "exec", "--model", "two", "begin")
        begun = json.loads(answered(program, "--json", "exec", "--last", "go on")[0].splitlines()[0])
        assert (begun["profile"], begun["model"]) == ("two", "model-two")
        answered(program, "exec", "--last", "--model", "one", "explicitly")
        configure(program, server, "one", "two")
        answered(program, "exec", "--conversation", begun["session_id"], "with its own, for which no default is needed")
        assert models_asked(server) == ["model-two", "model-two", "model-one", "model-one"]

        configure(program, server, "two", default="two")
        gone = answered(program, "exec", "--last", "go on")[1]
        assert "model one is not configured any more: using two" in gone
        configure(program, server, "three", "four")
        assert "no model is chosen" in answered(program, "exec", "--last", "go on", code=125)[1]
        assert answered(program, "exec", "--conversation", "no such", "x", code=125)[1].count("\n") == 1


@pytest.mark.timeout(300)
def test_a_run_by_the_id_of_a_conversation_goes_where_that_was(program: Program, sshd: SshServer) -> None:
    with model_server([say("there"), say("again")]) as server:
        configure(program, server, "one")
        told = answered(program, "--json", *options_of(sshd), "exec", "where are you?")[0].splitlines()[0]
        begun = json.loads(told)
        again = json.loads(
            answered(program, "--json", "exec", "--conversation", begun["session_id"], "and now?")[0].splitlines()[0]
        )
        assert (again["session_id"], again["target"]) == (begun["session_id"], begun["target"])
        assert again["target"].startswith("ssh://")
        refused = answered(program, "--target", "local:", "exec", "--conversation", begun["session_id"], "x", code=125)[
            1
        ]
        assert "belongs to ssh://" in refused


@pytest.mark.timeout(300)
async def test_a_conversation_that_is_open_elsewhere_is_refused_and_says_where(seats: Seats) -> None:
    gate = Gate()
    first = seats.take(script=[say("Here."), Answer((gate,))], settings='[permissions]\nmode = "auto"\n')
    await first.on_screen("»", "idle")
    first.enter("are you there?")
    await first.sees("Here.")
    for words in (("resume", "--last"), ("exec", "--last", "go on"), ("resume", "--last", "--delete")):
        config = (seats.private / "config/harness/config.toml").read_text()
        second = seats.take(*words, script=[], size=(200, 24))
        (seats.private / "config/harness/config.toml").write_text(config)
        assert await second.ended() == 125
        assert f"is open in process {first.pid} (" in second.history
        assert "»" not in second.screen
    first.press("C-d")
    assert await first.ended() == 0


@pytest.mark.timeout(300)
async def test_after_a_kill_at_a_question_both_sides_are_told_that_the_call_never_ran(seats: Seats) -> None:
    path = seats.private / "made"
    asks = Answer((Call("run_shell", {"command": f"touch {path}", **WHY}),))
    first = seats.take(script=[asks])
    await first.on_screen("»", "idle")
    first.enter("make it")
    await first.sees(f"touch {path}", "llow")
    first.signal("SIGKILL")
    second = seats.take("resume", "--last", script=[say("I see.")], size=(200, 50))
    await second.sees(f"run_shell touch {path}: it never ran")
    second.enter("go on")
    await second.sees("I see.")
    assert second.model is not None
    assert f"run_shell touch {path}: it never ran" in second.model.asked[0].text
    assert not Path(path).exists()
    second.press("C-d")
    assert await second.ended() == 0
