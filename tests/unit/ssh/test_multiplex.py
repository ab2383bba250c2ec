"""The control master's protocol, as bytes."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
from anyio.abc import SocketStream
from hypothesis import given
from hypothesis import strategies as st

from harness_backends.ssh.multiplex import (
    Message,
    MuxConnectionClosed,
    MuxError,
    Packet,
    PacketReader,
    connect_mux,
    encode_packet,
    encode_session,
)


def pieces(data: bytes, sizes: list[int]) -> Iterator[bytes]:
    for size in sizes:
        yield data[:size]
        data = data[size:]
    yield data


@given(st.lists(st.binary(max_size=50), max_size=5), st.lists(st.integers(1, 9), max_size=40))
def test_packets_come_out_as_they_went_in_however_the_bytes_arrive(bodies: list[bytes], sizes: list[int]) -> None:
    data = b"".join(struct.pack(">II", 4 + len(body), 7) + body for body in bodies)
    reader, found = PacketReader(), []
    for piece in pieces(data, sizes):
        reader.feed(piece)
        while (packet := reader.next()) is not None:
            found.append(packet)
    assert found == [Packet(7, body) for body in bodies]


@given(st.binary(max_size=200))
def test_garbage_is_a_protocol_error_or_nothing(data: bytes) -> None:
    reader = PacketReader()
    reader.feed(data)
    try:
        while (packet := reader.next()) is not None:
            packet.text(4)
            packet.integer(1)
    except MuxError:
        pass


def test_a_session_request_has_the_form_that_openssh_documents() -> None:
    body = encode_session(3, b"cmd", [b"A=1"], forward_agent=True)[4:]
    numbers = struct.unpack(">IIIIIIII", body[:32])
    assert numbers == (Message.NEW_SESSION, 3, 0, 0, 0, 1, 0, 0xFFFFFFFF)
    assert body[32:] == struct.pack(">I", 0) + struct.pack(">I", 3) + b"cmd" + struct.pack(">I", 3) + b"A=1"


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        encode_packet(Message.HELLO, 5),
        encode_packet(Message.OK, 1),
        b"\0\0\0\4" + struct.pack(">I", Message.HELLO),
        b"",
    ],
)
async def test_what_does_not_speak_the_protocol_is_not_used(tmp_path: Path, answer: bytes) -> None:
    async def handle(stream: SocketStream) -> None:
        async with stream:
            await stream.send(answer)

    async with await anyio.create_unix_listener(tmp_path / "s") as listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, handle)
        with anyio.fail_after(5):
            refused = await is_refused(str(tmp_path / "s"))
        tasks.cancel_scope.cancel()
    assert refused


async def is_refused(path: str) -> bool:
    try:
        with await connect_mux(path) as connection:
            await connection.alive()
    except MuxError:
        return True
    return False


async def test_nobody_at_the_socket_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(MuxConnectionClosed):
        await connect_mux(str(tmp_path / "none"))


# -- the budget
