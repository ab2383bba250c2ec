"""The transport over standard input and output: one message a line, nothing else on the wire, and an end in time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp.shared.message import SessionMessage

from harness.mcp.client.channel import OversizedMessage
from harness.mcp.server.messages import MAX_MESSAGE, Refusal, encode_message, parse_message
from harness.mcp.server.stdio import stdio_streams
from harness.system.protocol_stdio import Wire

PING = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"{", -32700),
        (b"[" * 200_000, -32700),
        (b"hello", -32700),
        (b"\xff\xfe", -32700),
        (b"[]", -32600),
        (b'"x"', -32600),
        (b'{"id":1}', -32600),
        (b'{"jsonrpc":"2.0","id":"\\ud800","method":"ping"}', -32600),
        (OversizedMessage(MAX_MESSAGE + 1, None), -32600),
    ],
)
def test_what_is_no_message_is_answered_with_an_error_without_id(line: bytes | OversizedMessage, code: int) -> None:
    refused = parse_message(line)
    assert isinstance(refused, Refusal)
    assert (refused.answer.id, refused.answer.error.code) == (None, code)
    assert json.loads(encode_message(refused.answer))["id"] is None


@pytest.mark.parametrize(
    "line",
    [
        b'{"jsonrpc":"1.0","id":7,"method":"ping"}',
        b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":[1]}',
        b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"run","arguments":{"x":"\\ud83d"}}}',
    ],
)
def test_whoever_waits_for_an_answer_to_what_is_no_message_gets_one(line: bytes) -> None:
    refused = parse_message(line)
    assert isinstance(refused, Refusal)
    assert (refused.answer.id, refused.answer.error.code) == (7, -32600)


@pytest.mark.parametrize("rest", [b'"result":"yes"', b'"result":null', b'"error":"no"', b'"result":{},"error":5'])
def test_a_reply_that_is_none_is_an_error_and_is_not_waited_for(rest: bytes) -> None:
    message = parse_message(b'{"jsonrpc":"2.0","id":3,' + rest + b"}")
    assert isinstance(message, types.JSONRPCError | types.JSONRPCResponse)
    assert message.id == 3


def test_a_message_is_read_and_written_as_one_line() -> None:
    message = parse_message(PING)
    assert isinstance(message, types.JSONRPCRequest)
    assert json.loads(encode_message(message)) == json.loads(PING)


@given(st.binary(max_size=200))
def test_no_line_breaks_the_parser(line: bytes) -> None:
    assert parse_message(line) is not None


@given(st.text())
def test_no_text_in_a_message_breaks_the_line(text: str) -> None:
    message = types.JSONRPCResponse(jsonrpc="2.0", id=1, result={"text": text})
    line = encode_message(message)
    assert line.count(b"\n") == 1
    assert json.loads(line)["result"]["text"] == text


@pytest.mark.parametrize(
    ("sent", "answered"),
    [
        ("null", None),
        ("1.5", 1.5),
        ("1.0", 1.0),
        ("-0.25", -0.25),
        ("true", None),
        ("false", None),
        ('{"a":1}', None),
        ("[1]", None),
        ("1e999", None),
    ],
)
def test_a_request_whose_id_is_none_of_the_protocol_gets_an_answer(sent: str, answered: float | None) -> None:
    refused = parse_message(b'{"jsonrpc":"2.0","id":' + sent.encode() + b',"method":"tools/call"}')
    assert isinstance(refused, Refusal)
    answer = json.loads(encode_message(refused.answer))
    assert (answer["id"], answer["error"]["code"]) == (answered, -32600)


def test_a_notification_that_tells_of_ids_is_one() -> None:
    message = parse_message(b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"id":null}}')
    assert isinstance(message, types.JSONRPCNotification)


@pytest.mark.parametrize("number", [7, "seven"])
def test_a_request_that_is_too_long_is_refused_with_its_id(number: int | str) -> None:
    refused = parse_message(OversizedMessage(MAX_MESSAGE + 1, number))
    assert isinstance(refused, Refusal)
    assert json.loads(encode_message(refused.answer))["id"] == number


def test_a_reply_that_is_too_long_is_not_waited_for() -> None:
    message = parse_message(OversizedMessage(MAX_MESSAGE + 1, 7, is_reply=True))
    assert isinstance(message, types.JSONRPCError)
    assert message.id == 7


# -- over pipes


class Pipes:
    """The client's ends."""

    def __init__(self) -> None:
        self.theirs_in, self.ours_out = os.pipe()
        self.ours_in, self.theirs_out = os.pipe()
        self.wire = Wire(self.theirs_in, self.theirs_out)
        self._heard = b""

    def say(self, data: bytes) -> None:
        os.write(self.ours_out, data)

    async def hear(self) -> Any:
        while b"\n" not in self._heard:
            await anyio.wait_readable(self.ours_in)
            self._heard += os.read(self.ours_in, 1 << 16)
        line, _, self._heard = self._heard.partition(b"\n")
        return json.loads(line)


@contextmanager
def pipes() -> Iterator[Pipes]:
    made = Pipes()
    try:
        yield made
    finally:
        for descriptor in (made.theirs_in, made.ours_out, made.ours_in, made.theirs_out):
            if descriptor >= 0:
                os.close(descriptor)


@asynccontextmanager
async def opened() -> AsyncIterator[tuple[Pipes, Any, Any]]:
    with pipes() as client, anyio.fail_after(20):
        async with stdio_streams(client.wire) as (incoming, outgoing):
            yield client, incoming, outgoing


async def test_messages_come_in_order_however_they_are_cut() -> None:
    async with opened() as (client, incoming, _):
        other = PING.replace(b'"id":1', b'"id":2')
        for piece in (PING[:7], PING[7:] + b"\n\n" + other + b"\n", b"  \n"):
            client.say(piece)
        got = [await incoming.receive() for _ in range(2)]
        assert [item.message.method for item in got] == ["ping", "ping"]
        os.close(client.ours_out)
        client.ours_out = -1
        with pytest.raises(anyio.EndOfStream):
            await incoming.receive()


async def test_rubbish_is_answered_and_the_next_message_is_read() -> None:
    async with opened() as (client, incoming, _):
        client.say(b"rubbish\n" + PING + b"\n")
        assert (await client.hear())["error"]["code"] == -32700
        assert (await incoming.receive()).message.method == "ping"


async def test_an_answer_larger_than_a_pipe_arrives_whole() -> None:
    big = types.JSONRPCResponse(jsonrpc="2.0", id=1, result={"text": "x" * 300_000})
    async with opened() as (client, _, outgoing), anyio.create_task_group() as tasks:
        tasks.start_soon(outgoing.send, SessionMessage(big))
        assert len((await client.hear())["result"]["text"]) == 300_000


async def test_a_client_that_reads_no_more_ends_the_input() -> None:
    async with opened() as (client, incoming, outgoing):
        os.close(client.ours_in)
        client.ours_in = -1
        await outgoing.send(SessionMessage(types.JSONRPCResponse(jsonrpc="2.0", id=1, result={})))
        with pytest.raises(anyio.EndOfStream):
            await incoming.receive()


async def test_the_end_does_not_wait_for_a_client_that_is_silent_or_reads_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("harness.mcp.server.stdio.FLUSH_LIMIT", 0.1)
    full = types.JSONRPCResponse(jsonrpc="2.0", id=1, result={"text": "x" * 1_000_000})
    with anyio.fail_after(5):
        async with opened() as (_, _, outgoing):
            await outgoing.send(SessionMessage(full))  # the writer now waits for room that never comes


async def test_what_is_answered_while_a_signal_ends_the_server_is_still_sent() -> None:
    with pipes() as client:
        with anyio.CancelScope() as signalled:
            async with stdio_streams(client.wire) as (incoming, outgoing):
                client.say(PING + b"\n")
                await incoming.receive()
                signalled.cancel()
                try:
                    await incoming.receive()
                finally:
                    with anyio.CancelScope(shield=True):
                        await outgoing.send(SessionMessage(types.JSONRPCResponse(jsonrpc="2.0", id=7, result={})))
        with anyio.fail_after(20):
            assert (await client.hear())["id"] == 7


async def test_what_was_answered_before_the_end_is_still_sent() -> None:
    with pipes() as client:
        async with stdio_streams(client.wire) as (_, outgoing):
            await outgoing.send(SessionMessage(types.JSONRPCResponse(jsonrpc="2.0", id=7, result={})))
        with anyio.fail_after(5):
            assert (await client.hear())["id"] == 7


def line(**values: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **values}).encode()


async def negotiated(client: Pipes, incoming: Any, outgoing: Any, revision: str) -> None:
    client.say(line(id="hello", method="initialize") + b"\n")
    await incoming.receive()
    await outgoing.send(answer_to("hello", {"protocolVersion": revision}))
    assert (await client.hear())["id"] == "hello"


def answer_to(number: int | str, result: dict[str, Any] | None = None) -> SessionMessage:
    return SessionMessage(types.JSONRPCResponse(jsonrpc="2.0", id=number, result=result or {}))


async def test_a_second_request_with_an_id_is_refused_by_its_id_and_the_first_goes_on() -> None:
    async with opened() as (client, incoming, outgoing):
        client.say(PING + b"\n" + PING + b"\n")
        await incoming.receive()
        refused = await client.hear()
        assert (refused["id"], "still being answered" in refused["error"]["message"]) == (1, True)
        client.say(PING + b"\n")
        assert (await client.hear())["error"]["code"] == -32600  # the refusal has not ended the first one
        await outgoing.send(answer_to(1))
        assert (await client.hear())["result"] == {}
        client.say(PING + b"\n")
        assert (await incoming.receive()).message.id == 1


async def test_the_answers_to_a_batch_come_in_one_line_when_all_are_there() -> None:
    async with opened() as (client, incoming, outgoing):
        await negotiated(client, incoming, outgoing, "2025-03-26")
        ping, note = line(id="a", method="ping"), line(method="notifications/x")
        client.say(b"[" + b",".join([PING, ping, note, b"5", line(id=1.5, method="ping"), PING]) + b"]\n")
        got = [await incoming.receive() for _ in range(3)]
        assert [item.message.method for item in got] == ["ping", "ping", "notifications/x"]
        await outgoing.send(answer_to("a", {"x": 1}))
        await outgoing.send(SessionMessage(types.JSONRPCNotification(jsonrpc="2.0", method="notifications/y")))
        assert (await client.hear())["method"] == "notifications/y"
        await outgoing.send(answer_to(1))
        answers = await client.hear()
        assert [(one["id"], "result" in one) for one in answers] == [
            (None, False),
            (1.5, False),
            (1, False),
            ("a", True),
            (1, True),
        ]


async def test_a_batch_without_requests_is_not_answered_and_a_cancelled_request_is_not_waited_for() -> None:
    async with opened() as (client, incoming, outgoing):
        await negotiated(client, incoming, outgoing, "2025-03-26")
        client.say(b"[" + line(method="notifications/x") + b"]\n")
        assert (await incoming.receive()).message.method == "notifications/x"
        client.say(b"[" + PING + b"," + line(id=2, method="ping") + b"]\n")
        first, _ = [await incoming.receive() for _ in range(2)]
        await outgoing.send(answer_to(2))
        await first.metadata.on_request_unanswered()
        assert [one["id"] for one in await client.hear()] == [2]


@pytest.mark.parametrize("request_id", ["", "None", 0])
async def test_no_id_of_a_request_is_taken_for_that_of_the_handshake(request_id: str | int) -> None:
    async with opened() as (client, incoming, outgoing):
        await negotiated(client, incoming, outgoing, "2025-03-26")
        client.say(line(id=request_id, method="ping") + b"\n")
        await incoming.receive()
        await outgoing.send(answer_to(request_id))
        await client.hear()
        client.say(b"[" + PING + b"]\n")
        assert (await incoming.receive()).message.id == 1


async def test_a_refused_handshake_is_none() -> None:
    async with opened() as (client, incoming, outgoing):
        await negotiated(client, incoming, outgoing, "2025-03-26")
        client.say(line(id=8, method="ping") + b"\n" + line(id=8, method="initialize") + b"\n")
        await incoming.receive()
        assert (await client.hear())["error"]["code"] == -32600
        await outgoing.send(answer_to(8))
        await client.hear()
        client.say(b"[" + PING + b"]\n")
        assert (await incoming.receive()).message.id == 1


@pytest.mark.parametrize("revision", ["2024-11-05", "2025-06-18", "2025-11-25"])
async def test_a_batch_is_refused_where_the_revision_has_none(revision: str) -> None:
    async with opened() as (client, incoming, outgoing):
        client.say(b"[" + PING + b"]\n")
        assert (await client.hear())["error"]["code"] == -32600
        await negotiated(client, incoming, outgoing, revision)
        client.say(b"[" + PING + b"]\n" + PING + b"\n")
        refused = await client.hear()
        assert (refused["id"], "2025-03-26" in refused["error"]["message"]) == (None, True)
        assert (await incoming.receive()).message.id == 1


@pytest.mark.parametrize("inside", [b'{"jsonrpc":"2.0","id":3,"method":"initialize"}', b"[]", b"7"])
async def test_what_may_not_be_in_a_batch_is_refused(inside: bytes) -> None:
    async with opened() as (client, incoming, outgoing):
        await negotiated(client, incoming, outgoing, "2025-03-26")
        client.say(b"[" + inside + b"]\n[]\n")
        (answer,) = await client.hear()
        assert answer["error"]["code"] == -32600
        assert (await client.hear())["error"]["code"] == -32600  # an empty batch is no batch


CLAIM = """
import os, subprocess, sys
from harness.system.protocol_stdio import claimed_stdio
print("before, buffered")
with claimed_stdio() as wire:
    print("printed")
    os.write(1, b"written\\n")
    subprocess.run(["sh", "-c", "echo child; cat"])
    os.write(wire.outgoing, b"protocol:" + os.read(wire.incoming, 100))
    print("last")
os.write(1, b"after\\n")
"""


@pytest.mark.usefixtures("needs_process")
@pytest.mark.parametrize("source", ["pipe", "file"])
def test_nothing_but_the_protocol_reaches_standard_output(source: str, tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(b"hello\n")
    with open(tmp_path / "in", "rb") as file:
        given: dict[str, Any] = {"stdin": file} if source == "file" else {"input": b"hello\n"}
        env = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
        command = [sys.executable, "-c", CLAIM]
        done = subprocess.run(command, capture_output=True, timeout=60, check=True, env=env, **given)
    assert done.stdout == b"protocol:hello\n"
    assert sorted(done.stderr.split()) == [
        b"after",
        *(b"before,", b"buffered", b"child", b"last", b"printed", b"written"),
    ]


async def test_a_file_is_a_client_too(tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(PING + b"\n")
    source = os.open(tmp_path / "in", os.O_RDONLY)
    sink = os.open(tmp_path / "out", os.O_WRONLY | os.O_CREAT)
    async with stdio_streams(Wire(source, sink)) as (incoming, outgoing):
        assert (await incoming.receive()).message.method == "ping"
        await outgoing.send(SessionMessage(types.JSONRPCResponse(jsonrpc="2.0", id=1, result={})))
        with pytest.raises(anyio.EndOfStream):
            await incoming.receive()
    os.close(source)
    os.close(sink)
    assert json.loads((tmp_path / "out").read_bytes())["id"] == 1
