"""``harness mcp`` over standard input and output: the program, its end, and a terminal behind it."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp import Client, ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from pydantic import FileUrl
from tests.support.mcp_program import HARNESS, Home, cancelled_call, running, stdio_client_of
from tests.support.mcp_raw import GREETED, HELLO, Raw, call
from tests.support.mcp_session import subscribe

from harness.extras import install_extra

pytestmark = pytest.mark.usefixtures("needs_process")

LIMIT = 60
FREE = '[permissions]\nmode = "auto"\n'


@pytest.fixture
def home(needs_tmux: None, tmp_path: Path) -> Iterator[Home]:
    made = Home.make(tmp_path, FREE)
    yield made
    end_tmux(made)


def end_tmux(home: Home) -> None:
    socket = (home.path / ".config/harness/config.toml").read_text().split('"')[1]
    subprocess.run(["tmux", "-L", socket, "kill-server"], capture_output=True)


def data_of(result: types.CallToolResult) -> dict[str, Any]:
    assert isinstance(result.structured_content, dict), result
    return result.structured_content


async def test_a_command_runs_and_its_result_comes_back(home: Home) -> None:
    async with stdio_client_of(home) as client:
        offered = {tool.name for tool in (await client.list_tools()).tools}
        assert {"read_file", "run_shell", "time", "write_file"} <= offered
        assert "capture_pane" not in offered  # there is no terminal
        result = await client.call_tool("run_shell", {"command": "echo out; echo err >&2; exit 3"})
        assert result.is_error
        data = data_of(result)
        assert (data["exit_code"], data["stdout"], data["stderr"]) == (3, "out\n", "err\n")


async def test_the_sdks_client_that_prefers_later_revisions_is_served_too(home: Home) -> None:
    command, *first = HARNESS
    server = StdioServerParameters(command=command, args=[*first, "mcp"], env=home.environment, cwd=str(home.path))
    async with Client(stdio_client(server)) as client:
        result = await client.call_tool("run_shell", {"command": "echo hi"})
    assert data_of(result)["stdout"] == "hi\n"


async def test_calls_start_in_the_root_that_the_client_opened_last(home: Home) -> None:
    roots = ["file://elsewhere/tmp", (home.path / "missing").as_uri(), (home.path / "run").as_uri()]
    asked = 0

    async def list_roots(ctx: Any) -> types.ListRootsResult:
        nonlocal asked
        asked += 1
        if asked == 3:
            await anyio.sleep_forever()
        return types.ListRootsResult(roots=[types.Root(uri=FileUrl(uri)) for uri in roots])

    async def start() -> str:
        return str(data_of(await client.call_tool("run_shell", {"command": "pwd"}))["stdout"]).strip()

    other = home.path / "ä b"
    other.mkdir()
    (home.path / "link").symlink_to(home.path)
    async with stdio_client_of(home, list_roots_callback=list_roots) as client:
        assert await start() == str(home.path / "run")
        await client.call_tool("write_file", {"path": "here", "content": "x"})
        roots[:] = [other.as_uri()]
        await client.send_notification(types.RootsListChangedNotification())
        assert await start() == str(other)
        await client.send_notification(types.RootsListChangedNotification())  # this one is never answered
        assert await start() == str(other)
    assert (asked, (home.path / "run/here").read_text()) == (3, "x")
    asked = 0
    roots[:] = [other.as_uri(), (home.path / "link").as_uri()]
    async with stdio_client_of(home, list_roots_callback=list_roots) as client:
        assert await start() == str(home.path)  # the server was started in one of them
    async with stdio_client_of(home, "--tmux", list_roots_callback=list_roots) as client:
        assert await start() == str(home.path)


async def test_a_runbook_is_a_prompt_without_its_secrets(home: Home) -> None:
    folder = home.path / ".config/harness/runbooks"
    folder.mkdir(mode=0o700)
    (folder / "look.md").write_text("---\ndescription: Look\n---\nLook, with password=Tr0ub4dor-3x.")
    (folder / "look.md").chmod(0o600)
    async with stdio_client_of(home) as client:
        (prompt,) = (await client.list_prompts()).prompts
        (message,) = (await client.get_prompt("look")).messages
    assert (prompt.name, prompt.description) == ("look", "Look")
    assert isinstance(message.content, types.TextContent)
    assert message.content.text.startswith("Look, with password=[redacted]")


async def test_jobs_and_panes_are_completed_in_addresses(home: Home) -> None:
    async def completed(uri: str, name: str, value: str) -> list[str]:
        place = types.ResourceTemplateReference(uri=uri)
        return (await client.complete(place, {"name": name, "value": value})).completion.values

    async with stdio_client_of(home, "--tmux") as client:
        job_id = data_of(await client.call_tool("run_shell", {"command": "true"}))["job_id"]
        assert job_id in await completed("harness://job/{id}/log{?offset,limit}", "id", job_id[:1])
        assert await completed("harness://job/{id}/log{?offset,limit}", "id", "no-such-job") == []
        assert await completed("harness://pane/{name}/screen", "name", "ma") == ["main"]
        assert await completed("harness://nothing", "id", "") == []


async def test_many_calls_at_once_are_not_mixed(home: Home) -> None:
    got: dict[int, str] = {}
    async with stdio_client_of(home) as client:

        async def one(number: int) -> None:
            got[number] = data_of(await client.call_tool("run_shell", {"command": f"echo {number}"}))["stdout"]

        with anyio.fail_after(LIMIT):
            async with anyio.create_task_group() as tasks:
                for number in range(40):
                    tasks.start_soon(one, number)
    assert got == {number: f"{number}\n" for number in range(40)}


async def test_without_an_approver_what_needs_one_is_denied_and_with_one_it_is_asked(tmp_path: Path) -> None:
    home, asked = Home.make(tmp_path), list[str]()

    async def allow(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        asked.append(params.message)
        return types.ElicitResult(action="accept", content={"decision": "once"})

    async with stdio_client_of(home) as client:
        denied = await client.call_tool("run_shell", {"command": "touch made"})
    assert denied.is_error
    assert "harness permissions add" in denied.model_dump_json()
    assert not (tmp_path / "made").exists()
    async with stdio_client_of(home, elicitation_callback=allow) as client:
        done = await client.call_tool("run_shell", {"command": "touch made"})
    assert not done.is_error, done
    assert (tmp_path / "made").exists()
    assert ["  | touch made" in text.split("\n") for text in asked] == [True]


async def test_a_cancelled_call_ends_its_command(home: Home) -> None:
    async with stdio_client_of(home) as client:
        with anyio.fail_after(LIMIT):
            await cancelled_call(client, "sleep 300.77")
        result = await client.call_tool("run_shell", {"command": "echo next"})
    assert data_of(result)["stdout"] == "next\n"
    audit = subprocess.run(
        [*HARNESS, "--json", "audit", "show"], env=home.environment, capture_output=True, timeout=LIMIT, check=True
    )
    assert b'"cancelled"' in audit.stdout


async def test_a_long_command_lives_on_after_the_server(tmp_path: Path) -> None:
    home = Home.make(tmp_path, FREE + "[mcp]\njob_handoff_seconds = 1\n")
    gate = tmp_path / "gate"
    command = f"echo begun; while [ ! -e {gate} ]; do sleep 0.1; done; echo ended"
    async with stdio_client_of(home) as client:
        data = data_of(await client.call_tool("run_shell", {"command": command, "wait": "10m"}))
    assert (data["status"], data["stdout"]) == ("running", "begun\n")
    gate.touch()
    waited = subprocess.run(
        [*HARNESS, "jobs", "wait", data["job_id"]], env=home.environment, capture_output=True, timeout=LIMIT
    )
    assert (waited.returncode, waited.stdout) == (0, b"begun\nended\n")
    async with stdio_client_of(home) as client:
        (content,) = (await client.read_resource(f"harness://job/{data['job_id']}/log")).contents
    assert isinstance(content, types.TextResourceContents)
    assert content.text == "begun\nended\n"


async def test_the_screen_of_a_pane_is_seen_and_its_changes_are_told(home: Home) -> None:
    some = anyio.Event()

    async def heard(message: object) -> None:
        if isinstance(message, types.ResourceUpdatedNotification):
            some.set()

    async with stdio_client_of(home, "--tmux", message_handler=heard) as client:
        uris = [str(item.uri) for item in (await client.list_resources()).resources]
        (screen,) = [uri for uri in uris if uri.endswith("/screen")]
        await subscribe(client, screen)
        result = await client.call_tool("run_shell", {"command": "echo $((6*7))-on-screen"})
        assert data_of(result)["stdout"] == "42-on-screen\n"
        with anyio.fail_after(LIMIT):
            await some.wait()
        (content,) = (await client.read_resource(screen)).contents
        assert isinstance(content, types.TextResourceContents)
        assert "42-on-screen" in content.text
        assert "capture_pane" in [tool.name for tool in (await client.list_tools()).tools]


@pytest.mark.usefixtures("needs_tmux")
async def test_in_a_pane_too_a_long_command_is_handed_over_and_runs_once(tmp_path: Path) -> None:
    home = Home.make(tmp_path, FREE + "[mcp]\njob_handoff_seconds = 1\n")
    command = "echo x >> runs; echo begun; read answer; echo got $answer"
    try:
        async with stdio_client_of(home, "--tmux", elicitation_callback=allow_once) as client:
            data = data_of(await client.call_tool("run_shell", {"command": command}))
            assert (data["status"], data["stdout"]) == ("running", "begun\n")
            busy = await client.call_tool("run_shell", {"command": "echo second"})
            assert busy.is_error, busy
            assert not (await client.call_tool("send_keys", {"literal_text": "yes", "enter": True})).is_error
            uri = f"harness://job/{data['job_id']}/log"
            with anyio.fail_after(LIMIT):
                while "got yes" not in (text := await log_of(client, uri)):
                    pass
            assert text.startswith("begun\n")
            after = await client.call_tool("run_shell", {"command": "cat runs"})
            assert data_of(after)["stdout"] == "x\n"
    finally:
        end_tmux(home)


async def allow_once(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
    return types.ElicitResult(action="accept", content={"decision": "once"})


async def log_of(client: ClientSession, uri: str) -> str:
    (content,) = (await client.read_resource(uri)).contents
    assert isinstance(content, types.TextResourceContents)
    return content.text


# -- the end


def test_the_end_of_the_input_is_the_end_of_the_server(home: Home) -> None:
    with Raw(home) as server:
        assert server.end() == (0, b"", b"")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_signal_ends_the_server_and_the_command_that_is_waited_for(
    home: Home, number: signal.Signals, code: int
) -> None:
    with Raw(home) as server:
        server.say(call(1, "echo $$ > pid; exec sleep 300.78"))
        pid = home.path / "pid"
        wait_for(lambda: pid.exists() and pid.read_text().strip() != "" and running("sleep 300.78"))
        server.process.send_signal(number)
        ended, said, _ = server.end()
        assert ended == code
        assert [json.loads(line)["id"] for line in said.splitlines()] == [1]  # whoever waits is told
        assert not running("sleep 300.78")


def test_a_client_that_reads_nothing_does_not_keep_the_server(home: Home) -> None:
    with Raw(home) as server:
        server.say(*(call(number, "head -c 300000 /dev/zero | tr '\\0' x") for number in range(1, 9)))
        wait_for(lambda: bool(select.select([server.process.stdout], [], [], 0)[0]))
        server.process.send_signal(signal.SIGTERM)
        server.process.wait(LIMIT)
        assert server.process.returncode == 0
        server.end()


def test_two_requests_with_one_id_never_run_at_once(home: Home, tmp_path: Path) -> None:
    with Raw(home) as raw:
        raw.say(call(1, f"touch {tmp_path}/runs; until [ -e {tmp_path}/gate ]; do sleep 0.05; done; echo first"))
        raw.say(call(1, f"touch {tmp_path}/second"), call(2, "echo other"))
        refused = raw.hear()
        assert (refused["id"], "still being answered" in refused["error"]["message"]) == (1, True)
        assert raw.hear()["id"] == 2
        (tmp_path / "gate").touch()
        assert raw.hear()["result"]["structuredContent"]["stdout"] == "first\n"
        raw.say(call(1, "sleep 300.72"))
        while not running("sleep 300.72"):
            time.sleep(0.01)  # a process of the server's has to begin: it cannot signal
        raw.say({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}})
        raw.say(call(1, "echo again"))
        while "error" in (answer := raw.hear()):  # the cancelled one is still being ended
            raw.say(call(1, "echo again"))
        assert answer["result"]["structuredContent"]["stdout"] == "again\n"
    assert not running("sleep 300.72")
    assert not (tmp_path / "second").exists()


def test_a_request_whose_id_is_none_of_the_protocol_is_answered_and_runs_nothing(home: Home, tmp_path: Path) -> None:
    with Raw(home) as raw:
        for number in (None, 1.5, True, {"a": 1}):
            raw.say({**call(0, f"touch {tmp_path}/ran"), "id": number})
            answer = raw.hear()
            assert (answer["id"], answer["error"]["code"]) == (1.5 if number == 1.5 else None, -32600)
        assert raw.process.stdin is not None
        raw.process.stdin.write(json.dumps(call(7, "x" * (17 << 20))).encode() + b"\n")
        raw.process.stdin.flush()
        refused = raw.hear()
        assert (refused["id"], "too long" in refused["error"]["message"]) == (7, True)
    assert not (tmp_path / "ran").exists()


def test_a_batch_is_served_where_the_revision_has_them(home: Home, tmp_path: Path) -> None:
    calls = json.dumps([call(1, "echo one"), call(2, "echo two"), GREETED, call(2, "echo three")])
    for revision in ("2025-03-26", "2025-06-18"):
        with Raw(home, revision=revision) as raw:
            assert raw.process.stdin is not None
            raw.process.stdin.write(calls.encode() + b"\n")
            raw.process.stdin.flush()
            answer = raw.hear()
            if revision != "2025-03-26":
                assert (answer["id"], answer["error"]["code"]) == (None, -32600)
                continue
            said = {one["id"]: one["result"]["structuredContent"]["stdout"] for one in answer if "result" in one}
            assert said == {1: "one\n", 2: "two\n"}
            assert [one["id"] for one in answer if "error" in one] == [2]


def test_rubbish_on_the_input_is_answered_and_survived(home: Home) -> None:
    with Raw(home) as server:
        assert server.process.stdin is not None
        server.process.stdin.write(b"rubbish\n\xff\xfe\n[]\n")
        server.process.stdin.flush()
        assert [server.hear()["error"]["code"] for _ in range(3)] == [-32700, -32700, -32600]
        server.say(call(5, "echo alive"))
        assert server.hear()["result"]["structuredContent"]["stdout"] == "alive\n"
        assert server.end()[0] == 0


def test_a_stray_print_cannot_reach_the_protocol(home: Home) -> None:
    package = home.path / "site"
    package.mkdir()
    (package / "sitecustomize.py").write_text(
        "import threading, os, time\n"
        "protocol = os.fstat(1)\n"
        "def noise():\n"
        "    while os.path.samestat(os.fstat(1), protocol):\n"
        "        time.sleep(0.01)\n"
        "    for _ in range(200):\n"
        "        print('stray print', flush=True); os.write(1, b'stray write\\n'); time.sleep(0.005)\n"
        "threading.Thread(target=noise, daemon=True).start()\n"
    )
    with Raw(Loud(home.path)) as server:
        for number in range(1, 20):
            server.say(call(number, f"echo {number}"))
            assert server.hear()["id"] == number
        code, out, err = server.end()
        assert (code, out) == (0, b"")
        assert b"stray print" in err
        assert b"stray write" in err


class Loud(Home):
    """A home whose programs say more than they should."""

    @property
    def environment(self) -> dict[str, str]:
        return super().environment | {"PYTHONPATH": str(self.path / "site")}


def test_a_target_that_cannot_be_reached_is_told_on_standard_error(home: Home) -> None:
    done = subprocess.run(
        [*HARNESS, "mcp", "--batch", "--ssh", "nobody@127.0.0.1:1"],
        env=home.environment, cwd=home.path, input=json.dumps(HELLO).encode(), capture_output=True, timeout=LIMIT,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (125, b"")
    assert b"127.0.0.1" in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["--token-file", "t"],
        ["--allow-remote"],
        ["--allow-host", "x"],
        ["--http", "0.0.0.0:0"],
        ["--http", "x"],
        ["--http", "127.0.0.1:0", "--allow-host", "http://x/"],
    ],
)
def test_options_that_make_no_sense_are_refused(home: Home, arguments: list[str]) -> None:
    done = subprocess.run(
        [*HARNESS, "mcp", *arguments], env=home.environment, cwd=home.path, capture_output=True, timeout=LIMIT
    )
    assert done.returncode == 125
    assert done.stderr.startswith(b"harness: ")
    assert done.stdout == b""


def wait_for(ready: Any) -> None:
    """The server's doing on the target; there is no other signal of it."""
    import time

    end = time.monotonic() + LIMIT
    while not ready():
        assert time.monotonic() < end, "it did not happen"
        os.sched_yield()
        time.sleep(0.02)


def test_without_the_extra_it_says_what_to_install(home: Home) -> None:
    script = "import sys; sys.modules['mcp'] = None; from harness.cli.main import main; main(['mcp'])"
    done = subprocess.run(
        [HARNESS[0], "-c", script], env=home.environment, cwd=home.path, capture_output=True, timeout=LIMIT
    )
    assert (done.returncode, done.stdout) == (125, b"")
    assert install_extra("mcp").encode() in done.stderr
