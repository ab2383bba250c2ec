"""Forwarding through an asyncssh connection, which belongs to this process, and ends with it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import anyio

from harness.errors import ConnectionLost
from harness.forwards.interface import Forwarding, Serve, connect_refused, listen_refused
from harness.forwards.specification import Address, SocketPath
from harness.forwards.streams import ByteStream
from harness.system.background_tasks import open_background_tasks

from ..asyncssh_engine import AsyncsshTransport, ReconnectingTransport

if TYPE_CHECKING:
    import asyncssh

__all__ = ["AsyncsshForwarding", "open_asyncssh_forwarding"]

Handler = Callable[[Any, Any], Awaitable[None]]
CHUNK_BYTES = 1 << 18
CLOSE_TIMEOUT = 5.0
CONNECT_TIMEOUT = 180.0


class AsyncsshStream(ByteStream):
    """A channel of a connection as a stream."""

    def __init__(
        self,
        transport: AsyncsshTransport,
        reader: asyncssh.SSHReader[bytes],
        writer: asyncssh.SSHWriter[bytes],
    ) -> None:
        self._transport = transport
        self._reader = reader
        self._writer = writer

    async def receive(self) -> bytes:
        """See :class:`ByteStream`."""
        from ..asyncssh_process import FOREIGN

        try:
            data = await self._reader.read(CHUNK_BYTES)
        except FOREIGN as error:
            raise ConnectionResetError(str(error)) from error
        if not data and self._transport.is_lost:
            raise ConnectionLost("the connection was lost", target=self._transport.target)
        return data

    async def send(self, data: bytes) -> None:
        """See :class:`ByteStream`."""
        from ..asyncssh_process import FOREIGN

        try:
            self._writer.write(data)
            await self._writer.drain()
        except FOREIGN as error:
            raise BrokenPipeError(str(error)) from error

    async def send_eof(self) -> None:
        """See :class:`ByteStream`."""
        with suppress(OSError):
            self._writer.write_eof()

    async def wait_taken(self) -> None:
        """See :class:`ByteStream`: there is no program in between."""

    def close(self) -> None:
        """See :class:`ByteStream`."""
        self._writer.close()

    def abort(self) -> None:
        """See :class:`ByteStream`."""
        self._writer.channel.abort()


class AsyncsshForwarding(Forwarding):
    """Forwarding through the current connection of a transport."""

    def __init__(self, transport: ReconnectingTransport) -> None:
        self.target = transport.target
        self._transport = transport

    async def reconnect(self) -> None:
        """See :class:`Forwarding`."""
        await self._transport.connect()

    async def wait_lost(self) -> None:
        """See :class:`Forwarding`."""
        await self._transport.current.connection.wait_closed()

    async def connect(self, address: Address) -> ByteStream:
        """See :class:`Forwarding`."""
        from ..asyncssh_process import FOREIGN

        transport = self._transport.current
        connection = transport.connection
        try:
            with anyio.fail_after(CONNECT_TIMEOUT):
                if isinstance(address, SocketPath):
                    reader, writer = await connection.open_unix_connection(address.path)
                else:
                    reader, writer = await connection.open_connection(address.host or "localhost", address.port)
        except (*FOREIGN, TimeoutError) as error:
            if transport.is_lost:
                raise ConnectionLost("the connection was lost", target=self.target) from error
            raise connect_refused(address, self.target) from error
        return AsyncsshStream(transport, reader, writer)

    @asynccontextmanager
    async def listen(self, address: Address, serve: Serve) -> AsyncIterator[int]:
        """See :class:`Forwarding`."""
        transport = self._transport.current
        async with open_background_tasks() as tasks:

            def handle(*origin: object) -> Handler:
                async def start(reader: Any, writer: Any) -> None:  # asyncssh runs it in a task, as anyio requires
                    tasks.start_soon(serve, AsyncsshStream(transport, reader, writer))

                return start

            listener = await self._listen(transport, address, handle)
            try:
                yield listener.get_port()
            finally:
                listener.close()
                with anyio.move_on_after(CLOSE_TIMEOUT, shield=True):
                    await listener.wait_closed()

    async def _listen(
        self, transport: AsyncsshTransport, address: Address, handle: Callable[..., Handler]
    ) -> asyncssh.SSHListener:
        from ..asyncssh_process import FOREIGN

        try:
            if isinstance(address, SocketPath):
                return await transport.connection.start_unix_server(handle, address.path)
            host = "localhost" if address.host is None else "" if address.host == "*" else address.host
            return await transport.connection.start_server(handle, host, address.port)
        except FOREIGN as error:
            if transport.is_lost:
                raise ConnectionLost("the connection was lost", target=self.target) from error
            raise listen_refused(address, self.target) from error


@asynccontextmanager
async def open_asyncssh_forwarding(transport: ReconnectingTransport) -> AsyncIterator[Forwarding]:
    """Forward through a transport while the context is open."""
    yield AsyncsshForwarding(transport)
