"""One server, supervised: its session, its tools, its restarts, and why it was given up."""

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


# -- A session with one server of the Model Context Protocol: its tools, and calls of them.


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
    link: ServerConnection
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
async def _link(config: ServerConfig, environ: Mapping[str, str]) -> AsyncIterator[ServerConnection]:
    try:
        await anyio.to_thread.run_sync(import_module, "mcp")  # it takes half a second, and nobody waits for that
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


async def _greet(config: ServerConfig, link: ServerConnection, session: ClientSession) -> None:
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


# -- Keeps one server running: starts it when it is needed, starts it again when it ends, and gives up with a reason.


FINAL = (ConfigError, AuthenticationError, UnsupportedOperation)
"""To start it again would end in the same way."""

logger = logging.getLogger(__name__)

State = Literal["idle", "starting", "ready", "waiting", "unavailable"]


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """How often a server is started again: ``restarts`` times within ``window`` seconds, at most.

    The first restart waits for ``backoff`` seconds, each further one twice as long as the one before.
    """

    restarts: int = 3
    window: float = 60.0
    backoff: float = 0.5


@dataclass(slots=True)
class RestartBudget:
    """Counts restarts. Times are of any clock that does not go back."""

    rules: RestartPolicy
    _times: deque[float] = field(default_factory=deque)

    def next_delay(self, now: float) -> float | None:
        """Seconds to wait before a restart, which is counted; None when there were too many."""
        while self._times and now - self._times[0] >= self.rules.window:
            self._times.popleft()
        if len(self._times) >= self.rules.restarts:
            return None
        self._times.append(now)
        return float(self.rules.backoff * 2 ** (len(self._times) - 1))

    def forget(self) -> None:
        """Somebody asked for a restart: begin anew."""
        self._times.clear()


@dataclass(frozen=True, slots=True)
class ServerState:
    """How a server is, and why it is not there."""

    state: State
    reason: str = ""


Opener = Callable[[Callable[[], None]], AbstractAsyncContextManager[Connection]]
"""Reaches the server; takes what to call when its tools change."""
Lister = Callable[[Connection], Awaitable[None]]
"""Takes the tools of a server that has just started, or says that they changed."""


class Supervisor:
    """One server. :meth:`run` is its life; everything else may be called from any task.

    Args:
        listed: called with each new connection before it serves calls, and when the server's tools change.
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
        """How it is now."""
        return self._state

    async def changed(self) -> ServerState:
        """Wait until it is another, and return that."""
        await self._news.wait()
        return self._state

    def restart(self) -> None:
        """Start it again, now, also when it was given up. A running one is ended first: its calls are lost."""
        self._budget.forget()
        self._retry_at = 0.0
        if self._connection is not None:
            self._connection.link.end("it is being restarted")
        self._wanted.set()

    async def connection(self) -> Connection:
        """The session, once it is there. Starts a server that is not running.

        Raises:
            ConnectError: it is not available, and why. Nothing was sent to it.
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
        """Look after the server until this is cancelled."""
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
        """Start it and stay until it ends: the reason, and whether a further start would be no use."""
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
        except Exception as error:  # a defect about one server must not end the others
            logger.exception("server %s", self.config.name)
            return f"{type(error).__name__}: {error}", True
        finally:
            self._connection = None

    def _bare(self, text: str) -> str:
        """A reason without the server's name, which stands before it wherever it is told."""
        return text.removeprefix(f"server {self.config.name!r}").removeprefix(":").strip()

    async def _watch(self, connection: Connection, changed: _Changes) -> None:
        """Until the link ends; its tools are taken again whenever they change."""
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
    """Several notes that come at once are one."""

    def __init__(self) -> None:
        self._event = anyio.Event()

    def note(self) -> None:
        self._event.set()

    async def wait(self) -> None:
        await self._event.wait()
        self._event = anyio.Event()
