"""One browser that sees the dashboard, over a WebSocket: what it is sent, and what it asks for.

Its messages are counted and bounded. What it is sent waits for it in bounded queues: states are sent as they are when
it reads, frames of panes are dropped, and a browser that asks faster than it reads the answers is disconnected.
"""

from __future__ import annotations

import json
import logging
import struct
import time
from collections import deque
from collections.abc import Mapping
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
from anyio import to_thread

from ..errors import HarnessError
from ..live.client import open_stream
from ..live.sessions.pane_leases import HOLDING_ACTIONS
from ..live.sessions.session import ACTIONS, MAX_TYPED_CHARS, QUERIES
from ..system.background_tasks import BackgroundTasks, open_background_tasks
from .frames import conversation_frames, host_frames, json_frame, pane_frames
from .guard import TokenBucket
from .logins import Login, Role
from .shared_streams import Frame, FrameSource, StreamViewer

if TYPE_CHECKING:
    from starlette.websockets import WebSocket

    from .dashboard import Dashboard, Row

__all__ = ["Browser", "BrowserLeft"]

HELLO_TIMEOUT = 5.0
"""Seconds for a browser to send the key of its login."""
SEND_TIMEOUT = 60.0
"""Seconds for a browser to take a message; a stopped one is disconnected, and connects again when it continues."""
CHECK_INTERVAL = 5.0
"""Seconds between two checks that the login still exists."""
STATE_INTERVAL = 0.05
"""Minimum seconds between two reports of the sessions."""
MAX_VIEWERS = 32
"""Maximum streams that a browser sees at the same time."""
MAX_ANSWERS = 200
"""Answers that may wait for a browser."""
MAX_REQUESTS = 16
"""Maximum requests of a browser at the same time, and maximum panes that it types into."""
MAX_WAITING_CHARS = 100_000
"""Maximum typed characters that wait for a pane."""
MESSAGES_PER_SECOND, MESSAGES_AT_ONCE = 60.0, 300
MAX_DIGITS = 10
"""Digits of the number of a stream, which is sent as 32 bits."""
log = logging.getLogger(__name__)


class BrowserLeft(Exception):  # a condition, not an error
    """The browser has to go; the reason is sent to it."""


class Browser:
    """The server's side of one WebSocket.

    Args:
        websocket: The accepted WebSocket.
        dashboard: What is shown.
        login: Who it is.
    """

    def __init__(self, websocket: WebSocket, dashboard: Dashboard, login: Login, secrets: tuple[str, str]) -> None:
        self._websocket = websocket
        self._dashboard = dashboard
        self._secrets = secrets
        self.login = login
        self._outgoing: deque[Mapping[str, Any]] = deque()
        self._viewers: dict[int, StreamViewer] = {}
        self._tails: dict[int, anyio.CancelScope] = {}
        self._tail_frames: dict[int, deque[Frame]] = {}
        self._wakeup = anyio.Event()
        self._drained = anyio.Event()
        self._sent: dict[str, Row] = {}
        self._has_news = True
        self._requests = 0
        self._typed: dict[tuple[str, str], str] = {}
        self._typing: set[tuple[str, str]] = set()
        self._bucket = TokenBucket(MESSAGES_PER_SECOND, MESSAGES_AT_ONCE)

    # -- the connection

    async def serve(self) -> None:
        """Serve the browser until it leaves.

        Raises:
            BrowserLeft: It has to go.
        """
        name, role = self.login.name, self.login.role.value
        self._post({"type": "welcome", "name": name, "role": role, "time": time.time()})
        try:
            async with open_background_tasks() as tasks:
                tasks.start_soon(self._write)
                tasks.start_soon(self._check_login)
                await self._read(tasks)
        finally:
            for viewer in self._viewers.values():
                viewer.close()
            self._dashboard.release_panes_of(self)

    async def _check_login(self) -> None:
        while True:
            await anyio.sleep(CHECK_INTERVAL)
            if await to_thread.run_sync(self._dashboard.logins.find, *self._secrets) is None:
                raise BrowserLeft("the login has ended")

    async def _read(self, tasks: BackgroundTasks) -> None:
        while True:
            message = await self._websocket.receive()
            if message["type"] != "websocket.receive":
                return
            if not self._bucket.take():
                raise BrowserLeft("too many messages")
            try:
                document = json.loads(message.get("text") or "")
            except (ValueError, RecursionError):
                raise BrowserLeft("a message is not JSON") from None
            if not isinstance(document, dict):
                raise BrowserLeft("a message is not a JSON object")
            self._handle(document, tasks)

    # -- sending

    def sessions_changed(self) -> None:
        """Report the sessions when the browser next reads."""
        self._has_news = True
        self._wake()

    def _wake(self) -> None:
        self._wakeup.set()

    def _post(self, document: Mapping[str, Any]) -> None:
        if len(self._outgoing) >= MAX_ANSWERS:
            raise BrowserLeft("it asks and does not read the answers")
        self._outgoing.append(document)
        self._wake()

    async def _write(self) -> None:
        reported = 0.0
        while True:
            self._wakeup = anyio.Event()
            while self._outgoing:
                await self._send_text(self._outgoing.popleft())
            if self._has_news and time.monotonic() - reported >= STATE_INTERVAL:
                self._has_news, reported = False, time.monotonic()
                await self._send_sessions()
            if not await self._send_frames():
                with anyio.move_on_after(STATE_INTERVAL if self._has_news else None):
                    await self._wakeup.wait()

    async def _send_sessions(self) -> None:
        rows = self._dashboard.rows()
        changed: dict[str, Any] = {key: row.to_json() for key, row in rows.items() if self._sent.get(key) != row}
        changed.update({key: None for key in self._sent if key not in rows})
        self._sent = rows
        await self._send_text({"type": "sessions", "changed": changed, "complete": self._dashboard.is_complete})

    async def _send_frames(self) -> bool:
        """Send a frame of each stream that has one, and return whether there was any."""
        sent = False
        for number, viewer in list(self._viewers.items()):
            if (frame := viewer.take()) is not None:
                sent = True
                await self._send_frame(number, frame)
            elif viewer.ended is not None and self._viewers.pop(number, None) is not None:
                viewer.close()
                await self._send_text({"type": "stream_ended", "stream": number, "reason": viewer.ended})
        for number, frames in list(self._tail_frames.items()):
            if frames:
                sent = True
                await self._send_frame(number, frames.popleft())
                self._drained.set()
        return sent

    async def _send_frame(self, number: int, frame: Frame) -> None:
        with anyio.fail_after(SEND_TIMEOUT):
            await self._websocket.send_bytes(struct.pack("!I", number) + frame.data)

    async def _send_text(self, document: Mapping[str, Any]) -> None:
        with anyio.fail_after(SEND_TIMEOUT):
            await self._websocket.send_text(json.dumps(document, separators=(",", ":")))

    # -- what it asks for

    def _handle(self, document: dict[str, Any], tasks: BackgroundTasks) -> None:
        number = document.get("request", 0)
        match document.get("type"):
            case "ack":
                self._acknowledge(document.get("streams"))
            case "close" if isinstance(number, int):
                self._close_stream(number)
            case "open" if isinstance(number, int):
                self._answer_now(number, lambda: self._open_stream(number, document, tasks))
            case "act" if document.get("action") == "type":
                self._answer_now(number, lambda: self._type(number, document, tasks))
            case "act" | "query":
                self._answer_now(number, lambda: self._start_request(number, document, tasks))

    def _answer_now(self, number: int, work: Any) -> None:
        try:
            work()
        except HarnessError as error:
            self._fail(number, error)

    def _fail(self, number: int, error: HarnessError) -> None:
        redact = self._dashboard.redact
        hint = redact(error.hint or "")
        self._post({"type": "reply", "request": number, "ok": False, "error": redact(error.message), "hint": hint})

    def _acknowledge(self, streams: object) -> None:
        for number, size in streams.items() if isinstance(streams, dict) else ():
            viewer = self._viewers.get(int(number)) if number.isdecimal() and len(number) <= MAX_DIGITS else None
            if viewer is not None and isinstance(size, int):
                viewer.acknowledge(size)

    # -- streams

    def _open_stream(self, number: int, document: Mapping[str, Any], tasks: BackgroundTasks) -> None:
        if not 0 < number < 1 << 32:
            raise HarnessError("the number of a stream has 32 bits")
        if number in self._viewers or number in self._tails:
            raise HarnessError("this stream is open")
        if len(self._viewers) + len(self._tails) >= MAX_VIEWERS:
            raise HarnessError(f"more than {MAX_VIEWERS} streams are open", hint="close some pages")
        process, session = self._dashboard.find(str(document.get("session")))
        kind, about = str(document.get("stream")), str(document.get("about") or "")
        if kind == "tail":
            self._tails[number] = anyio.CancelScope()
            tasks.start_soon(self._tail, number, partial(open_stream, process.path, session, "tail"), about)
            return
        sources: dict[str, FrameSource] = {
            "pane": partial(pane_frames, process.path, session, about),
            "hosts": partial(host_frames, process.path, session),
            "events": partial(conversation_frames, process.path, session, self._dashboard.history_of(session)),
        }
        if kind not in sources:
            raise HarnessError(f"unknown stream: {kind}")
        key = (process.key, session, kind, about)
        self._viewers[number] = self._dashboard.streams.view(key, sources[kind], self._wake)

    async def _tail(self, number: int, opened: Any, about: str) -> None:
        """Send the output of a job, a call, a command or a host of it from its start, as fast as the browser reads."""
        frames = self._tail_frames[number] = deque()
        reason = ""
        try:
            with self._tails[number]:
                async with aclosing(opened(_tail_arguments(about))) as items:
                    async for item in items:
                        frames.append(json_frame(item))
                        self._wake()
                        while len(frames) > 1:
                            await self._wait_drained()
                while frames:
                    await self._wait_drained()
        except HarnessError as error:
            reason = error.message
        finally:
            self._tails.pop(number, None)
            self._tail_frames.pop(number, None)
        self._post({"type": "stream_ended", "stream": number, "reason": reason})

    async def _wait_drained(self) -> None:
        """Wait until a frame of a tail was sent; several may wait."""
        if self._drained.is_set():
            self._drained = anyio.Event()
        await self._drained.wait()

    def _close_stream(self, number: int) -> None:
        if (viewer := self._viewers.pop(number, None)) is not None:
            viewer.close()
        if (scope := self._tails.get(number)) is not None:
            scope.cancel()

    # -- actions

    def _check_role(self, action: str) -> None:
        if self.login.role is not Role.OPERATOR:
            raise HarnessError(f"{self.login.name} is a viewer and may not {action}", hint="ask for an operator's URL")

    def _start_request(self, number: int, document: Mapping[str, Any], tasks: BackgroundTasks) -> None:
        action = str(document.get("action"))
        if document.get("type") == "act":
            self._check_role(action)
        if action not in (ACTIONS if document.get("type") == "act" else QUERIES):
            raise HarnessError(f"unknown action: {action}")
        if self._requests >= MAX_REQUESTS:
            raise HarnessError(f"more than {MAX_REQUESTS} requests at the same time", hint="wait for an answer")
        self._requests += 1
        tasks.start_soon(self._request, number, action, document)

    async def _request(self, number: int, action: str, document: Mapping[str, Any]) -> None:
        try:
            arguments = document.get("arguments")
            given = arguments if isinstance(arguments, dict) else {}
            result = await self._ask(str(document.get("session")), action, given)
            self._post({"type": "reply", "request": number, "ok": True, "result": dict(result)})
        except HarnessError as error:
            self._fail(number, error)
        finally:
            self._requests -= 1

    async def _ask(self, session: str, action: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """Ask a session in the name of the login, and note the panes that this browser holds then."""
        leases, name = self._dashboard.leases, self.login.name
        try:
            result = await self._dashboard.ask(session, action, arguments, name)
        except anyio.get_cancelled_exc_class():  # the browser leaves, and the session may do it all the same
            if action in HOLDING_ACTIONS and (pane := arguments.get("pane")):
                leases.note((session, str(pane), name), action, self)
            raise
        if "pane" in result:
            leases.note((session, str(result["pane"]), name), action, self)
        return result

    def _type(self, number: int, document: Mapping[str, Any], tasks: BackgroundTasks) -> None:
        """Type into a pane, in order: what is typed while a part is being sent is sent together."""
        self._check_role("type")
        arguments = document.get("arguments")
        given = arguments if isinstance(arguments, dict) else {}
        place = (str(document.get("session")), str(given.get("pane") or ""))
        waiting = self._typed.get(place, "") + str(given.get("text") or "")
        if len(waiting) > MAX_WAITING_CHARS:
            raise HarnessError(f"{MAX_WAITING_CHARS} typed characters wait for the pane already")
        if place not in self._typing and len(self._typing) >= MAX_REQUESTS:
            raise HarnessError(f"typed text waits for {MAX_REQUESTS} panes already")
        self._typed[place] = waiting
        if place not in self._typing:
            self._typing.add(place)
            tasks.start_soon(self._type_waiting, number, place)

    async def _type_waiting(self, number: int, place: tuple[str, str]) -> None:
        session, pane = place
        try:
            while (waiting := self._typed.pop(place, None)) is not None:
                if rest := waiting[MAX_TYPED_CHARS:]:
                    self._typed[place] = rest
                arguments = {"pane": pane, "text": waiting[:MAX_TYPED_CHARS]}
                await self._ask(session, "type", arguments)
        except HarnessError as error:
            self._typed.pop(place, None)
            self._fail(number, error)
        finally:
            self._typing.discard(place)


def _tail_arguments(about: str) -> dict[str, str]:
    """Return the arguments of the stream ``tail``: ``job:ID``, ``call:ID`` or ``host:NAME``; empty for the command."""
    kind, _, value = about.partition(":")
    return {"host": value} if kind == "host" else {f"{kind}_id": value} if kind in ("job", "call") else {}
