"""The requests of SOCKS clients: versions 4, 4a and 5, without authentication, to connect only."""

from __future__ import annotations

import ipaddress
import struct
from dataclasses import dataclass
from typing import Final

from .specification import TcpAddress
from .streams import BufferedStream

__all__ = ["SocksError", "SocksRequest", "read_request"]

VERSION_4 = 4
VERSION_5 = 5
CONNECT = 1
MAX_NAME_BYTES = 255
NO_AUTHENTICATION = 0
_REFUSE_METHODS: Final = b"\x05\xff"
_ADDRESS_SIZES: Final = {1: 4, 4: 16}
"""Bytes of an address by its type in version 5."""
_DOMAIN = 3
_NO_ADDRESS: Final = b"\0\x01\0\0\0\0\0\0"
"""The rest of each answer of version 5: the address that the target used is not known."""


class SocksError(Exception):
    """What the client sent is not a request that can be served."""


@dataclass(frozen=True, slots=True)
class SocksRequest:
    """The destination, and the answers to the client."""

    destination: TcpAddress
    granted: bytes
    refused: bytes


async def read_request(stream: BufferedStream) -> SocksRequest:
    """Read the request of a client up to the data that follows it.

    Raises:
        SocksError: It is invalid, or not supported; the client has its answer.
        EOFError: The client closed its side.
    """
    version = (await stream.receive_exactly(1))[0]
    if version == VERSION_4:
        return await _read_version_4(stream)
    if version == VERSION_5:
        return await _read_version_5(stream)
    raise SocksError("it does not speak SOCKS")


async def _read_version_4(stream: BufferedStream) -> SocksRequest:
    command, port, address = struct.unpack(">BH4s", await stream.receive_exactly(7))
    await _read_text(stream)  # the user
    is_name = address[:3] == b"\0\0\0" and address[3]  # version 4a
    host = await _read_text(stream) if is_name else str(ipaddress.ip_address(address))
    refused = b"\0\x5b" + bytes(6)
    if command != CONNECT:
        await stream.send(refused)
        raise SocksError(f"SOCKS command {command} is not supported")
    return SocksRequest(_destination(host, port), b"\0\x5a" + bytes(6), refused)


async def _read_text(stream: BufferedStream) -> str:
    text = b""
    while (letter := await stream.receive_exactly(1)) != b"\0":
        text += letter
        if len(text) > MAX_NAME_BYTES:
            raise SocksError("a name is too long")
    return text.decode("utf-8", "replace")


async def _read_version_5(stream: BufferedStream) -> SocksRequest:
    methods = await stream.receive_exactly((await stream.receive_exactly(1))[0])
    if NO_AUTHENTICATION not in methods:
        await stream.send(_REFUSE_METHODS)
        raise SocksError("the client requires a password")
    await stream.send(bytes((VERSION_5, NO_AUTHENTICATION)))
    version, command, _, kind = await stream.receive_exactly(4)
    if version != VERSION_5:
        raise SocksError("it does not speak SOCKS")
    if kind not in (*_ADDRESS_SIZES, _DOMAIN):
        await stream.send(_answer(8))
        raise SocksError(f"SOCKS address type {kind} is not supported")
    host = await _read_host(stream, kind)
    (port,) = struct.unpack(">H", await stream.receive_exactly(2))
    if command != CONNECT:
        await stream.send(_answer(7))
        raise SocksError(f"SOCKS command {command} is not supported")
    return SocksRequest(_destination(host, port), _answer(0), _answer(5))


async def _read_host(stream: BufferedStream, kind: int) -> str:
    if kind == _DOMAIN:
        size = (await stream.receive_exactly(1))[0]
        return (await stream.receive_exactly(size)).decode("utf-8", "replace")
    return str(ipaddress.ip_address(await stream.receive_exactly(_ADDRESS_SIZES[kind])))


def _answer(code: int) -> bytes:
    return bytes((VERSION_5, code)) + _NO_ADDRESS


def _destination(host: str, port: int) -> TcpAddress:
    if not host or not host.isprintable() or not port:
        raise SocksError("the request has no valid destination")
    return TcpAddress(host, port)
