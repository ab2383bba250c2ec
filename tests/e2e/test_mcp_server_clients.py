"""``harness mcp`` and clients that answer its questions with nonsense, or not as other clients do."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.support.mcp_program import Home
from tests.support.mcp_raw import Raw, call
from tests.support.mcp_servers import SERVERS

pytestmark = pytest.mark.usefixtures("needs_process")

NOTES = f"[mcp.servers.notes]\ncommand = {json.dumps([sys.executable, str(SERVERS / 'raw.py')])}\n"
FREE = '[permissions]\nmode = "auto"\n'
ONCE = {"result": {"action": "accept", "content": {"decision": "once"}}}
TYPED = "hunter2-hunter2"
NONSENSE: tuple[dict[str, Any], ...] = (
    {"result": "yes"},
    {"result": None},
    {"result": [TYPED]},
    {"result": {}},
    {"result": {"action": "yes", "content": {"decision": "once"}}},
    {"result": {"action": "accept"}},
    {"result": {"action": "accept", "content": [TYPED]}},
    {"result": {"action": "accept", "content": {"decision": {"once": TYPED}}}},
    {"result": {"action": "accept", "content": {"decision": ["once"]}}},
    {"result": {"action": "accept", "content": {"decision": True}}},
    {"result": {"action": "accept", "content": {"decision": "ONCE"}}},
    {"result": {"action": "decline", "content": {"decision": "once"}}},
    {"result": {"action": "cancel", "content": {"decision": "once"}}},
    {"error": {"code": -32000, "message": "nobody is there"}},
    {"error": "no"},
    {**ONCE, "error": {"code": -32000, "message": "or not"}},
)


def answered(server: Raw, question: dict[str, Any], reply: dict[str, Any]) -> None:
    server.say({"jsonrpc": "2.0", "id": question["id"], **reply})


def test_no_nonsense_allows_anything_and_none_is_waited_for(tmp_path: Path) -> None:
    with Raw(Home.make(tmp_path), elicitation={}) as server:
        for number, reply in enumerate(NONSENSE, 1):
            server.say(call(number, "echo x >> runs"))
            question = server.hear()
            assert question["method"] == "elicitation/create", (reply, question)
            answered(server, question, reply)
            answered(server, question, ONCE)  # too late
            result = server.hear()
            assert (result["id"], result["result"]["isError"]) == (number, True), (reply, result)
            assert TYPED not in json.dumps(result)
            assert "pydantic" not in json.dumps(result)
        assert not (tmp_path / "runs").exists()
        server.say(call(90, "echo x >> runs"))
        answered(server, server.hear(), ONCE)
        assert server.hear()["result"]["isError"] is False
        code, _, said = server.end()
    assert (code, (tmp_path / "runs").read_text()) == (0, "x\n")
    assert TYPED.encode() not in said


def test_a_question_says_where_the_tool_of_another_server_runs(tmp_path: Path) -> None:
    with Raw(Home.make(tmp_path, NOTES), elicitation={}) as server:
        number = 0
        names: set[str] = set()
        while "notes_echo" not in names:  # the other server starts meanwhile
            number += 1
            server.say({"jsonrpc": "2.0", "id": number, "method": "tools/list"})
            while "result" not in (heard := server.hear()):
                pass
            names = {tool["name"] for tool in heard["result"]["tools"]}
        asked = call(1000, "")
        asked["params"] = {"name": "notes_echo", "arguments": {"text": "x"}}
        server.say(asked)
        while (question := server.hear()).get("method") != "elicitation/create":
            pass
        assert question["params"]["message"].startswith("Allow notes_echo on this machine (MCP server notes)?\n")
        answered(server, question, {"result": {"action": "decline"}})
        server.end()


@pytest.mark.parametrize("token", [0, "", 7])
def test_progress_is_told_under_any_token(tmp_path: Path, token: int | str) -> None:
    asked = call(1, "echo first; until [ -e gate ]; do sleep 0.05; done")
    asked["params"]["_meta"] = {"progressToken": token}
    with Raw(Home.make(tmp_path, FREE)) as server:
        server.say(asked)
        told = server.hear()
        assert (told["method"], told["params"]["progressToken"]) == ("notifications/progress", token)
        (tmp_path / "gate").touch()
        while server.hear().get("id") != 1:
            pass
