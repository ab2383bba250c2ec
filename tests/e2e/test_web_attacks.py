"""Who the dashboard does not serve: other sites, users and names, and clients that are too many or too loud."""

from __future__ import annotations

import http.client
import json
import os
import pwd
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anyio
import pytest
import trustme
import websockets
from tests.support.program import Program, program
from tests.support.sshd import free_port
from tests.support.web_client import LIMIT, close_code, first, logged_in, page_of, send, token_of
from tests.support.web_dashboard import WebProgram, web_program
from websockets.asyncio.client import connect
from websockets.typing import Origin

__all__ = ["program"]

pytestmark = pytest.mark.usefixtures("needs_process")


@pytest.fixture
def web(program: Program) -> Iterator[WebProgram]:
    found = WebProgram(program.path, program.environ)
    found.start()
    yield found
    found.end()


async def test_the_token_works_once_and_the_cookie_is_out_of_reach_of_pages(web: WebProgram) -> None:
    status, document, cookie = send(web, "POST", "/api/login", {"token": token_of(web.url)})
    assert (status, document["role"]) == (200, "operator")
    for attribute in ("HttpOnly", "SameSite=strict", "Path=/"):
        assert attribute in cookie
    assert send(web, "POST", "/api/login", {"token": token_of(web.url)})[0] == 401
    assert token_of(web.url) not in json.dumps(document) + cookie
    for wrong in (None, 1, "", "x" * 500, ["x"], {"token": "x"}):
        assert send(web, "POST", "/api/login", {"token": wrong})[0] in (401, 429)


async def test_failed_logins_are_limited_but_do_not_lock_out(web: WebProgram) -> None:
    found = [send(web, "POST", "/api/login", {"token": "wrong"})[0] for _ in range(30)]
    assert found[0] == 401
    assert found[-1] == 429
    assert send(web, "POST", "/api/login", {"token": token_of(web.url)})[0] == 200


async def test_a_cookie_alone_is_worth_nothing(web: WebProgram) -> None:
    """Browsers send it to every port of the host, where another user may listen."""
    cookie, key = logged_in(web)
    assert send(web, "GET", "/api/audit", Cookie=cookie)[0] == 401
    assert send(web, "GET", "/api/audit", X_Harness_Key=key)[0] == 401
    assert send(web, "GET", "/api/audit", Cookie=cookie, X_Harness_Key=key)[0] == 200
    async with page_of(web, cookie, "wrong") as page:
        assert await close_code(page) == 4401


async def test_a_websocket_without_cookie_or_from_another_site_is_not_opened(web: WebProgram) -> None:
    cookie, key = logged_in(web)
    url = f"ws://127.0.0.1:{web.port}/api/live"
    refused: list[dict[str, Any]] = [
        {"origin": web.origin},
        {"origin": "http://evil.example", "additional_headers": {"Cookie": cookie}},
        {"origin": f"http://127.0.0.1:{web.port + 1}", "additional_headers": {"Cookie": cookie}},
        {"additional_headers": {"Cookie": cookie}},
        {"origin": web.origin, "additional_headers": {"Cookie": cookie, "Sec-Fetch-Site": "cross-site"}},
    ]
    for options in refused:
        with pytest.raises(websockets.InvalidStatus) as found:
            async with connect(url, **options):
                pass
        assert found.value.response.status_code == 403
    async with page_of(web, cookie, key) as page:
        assert (await first(page))["type"] == "welcome"


async def test_another_name_for_this_machine_is_not_served(web: WebProgram) -> None:
    """A page of evil.example whose name its owner's DNS now resolves to 127.0.0.1 sends its own name."""
    cookie, key = logged_in(web)
    for host in ("evil.example", f"evil.example:{web.port}", "127.0.0.1"):
        for path in ("/", "/api/audit"):
            assert send(web, "GET", path, Host=host, Cookie=cookie, X_Harness_Key=key)[0] == 421
        raw = socket.create_connection(("127.0.0.1", web.port), timeout=LIMIT)
        with raw:
            lines = (
                *("GET /api/live HTTP/1.1", f"Host: {host}", f"Origin: http://{host}", f"Cookie: {cookie}"),
                *("Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13"),
                f"Sec-WebSocket-Key: {'A' * 22}==",
            )
            raw.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
            assert raw.recv(100).startswith(b"HTTP/1.1 403")


async def test_a_viewer_sees_and_may_not_act(web: WebProgram, program: Program) -> None:
    cookie, key = logged_in(web, web.invite("vera", "viewer"))
    with program.start("run", "--", "sleep 600") as running:
        try:
            async with page_of(web, cookie, key) as page:
                assert (await first(page))["role"] == "viewer"
                session = ""
                while not session:
                    session = next(iter((await first(page)).get("changed", {})), "")
                act = {"type": "act", "request": 1, "session": session, "action": "cancel", "arguments": {}}
                for number, action in enumerate(("cancel", "approve", "type", "kill_job", "nonsense"), 1):
                    await page.send(json.dumps({**act, "request": number, "action": action}))
                    answer = await first(page)
                    while answer["type"] != "reply":
                        answer = await first(page)
                    assert (answer["ok"], "is a viewer" in answer["error"]) == (False, True)
            assert running.poll() is None
        finally:
            running.terminate()


async def test_a_login_that_was_ended_is_disconnected(web: WebProgram, program: Program) -> None:
    cookie, key = logged_in(web, web.invite("vera", "viewer"))
    async with page_of(web, cookie, key) as page:
        assert (await first(page))["name"] == "vera"
        assert program.run("web", "logout", "vera").returncode == 0
        assert await close_code(page) == 4401
    assert send(web, "GET", "/api/audit", Cookie=cookie, X_Harness_Key=key)[0] == 401


async def test_a_client_that_sends_too_much_has_to_go(web: WebProgram) -> None:
    cookie, key = logged_in(web)
    too_much: list[list[str | bytes]] = [
        ["x"],
        ["[]"],
        ["[" * 60_000],
        [b"\0" * 100],
        ["x" * (1 << 20)],
        ['{"type":"ack","streams":{}}'] * 2_000,
        ['{"type":"query","request":1,"session":"x","action":"jobs"}'] * 2_000,
    ]
    for messages in too_much:
        async with page_of(web, cookie, key) as page:
            with suppress(websockets.ConnectionClosed):
                for message in messages:
                    await page.send(message)
            assert await close_code(page) in (1008, 1009)
    for number, nonsense in enumerate(({"type": "open", "stream": []}, {"type": "act"}, {"request": "x"}, {}), 1):
        async with page_of(web, cookie, key) as page:
            await page.send(json.dumps(nonsense))
            await page.send(json.dumps({"type": "query", "request": number, "session": "x", "action": "jobs"}))
            answer = await first(page)
            while answer["type"] != "reply" or answer["request"] != number:
                answer = await first(page)
            assert not answer["ok"]


async def test_numbers_out_of_range_are_refused_and_disturb_nothing(web: WebProgram) -> None:
    cookie, key = logged_in(web)
    for number in ("9" * 30, "9" * 5_000, "-1", "x"):
        assert send(web, "GET", f"/api/audit/{number}", Cookie=cookie, X_Harness_Key=key)[0] == 404
    async with page_of(web, cookie, key) as page:
        await page.send(json.dumps({"type": "ack", "streams": {"9" * 5_000: 1, "-1": 1, "x": 1}}))
        for number in (-1, 1 << 32, 10**100):
            await page.send(json.dumps({"type": "open", "request": number, "stream": "pane", "session": "x/x"}))
            answer = await first(page)
            while answer["type"] != "reply":
                answer = await first(page)
            assert (answer["request"], answer["error"]) == (number, "the number of a stream has 32 bits")


async def test_a_thousand_clients_use_bounded_memory_and_lock_nobody_out_for_long(web: WebProgram) -> None:
    cookie, key = logged_in(web)
    assert web.process is not None
    status = Path(f"/proc/{web.process.pid}/status")

    def memory() -> int:
        return next(int(line.split()[1]) for line in status.read_text().splitlines() if line.startswith("VmRSS"))

    before = memory()
    with ExitStack() as stack:
        silent = []
        for _ in range(1_000):
            found = stack.enter_context(socket.socket())
            found.setblocking(False)
            found.connect_ex(("127.0.0.1", web.port))
            silent.append(found)
        await anyio.sleep(1)
        assert memory() - before < 100_000  # KiB
    with anyio.fail_after(LIMIT):
        while send(web, "GET", "/api/audit", Cookie=cookie, X_Harness_Key=key)[0] != 200:  # noqa: ASYNC110  # of a program
            await anyio.sleep(0.2)


@pytest.mark.usefixtures("needs_root")
async def test_another_user_of_this_machine_finds_no_secret(web: WebProgram) -> None:
    assert web.process is not None
    state = Path(web.environment["XDG_STATE_HOME"]) / "harness" / "web"
    nobody = pwd.getpwnam("nobody").pw_uid
    script = f"""
import os, sys
os.setgroups([]); os.setgid({nobody}); os.setuid({nobody})
for path in ({str(state / "logins.json")!r}, "/proc/{web.process.pid}/environ"):
    try:
        open(path).read(); sys.exit(f"could read {{path}}")
    except OSError: pass
line = open("/proc/{web.process.pid}/cmdline").read()
sys.exit({token_of(web.url)!r} in line)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert send(web, "GET", "/api/audit")[0] == 401


async def test_over_tls_the_cookie_is_bound_to_it(program: Program, tmp_path: Path) -> None:
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    certificate.private_key_and_cert_chain_pem.write_to_path(tmp_path / "both.pem")
    words = ("--tls-cert", str(tmp_path / "both.pem"), "--tls-key", str(tmp_path / "both.pem"))
    trusted = ssl.create_default_context()
    authority.configure_trust(trusted)
    async with web_program(program.path, program.environ, *words) as web:
        assert web.url.startswith("https://127.0.0.1:")
        connection = http.client.HTTPSConnection("127.0.0.1", web.port, timeout=LIMIT, context=trusted)
        headers = {"Origin": web.origin, "Content-Type": "application/json"}
        connection.request("POST", "/api/login", json.dumps({"token": token_of(web.url)}), headers)
        answer = connection.getresponse()
        cookie, key = answer.getheader("Set-Cookie") or "", json.loads(answer.read())["key"]
        connection.close()
        assert cookie.startswith("__Host-")
        assert "Secure" in cookie
        url = f"wss://127.0.0.1:{web.port}/api/live"
        given = {"Cookie": cookie.partition(";")[0]}
        async with connect(url, origin=Origin(web.origin), additional_headers=given, ssl=trusted) as page:
            await page.send(json.dumps({"type": "hello", "key": key}))
            assert (await first(page))["type"] == "welcome"


async def test_behind_a_proxy_only_its_name_is_served(program: Program) -> None:
    port = free_port()
    words = ("--behind-proxy", "https://ops.example/harness/", "--port", str(port))
    async with web_program(program.path, program.environ, *words) as web:
        assert web.base == "https://ops.example/harness/"

        def answer(host: str, origin: str) -> tuple[int, str]:
            headers = {"Host": host, "Origin": origin, "Content-Type": "application/json"}
            with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=LIMIT)) as connection:
                connection.request("POST", "/api/login", json.dumps({"token": token_of(web.url)}), headers)
                found = connection.getresponse()
                found.read()
                return found.status, found.getheader("Set-Cookie") or ""

        assert answer(f"127.0.0.1:{port}", f"http://127.0.0.1:{port}") == (421, "")
        assert answer("ops.example", "http://ops.example") == (403, "")
        status, cookie = answer("ops.example", "https://ops.example")
        assert status == 200
        assert "Secure" in cookie
        assert "Path=/harness/" in cookie


def test_a_browser_that_does_not_return_delays_nothing_and_the_file_for_it_is_removed(program: Program) -> None:
    opener = program.home / "browser"
    opener.write_text(
        '#!/bin/sh\ncp "${1#file://}" "$HOME/opening" && mv "$HOME/opening" "$HOME/opened"\n'
        'until test -e "$HOME/close"; do sleep 0.1; done\n'
    )
    opener.chmod(0o755)
    state = Path(program.environ["XDG_STATE_HOME"]) / "harness" / "web"
    state.mkdir(parents=True, mode=0o700)
    left = state / "open-1.html"  # of a server that was killed
    left.touch()
    os.utime(left, (0, 0))
    environment = {**program.environ, "HOME": str(program.home), "DISPLAY": ":0", "BROWSER": f"{opener} %s"}
    with subprocess.Popen([program.path, "web", "--port", "0"], env=environment, stdout=subprocess.PIPE) as server:
        try:
            assert server.stdout is not None
            server.stdout.readline()
            url = server.stdout.readline().decode().strip()
            with closing(http.client.HTTPConnection(urlsplit(url).netloc, timeout=LIMIT)) as connection:
                connection.request("GET", "/")
                assert connection.getresponse().status == 200
            deadline = time.monotonic() + LIMIT
            while not (program.home / "opened").exists() and time.monotonic() < deadline:
                time.sleep(0.05)
            assert url in (program.home / "opened").read_text()
            assert [path.name for path in state.glob("open-*")] == [f"open-{server.pid}.html"]
            server.terminate()
            assert server.wait(LIMIT) == 0
            assert list(state.glob("open-*")) == []
        finally:
            server.kill()
            (program.home / "close").touch()


async def test_its_end_closes_open_pages_and_reports_nothing(program: Program) -> None:
    web = WebProgram(program.path, program.environ, stderr=subprocess.PIPE)
    web.start()
    async with page_of(web, *logged_in(web)) as page:
        assert (await first(page))["type"] == "welcome"
        process = web.process
        assert process is not None
        process.terminate()
        assert await close_code(page) == 1012  # the service restarts, as far as the page can know
    await anyio.to_thread.run_sync(process.wait, LIMIT)
    web.end()
    assert (process.returncode, web.errors) == (0, "")


def test_it_listens_nowhere_else_unless_encrypted(program: Program) -> None:
    done = program.run("web", "--host", "0.0.0.0", "--no-open")
    assert done.returncode != 0
    assert b"nothing is encrypted" in done.stderr
