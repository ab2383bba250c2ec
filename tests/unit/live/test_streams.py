"""Streams of a process that ends, or that is of another version: the client gets an error, and waits for nothing."""

from __future__ import annotations

import socket
from pathlib import Path

import anyio
import pytest

from harness.errors import HarnessError
from harness.live import client, connection
from harness.live.announcement import announce
from harness.live.client import ProcessLeft, open_client, open_stream
from harness.live.protocol import PROTOCOL_VERSION, Goodbye, Hello, encode
from harness.live.sessions.command_session import CommandSession
from harness.live.sockets import listed_processes
from harness.system.process_identity import this_process
from harness.toolkit.redaction.redactor import PatternRedactor


async def all_items(path: Path, session: str, stream: str) -> list[object]:
    with anyio.fail_after(30):
        return [item async for item in open_stream(path, session, stream)]


@pytest.mark.parametrize(
    ("last", "reason"), [(b"", "the process has ended"), (encode(Goodbye("too many")), "too many")]
)
async def test_a_process_that_ends_before_it_is_asked_is_an_error_of_the_stream(
    last: bytes, reason: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with theirs:
        theirs.sendall(encode(Hello(PROTOCOL_VERSION, {}, "challenge")) + last)
    monkeypatch.setattr(client, "connect_to", lambda path: ours)
    with pytest.raises(ProcessLeft, match=reason):
        await all_items(tmp_path, "session", "tail")


@pytest.mark.parametrize("unread", [b"x", b""])
async def test_a_process_that_closes_the_connection_at_once_is_an_error_of_the_stream(
    unread: bytes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with theirs:
        ours.send(unread)  # what the other end did not read resets the connection
    monkeypatch.setattr(client, "connect_to", lambda path: ours)
    with pytest.raises(ProcessLeft, match="closed"):
        await all_items(tmp_path, "session", "tail")


async def test_a_request_that_is_cancelled_in_the_middle_of_its_line_closes_the_connection(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    monkeypatch.setattr(client, "connect_to", lambda path: ours)
    with theirs, anyio.fail_after(30):
        theirs.sendall(encode(Hello(PROTOCOL_VERSION, {}, "challenge")))
        async with open_client(tmp_path) as seen:
            with anyio.move_on_after(0.1):
                await seen.request("session", "type", {"text": "x" * 1_000_000})
            await seen.wait_closed()
            with pytest.raises(ProcessLeft):
                await seen.request("session", "type", {"text": "y"})


@pytest.mark.usefixtures("needs_process")
async def test_a_stream_that_the_process_does_not_know_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    async with announce("python") as announcement:
        session = CommandSession("local", "sleep 1", lambda: None, make_redactor=PatternRedactor)
        with announcement.session(session):
            (path,) = listed_processes(this_process())
            with pytest.raises(HarnessError, match="unknown action"):
                await all_items(path, session.session_id, "a stream of a later version")


@pytest.mark.usefixtures("needs_process")
async def test_a_request_that_ends_the_process_is_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(connection, "acting_refusal", lambda *_: "")  # the client is this process
    monkeypatch.setattr(connection, "MIN_INTERVAL", 10)
    scope, shown = anyio.CancelScope(), anyio.Event()
    session = CommandSession("local", "sleep 600", scope.cancel, make_redactor=PatternRedactor)

    told = anyio.Event()

    def changed() -> None:
        if seen.is_complete:
            told.set()

    async def process() -> None:
        with scope:
            async with announce("run") as announcement:
                with announcement.session(session):
                    shown.set()
                    await anyio.sleep_forever()

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(process)
            await shown.wait()
            (path,) = listed_processes(this_process())
            async with open_client(path, changed) as seen:
                await seen.authorize("operator")
                await seen.watch()
                await told.wait()  # the process waits now before it sends more
                assert await seen.request(session.session_id, "cancel") == {}
