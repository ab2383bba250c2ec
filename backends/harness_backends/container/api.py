"""An engine behind its HTTP API, Docker's own or Podman's compatible service."""

from __future__ import annotations

import json
import logging
import os
import ssl
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any
from urllib.parse import quote

import anyio
from anyio.abc import ByteStream

from harness.errors import ConnectError, ConnectionLost
from harness.target import Target
from harness.transport import Process

from . import http
from .endpoints import Endpoint
from .engine import Engine, ExecRequest
from .exec_stream import AttachedProcess
from .http import EngineError
from .information import ContainerInfo, parse_info
from .temporary_container import LABEL, TemporaryContainer, api_body

__all__ = ["PULL_TIMEOUT", "ApiEngine", "choose_version", "open_api_engine"]

logger = logging.getLogger(__name__)

WANTED = (1, 44)
REQUEST_TIMEOUT = 20.0
PULL_TIMEOUT = 3600.0
"""Seconds that pulling an image may take."""
STATUS_PAUSES = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
"""Seconds between queries: the engine learns of a process's exit a moment after the end of its streams."""


def choose_version(newest: str, oldest: str) -> str:
    """Choose the API version: :data:`WANTED`, or the nearest one that the engine supports."""
    low, high = _number(oldest), _number(newest)
    major, minor = min(max(WANTED, low), high) if high else WANTED
    return f"{major}.{minor}"


def _number(text: str) -> tuple[int, ...]:
    parts = text.split(".")
    return tuple(int(part) for part in parts[:2]) if len(parts) >= 2 and all(map(str.isdecimal, parts[:2])) else ()


class ApiEngine(Engine):
    """An engine behind its HTTP API, with one connection per request; that of an exec becomes its streams."""

    def __init__(self, endpoint: Endpoint, target: Target, said: dict[str, Any], timeout: float) -> None:
        components = [str(item.get("Name", "")) for item in said.get("Components") or () if isinstance(item, dict)]
        self.name = "podman" if any("podman" in name.lower() for name in components) else "docker"
        self.version = str(said.get("Version", ""))
        self.endpoint = endpoint
        self._target = target
        self._timeout = timeout
        self._prefix = f"/v{choose_version(str(said.get('ApiVersion', '')), str(said.get('MinAPIVersion', '')))}"

    async def inspect(self, name: str) -> ContainerInfo | None:
        try:
            return parse_info(await self.ask("GET", f"/containers/{quote(name, safe='')}/json"))
        except EngineError as error:
            if error.status == 404:
                return None
            raise ConnectError(f"the engine refused: {error.message}", target=self._target) from error

    async def ask(self, method: str, path: str, body: object = None) -> Any:
        """Send one API request with a timeout, and return the answer's JSON.

        Raises:
            EngineError: the engine refused.
            ConnectError, ConnectionLost: the engine cannot be reached.
        """
        async with _bounded(self.endpoint, self._target), http.connect(self.endpoint, self._timeout) as stream:
            return (await http.request(stream, method, self._prefix + path, body)).json()

    async def execute(self, request: ExecRequest) -> Process:
        made = await self.ask("POST", f"/containers/{request.container_id}/exec", _exec_body(request))
        exec_id = str(made["Id"])
        async with AsyncExitStack() as stack:
            async with _bounded(self.endpoint, self._target):
                stream: ByteStream = await http.open_stream(self.endpoint, self._timeout)
                stack.push_async_callback(stream.aclose)
                path = f"{self._prefix}/exec/{exec_id}/start"
                early = await http.upgrade(stream, path, {"Detach": False, "Tty": False})
            stack.pop_all()

        async def status() -> int:
            return await self._exit_status(exec_id)

        return AttachedProcess(stream, early, status)

    async def _exit_status(self, exec_id: str) -> int:
        for pause in STATUS_PAUSES:
            await anyio.sleep(pause)
            try:
                said = await self.ask("GET", f"/exec/{exec_id}/json")
            except EngineError as error:
                raise ConnectionLost(
                    f"the engine no longer knows the program: {error.message}", target=self._target
                ) from error
            if not said.get("Running") and said.get("ExitCode") is not None:
                return int(said["ExitCode"])
        raise ConnectionLost("connection lost while the program was running", target=self._target)

    async def copy_out(self, container_id: str, path: str, sink: Callable[[bytes], Awaitable[None]]) -> None:
        named = quote(path, safe="/", errors="surrogateescape")
        query = f"{self._prefix}/containers/{container_id}/archive?path={named}"
        async with AsyncExitStack() as stack:
            async with _bounded(self.endpoint, self._target):
                stream = await stack.enter_async_context(http.connect(self.endpoint, self._timeout))
                body = await http.open_body(stream, "GET", query)
            while data := await self._receive(body):
                await sink(data)

    async def _receive(self, body: http.ResponseBody) -> bytes:
        try:
            async with _bounded(self.endpoint, self._target):
                return await body.receive()
        except (anyio.BrokenResourceError, anyio.EndOfStream, anyio.ClosedResourceError) as error:
            raise ConnectionLost("the engine closed the connection", target=self._target) from error

    async def fetch(self, image: str) -> None:
        try:
            await self.ask("GET", f"/images/{quote(image, safe='')}/json")
        except EngineError as error:
            if error.status != 404:
                raise
            await self._pull(image)

    async def _pull(self, image: str) -> None:
        logger.info("%s: pulling the image %s", self._target, image)
        name = (
            image if "@" in image or ":" in image.rpartition("/")[2] else f"{image}:latest"
        )  # without a tag, all tags would be pulled
        path = f"{self._prefix}/images/create?fromImage={quote(name, safe='')}"
        bounded = _bounded(self.endpoint, self._target, PULL_TIMEOUT)
        async with bounded, http.connect(self.endpoint, self._timeout) as stream:
            reply = await http.request(stream, "POST", path)
        for line in reply.body.splitlines():
            if b'"error"' in line:
                raise EngineError(404, str(json.loads(line).get("error", "the image is not available")))

    async def create(self, scratch: TemporaryContainer) -> str:
        self._refuse_missing(scratch)
        made = await self.ask("POST", f"/containers/create?name={quote(scratch.name, safe='')}", api_body(scratch))
        container_id = str(made["Id"])
        await self.ask("POST", f"/containers/{container_id}/start")
        return container_id

    def _refuse_missing(self, scratch: TemporaryContainer) -> None:
        """Refuse missing bind-mount sources: Podman's service would create them, Docker and ``podman run`` refuse."""
        if self.name != "podman" or self.endpoint.scheme != "unix" or sys.platform != "linux":
            return  # on other systems the engine runs in a virtual machine
        for mount in scratch.mounts:
            if mount.type == "bind" and not os.path.lexists(mount.source):
                raise EngineError(400, f"mount source {mount.source} does not exist")

    async def remove(self, container_id: str) -> None:
        try:
            await self.ask("DELETE", f"/containers/{container_id}?force=true&v=true")
        except EngineError as error:
            if error.status not in (404, 409):  # removed, or being removed
                raise

    async def scratches(self) -> list[tuple[str, str]]:
        filters = quote(json.dumps({"label": [LABEL]}), safe="")
        found = await self.ask("GET", f"/containers/json?all=true&filters={filters}") or []
        return [(str(item["Id"]), str((item.get("Labels") or {}).get(LABEL, ""))) for item in found]

    def interactive_argv(self, request: ExecRequest) -> list[str]:
        return [*self._program(), "exec", "-it", *exec_options(request), request.container_id, *request.argv]

    def _program(self) -> list[str]:
        if self.name == "podman":
            return ["podman", "--remote", "--url", self.endpoint.url]
        return ["docker", "-H", self.endpoint.url, *_tls_options(self.endpoint)]

    def describe(self) -> str:
        return f"{self.name} {self.version} API"


def exec_options(request: ExecRequest) -> list[str]:
    """Return the options of the engines' programs for an exec request."""
    user = ["--user", request.user] if request.user else []
    directory = ["--workdir", request.directory] if request.directory else []
    return [*user, *directory]


def _exec_body(request: ExecRequest) -> dict[str, object]:
    body: dict[str, object] = {
        "AttachStdin": True,
        "AttachStdout": True,
        "AttachStderr": True,
        "Tty": False,
        "Cmd": list(request.argv),
    }
    if request.user:
        body["User"] = request.user
    if request.directory:
        body["WorkingDir"] = request.directory
    return body


def _tls_options(endpoint: Endpoint) -> list[str]:
    if endpoint.tls is None:
        return []
    files = (("--tlscacert", endpoint.tls.ca), ("--tlscert", endpoint.tls.cert), ("--tlskey", endpoint.tls.key))
    return [
        "--tlsverify" if endpoint.tls.verify else "--tls",
        *(w for name, path in files if path for w in (name, path)),
    ]


@asynccontextmanager
async def _bounded(endpoint: Endpoint, target: Target, seconds: float = REQUEST_TIMEOUT) -> AsyncIterator[None]:
    """Bound a request in time, and translate system errors to harness's errors."""
    try:
        with anyio.fail_after(seconds):
            yield
    except TimeoutError:
        raise ConnectionLost("the engine does not answer", target=target, hint=_look_at(endpoint)) from None
    except ssl.SSLError as error:
        raise ConnectError(
            f"the TLS connection to the engine failed: {error.reason}", target=target, hint=str(endpoint)
        ) from error
    except PermissionError as error:
        raise ConnectError(
            f"permission denied for the engine's socket {endpoint.address}",
            target=target,
            hint="join the group that owns it, or use a rootless engine; access to it gives root access to the machine",
        ) from error
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConnectError(f"no engine answers: {reason.lower()}", target=target, hint=_look_at(endpoint)) from error


def _look_at(endpoint: Endpoint) -> str:
    return f"check that it is running and healthy: {endpoint}"


async def open_api_engine(endpoint: Endpoint, target: Target, timeout: float) -> ApiEngine:
    """Connect to an engine and query its version.

    Raises:
        ConnectError, ConnectionLost: no engine answers.
    """
    try:
        async with _bounded(endpoint, target), http.connect(endpoint, timeout) as stream:
            said = (await http.request(stream, "GET", "/version")).json()
    except EngineError as error:
        raise ConnectError(f"no engine answers: {error.message}", target=target, hint=_look_at(endpoint)) from error
    return ApiEngine(endpoint, target, said if isinstance(said, dict) else {}, timeout)
