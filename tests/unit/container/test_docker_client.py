"""Engines behind a socket, through the docker package: exact streams, errors with their reason, prompt ends."""

from __future__ import annotations

import base64
import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from threading import Event, Thread
from typing import Any

import anyio
import pytest
from docker import APIClient

from harness.config import Config
from harness.errors import ConnectError, ConnectionLost
from harness.target import Target
from harness_backends.container.docker_client import DockerClient, DockerRequest
from harness_backends.container.docker_engine import DockerEngine, open_docker_engine
from harness_backends.container.endpoints import Endpoint
from harness_backends.container.engine import EngineError, ExecRequest
from harness_backends.container.lookup import open_engine

TARGET = Target.parse("docker://app")
OK = b"HTTP/1.1 200 OK\r\n"
UPGRADED = b"HTTP/1.1 101 UPGRADED\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n"


def answer(data: Any, status: str = "200 OK") -> bytes:
    body = json.dumps(data).encode()
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


VERSION = answer({"Version": "27.1", "ApiVersion": "1.46", "MinAPIVersion": "1.24"})


class FakeEngine:
    """A socket that gives each connection the answer to its request's first line; an empty answer leaves it open.

    ``asked`` is set by such a request, and ``left`` when its client has closed the connection.
    """

    def __init__(self, listener: socket.socket, answers: Callable[[str], bytes]) -> None:
        self.requests: list[bytes] = []
        self.asked, self.left = Event(), Event()
        self._listener = listener
        self._answers = answers
        self._thread = Thread(target=self._serve)

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection:
                self._answer(connection)

    def _answer(self, connection: socket.socket) -> None:
        with connection.makefile("rb") as received:
            head = b"".join(iter(received.readline, b"\r\n"))
            size = re.search(rb"Content-Length: (\d+)", head)
            self.requests.append(head + received.read(int(size[1]) if size else 0))
        said = self._answers(head.partition(b"\r\n")[0].decode())
        connection.sendall(said)
        if not said:
            self.asked.set()
            assert connection.recv(1) == b""
            self.left.set()

    def __enter__(self) -> FakeEngine:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(10)


@contextmanager
def fake_engine(folder: Path, answers: Callable[[str], bytes]) -> Iterator[tuple[FakeEngine, Endpoint]]:
    path = folder / "engine.sock"
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()
    with FakeEngine(listener, answers) as engine:
        yield engine, Endpoint("docker", f"unix://{path}", "test")


async def opened(endpoint: Endpoint, timeout: float = 10.0) -> DockerEngine:
    return await open_docker_engine(endpoint, TARGET, timeout)


def frame(stream: int, data: bytes) -> bytes:
    return bytes((stream, 0, 0, 0)) + len(data).to_bytes(4, "big") + data


async def test_output_that_comes_with_the_head_of_the_answer_is_kept(tmp_path: Path) -> None:
    output = frame(1, b"out") + frame(2, b"err") + frame(1, bytes(100_000))

    def answers(line: str) -> bytes:
        if "/start" in line:
            return UPGRADED + output
        if line.startswith("POST"):
            return answer({"Id": "e1"}, "201 Created")
        return VERSION if "/version" in line else answer({"Running": False, "ExitCode": 7})

    with fake_engine(tmp_path, answers) as (server, endpoint):
        process = await (await opened(endpoint)).execute(ExecRequest("c1", ("sh", "-c", ":"), "web", "/srv"))
        async with process:
            received = b""
            while part := await process.receive():
                received += part
            assert received == b"out" + bytes(100_000)
            assert await process.receive_stderr() == b"err"
            assert await process.wait() == 7
        made = json.loads(server.requests[1].rpartition(b"\r\n")[2])
        assert (made["Cmd"], made["User"], made["WorkingDir"]) == (["sh", "-c", ":"], "web", "/srv")
        assert (made["AttachStdin"], made["Tty"]) == (True, False)


@pytest.mark.parametrize(
    ("body", "whole"),
    [
        (b"Content-Length: 4\r\n\r\nbody, and more", True),
        (b"Content-Length: 5\r\n\r\nbody", False),
        (b"Transfer-Encoding: chunked\r\n\r\n2\r\nbo\r\n2\r\ndy\r\n0\r\n\r\n", True),
        (b"Transfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n", False),
        (b"Transfer-Encoding: chunked\r\n\r\n5\r\nbody", False),
        (b"Transfer-Encoding: chunked\r\n\r\nzz\r\nbody\r\n", False),
        (b"\r\nbody", True),
    ],
)
async def test_an_archive_that_ends_too_early_is_never_a_whole_one(tmp_path: Path, body: bytes, whole: bool) -> None:
    taken: list[bytes] = []

    async def sink(data: bytes) -> None:
        taken.append(data)

    with fake_engine(tmp_path, lambda line: VERSION if "/version" in line else OK + body) as (server, endpoint):
        engine = await opened(endpoint)
        with nullcontext() if whole else pytest.raises(ConnectionLost, match="closed the connection"):
            await engine.copy_out("c1", "/a \udcff", sink)
        assert b"path=%2Fa+%FF" in server.requests[1]
    assert b"".join(taken) in (b"body", b"")
    assert b"".join(taken) == b"body" or not whole


@pytest.mark.parametrize("data", [b"SSH-2.0-OpenSSH\r\n", b"HTTP/x y z\r\n\r\n", answer({}, "404 Not Found")])
async def test_another_protocol_is_refused(tmp_path: Path, data: bytes) -> None:
    with (
        fake_engine(tmp_path, lambda _: data) as (_, endpoint),
        pytest.raises(ConnectError, match=r"no engine answers: .*(valid|HTTP)"),
    ):
        await opened(endpoint)


async def test_a_refusal_is_told_in_the_engines_words(tmp_path: Path) -> None:
    def answers(line: str) -> bytes:
        if "/version" in line:
            return VERSION
        status = "404 Not Found" if "gone" in line else "500 Internal Server Error"
        return answer({"message": "broken\n  down"}, status)

    with fake_engine(tmp_path, answers) as (_, endpoint):
        engine = await opened(endpoint)
        assert await engine.inspect("gone") is None
        with pytest.raises(ConnectError, match="the engine refused: broken down"):
            await engine.inspect("app")
        with pytest.raises(EngineError) as caught:
            await engine.execute(ExecRequest("c1", ("true",)))
        assert (caught.value.status, caught.value.message) == (500, "broken down")


async def test_neither_proxies_nor_contexts_nor_passwords_of_the_environment_are_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    (tmp_path / "netrc").write_text("default login me password secret")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:1")
    monkeypatch.setenv("DOCKER_CONTEXT", "elsewhere")
    with socket.create_server(("127.0.0.1", 0)) as listener, FakeEngine(listener, lambda _: VERSION) as server:
        place = Endpoint("docker", f"tcp://127.0.0.1:{listener.getsockname()[1]}", "test")
        assert (await opened(place)).version == "27.1"
        assert server.requests[0].startswith(b"GET /version ")
        assert b"Authorization" not in server.requests[0]


def watched(work: Callable[[APIClient], object]) -> tuple[Callable[[APIClient], object], Event]:
    """The work, and an event that is set when its thread has ended it."""
    ended = Event()

    def run(package: APIClient) -> object:
        try:
            return work(package)
        finally:
            ended.set()

    return run, ended


async def test_a_cancelled_request_leaves_no_thread_that_waits_for_the_engine(tmp_path: Path) -> None:
    with fake_engine(tmp_path, lambda _: b"") as (server, endpoint):
        client = DockerClient(endpoint, "1.44", TARGET, 30.0)
        work, ended = watched(lambda package: package.inspect_container("app"))
        with anyio.fail_after(5):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(client.ask, work)
                await anyio.to_thread.run_sync(server.asked.wait, 5)
                tasks.cancel_scope.cancel()
            await anyio.to_thread.run_sync(server.left.wait, 5)
            assert server.left.is_set()
            assert await anyio.to_thread.run_sync(ended.wait, 5)


async def test_a_thread_that_starts_after_its_request_was_cancelled_does_nothing() -> None:
    client = DockerClient(Endpoint("docker", "unix:///nowhere", "test"), "1.44", TARGET, 30.0)
    calls: list[APIClient] = []
    with DockerRequest(client) as request:
        pass
    with pytest.raises(ConnectionAbortedError):
        request._call(calls.append)
    assert calls == []


async def test_an_engine_that_does_not_answer_is_given_up(tmp_path: Path) -> None:
    with fake_engine(tmp_path, lambda _: b"") as (server, endpoint):
        client = DockerClient(endpoint, "1.44", TARGET, 30.0)
        with anyio.fail_after(5), pytest.raises(ConnectionLost, match="does not answer"):
            await client.ask(lambda package: package.inspect_container("app"), 0.2)
        await anyio.to_thread.run_sync(server.left.wait, 5)
        assert server.left.is_set()


@contextmanager
def full_queue(family: int, address: Any) -> Iterator[tuple[socket.socket, Any]]:
    """A listener that accepts nothing, with a full queue."""
    with socket.socket(family) as listener:
        listener.bind(address)
        listener.listen(0)
        waiting: list[socket.socket] = []
        while True:
            waiting.append(socket.socket(family))
            waiting[-1].settimeout(0.2)
            try:
                waiting[-1].connect(listener.getsockname())
            except OSError:
                break
        try:
            yield listener, waiting
        finally:
            for one in waiting:
                one.close()


async def test_a_cancelled_connection_ends_at_once_and_sends_nothing() -> None:
    with full_queue(socket.AF_INET, ("127.0.0.1", 0)) as (listener, _):
        place = Endpoint("docker", f"tcp://127.0.0.1:{listener.getsockname()[1]}", "test")
        client = DockerClient(place, "1.44", TARGET, 60.0)
        work, ended = watched(lambda package: package.exec_start("e1", socket=True))
        with anyio.move_on_after(0.3):
            await client.ask(work)
        assert await anyio.to_thread.run_sync(ended.wait, 5)


async def test_a_busy_engine_is_waited_for_and_no_longer_than_the_timeout(tmp_path: Path) -> None:
    path = tmp_path / "engine.sock"
    with full_queue(socket.AF_UNIX, str(path)) as (listener, waiting):
        place = Endpoint("docker", f"unix://{path}", "test")
        with anyio.fail_after(5), pytest.raises(ConnectionLost, match="does not answer"):
            await opened(place, 0.2)
        async with anyio.create_task_group() as tasks:
            found: list[DockerEngine] = []

            async def find() -> None:
                found.append(await opened(place))

            tasks.start_soon(find)
            await anyio.sleep(0.1)
            for one in waiting:
                one.close()
            while not found:
                connection, _ = await anyio.to_thread.run_sync(listener.accept)
                with connection:
                    if await anyio.to_thread.run_sync(connection.recv, 1 << 16):
                        connection.sendall(VERSION)
                        break
        assert found[0].version == "27.1"


async def test_an_image_is_pulled_without_a_login(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    login = base64.b64encode(b"me:secret").decode()
    (tmp_path / "config.json").write_text(json.dumps({"auths": {"registry.test": {"auth": login}}}))
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))

    def answers(line: str) -> bytes:
        if "/images/create" in line:
            lines = (
                b'{"status":"pulling"}\r\n{"error":"no space left"}\r\n' if "full" in line else b'{"status":"ok"}\r\n'
            )
            return OK + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (len(lines), lines)
        return VERSION if "/version" in line else answer({"message": "no such image"}, "404 Not Found")

    with fake_engine(tmp_path, answers) as (server, endpoint):
        engine = await opened(endpoint)
        await engine.fetch("registry.test/shop/app")
        head = server.requests[-1].decode()
        assert "fromImage=registry.test%2Fshop%2Fapp" in head
        assert "tag=latest" in head
        assert "X-Registry-Auth" not in head
        with pytest.raises(EngineError, match="no space left"):
            await engine.fetch("full@sha256:" + "0" * 64)
        assert b"tag=sha256%3A000" in server.requests[-1]


async def test_a_login_that_cannot_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"auths": {"registry.test": {"auth": "=="}}}))
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    with pytest.raises(ConnectError, match="docker package cannot be used"):
        await opened(Endpoint("docker", "unix:///nowhere", "test"))


@pytest.mark.usefixtures("needs_process")
def test_the_package_is_loaded_for_an_engine_behind_a_socket_alone() -> None:
    script = (
        "import sys, harness_backends.container.lookup; print({'docker', 'requests', 'urllib3'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


async def test_a_missing_package_is_named_with_the_way_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("harness_backends.container.docker_")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "docker", None)
    with pytest.raises(ConnectError, match="need the docker package") as caught:
        await open_engine(Endpoint("docker", "unix:///nowhere", "DOCKER_HOST"), TARGET, None, Config())
    assert "[docker]" in caught.value.hint


@contextmanager
def without_superuser() -> Iterator[None]:
    """Without the rights of the superuser, which may use every socket."""
    user = os.geteuid()
    os.seteuid(65534 if user == 0 else user)
    try:
        yield
    finally:
        os.seteuid(user)


async def test_a_socket_that_may_not_be_used_is_named(tmp_path: Path) -> None:
    with fake_engine(tmp_path, lambda _: VERSION) as (_, endpoint):
        os.chmod(endpoint.address, 0)
        with without_superuser(), pytest.raises(ConnectError, match="permission denied"):
            await opened(endpoint)
