"""The roots of a client: the directories that its user has opened.

They are directories of the client's machine, so they matter only for a target on the same machine: there, files and
commands start in the first root, unless the server was started inside one. They limit nothing: the permissions do.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import anyio
import mcp_types as types
from anyio import to_thread
from mcp.shared.exceptions import MCPError
from pydantic import ValidationError

from ...system.background_tasks import BackgroundTasks
from ...toolkit.executor import Executor

if TYPE_CHECKING:
    from mcp.server.session import ServerSession

__all__ = ["ClientRoots", "directory_of", "start_directory"]

ANSWER_TIMEOUT = 3.0
"""Seconds after which a client has no roots; calls that are made before wait for them."""
MAX_ROOTS = 64
log = logging.getLogger("harness.mcp")


def directory_of(uri: str) -> str | None:
    """Return the absolute path of a ``file:`` URI of this machine; None for another one. Pure."""
    try:
        parts = urlsplit(uri)
        path = unquote(parts.path, errors="strict")
    except ValueError:
        return None
    here = parts.scheme == "file" and parts.netloc in ("", "localhost") and not (parts.query or parts.fragment)
    return os.path.normpath(path) if here and path.startswith("/") and "\0" not in path else None


def start_directory(current: str, roots: Sequence[str]) -> str:
    """Return the directory in which calls start: the current one if it is in a root, else the first root.

    Args:
        current: The directory of the server.
        roots: The paths of the roots; those that are not directories are ignored.
    """
    found = [Path(root) for root in roots if os.path.isdir(root)]
    here = Path(os.path.realpath(current))
    if not found or any(here.is_relative_to(os.path.realpath(root)) for root in found):
        return current
    return str(found[0])


class ClientRoots:
    """The roots of one client, asked for when it is ready and when it says that they have changed."""

    def __init__(self, executor: Executor, tasks: BackgroundTasks) -> None:
        self._executor = executor
        self._tasks = tasks
        self._directory = executor.cwd
        self._asking: anyio.CancelScope | None = None
        self._answered = anyio.Event()
        self._answered.set()

    def ask(self, client: ServerSession) -> None:
        """Start asking the client, if it has roots and the target is on this machine; an earlier request is dropped."""
        capabilities = client.client_capabilities
        if capabilities is None or capabilities.roots is None or not self._is_local():
            return
        if self._asking is not None:
            self._asking.cancel()
        self._answered = anyio.Event()
        self._asking = anyio.CancelScope()
        self._tasks.start_soon(self._ask, client, self._asking, self._answered)

    def _is_local(self) -> bool:
        """Return whether calls start in the server's own directory: not in a pane's, or in that of a setting."""
        hops = self._executor.execution.target.hops
        if self._executor.cwd is None or len(hops) != 1 or hops[0].scheme != "local":
            return False
        try:
            return os.path.normpath(self._executor.cwd) == os.getcwd()
        except OSError:  # it was deleted
            return False

    async def _ask(self, client: ServerSession, scope: anyio.CancelScope, answered: anyio.Event) -> None:
        try:
            with scope, anyio.move_on_after(ANSWER_TIMEOUT) as waiting:
                found = await client.send_request(types.ListRootsRequest(), types.ListRootsResult)
                uris = [str(root.uri) for root in found.roots[:MAX_ROOTS]]
                roots = [path for uri in uris if (path := directory_of(uri)) is not None]
                self._directory = await to_thread.run_sync(start_directory, self._executor.cwd or "/", roots)
            if waiting.cancelled_caught:
                log.info("the client did not answer which roots it has")
        except (MCPError, ValidationError, anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
            log.info("the client did not report its roots: %s", type(error).__name__)
        finally:
            answered.set()

    async def executor(self) -> Executor:
        """Return the executor for a call, after the client has answered or the time for it is over."""
        while not self._answered.is_set():
            await self._answered.wait()
        return replace(self._executor, cwd=self._directory)
