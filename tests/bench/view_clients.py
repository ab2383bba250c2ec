"""Viewers of a pane, in a process of their own, which draw nothing: ``view_clients KIND COUNT WHERE MARK``.

``KIND`` is ``harness`` or ``ttyd``, at a URL, or ``tmux``, at a socket. It prints a line when each viewer has been sent
something, and ends with its standard input.
"""

from __future__ import annotations

import json
import os
import pty
import sys
from contextlib import AsyncExitStack

import anyio
from anyio import to_thread
from tests.support.web_client import first, logged_in, page_of
from tests.support.web_dashboard import WebProgram
from websockets.asyncio.client import ClientConnection, connect

from .process_tree import MARK

ACK_INTERVAL = 0.05
"""Seconds between two acknowledgements, as in the pages of harness."""


class Viewers:
    """So many viewers; ``ready`` is set when all of them were sent something."""

    def __init__(self, count: int) -> None:
        self._missing = count
        self.ready = anyio.Event()

    def seen(self) -> None:
        """Count a viewer that was sent its first data."""
        self._missing -= 1
        if not self._missing:
            self.ready.set()

    async def read(self, page: ClientConnection, *, acknowledges: bool) -> None:
        """Read what a page is sent, as fast as it comes."""
        unseen, due, is_first = 0, 0.0, True
        while True:
            frame = await page.recv()
            if isinstance(frame, str):
                continue
            if is_first:
                is_first = False
                self.seen()
            unseen += len(frame) - 4
            if acknowledges and anyio.current_time() >= due:
                await page.send(json.dumps({"type": "ack", "streams": {"1": unseen}}))
                unseen, due = 0, anyio.current_time() + ACK_INTERVAL

    async def read_terminal(self, descriptor: int) -> None:
        """Read what a client of tmux draws."""
        is_first = True
        while await to_thread.run_sync(os.read, descriptor, 1 << 16, abandon_on_cancel=True):
            if is_first:
                is_first = False
                self.seen()


async def harness_pages(url: str, count: int, stack: AsyncExitStack) -> list[ClientConnection]:
    web = WebProgram("", {}, url=url)
    cookie, key = logged_in(web)
    pages = [await stack.enter_async_context(page_of(web, cookie, key)) for _ in range(count)]
    session = ""
    while not session:
        message = await first(pages[0])
        session = next(iter(message.get("changed") or {}), "")
    for page in pages:
        opening = {"type": "open", "request": 1, "session": session, "stream": "pane", "about": "main"}
        await page.send(json.dumps(opening))
    return pages


async def ttyd_pages(url: str, count: int, stack: AsyncExitStack) -> list[ClientConnection]:
    address = f"{url.replace('http', 'ws', 1)}ws"
    pages = []
    for _ in range(count):
        page = await stack.enter_async_context(connect(address, subprotocols=["tty"], max_size=None))  # type: ignore[list-item]  # a name is a NewType of str
        await page.send(json.dumps({"AuthToken": "", "columns": 150, "rows": 40}).encode())
        pages.append(page)
    return pages


def tmux_terminals(socket: str, count: int, mark: str) -> list[int]:
    """Attach clients; returns their terminals."""
    found = []
    for _ in range(count):
        pid, descriptor = pty.fork()
        if not pid:
            variables = {**os.environ, MARK: mark}
            os.execvpe("tmux", ["tmux", "-L", socket, "attach-session", "-f", "ignore-size"], variables)
        found.append(descriptor)
    return found


async def main(kind: str, count: int, where: str, mark: str) -> None:
    viewers = Viewers(count)
    async with AsyncExitStack() as stack, anyio.create_task_group() as tasks:
        if kind == "tmux":
            for descriptor in tmux_terminals(where, count, mark):
                tasks.start_soon(viewers.read_terminal, descriptor)
        else:
            open_pages = harness_pages if kind == "harness" else ttyd_pages
            for page in await open_pages(where, count, stack):
                tasks.start_soon(lambda page=page: viewers.read(page, acknowledges=kind == "harness"))
        await viewers.ready.wait()
        print("ready", flush=True)
        await to_thread.run_sync(sys.stdin.read)
        os._exit(0)  # the terminals are closed with it


anyio.run(main, sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4])
