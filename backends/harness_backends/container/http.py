"""A minimal HTTP/1.1 client for an engine's API: one request per connection, and upgrades to a stream.

The engines' own library accesses the stream of an exec through private attributes of an HTTP client, blocks a thread
for each, and takes longer to import than a command takes to run.
"""

from __future__ import annotations

import json
import re
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import anyio
from anyio.abc import ByteStream

from harness.errors import ConnectionLost

from .endpoints import Endpoint, Tls
from .tls import wrap_tls
from .unixsocket import connect_unix

__all__ = [
    "ChunkedDecoder",
    "EngineError",
    "Response",
    "ResponseBody",
    "connect",
    "open_body",
    "parse_head",
    "request",
    "upgrade",
]

MAX_HEAD_BYTES = 65536
MAX_LINE_BYTES = 1024


class EngineError(Exception):
    """The engine refused a request with this HTTP ``status`` (0: invalid response)."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


@dataclass(frozen=True, slots=True)
class ResponseHead:
    """Status line and headers of a response; names are in lower case."""

    status: int
    headers: tuple[tuple[str, str], ...] = field(default=())

    def header(self, name: str) -> str:
        """Return a header's value; empty if it is missing."""
        return next((value for key, value in self.headers if key == name), "")


@dataclass(frozen=True, slots=True)
class Response:
    """A complete response."""

    status: int
    body: bytes

    def json(self) -> Any:
        """Parse the body as JSON; return None if it is empty.

        Raises:
            EngineError: the body is not JSON.
        """
        try:
            return json.loads(self.body) if self.body.strip() else None
        except ValueError:
            raise EngineError(self.status, "the engine's answer is not JSON") from None


def parse_head(data: bytes) -> tuple[ResponseHead, bytes] | None:
    """Parse the head of a response, and return it with the bytes after it; None while it is incomplete.

    Raises:
        EngineError: the data is not HTTP.
    """
    text, end, rest = data.partition(b"\r\n\r\n")
    if not end:
        if len(data) > MAX_HEAD_BYTES or not b"HTTP/".startswith(data[:5]):
            raise EngineError(0, "the endpoint did not return a valid HTTP response")
        return None
    first, *lines = text.decode("latin-1").split("\r\n")
    words = first.split(None, 2)
    if len(words) < 2 or not words[0].startswith("HTTP/") or not words[1].isdecimal():
        raise EngineError(0, "the endpoint did not return a valid HTTP response")
    pairs = (line.partition(":") for line in lines)
    return ResponseHead(int(words[1]), tuple((name.strip().lower(), value.strip()) for name, _, value in pairs)), rest


class ChunkedDecoder:
    """An incremental decoder of the chunked encoding; ``ended`` is True after the last chunk. Pure."""

    def __init__(self) -> None:
        self.ended = False
        self._held = b""
        self._left = 0
        self._behind = False

    def feed(self, data: bytes) -> bytes:
        """Add encoded bytes, and return the bytes of the body.

        Raises:
            EngineError: the data is not in chunked encoding.
        """
        self._held += data
        body = []
        while not self.ended and self._held:
            if self._left:
                body.append(self._held[: self._left])
                self._held = self._held[self._left :]
                self._left -= len(body[-1])
                self._behind = True
            elif not self._next_size():
                break
        return b"".join(body)

    def _next_size(self) -> bool:
        """Read the size of the next chunk; return False while its line is incomplete."""
        line, end, rest = self._held.partition(b"\r\n")
        if not end:
            if len(line) > MAX_LINE_BYTES:
                raise EngineError(0, "the endpoint did not return a valid HTTP response")
            return False
        self._held = rest
        if self._behind and not line:  # the end of the chunk before
            self._behind = False
            return True
        digits = line.partition(b";")[0].strip()
        if self._behind or not re.fullmatch(rb"[0-9A-Fa-f]{1,16}", digits):
            raise EngineError(0, "the endpoint did not return a valid HTTP response")
        self._left = int(digits, 16)
        self.ended = self._left == 0
        return True


@asynccontextmanager
async def connect(endpoint: Endpoint, timeout: float) -> AsyncIterator[ByteStream]:
    """Connect to an engine; the connection is closed when the context exits.

    Raises:
        OSError, TimeoutError: the connection failed.
    """
    stream = await open_stream(endpoint, timeout)
    try:
        yield stream
    finally:
        await _close(stream)


async def _close(stream: ByteStream) -> None:
    with anyio.CancelScope(shield=True), anyio.move_on_after(1.0):
        await stream.aclose()


async def open_stream(endpoint: Endpoint, timeout: float) -> ByteStream:
    """Connect like :func:`connect`; the caller closes the connection."""
    with anyio.fail_after(timeout):
        if endpoint.scheme == "unix":
            return await connect_unix(endpoint.address)
        place = urlsplit(f"//{endpoint.address}")
        host, secure = place.hostname or "", endpoint.tls is not None or endpoint.scheme == "https"
        context = (
            _tls_context(endpoint.tls or Tls()) if secure else None
        )  # created first, so that its errors leave no open stream
        stream = await anyio.connect_tcp(host, place.port or (2376 if secure else 2375))
        return stream if context is None else await wrap_tls(stream, context, host)


def _tls_context(tls: Tls) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=tls.ca or None)
    if not tls.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if tls.cert:
        context.load_cert_chain(tls.cert, tls.key or None)
    return context


def _render(method: str, path: str, body: object, *extra: str) -> bytes:
    data = b"" if body is None else json.dumps(body).encode()
    lines = [f"{method} {path} HTTP/1.1", "Host: engine", "User-Agent: harness", f"Content-Length: {len(data)}", *extra]
    if body is not None:
        lines.append("Content-Type: application/json")
    return "\r\n".join((*lines, "", "")).encode() + data


async def request(stream: ByteStream, method: str, path: str, body: object = None) -> Response:
    """Send one request and read the whole response.

    Raises:
        EngineError: the response is an error (400 and above).
        ConnectionLost: the connection ended first.
    """
    try:
        await stream.send(_render(method, path, body, "Connection: close"))
        head, data = await _read_head(stream)
        reply = Response(head.status, await _read_body(stream, head, data))
    except (anyio.BrokenResourceError, anyio.EndOfStream, anyio.ClosedResourceError) as error:
        raise ConnectionLost("the engine closed the connection") from error
    if reply.status >= 400:
        raise EngineError(reply.status, _message(reply))
    return reply


async def upgrade(stream: ByteStream, path: str, body: object) -> bytes:
    """Send a request that upgrades the connection to a stream, and return the stream's bytes received so far.

    Raises:
        EngineError, ConnectionLost: as :func:`request`.
    """
    try:
        await stream.send(_render("POST", path, body, "Connection: Upgrade", "Upgrade: tcp"))
        head, data = await _read_head(stream)
        if head.status in (101, 200):
            return data
        reply = Response(head.status, await _read_body(stream, head, data))
    except (anyio.BrokenResourceError, anyio.EndOfStream, anyio.ClosedResourceError) as error:
        raise ConnectionLost("the engine closed the connection") from error
    raise EngineError(reply.status, _message(reply))


async def _read_head(stream: ByteStream) -> tuple[ResponseHead, bytes]:
    data = b""
    while (parsed := parse_head(data)) is None:
        data += await stream.receive()
    return parsed


class ResponseBody:
    """The body of one response, read incrementally; ``data`` arrived with the head."""

    def __init__(self, stream: ByteStream, head: ResponseHead, data: bytes) -> None:
        size = head.header("content-length")
        self._stream = stream
        self._early = data
        self._decoder = ChunkedDecoder() if "chunked" in head.header("transfer-encoding").lower() else None
        self._left = int(size) if size.isdecimal() and self._decoder is None else None
        if head.status in (204, 304):
            self._decoder, self._left = None, 0

    async def receive(self) -> bytes:
        """Read the next bytes; none at the end.

        Raises:
            anyio.BrokenResourceError, anyio.EndOfStream, anyio.ClosedResourceError: the connection ended first.
            EngineError: the data is not HTTP.
        """
        while not self._ended:
            data, self._early = self._early, b""
            try:
                data = data or await self._stream.receive()
            except anyio.EndOfStream:
                if self._decoder is not None or self._left is not None:
                    raise
                self._left = 0
            if found := self._take(data):
                return found
        return b""

    @property
    def _ended(self) -> bool:
        return self._decoder.ended if self._decoder is not None else self._left == 0

    def _take(self, data: bytes) -> bytes:
        if self._decoder is not None:
            return self._decoder.feed(data)
        if self._left is None:
            return data
        data = data[: self._left]
        self._left -= len(data)
        return data


async def open_body(stream: ByteStream, method: str, path: str) -> ResponseBody:
    """Send one request, and return its response's body for reading.

    Raises:
        EngineError, ConnectionLost: as :func:`request`.
    """
    try:
        await stream.send(_render(method, path, None, "Connection: close"))
        head, data = await _read_head(stream)
        if head.status < 400:
            return ResponseBody(stream, head, data)
        reply = Response(head.status, await _read_body(stream, head, data))
    except (anyio.BrokenResourceError, anyio.EndOfStream, anyio.ClosedResourceError) as error:
        raise ConnectionLost("the engine closed the connection") from error
    raise EngineError(reply.status, _message(reply))


async def _read_body(stream: ByteStream, head: ResponseHead, data: bytes) -> bytes:
    body = ResponseBody(stream, head, data)
    parts = []
    while part := await body.receive():
        parts.append(part)
    return b"".join(parts)


def _message(reply: Response) -> str:
    try:
        data = json.loads(reply.body)
    except ValueError:
        data = None
    if isinstance(data, dict) and data.get("message"):
        return " ".join(str(data["message"]).split())
    return reply.body.decode("utf-8", "replace").strip()[:500] or f"HTTP status {reply.status}"
