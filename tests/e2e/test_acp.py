"""``harness acp`` as an editor starts it: turns, approvals, edits, cancelling, and editors that misbehave."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import acp
import anyio
import pytest
from acp.schema import EnvVariable, HttpHeader, HttpMcpServer, McpServerStdio, SseMcpServer
from anyio import to_thread
from tests.support.editor import editor
from tests.support.mcp_program import running
from tests.support.mcp_servers import SERVERS, web
from tests.support.model_server import (
    Answer,
    Call,
    Gate,
    ModelServer,
    Reasoning,
    Script,
    Text,
    When,
    call,
    model_server,
    say,
)
from tests.support.program import Program

pytestmark = pytest.mark.usefixtures("needs_process")

KEY = "sk-the-key-of-this-test-0123456789"
WHY = {"risk": "low", "mutation": True, "privesc": False, "why": "a test"}
FREE = '[permissions]\nmode = "auto"\n'


def shell(command: str, **more: Any) -> Answer:
    return call("run_shell", {"command": command, **WHY, **more})


def configure(program: Program, server: ModelServer, extra: str = "") -> None:
    folder = program.home / "config/harness"
    folder.mkdir(parents=True, exist_ok=True)
    table = f'[models.test]\nprovider = "openai"\nmodel = "m"\nbase_url = "{server.openai_url}"\nretries = 0\n'
    (folder / "config.toml").write_text(f'{table}key = {{ env = "TEST_KEY" }}\n{extra}')
    program.environ["TEST_KEY"] = KEY


async def test_a_turn_shows_thoughts_calls_output_and_the_answer(program: Program) -> None:
    project = program.home / "my project"
    project.mkdir()
    (program.home / "AGENTS.md").write_text("Of the directory where the editor starts harness.")
    (project / "AGENTS.md").write_text("Of the editor's project.")
    first = Answer((Reasoning("Hm."), Text("Looking."), Call("run_shell", {"command": "pwd; echo '```'", **WHY})))
    edit = {"path": "notes", "old_string": "one", "new_string": "two", **WHY}
    write = {"path": "notes", "content": "one\nend\n", **WHY}
    script = [first, call("write_file", write), call("edit", edit), say("Done.")]
    with model_server(script) as server:
        configure(program, server, FREE)
        async with editor(program) as client:
            session = await client.open(project)
            assert await client.prompt(session, "go") == "end_turn"
            assert server.refused == []
    assert client.text(kind="agent_thought_chunk") == "Hm."
    assert client.text() == "Looking.Done."
    kinds = [update["sessionUpdate"] for _, update in client.updates]
    assert kinds.index("tool_call") > kinds.index("agent_message_chunk")
    command, written, edited = client.calls
    assert (command["kind"], command["status"], command["title"]) == (
        "execute",
        "completed",
        "run_shell pwd; echo '''''",
    )
    output = command["content"][-1]["content"]["text"]
    assert f"{project}\n```\n" in output
    assert output.startswith("````\n")
    assert command["rawInput"]["command"] == "pwd; echo '```'"
    path = str(project / "notes")
    assert (written["kind"], written["locations"]) == ("edit", [{"path": path}])
    assert written["content"][0] == {"type": "diff", "path": path, "newText": "one\nend\n"}
    assert edited["content"][0] == {"type": "diff", "path": path, "oldText": "one", "newText": "two"}
    assert (project / "notes").read_text() == "two\nend\n"
    told = json.dumps(server.asked[0].body)
    assert ("Of the editor's project." in told, "Of the directory where" in told) == (True, False)


async def test_the_user_decides_about_each_call(program: Program) -> None:
    secret = "password=Tr0ub4dor-3x"
    answers = ["once", "deny-once", "", "no such option", "exact"]
    names = [f"made-{number}" for number in range(5)]
    script: Script = [reply for name in names for reply in (shell(f"touch {name} # {secret}"), say("Done."))]
    with model_server([*script, shell(f"touch made-4 # {secret}"), say("Done.")]) as server:
        configure(program, server)
        async with editor(program) as client:
            client.answers = [*answers]
            session = await client.open(program.home)
            for _ in (*answers, "the same call again"):
                assert await client.prompt(session, "go") == "end_turn"
    made = {path.name for path in program.home.glob("made-*")}
    assert made == {"made-0", "made-4"}
    assert len(client.asked) == len(answers)
    asked = client.asked[0]
    kinds = {"once": "allow_once", "deny-once": "reject_once", "exact": "allow_always", "deny-session": "reject_always"}
    assert kinds.items() <= asked["options"].items()
    text = asked["call"]["content"][0]["content"]["text"]
    assert "Allow run_shell on local:?" in text
    assert "touch made-0" in text
    assert "Tr0ub4dor" not in json.dumps([client.asked, client.updates])
    assert [one["call"]["toolCallId"] for one in client.asked] == [one["toolCallId"] for one in client.calls[:5]]
    ends = ["completed" if name in made else "failed" for name in names]
    assert [one["status"] for one in client.calls] == [*ends, "completed"]


async def test_the_command_runs_on_the_host_and_not_in_the_editors_directory(over_ssh: Program, tmp_path: Path) -> None:
    write = {"path": str(tmp_path / "x"), "content": "y", **WHY}
    with model_server([shell("echo $SSH_CONNECTION; pwd"), call("write_file", write), say("Done.")]) as server:
        configure(over_ssh, server, FREE)
        async with editor(over_ssh) as client:
            session = await client.open(tmp_path / "only of the editor")
            assert await client.prompt(session, "go") == "end_turn"
    command, written = client.calls
    output = command["content"][-1]["content"]["text"]
    assert "127.0.0.1" in output
    assert "only of the editor" not in output
    assert written["locations"] == []  # the editor would open a file of its own machine


def until_runs(command: str) -> None:
    for _ in range(1500):
        if running(command):
            return
        time.sleep(0.02)
    raise AssertionError(f"{command} was not started")


async def test_cancelling_interrupts_the_command_and_the_session_goes_on(program: Program) -> None:
    with model_server([shell("sleep 71.25"), say("Again.")]) as server:
        configure(program, server, FREE)
        async with editor(program) as client:
            session = await client.open(program.home)
            reasons: list[str] = []

            async def turn() -> None:
                reasons.append(await client.prompt(session, "go"))

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(turn)
                await to_thread.run_sync(until_runs, "sleep 71.25")
                await client.connection.cancel(session_id=session)
            assert reasons == ["cancelled"]
            assert not running("sleep 71.25")
            assert client.calls[0]["status"] == "failed"
            assert await client.prompt(session, "more") == "end_turn"
            await client.connection.cancel(session_id="unknown")
            await client.connection.cancel(session_id=session)  # there is nothing to cancel
    assert client.text() == "Again."


def test_a_cancel_that_comes_with_the_prompt_starts_nothing(program: Program) -> None:
    with model_server([say("Again.")]) as server:
        configure(program, server)
        process = program.start("acp", stdin=subprocess.PIPE, stderr=None)
        try:
            send(process, 1, "initialize", {"protocolVersion": 1})
            answer_of(process, 1)
            send(process, 2, "session/new", {"cwd": str(program.home), "mcpServers": []})
            session = answer_of(process, 2)["result"]["sessionId"]
            words = {"sessionId": session, "prompt": [{"type": "text", "text": "go"}]}
            prompt = {"jsonrpc": "2.0", "id": 3, "method": "session/prompt", "params": words}
            cancel = {"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": session}}
            write(process, json.dumps(prompt).encode() + b"\n" + json.dumps(cancel).encode())  # read at once
            assert answer_of(process, 3)["result"]["stopReason"] == "cancelled"
            assert server.asked == []
            send(process, 4, "session/prompt", words)
            assert answer_of(process, 4)["result"]["stopReason"] == "end_turn"
        finally:
            end_of(process)


async def test_a_cancelled_request_for_permission_runs_nothing(program: Program) -> None:
    with model_server([shell("touch made")]) as server:
        configure(program, server)
        async with editor(program) as client:
            session = await client.open(program.home)

            async def cancel() -> None:
                await client.connection.cancel(session_id=session)
                await anyio.sleep(0.5)  # a late answer does not count

            client.on_ask, client.answers = cancel, ["once"]
            assert await client.prompt(session, "go") == "cancelled"
    assert not (program.home / "made").exists()


async def test_two_sessions_work_at_once_and_one_fails_alone(program: Program) -> None:
    gate = Gate()
    script: Script = [
        When("first session", Answer((Text("One"), gate, Text(" waits.")))),
        When("second session", say("Two.")),
    ]
    with model_server(script) as server:
        configure(program, server, FREE)
        async with editor(program) as client:
            one, two = await client.open(program.home), await client.open(program.home)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(client.prompt, one, "the first session")
                await gate.reached()
                assert await client.prompt(two, "the second session") == "end_turn"
                assert client.text(two) == "Two."
                gate.open()
            assert client.text(one) == "One waits."
            with pytest.raises(acp.RequestError, match="script"):
                await client.prompt(two, "more than the script has")


@pytest.mark.parametrize("end", ["eof", "kill", "term"])
async def test_nothing_runs_on_when_the_editor_is_gone(program: Program, end: str) -> None:
    with model_server([shell("sleep 72.25")]) as server:
        configure(program, server, FREE)
        process = program.start("acp", stdin=subprocess.PIPE, stderr=None)
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            send(process, 1, "initialize", {"protocolVersion": 1})
            assert answer_of(process, 1)["result"]["agentInfo"]["name"] == "harness"
            send(process, 2, "session/new", {"cwd": str(program.home), "mcpServers": []})
            session = answer_of(process, 2)["result"]["sessionId"]
            send(process, 3, "session/prompt", {"sessionId": session, "prompt": [{"type": "text", "text": "go"}]})
            await to_thread.run_sync(until_runs, "sleep 72.25")
            if end == "eof":
                process.stdin.close()
            elif end == "kill":  # the editor
                process.stdin.close()
                process.stdout.close()
            else:
                process.send_signal(signal.SIGTERM)
            assert await to_thread.run_sync(process.wait, 40) == 0
            assert not running("sleep 72.25")
        finally:
            end_of(process)


def end_of(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            stream.close()


def send(process: subprocess.Popen[bytes], number: object, method: str, params: object) -> None:
    write(process, json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}).encode())


def write(process: subprocess.Popen[bytes], line: bytes) -> None:
    assert process.stdin is not None
    process.stdin.write(line + b"\n")
    process.stdin.flush()


def answer_of(process: subprocess.Popen[bytes], number: object) -> dict[str, Any]:
    assert process.stdout is not None
    while True:
        line = process.stdout.readline()
        assert line, "the agent has ended"
        message: dict[str, Any] = json.loads(line)
        if "method" not in message and message["id"] == number:
            return message


def test_what_is_no_message_gets_an_error_and_the_next_one_is_read(program: Program) -> None:
    with model_server([]) as server:
        configure(program, server)
        process = program.start("acp", stdin=subprocess.PIPE, stderr=None)
        try:
            for line, code in (
                (b"{", -32700),
                (b"\xff", -32700),
                (b"[]", -32600),
                (b"3", -32600),
                (b"[" * 100_000, -32700),
                (b'{"method": 5}', -32600),
                (b'{"method": "initialize", "id": {}}', -32600),
            ):
                write(process, line)
                assert answer_of(process, None)["error"]["code"] == code, line[:20]
            for line in (b"", b'{"id": [], "result": 1}', b'{"id": 0, "error": 1}', b'{"method": "nothing"}', b"{}"):
                write(process, line)
            for number, (method, params, code) in enumerate(
                (
                    ("session/new", {"cwd": "/", "mcpServers": []}, -32600),
                    ("no/such/method", {}, -32601),
                    ("authenticate", {"methodId": "x"}, -32601),
                    ("session/list", {}, -32601),
                    ("initialize", [], -32602),
                    ("initialize", {"protocolVersion": 999, "clientInfo": {"name": "\x1b", "version": ""}}, None),
                    ("session/load", {"sessionId": "", "cwd": "/", "mcpServers": []}, -32602),
                    ("session/load", {"sessionId": "../x", "cwd": "/", "mcpServers": []}, -32603),
                    ("session/new", {"cwd": "relative", "mcpServers": []}, -32602),
                    ("session/new", {"cwd": "/no/such/directory", "mcpServers": []}, -32603),
                    ("session/prompt", {"sessionId": "x", "prompt": [{"type": "text", "text": "x"}]}, -32602),
                )
            ):
                send(process, f"id-{number}", method, params)
                answer = answer_of(process, f"id-{number}")
                assert answer.get("error", {}).get("code") == code, answer
            assert process.stdin is not None
            process.stdin.close()
            assert process.wait(30) == 0
        finally:
            end_of(process)


async def test_a_stored_conversation_is_shown_and_continued(program: Program) -> None:
    script = [Answer((Text("Looking."), *shell("echo past; exit 1").pieces)), say("It failed."), say("As I said.")]
    with model_server(script) as server:
        configure(program, server, FREE)
        async with editor(program) as client:
            session = await client.open(program.home)
            await client.prompt(session, "what is past?")
            with pytest.raises(acp.RequestError, match="open already"):
                await client.connection.load_session(cwd=str(program.home), session_id=session, mcp_servers=[])
        async with editor(program) as client:
            await client.connection.load_session(cwd=str(program.home), session_id=session, mcp_servers=[])
            kinds = [update["sessionUpdate"] for _, update in client.updates]
            assert kinds == [
                *("user_message_chunk", "agent_message_chunk", "tool_call", "tool_call_update", "agent_message_chunk")
            ]
            assert "past" in client.calls[0]["content"][0]["content"]["text"]
            assert await client.prompt(session, "and now?") == "end_turn"
            assert client.text(session) == "Looking.It failed.As I said."
        assert "what is past?" in server.asked[2].text
        assert server.refused == []


async def test_the_editors_servers_give_their_tools_to_its_session_alone(program: Program, tmp_path: Path) -> None:
    echo = McpServerStdio(name="my echo", command=sys.executable, args=[str(SERVERS / "raw.py")], env=[])
    leaks = McpServerStdio(name="leaks", command="x", args=[], env=[EnvVariable(name="A", value="${file:/etc/passwd}")])
    old = SseMcpServer(type="sse", name="old", url="http://127.0.0.1:9/sse", headers=[])
    plain = HttpMcpServer(type="http", name="plain", url="http://192.0.2.1/", headers=[HttpHeader(name="A", value=KEY)])
    gone = McpServerStdio(name="gone", command="/no/such/program", args=[], env=[])
    script = [call("my-echo_echo", {"text": "hello"}), call("web_add", {"a": 1, "b": "2"}), say("Done."), say("None.")]
    async with web(tmp_path / "web") as there:
        token = HttpHeader(name="Authorization", value="Bearer T0KEN")
        added = HttpMcpServer(type="http", name="web", url=f"http://127.0.0.1:{there.port}/mcp", headers=[token])
        with model_server(script) as server:
            configure(program, server, FREE)
            async with editor(program) as client:
                session = await client.open(program.home, echo, leaks, echo, added, old, plain, gone)
                assert client.updates == []
                assert await client.prompt(session, "go") == "end_turn"
                assert await client.prompt(await client.open(program.home), "go") == "end_turn"
    assert "hello" in client.calls[0]["content"][0]["content"]["text"]
    assert client.calls[1]["content"][0]["content"]["text"].count("3") == 1
    assert [one["status"] for one in client.calls] == ["completed"] * 2
    for name in ("my-echo_echo", "web_add"):
        assert [name in asked.text for asked in server.asked] == [True, True, True, False]
    told = client.text(kind="agent_thought_chunk")
    for name, why in (
        ("leaks", "a reference"),
        ("my-echo", "the same name"),
        ("old", "only stdio and streamable HTTP"),
        ("plain", "unencrypted"),
        ("gone", "/no/such/program"),
    ):
        assert any(name in line and why in line for line in told.splitlines()), (name, told)
    assert KEY not in told


async def test_the_targets_agents_md_is_that_of_the_sessions_directory(program: Program) -> None:
    project = program.home / "project"
    for folder, text in ((program.home, "Where harness starts."), (project, "Of the session.")):
        folder.mkdir(exist_ok=True)
        (folder / "AGENTS.md").write_text(text)
    with model_server([say("Done.")]) as server:
        configure(program, server, f"{FREE}[agent]\nproject_instructions = false\ntarget_instructions = true\n")
        async with editor(program) as client:
            assert await client.prompt(await client.open(project), "go") == "end_turn"
    assert ["Of the session." in server.asked[0].text, "Where harness" in server.asked[0].text] == [True, False]


async def test_a_target_that_is_not_reached_is_an_error_of_the_session(program: Program) -> None:
    async with editor(program) as client:
        with pytest.raises(acp.RequestError, match="no model is configured") as caught:
            await client.open(program.home)
        assert str(caught.value).count("HARNESS_MODEL") == 1
    with model_server([]) as server:
        configure(program, server)
        async with editor(program, "--ssh", "127.0.0.1:1", "-F", "none") as client:
            for _ in range(2):
                with pytest.raises(acp.RequestError, match="connect to host"):
                    await client.open(program.home)
