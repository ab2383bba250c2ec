"""A session with one server of the Model Context Protocol: its tools, and calls of them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from importlib import import_module, metadata
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread

from ..errors import AuthenticationError, ConfigError, ConnectError, ConnectionLost, HarnessError, UnsupportedOperation
from ..extras import DISTRIBUTION, install_extra
from ..tasks import background_tasks
from ..toolkit.values import JsonObject
from .client_config import ServerConfig, StdioLaunch
from .client_definitions import ToolDefinition, definition_of
from .client_link import Link
from .client_stdio import open_stdio

if TYPE_CHECKING:
    from mcp import ClientSession, MCPError
    from mcp.types import CallToolResult

__all__ = ["Connection", "Progress", "ServerRefusal", "open_connection"]

PAGES = 1_000
TOOLS = 2_000
"""Tools of one server, at most."""
CLOSED = -32_000
UNREADABLE = -32_700
NO_METHOD = -32_601
OTHER_VERSION = -32_022

Progress = Callable[[float, float | None, str | None], None]
"""Takes what was done, of how much, and a text."""


class ServerRefusal(Exception):
    """The server answered a call with an error of the protocol: it took the call and says what is wrong with it."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class Connection:
    """An open session. Safe to use from several tasks at once."""

    config: ServerConfig
    link: Link
    session: ClientSession

    async def definitions(self) -> tuple[ToolDefinition, ...]:
        """All tools of the server, in its order.

        Raises:
            ConnectError: it did not say them within the time of a call, or says them wrongly.
        """
        where = f"server {self.config.name!r}"
        try:
            with anyio.fail_after(self.config.timeout):
                return await self._pages()
        except TimeoutError:
            raise ConnectError(f"{where} did not list its tools within {self.config.timeout:g} s") from None
        except Exception as error:  # the library's own, and its checks of what the server says
            raise _translated(self, error, "list its tools") from error

    async def _pages(self) -> tuple[ToolDefinition, ...]:
        from mcp.types import PaginatedRequestParams

        found: list[ToolDefinition] = []
        cursor: str | None = None
        for _ in range(PAGES):
            page = await self.session.list_tools(params=PaginatedRequestParams(cursor=cursor) if cursor else None)
            found += [definition_of(tool) for tool in page.tools]
            cursor = page.next_cursor
            if not cursor or len(found) > TOOLS:
                break
        if cursor or len(found) > TOOLS:
            raise ConnectError(f"server {self.config.name!r} lists more than {TOOLS} tools, or does not end")
        return tuple(found)

    async def call(self, name: str, arguments: JsonObject, on_progress: Progress) -> CallToolResult:
        """Call a tool by its own name. A cancel of the caller tells the server so.

        Raises:
            ConnectError: nothing was run.
            ConnectionLost: the link broke before the answer: it may have run.
            ServerRefusal: the server says that the call is wrong.
            ValueError: the answer is no result; it has run.
        """
        from mcp import MCPError
        from mcp.types import CallToolRequest, CallToolRequestParams, CallToolResult

        if self.link.ended.is_set():
            raise ConnectError(f"server {self.config.name!r} is not there: {self.link.reason}")
        request = CallToolRequest(params=CallToolRequestParams(name=name, arguments=dict(arguments)))

        async def report(progress: float, total: float | None, message: str | None) -> None:
            on_progress(progress, total, message)

        try:
            return await self.session.send_request(request, CallToolResult, progress_callback=report)
        except MCPError as error:
            raise _of_call(self, error) from error


def _of_call(connection: Connection, error: MCPError) -> Exception:
    """What an error of a call means."""
    link, where = connection.link, f"server {connection.config.name!r}"
    status = _status(error)
    if status is not None and status < 500:
        link.end(f"HTTP status {status}")  # with the next session the credentials are read again
        return _refused_by_http(where, status)
    if link.ended.is_set() or status is not None or _no_answer(error):
        return ConnectionLost(f"{where} was lost during the call: {link.reason or error.message}")
    if error.code == UNREADABLE and error.message.startswith("Failed to parse"):  # by the library, here
        return ValueError(error.message)
    return ServerRefusal(error.code, error.message)


def _no_answer(error: MCPError) -> bool:
    """The library's own error for a stream over HTTP that ended without an answer."""
    return error.code == CLOSED and error.message.startswith(("SSE stream", "Connection closed"))


def _status(error: MCPError) -> int | None:
    data = error.error.data
    found = data.get("http_status") if isinstance(data, dict) else None
    return found if isinstance(found, int) else None


def _refused_by_http(where: str, status: int) -> ConnectError:
    if status in {401, 403, 407}:
        return AuthenticationError(
            f"{where} refused our credentials (HTTP status {status})", hint="check its headers in the settings"
        )
    hint = "it may have been started anew; call again" if status == 404 else ""
    return ConnectError(f"{where} refused the request (HTTP status {status})", hint=hint)


def _translated(connection: Connection, error: Exception, what: str) -> HarnessError:
    """An error of the library while nothing is run."""
    if isinstance(error, HarnessError):
        return error
    return _start_error(connection.config, connection.link, error, f"did not {what}")


def _start_error(config: ServerConfig, link: Link, error: Exception, what: str) -> HarnessError:
    from mcp import MCPError

    where = f"server {config.name!r}"
    status = _status(error) if isinstance(error, MCPError) else None
    if status is not None:
        return _refused_by_http(where, status)
    if isinstance(error, RuntimeError) and "protocol version" in str(error):
        return UnsupportedOperation(f"{where} speaks another version of the protocol: {str(error).rpartition(': ')[2]}")
    reason = link.reason or str(error).partition("\n")[0]
    said = f"; it said: {link.log.last}" if link.log.last else ""
    return ConnectError(f"{where} {what}: {reason}{said}")


@asynccontextmanager
async def open_connection(
    config: ServerConfig, environ: Mapping[str, str], changed: Callable[[], None]
) -> AsyncIterator[Connection]:
    """Reach a server and greet it. It has ended when this is left.

    Args:
        changed: called when the server says that its tools are others now.

    Raises:
        ConfigError: something that the settings name is not there.
        ConnectError: the server did not start, or did not answer within ``start_timeout``.
        UnsupportedOperation: it speaks another version of the protocol.
        ConnectionLost: the link broke while it was used.
    """
    try:
        async with _link(config, environ) as link, _session(config, link, changed) as connection:
            try:
                yield connection
            finally:
                link.end("it was closed")
    except BaseExceptionGroup as group:
        raise _single(group, config) from group


def _single(group: BaseExceptionGroup[BaseException], config: ServerConfig) -> BaseException:
    """The error that a group is about: one of ours, else the first."""
    leaves = list(_leaves(group))
    own = [leaf for leaf in leaves if isinstance(leaf, HarnessError)]
    if own:
        return own[0]
    foreign = next((leaf for leaf in leaves if not isinstance(leaf, Exception)), None)
    return foreign or ConnectionLost(f"server {config.name!r} was lost: {_text(leaves[0])}")


def _text(error: BaseException) -> str:
    return str(error).partition("\n")[0] or type(error).__name__


def _leaves(group: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    found: list[BaseException] = []
    for error in group.exceptions:
        found += _leaves(error) if isinstance(error, BaseExceptionGroup) else [error]
    return found


@asynccontextmanager
async def _link(config: ServerConfig, environ: Mapping[str, str]) -> AsyncIterator[Link]:
    try:
        await anyio.to_thread.run_sync(import_module, "mcp")  # it takes half a second, and nobody waits for that
    except ImportError:
        raise ConfigError("servers need the extra mcp", hint=install_extra("mcp")) from None
    if isinstance(config.reach, StdioLaunch):
        async with open_stdio(config, config.reach, environ) as link:
            yield link
        return
    from .client_http import open_http

    async with open_http(config, config.reach, environ) as link:
        yield link


@asynccontextmanager
async def _session(config: ServerConfig, link: Link, changed: Callable[[], None]) -> AsyncIterator[Connection]:
    from mcp import ClientSession
    from mcp.types import Implementation, ToolListChangedNotification

    async def on_message(message: Any) -> None:
        if isinstance(message, ToolListChangedNotification):
            changed()

    session = ClientSession(
        link.read,
        link.write,
        elicitation_callback=_decline,
        message_handler=on_message,
        client_info=Implementation(name="harness", version=metadata.version(DISTRIBUTION)),
    )
    async with session:
        await _greet(config, link, session)
        async with background_tasks() as tasks:
            if session.discover_result is not None:
                tasks.start_soon(_listen, session, changed)
            yield Connection(config, link, session)


async def _listen(session: ClientSession, changed: Callable[[], None]) -> None:
    """In the newest form of the protocol a server tells of changes only whoever listens.

    One that does not offer that is taken at its word at its next start.
    """
    from mcp import MCPError
    from mcp.client.subscriptions import SubscriptionLost, listen

    with suppress(MCPError, SubscriptionLost, TimeoutError):
        async with listen(session, tools_list_changed=True) as subscription:
            changed()  # what changed before somebody listened
            async for _ in subscription:
                changed()


async def _decline(context: Any, params: Any) -> Any:
    """A server asks the person something: nobody does that through a tool."""
    from mcp.types import ElicitResult

    return ElicitResult(action="decline")


async def _greet(config: ServerConfig, link: Link, session: ClientSession) -> None:
    from mcp import MCPError

    try:
        with anyio.fail_after(config.start_timeout):
            try:
                await session.initialize()
            except MCPError as error:
                if error.code not in {OTHER_VERSION, NO_METHOD}:
                    raise
                await session.discover()  # one that speaks only the newest form of the protocol
    except TimeoutError:
        said = f"; it said: {link.log.last}" if link.log.last else ""
        raise ConnectError(
            f"server {config.name!r} did not answer within {config.start_timeout:g} s{said}",
            hint="give it longer with start_timeout",
        ) from None
    except Exception as error:  # the library's own, and its checks of what the server says
        raise _start_error(config, link, error, "did not start") from error
