"""``harness mcp --http`` and clients that cancel, hang up, or die in the middle."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.mcp_http_raw import RawHttp
from tests.support.mcp_program import Home, HttpProgram, http_program, running
from tests.support.mcp_raw import call

pytestmark = pytest.mark.usefixtures("needs_process")

LIMIT = 30
FREE = '[permissions]\nmode = "auto"\n'
ASKING = "[permissions]\napproval_timeout = 300\n"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[HttpProgram]:
    with http_program(Home.make(tmp_path / "home", FREE)) as program:
        yield program


@pytest.mark.parametrize("hung_up", [False, True], ids=["listening", "hung up"])
def test_the_id_of_a_cancelled_request_is_free_again(server: HttpProgram, hung_up: bool) -> None:
    with RawHttp(server) as client:
        first = client.ask(call(7, "sleep 300.71"))
        while not running("sleep 300.71"):
            time.sleep(0.01)  # a process of the server's has to begin: it cannot signal
        if hung_up:
            first.hang_up()
        assert client.cancel(7) == 202
        assert hung_up or first.hear()["error"]["code"] == -32800
        deadline = time.monotonic() + LIMIT
        while (again := client.ask(call(7, "echo again"))).status == 400 and time.monotonic() < deadline:
            time.sleep(0.05)  # until the command has been ended
        assert again.hear()["result"]["structuredContent"]["stdout"] == "again\n"
        assert not running("sleep 300.71")


def test_a_question_to_a_client_that_hung_up_is_a_denial_and_holds_up_no_other(tmp_path: Path) -> None:
    with http_program(Home.make(tmp_path / "home", ASKING)) as server, RawHttp(server, elicitation={}) as client:
        dead = client.ask(call(1, f"touch {tmp_path}/dead"))
        assert dead.hear()["method"] == "elicitation/create"
        waiting = client.ask(call(2, f"touch {tmp_path}/waiting"))
        dead.hang_up()
        question = waiting.hear()
        assert f"touch {tmp_path}/waiting" in question["params"]["message"]
        answer = {"action": "accept", "content": {"decision": "once"}}
        assert client.say({"jsonrpc": "2.0", "id": question["id"], "result": answer}) == 202
        assert waiting.hear()["result"]["_meta"]["harness/status"] == "ok"
        assert client.ask(call(1, "true")).hear()["result"]["_meta"]["harness/status"] == "ok"
    assert ((tmp_path / "waiting").exists(), (tmp_path / "dead").exists()) == (True, False)
