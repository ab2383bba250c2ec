"""``harness mcp --http``: sessions, the token, foreign pages and names, and bounds, against the real server."""

from __future__ import annotations

import http.client
import json
import os
import stat
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import httpx2
import mcp_types as types
import pytest
from mcp import Client, ClientSession
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from tests.support.mcp_program import HARNESS, Home, HttpProgram, cancelled_call, http_program, running
from tests.support.mcp_session import subscribe

LIMIT = 60
FREE = '[permissions]\nmode = "auto"\n'
ACCEPT = "application/json, text/event-stream"


@pytest.fixture(scope="module")
def server(needs_process: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpProgram]:
    """One server for all who do no harm to it."""
    with http_program(Home.make(tmp_path_factory.mktemp("home"), FREE)) as program:
        yield program


@asynccontextmanager
async def client_of(server: HttpProgram, **options: Any) -> AsyncIterator[ClientSession]:
    headers = {"Authorization": f"Bearer {server.token}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=LIMIT) as web,
        streamable_http_client(server.url, http_client=web) as streams,
        ClientSession(*streams[:2], **options) as client,
    ):
        await client.initialize()
        yield client


def data_of(result: types.CallToolResult) -> dict[str, Any]:
    assert isinstance(result.structured_content, dict), result
    return result.structured_content


@pytest.mark.usefixtures("needs_process")
async def test_a_command_runs_with_progress_and_its_result_comes_back(server: HttpProgram) -> None:
    told: list[str] = []

    async def heard(progress: float, total: float | None, message: str | None) -> None:
        told.append(message or "")

    command = {"command": "echo one; sleep 0.5; echo two"}
    async with client_of(server) as client:
        result = await client.call_tool("run_shell", command, progress_callback=heard)
    assert data_of(result)["stdout"] == "one\ntwo\n"
    assert "one" in told[0]


async def test_the_sdks_client_that_prefers_later_revisions_is_served_too(server: HttpProgram) -> None:
    headers = {"Authorization": f"Bearer {server.token}"}
    async with (
        httpx2.AsyncClient(headers=headers) as web,
        Client(streamable_http_client(server.url, http_client=web)) as client,
    ):
        result = await client.call_tool("run_shell", {"command": "echo hi"})
    assert data_of(result)["stdout"] == "hi\n"


async def test_each_client_has_a_session_of_its_own(server: HttpProgram, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old\n")
    async with client_of(server) as one, client_of(server) as other:
        await one.call_tool("read_file", {"path": str(path)})
        unread = await other.call_tool("write_file", {"path": str(path), "content": "other\n"})
        assert unread.is_error, unread
        assert path.read_text() == "old\n"
        written = await one.call_tool("write_file", {"path": str(path), "content": "new\n"})
        assert not written.is_error, written
    assert path.read_text() == "new\n"


async def test_calls_of_two_clients_at_once_are_not_mixed(server: HttpProgram) -> None:
    got: dict[str, str] = {}

    async def one(client: ClientSession, text: str) -> None:
        got[text] = data_of(await client.call_tool("run_shell", {"command": f"echo {text}"}))["stdout"]

    async with client_of(server) as left, client_of(server) as right:
        with anyio.fail_after(LIMIT):
            async with anyio.create_task_group() as tasks:
                for number in range(12):
                    tasks.start_soon(one, left, f"left{number}")
                    tasks.start_soon(one, right, f"right{number}")
    assert got == {text: f"{text}\n" for side in ("left", "right") for text in (f"{side}{n}" for n in range(12))}


@pytest.mark.usefixtures("needs_process")
async def test_a_grant_of_one_client_is_not_the_others(tmp_path: Path) -> None:
    asked: list[str] = []

    async def allow(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        asked.append(params.message)
        return types.ElicitResult(action="accept", content={"decision": "exact"})

    command = {"command": f"echo x >> {tmp_path}/runs"}
    with http_program(Home.make(tmp_path / "home")) as server:
        async with client_of(server, elicitation_callback=allow) as one, client_of(server) as other:
            for _ in range(2):
                assert not (await one.call_tool("run_shell", command)).is_error
            assert (await other.call_tool("run_shell", command)).is_error
    assert (tmp_path / "runs").read_text() == "x\nx\n"
    assert len(asked) == 1


@pytest.mark.usefixtures("needs_process")
async def test_a_cancelled_call_is_ended_and_the_session_lives_on(server: HttpProgram) -> None:
    async with client_of(server) as client:
        with anyio.fail_after(LIMIT):
            await cancelled_call(client, "sleep 300.79")
        assert data_of(await client.call_tool("run_shell", {"command": "echo next"}))["stdout"] == "next\n"


async def test_changes_of_a_resource_come_over_the_stream_of_the_session(server: HttpProgram, tmp_path: Path) -> None:
    some = anyio.Event()

    async def heard(message: object) -> None:
        if isinstance(message, types.ResourceUpdatedNotification):
            some.set()

    async with client_of(server, message_handler=heard) as client:
        command = f"while [ ! -e {tmp_path}/gate ]; do sleep 0.05; done; echo out"
        started = data_of(await client.call_tool("run_shell", {"command": command, "wait": False}))
        await subscribe(client, f"harness://job/{started['job_id']}/log")
        (tmp_path / "gate").touch()
        with anyio.fail_after(LIMIT):
            await some.wait()


# -- who is not served

HELLO = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}},
}


def post(server: HttpProgram, body: bytes | None = None, **headers: str | None) -> tuple[int, dict[str, str], bytes]:
    """One request; None leaves a header out."""
    usual: dict[str, str | None] = {
        "Host": f"127.0.0.1:{server.port}",
        "Authorization": f"Bearer {server.token}",
        "Content-Type": "application/json",
        "Accept": ACCEPT,
    }
    sent = usual | {name.replace("_", "-"): value for name, value in headers.items()}
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=LIMIT)
    try:
        connection.putrequest("POST", "/mcp", skip_host=True, skip_accept_encoding=True)
        content = json.dumps(HELLO).encode() if body is None else body
        for name, value in {**sent, "Content-Length": str(len(content))}.items():
            if value is not None:
                connection.putheader(name, value)
        connection.endheaders()
        with suppress(OSError):  # it was refused before it was read
            connection.send(content)
        answer = connection.getresponse()
        first = answer.read(400)
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, first
    finally:
        connection.close()


def test_whoever_has_the_token_is_served(server: HttpProgram) -> None:
    status, headers, _ = post(server)
    assert status == 200
    assert len(headers["mcp-session-id"]) == 32


@pytest.mark.usefixtures("needs_process")
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Authorization": None}, 401),
        ({"Authorization": "Bearer wrong"}, 401),
        ({"Authorization": "Bearer " + "x" * 43}, 401),
        ({"Host": "evil.example"}, 421),
        ({"Host": "evil.example:80", "Authorization": None}, 421),
        ({"Host": None}, 400),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Mcp_Session_Id": "0" * 32}, 404),
        ({"Mcp_Protocol_Version": "2026-07-28"}, 400),
        ({"Content_Type": "text/plain"}, 400),
    ],
)
def test_others_are_refused(server: HttpProgram, headers: dict[str, str | None], status: int) -> None:
    found, answered, body = post(server, **headers)
    assert found == status
    assert ("www-authenticate" in answered) is (status == 401)
    assert server.token.encode() not in body


def test_a_page_of_the_server_itself_may_ask(server: HttpProgram) -> None:
    assert post(server, Origin=f"http://localhost:{server.port}")[0] == 200


def test_a_body_that_is_too_large_is_refused_and_the_server_lives_on(server: HttpProgram) -> None:
    assert post(server, b"[" + b" " * (5 << 20) + b"]")[0] == 413
    assert post(server)[0] == 200


def test_a_client_that_counts_anew_in_its_old_session_never_gets_the_output_of_another_command(
    server: HttpProgram, tmp_path: Path
) -> None:
    session = post(server)[1]["mcp-session-id"]
    sent = {"Authorization": f"Bearer {server.token}", "Accept": ACCEPT, "Content-Type": "application/json"}

    def asked(number: int | str, command: str) -> bytes:
        params = {"name": "run_shell", "arguments": {"command": command}}
        return json.dumps({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}).encode()

    post(server, b'{"jsonrpc":"2.0","method":"notifications/initialized"}', Mcp_Session_Id=session)
    first = http.client.HTTPConnection("127.0.0.1", server.port, timeout=LIMIT)
    body = asked(1, f"touch {tmp_path}/runs; until [ -e {tmp_path}/gate ]; do sleep 0.05; done; echo first")
    first.request("POST", "/mcp", body, sent | {"Mcp-Session-Id": session})
    while not (tmp_path / "runs").exists():
        assert post(server, b'{"jsonrpc":"2.0","id":"p","method":"ping"}', Mcp_Session_Id=session)[0] == 200
    first.close()  # the client is ended, and started anew
    for same in (1, "1"):
        status, _, answer = post(server, asked(same, f"touch {tmp_path}/second"), Mcp_Session_Id=session)
        assert (status, b"still being answered" in answer) == (400, True)
    assert post(server, asked(2, "echo second"), Mcp_Session_Id=session)[0] == 200
    assert post(server, asked(2, "echo once more"), Mcp_Session_Id=session, Accept="text/plain")[0] == 406
    assert b"once more" in post(server, asked(2, "echo once more"), Mcp_Session_Id=session)[2]
    (tmp_path / "gate").touch()
    assert not (tmp_path / "second").exists()
    while (found := post(server, asked(1, "echo other"), Mcp_Session_Id=session))[0] == 400:
        pass
    assert (b"other" in found[2], b"first" in found[2]) == (True, False)


def test_a_client_that_wants_to_go_on_after_an_event_hears_what_comes_from_now_on(server: HttpProgram) -> None:
    session = post(server)[1]["mcp-session-id"]
    sent = {"Authorization": f"Bearer {server.token}", "Accept": "text/event-stream", "Mcp-Session-Id": session}
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=LIMIT)
    try:
        connection.request("GET", "/mcp", headers=sent | {"Last-Event-ID": "1"})
        assert connection.getresponse().status == 200
    finally:
        connection.close()


@pytest.mark.usefixtures("needs_process")
async def test_there_are_only_so_many_sessions(tmp_path: Path) -> None:
    from harness.mcp.server.http import SESSIONS

    with http_program(Home.make(tmp_path / "home", FREE)) as server:
        opened = [post(server) for _ in range(SESSIONS)]
        assert {status for status, _, _ in opened} == {200}
        assert post(server)[0] == 503
        web = httpx2.Client(headers={"Authorization": f"Bearer {server.token}"})
        session = {"Mcp-Session-Id": opened[0][1]["mcp-session-id"]}
        with web:
            assert web.delete(server.url, headers=session).status_code == 200
            assert web.delete(server.url, headers=session).status_code == 404
        assert post(server)[0] == 200


@pytest.mark.usefixtures("needs_process")
def test_the_token_is_private_and_in_no_argument_log_or_output(tmp_path: Path) -> None:
    home = Home.make(tmp_path / "home", FREE)
    with http_program(home, "-vv") as server:
        token = server.token.encode()
        assert server.token_file == home.path / ".local/state/harness/mcp-token"
        assert stat.S_IMODE(server.token_file.stat().st_mode) == 0o600
        assert post(server)[0] == 200
        assert post(server, Authorization="Bearer wrong")[0] == 401
        pid = server.process.pid
        assert token not in Path(f"/proc/{pid}/cmdline").read_bytes()
        assert token not in Path(f"/proc/{pid}/environ").read_bytes()
        shown = subprocess.run(["ps", "axeww"], capture_output=True, check=True).stdout
        assert token not in shown
        server.process.terminate()
        out, err = server.process.communicate(timeout=LIMIT)
        assert server.process.returncode == 0
    assert token not in out + err
    assert b"refused a request" in err
    held = [path for path in home.path.rglob("*") if path.is_file() and token in path.read_bytes()]
    assert held == [server.token_file]


@pytest.mark.usefixtures("needs_process")
def test_the_token_may_come_from_a_file_or_the_environment(tmp_path: Path) -> None:
    home = Home.make(tmp_path / "home", FREE)
    own = tmp_path / "own-token"
    with http_program(home, "--token-file", str(own)) as server:
        assert server.token_file == own
        assert post(server)[0] == 200
    secret = "e" * 40
    with http_program(home, extra=[("HARNESS_MCP_TOKEN", secret)]) as server:
        assert str(server.token_file) == "HARNESS_MCP_TOKEN"
        answer = httpx2.post(server.url, json=HELLO, headers={"Authorization": f"Bearer {secret}", "Accept": ACCEPT})
        assert answer.status_code == 200


@pytest.mark.usefixtures("needs_process")
@pytest.mark.parametrize("source", ["file", "environment"])
async def test_a_command_on_this_machine_cannot_show_the_token(tmp_path: Path, source: str) -> None:
    home, own, secret = Home.make(tmp_path / "home", FREE), tmp_path / "own-token", "e" * 20 + "f" * 20
    own.write_text(secret)
    own.chmod(0o600)
    options = ["--token-file", str(own)] if source == "file" else []
    extra = [("HARNESS_MCP_TOKEN", secret)] if source == "environment" else []
    with http_program(home, *options, extra=extra) as server:
        found = HttpProgram(server.url, own, server.process)
        async with client_of(found) as client:
            named = await client.call_tool("run_shell", {"command": "dd if=own-token", "cwd": str(tmp_path)})
            read = await client.call_tool("read_file", {"path": str(own)})
            reads = "print(open('own-tok' + 'en').read())"  # a name that is not known before
            command = f'env | grep -c MCP_TOKEN; python3 -c "{reads}"; true'
            result = await client.call_tool("run_shell", {"command": command, "cwd": str(tmp_path)})
    if source == "file":
        assert (named.is_error, read.is_error) == (True, True)
        assert "is a secret" in named.model_dump_json()
        argv = [*HARNESS, "permissions", "test", "--json", "--read", str(own)]  # another harness of this user
        other = subprocess.run(argv, env=home.environment, cwd=home.path, capture_output=True, timeout=LIMIT)
        assert other.returncode == 126, other
    assert data_of(result)["stdout"].startswith("0\n"), result
    assert secret not in result.model_dump_json()


@pytest.mark.usefixtures("needs_process")
def test_a_port_that_is_taken_is_told(server: HttpProgram, tmp_path: Path) -> None:
    home = Home.make(tmp_path / "home", FREE)
    done = subprocess.run(
        [*HARNESS, "mcp", "--http", f"127.0.0.1:{server.port}"],
        env=home.environment, cwd=home.path, capture_output=True, timeout=LIMIT,
    )  # fmt: skip
    assert done.returncode == 125
    assert done.stderr.startswith(b"harness: cannot listen on 127.0.0.1:")


@pytest.mark.usefixtures("needs_process")
@pytest.mark.parametrize("address", ["0.0.0.0:0", "[::]:0"])
def test_other_machines_are_let_in_only_when_that_is_asked_for(tmp_path: Path, address: str) -> None:
    home = Home.make(tmp_path / "home", FREE)
    done = subprocess.run(
        [*HARNESS, "mcp", "--http", address], env=home.environment, cwd=home.path, capture_output=True, timeout=LIMIT
    )
    assert done.returncode == 125
    assert b"other machines" in done.stderr
    assert b"--allow-remote" in done.stderr


async def until_it_ends(server: HttpProgram) -> None:
    async with client_of(server) as client, anyio.create_task_group() as tasks:

        async def end() -> None:
            while not running("sleep 300.80"):
                await client.send_ping()
            server.process.terminate()

        tasks.start_soon(end)
        await client.call_tool("run_shell", {"command": "sleep 300.80"})


@pytest.mark.usefixtures("needs_process")
async def test_the_end_of_the_server_ends_its_calls_and_streams(tmp_path: Path) -> None:
    with http_program(Home.make(tmp_path / "home", FREE)) as server:
        with pytest.raises((MCPError, httpx2.HTTPError, ExceptionGroup)), anyio.fail_after(LIMIT):
            await until_it_ends(server)
        assert server.process.wait(LIMIT) == 0
    assert not running("sleep 300.80")


def test_nothing_listens_where_other_machines_could_reach(server: HttpProgram) -> None:
    listening = Path(f"/proc/{server.process.pid}/net/tcp").read_text().split("\n")[1:]
    port = f":{server.port:04X}"
    local = [line.split()[1] for line in listening if line and line.split()[1].endswith(port)]
    assert f"0100007F{port}" in local
    assert f"00000000{port}" not in local
    assert os.path.exists(f"/proc/{server.process.pid}")
