"""One supervised server: its session, its tools, its restarts, and the reason why it is unavailable."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, field
from importlib import import_module, metadata
from typing import TYPE_CHECKING, Any, Literal

import anyio
import anyio.to_thread

from ...errors import AuthenticationError, ConfigError, ConnectError, ConnectionLost, HarnessError, UnsupportedOperation
from ...extras import DISTRIBUTION, install_extra
from ...system.background_tasks import open_background_tasks
from ...toolkit.values import JsonObject
from .channel import ServerConnection
from .configuration import ServerConfig, StdioLaunch
from .definitions import ToolDefinition, definition_of
from .stdio import open_stdio

if TYPE_CHECKING:
    from mcp import ClientSession, MCPError
    from mcp.types import CallToolResult

__all__ = [
    "Connection",
    "Progress",
    "RestartBudget",
    "RestartPolicy",
    "ServerRefusal",
    "ServerState",
    "Supervisor",
    "open_connection",
]


# -- An MCP session with one server: its tools, and calls of them


PAGES = 1_000
TOOLS = 2_000
"""Maximum tools of one server."""
CLOSED = -32_000
UNREADABLE = -32_700
NO_METHOD = -32_601
OTHER_VERSION = -32_022

Progress = Callable[[float, float | None, str | None], None]
"""Called with the progress, the total and a text."""


class ServerRefusal(Exception):
    """The server answered a call with a protocol error: it received the call and rejected it."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class Connection:
    """An open session, which several tasks may use concurrently."""

    config: ServerConfig
    link: ServerConnection
    session: ClientSession

    async def definitions(self) -> tuple[ToolDefinition, ...]:
        """Return all tools of the server, in its order.

        Raises:
            ConnectError: it did not list them within ``timeout``, or its list is invalid.
        """
        where = f"server {self.config.name!r}"
        try:
            with anyio.fail_after(self.config.timeout):
                return await self._pages()
        except TimeoutError:
            raise ConnectError(f"{where} did not list its tools within {self.config.timeout:g} s") from None
        except Exception as error:  # of the library, including its validation of the server's messages
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
            raise ConnectError(f"server {self.config.name!r} lists more than {TOOLS} tools, or its list has no end")
        return tuple(found)

    async def call(self, name: str, arguments: JsonObject, on_progress: Progress) -> CallToolResult:
        """Call a tool by the server's name for it. The server is notified if the caller is cancelled.

        Raises:
            ConnectError: nothing was run.
            ConnectionLost: the connection was lost before the result: the call may have run.
            ServerRefusal: the server rejected the call.
            ValueError: the result is invalid; the call has run.
        """
        from mcp import MCPError
        from mcp.types import CallToolRequest, CallToolRequestParams, CallToolResult

        if self.link.ended.is_set():
            raise ConnectError(f"server {self.config.name!r} is not running: {self.link.reason}")
        request = CallToolRequest(params=CallToolRequestParams(name=name, arguments=dict(arguments)))

        async def report(progress: float, total: float | None, message: str | None) -> None:
            on_progress(progress, total, message)

        try:
            return await self.session.send_request(request, CallToolResult, progress_callback=report)
        except MCPError as error:
            raise _of_call(self, error) from error


def _of_call(connection: Connection, error: MCPError) -> Exception:
    """Return the exception for an error of a call."""
    link, where = connection.link, f"server {connection.config.name!r}"
    status = _status(error)
    if status is not None and status < 500:
        link.end(f"HTTP status {status}")  # the next session reads the credentials again
        return _refused_by_http(where, status)
    if link.ended.is_set() or status is not None or _no_answer(error):
        return ConnectionLost(f"{where} was lost during the call: {link.reason or error.message}")
    if error.code == UNREADABLE and error.message.startswith(
        "Failed to parse"
    ):  # raised by the library, not the server
        return ValueError(error.message)
    return ServerRefusal(error.code, error.message)


def _no_answer(error: MCPError) -> bool:
    """Return whether the library reports an HTTP stream that ended without a result."""
    return error.code == CLOSED and error.message.startswith(("SSE stream", "Connection closed"))


def _status(error: MCPError) -> int | None:
    data = error.error.data
    found = data.get("http_status") if isinstance(data, dict) else None
    return found if isinstance(found, int) else None


def _refused_by_http(where: str, status: int) -> ConnectError:
    if status in {401, 403, 407}:
        return AuthenticationError(
            f"{where} rejected the credentials (HTTP status {status})", hint="check its headers in the settings"
        )
    hint = "the server may have restarted; retry the call" if status == 404 else ""
    return ConnectError(f"{where} rejected the request (HTTP status {status})", hint=hint)


def _translated(connection: Connection, error: Exception, what: str) -> HarnessError:
    """Convert an error of the library outside of calls."""
    if isinstance(error, HarnessError):
        return error
    return _start_error(connection.config, connection.link, error, f"did not {what}")


def _start_error(config: ServerConfig, link: ServerConnection, error: Exception, what: str) -> HarnessError:
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
    """Connect to a server and initialize the session; the server is stopped at the end.

    Args:
        config: the server.
        environ: the variables for references in its settings.
        changed: called when the server notifies that its tools have changed.

    Raises:
        ConfigError: something that the settings refer to is missing.
        ConnectError: the server did not start, or did not answer within ``start_timeout``.
        UnsupportedOperation: it speaks another version of the protocol.
        ConnectionLost: the connection was lost during use.
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
    """Return the most relevant error of a group: harness's own, else the first."""
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
async def _link(config: ServerConfig, environ: Mapping[str, str]) -> AsyncIterator[ServerConnection]:
    try:
        await anyio.to_thread.run_sync(import_module, "mcp")  # half a second, which must not block other tasks
    except ImportError:
        raise ConfigError("servers need the extra mcp", hint=install_extra("mcp")) from None
    if isinstance(config.reach, StdioLaunch):
        async with open_stdio(config, config.reach, environ) as link:
            yield link
        return
    from .http import open_http

    async with open_http(config, config.reach, environ) as link:
        yield link


@asynccontextmanager
async def _session(
    config: ServerConfig, link: ServerConnection, changed: Callable[[], None]
) -> AsyncIterator[Connection]:
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
        async with open_background_tasks() as tasks:
            if session.discover_result is not None:
                tasks.start_soon(_listen, session, changed)
            yield Connection(config, link, session)


async def _listen(session: ClientSession, changed: Callable[[], None]) -> None:
    """Listen for changes of the tools, which servers with the newest protocol send only to subscribers.

    With a server that offers no subscriptions, changes are seen at its next start.
    """
    from mcp import MCPError
    from mcp.client.subscriptions import SubscriptionLost, listen

    with suppress(MCPError, SubscriptionLost, TimeoutError):
        async with listen(session, tools_list_changed=True) as subscription:
            changed()  # for changes before the subscription
            async for _ in subscription:
                changed()


async def _decline(context: Any, params: Any) -> Any:
    """Decline questions of a server to its user, which are not supported here."""
    from mcp.types import ElicitResult

    return ElicitResult(action="decline")


async def _greet(config: ServerConfig, link: ServerConnection, session: ClientSession) -> None:
    from mcp import MCPError

    try:
        with anyio.fail_after(config.start_timeout):
            try:
                await session.initialize()
            except MCPError as error:
                if error.code not in {OTHER_VERSION, NO_METHOD}:
                    raise
                await session.discover()  # for servers that only speak the newest protocol
    except TimeoutError:
        said = f"; it said: {link.log.last}" if link.log.last else ""
        raise ConnectError(
            f"server {config.name!r} did not answer within {config.start_timeout:g} s{said}",
            hint="increase start_timeout",
        ) from None
    except Exception as error:  # of the library, including its validation of the server's messages
        raise _start_error(config, link, error, "did not start") from error


# -- Supervision of one server: started on demand, restarted when it exits, and given up with a reason


FINAL = (ConfigError, AuthenticationError, UnsupportedOperation)
"""Errors that a restart would repeat."""

logger = logging.getLogger(__name__)

State = Literal["idle", "starting", "ready", "waiting", "unavailable"]


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """Limits of restarts: at most ``restarts`` within ``window`` seconds.

    The delay before the first restart is ``backoff`` seconds, and doubles with each further one.
    """

    restarts: int = 3
    window: float = 60.0
    backoff: float = 0.5


@dataclass(slots=True)
class RestartBudget:
    """Counts restarts. Times are of any monotonic clock."""

    rules: RestartPolicy
    _times: deque[float] = field(default_factory=deque)

    def next_delay(self, now: float) -> float | None:
        """Count a restart, and return the seconds to wait before it; None if there were too many."""
        while self._times and now - self._times[0] >= self.rules.window:
            self._times.popleft()
        if len(self._times) >= self.rules.restarts:
            return None
        self._times.append(now)
        return float(self.rules.backoff * 2 ** (len(self._times) - 1))

    def forget(self) -> None:
        """Reset the count after a requested restart."""
        self._times.clear()


@dataclass(frozen=True, slots=True)
class ServerState:
    """The state of a server, and the reason if it is not available."""

    state: State
    reason: str = ""


Opener = Callable[[Callable[[], None]], AbstractAsyncContextManager[Connection]]
"""Opens a connection to the server; its argument is called when the server's tools change."""
Lister = Callable[[Connection], Awaitable[None]]
"""Called with the connection of a server that has just started, or whose tools have changed."""


class Supervisor:
    """Supervises one server. :meth:`run` does the work; all other methods may be called from any task.

    Args:
        config: the server.
        open_server: opens a connection to it.
        listed: called with each new connection before it serves calls, and when the server's tools change.
        rules: the limits of restarts.
    """

    def __init__(
        self, config: ServerConfig, open_server: Opener, listed: Lister, rules: RestartPolicy | None = None
    ) -> None:
        self.config = config
        self._open = open_server
        self._listed = listed
        self._rules = rules or RestartPolicy()
        self._budget = RestartBudget(self._rules)
        self._state = ServerState("idle" if config.lazy else "starting")
        self._news = anyio.Event()
        self._wanted = anyio.Event()
        self._connection: Connection | None = None
        self._retry_at = 0.0

    @property
    def state(self) -> ServerState:
        """The current state."""
        return self._state

    async def changed(self) -> ServerState:
        """Wait for a change of the state and return the new one."""
        await self._news.wait()
        return self._state

    def restart(self) -> None:
        """Restart the server now, even if it was given up. Calls in progress are aborted."""
        self._budget.forget()
        self._retry_at = 0.0
        if self._connection is not None:
            self._connection.link.end("it is being restarted")
        self._wanted.set()

    async def connection(self) -> Connection:
        """Return the session, waiting until it is open; starts a server that is not running.

        Raises:
            ConnectError: the server is unavailable, with the reason. Nothing was sent to it.
        """
        self._wake()
        with anyio.move_on_after(self.config.start_timeout + self._rules.backoff):
            while True:
                connection = self._connection
                if connection is not None and not connection.link.ended.is_set():
                    return connection
                if self._state.state == "unavailable" and not self._wanted.is_set():
                    raise self._unavailable()
                await self._news.wait()
        raise self._unavailable("it did not start in time")

    def _unavailable(self, reason: str = "") -> ConnectError:
        text = self._state.reason or reason
        return ConnectError(f"server {self.config.name!r} is unavailable: {text}")

    def _wake(self) -> None:
        if self._state.state == "idle":
            self._wanted.set()
        if self._state.state == "unavailable" and self._retry_at and anyio.current_time() >= self._retry_at:
            self._wanted.set()

    def _become(self, state: State, reason: str = "") -> None:
        self._state = ServerState(state, reason)
        self._news.set()
        self._news = anyio.Event()

    async def run(self) -> None:
        """Supervise the server until cancelled."""
        if self.config.lazy:
            await self._sleep()
        while True:
            self._become("starting", self._state.reason)
            reason, final = await self._serve()
            delay = None if final else self._budget.next_delay(anyio.current_time())
            if delay is not None:
                self._become("waiting", reason)
                with anyio.move_on_after(delay):
                    await self._wanted.wait()
                self._wanted = anyio.Event()
                continue
            self._retry_at = 0.0 if final else anyio.current_time() + self._rules.window
            self._become("unavailable", reason if final else f"{reason}; it was started {self._rules.restarts} times")
            await self._sleep()

    async def _sleep(self) -> None:
        await self._wanted.wait()
        self._wanted = anyio.Event()

    async def _serve(self) -> tuple[str, bool]:
        """Run the server until its connection ends; return the reason, and whether a restart would fail, too."""
        changed = _Changes()
        try:
            async with self._open(changed.note) as connection:
                await self._listed(connection)
                self._connection = connection
                self._become("ready")
                await self._watch(connection, changed)
                return connection.link.reason, False
        except HarnessError as error:
            return self._bare(str(error)), isinstance(error, FINAL)
        except Exception as error:  # a failure with one server must not affect the others
            logger.exception("server %s", self.config.name)
            return f"{type(error).__name__}: {error}", True
        finally:
            self._connection = None

    def _bare(self, text: str) -> str:
        """Return a reason without the server's name, which all messages about it start with."""
        return text.removeprefix(f"server {self.config.name!r}").removeprefix(":").strip()

    async def _watch(self, connection: Connection, changed: _Changes) -> None:
        """Wait until the connection ends, listing the tools again whenever they change."""
        async with anyio.create_task_group() as tasks:

            async def follow() -> None:
                while True:
                    await changed.wait()
                    try:
                        await self._listed(connection)
                    except HarnessError as error:
                        connection.link.end(error.message)

            tasks.start_soon(follow)
            await connection.link.ended.wait()
            tasks.cancel_scope.cancel()


class _Changes:
    """An event that merges several notifications into one."""

    def __init__(self) -> None:
        self._event = anyio.Event()

    def note(self) -> None:
        self._event.set()

    async def wait(self) -> None:
        await self._event.wait()
        self._event = anyio.Event()
