"""Tools of servers behind a URL: the token, the certificate, redirects, lost servers, long answers."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.support.mcp_servers import raw, web, workbench

from harness.mcp.client.configuration import server_config
from harness.mcp.client.session import RestartPolicy
from harness.toolkit.events import ToolCallProgress
from harness.toolkit.values import CallStatus

pytestmark = pytest.mark.usefixtures("needs_process")


async def test_tools_over_http_are_called_with_progress_and_a_structured_result(tmp_path: Path) -> None:
    async with web(tmp_path / "web") as there, workbench(tmp_path, there.config(trust_annotations=True)) as bench:
        assert not bench.box.executor.registry.lookup("web_add").traits.mutating
        outcome = await bench.call("web_add", a=1, b="2")
        assert (outcome.result.text, outcome.result.data) == ("3", {"result": 3})
        with bench.box.events.subscribe() as events:
            assert (await bench.call("web_count", steps=2)).result.text == "counted"
            assert "1/2 at 1\n" in [event.text for event in events.drain() if isinstance(event, ToolCallProgress)]


async def test_answers_as_plain_json_do_as_well(tmp_path: Path) -> None:
    async with web(tmp_path / "web", "--json") as there, workbench(tmp_path, there.config()) as bench:
        assert (await bench.call("web_add", a=20, b=22)).result.text == "42"


async def test_a_wrong_token_is_said_and_not_tried_again(tmp_path: Path) -> None:
    async with web(tmp_path / "web") as there, workbench(tmp_path, there.config(token="Bearer wr0ng")) as bench:
        state = bench.sources.states["web"]
        assert state.state == "unavailable"
        assert "rejected the credentials (HTTP status 401)" in state.reason
        assert "check its headers" in state.reason
        assert "wr0ng" not in state.reason + " ".join(bench.notices)


async def test_the_token_comes_from_a_private_file_and_is_read_again_after_a_refusal(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("T0KEN\n")
    token.chmod(0o600)
    async with web(tmp_path / "web") as there:
        config = there.config(token=f"Bearer ${{file:{token}}}")
        async with workbench(tmp_path, config) as bench:
            assert (await bench.call("web_add", a=1, b=1)).result.text == "2"
            there.answers("401")
            refused = await bench.call("web_add", a=1, b=1)
            assert refused.result.error_code == "mcp_server_unavailable"
            assert "HTTP status 401" in refused.result.text
            assert "nothing was run" in refused.result.text
            there.answers("")
            bench.sources.restart("web")
            assert (await bench.call("web_add", a=2, b=1)).result.text == "3"
        token.chmod(0o644)
        async with workbench(tmp_path / "other", config) as bench:
            assert f"others may read {token}" in bench.sources.states["web"].reason


async def test_a_redirect_to_another_host_is_not_followed_and_the_token_stays_here(tmp_path: Path) -> None:
    seen: list[bytes] = []

    async def other(stream: anyio.abc.SocketStream) -> None:
        async with stream:
            seen.append(await stream.receive())

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    port = listener.extra(anyio.abc.SocketAttribute.local_port)
    async with web(tmp_path / "web") as there, listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, other)
        there.answers(f"redirect http://127.0.0.1:{port}/mcp")
        async with workbench(tmp_path, there.config(start_timeout=3), rules=RestartPolicy(restarts=0)) as bench:
            assert "not followed" in bench.sources.states["web"].reason
        tasks.cancel_scope.cancel()
    assert seen == []


async def test_a_certificate_that_nobody_vouches_for_is_refused_and_a_named_authority_is_taken(tmp_path: Path) -> None:
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    request = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=test -addext subjectAltName=IP:127.0.0.1"
    subprocess.run([*request.split(), "-keyout", key, "-out", cert], check=True, capture_output=True)
    async with web(tmp_path / "web", "--cert", str(cert), "--key", str(key)) as there:
        async with workbench(tmp_path, there.config(scheme="https"), rules=RestartPolicy(restarts=0)) as bench:
            assert "CERTIFICATE_VERIFY_FAILED" in bench.sources.states["web"].reason
        async with workbench(tmp_path, there.config(scheme="https", ca_file=str(cert))) as bench:
            assert (await bench.call("web_add", a=1, b=2)).result.text == "3"


async def test_a_server_that_is_killed_during_a_call_leaves_it_unknown_and_a_new_one_is_found(tmp_path: Path) -> None:
    async with web(tmp_path / "web") as there, workbench(tmp_path, there.config()) as bench:
        outcome = await bench.call("web_die")
        assert outcome.status is CallStatus.UNKNOWN
        async with web(tmp_path / "web", "--port", str(there.port)):
            bench.sources.restart("web")
            assert (await bench.call("web_add", a=1, b=2)).result.text == "3"


async def test_a_server_that_forgot_the_session_gets_a_new_one(tmp_path: Path) -> None:
    async with web(tmp_path / "web") as there, workbench(tmp_path, there.config()) as bench:
        there.process.kill()
        await there.process.wait()
        async with web(tmp_path / "web", "--port", str(there.port)):
            lost = await bench.call("web_add", a=1, b=2)
            assert lost.result.error_code in {"mcp_server_unavailable", "backend_lost"}
            assert (await bench.call("web_add", a=1, b=2)).result.text == "3"


async def test_a_failure_of_the_server_leaves_a_call_unknown(tmp_path: Path) -> None:
    async with web(tmp_path / "web") as there, workbench(tmp_path, there.config()) as bench:
        there.answers("502")
        outcome = await bench.call("web_count", steps=1)
        assert outcome.status is CallStatus.UNKNOWN
        there.answers("")
        assert (await bench.call("web_add", a=1, b=2)).result.text == "3"


async def test_a_call_that_hangs_ends_in_its_time(tmp_path: Path) -> None:
    async with web(tmp_path / "web") as there, workbench(tmp_path, there.config(timeout=3)) as bench:
        assert (await bench.call("web_wait")).status is CallStatus.TIMEOUT
        assert (await bench.call("web_add", a=1, b=2)).result.text == "3"


@pytest.mark.parametrize("arguments", [(), ("--json",)])
async def test_an_answer_that_is_too_long_fails_its_call_alone(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    async with (
        web(tmp_path / "web", *arguments) as there,
        workbench(tmp_path, there.config(max_message_bytes=1 << 20)) as bench,
    ):
        outcome = await bench.call("web_huge", size=2 << 20)
        assert outcome.result.error_code == ("bad_answer" if arguments else "backend_lost")
        assert len(outcome.result.text) < 1_000
        assert (await bench.call("web_add", a=1, b=2)).result.text == "3"


async def test_tools_that_change_are_taken_over_http_too(tmp_path: Path) -> None:
    async with web(tmp_path / "web") as there, workbench(tmp_path, there.config()) as bench:
        await bench.call("web_grow")
        await bench.until(lambda: "web_brand_new" in bench.names())


async def test_a_server_that_is_not_there_stops_no_other(tmp_path: Path) -> None:
    nowhere = server_config("gone", {"url": "http://127.0.0.1:9/mcp"}, "test")
    async with workbench(tmp_path, nowhere, raw()) as bench:
        assert (await bench.call("raw_echo", text="x")).result.text == "x"
        assert bench.sources.states["gone"].state == "unavailable"


async def test_no_token_is_in_the_log(tmp_path: Path, caplog: Any) -> None:
    caplog.set_level("DEBUG")
    async with web(tmp_path / "web") as there, workbench(tmp_path, there.config(), environ=dict(os.environ)) as bench:
        await bench.call("web_add", a=1, b=2)
    assert "T0KEN" not in caplog.text


async def test_a_server_that_hangs_at_the_end_holds_nobody_up(tmp_path: Path) -> None:
    async with web(tmp_path / "web") as there:
        async with workbench(tmp_path, there.config(timeout=1)) as bench:
            there.process.send_signal(signal.SIGSTOP)
            assert (await bench.call("web_add", a=1, b=2)).status is CallStatus.TIMEOUT
            bench.sources.restart("web")
            began = anyio.current_time()
        assert anyio.current_time() - began < 8


async def test_the_server_is_told_of_the_end_of_a_session(tmp_path: Path) -> None:
    async with web(tmp_path / "web") as there:
        async with workbench(tmp_path, there.config()) as bench:
            await bench.call("web_add", a=1, b=2)
        requests = (tmp_path / "web/requests").read_text().split()
        assert requests.count("DELETE") == 1
        async with workbench(tmp_path, there.config(token="Bearer no")):
            pass
        assert (tmp_path / "web/requests").read_text().split().count("DELETE") == 1, "there was no session"
