"""An engine behind its socket: Docker's own or Podman's compatible service."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import anyio
from anyio.abc import ByteStream
from docker import APIClient

from harness.errors import ConnectError, ConnectionLost
from harness.target import Target
from harness.transport import Process

from .docker_client import DockerClient, DockerRequest
from .endpoints import Endpoint
from .engine import PULL_TIMEOUT, Engine, EngineError, ExecRequest, exec_options
from .exec_stream import AttachedProcess
from .information import ContainerInfo, parse_info
from .temporary_container import LABEL, TemporaryContainer, api_body

__all__ = ["DockerEngine", "choose_version", "open_docker_engine"]

logger = logging.getLogger(__name__)

WANTED = (1, 44)
CHUNK = 1 << 18
"""Bytes that a thread reads from an archive at a time."""
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


class DockerEngine(Engine):
    """An engine behind its socket, with one connection per request; that of an exec becomes its streams."""

    def __init__(self, client: DockerClient, target: Target, said: dict[str, Any]) -> None:
        components = [str(item.get("Name", "")) for item in said.get("Components") or () if isinstance(item, dict)]
        self.name = "podman" if any("podman" in name.lower() for name in components) else "docker"
        self.version = str(said.get("Version", ""))
        self._client = client
        self._endpoint = client.endpoint
        self._target = target

    async def inspect(self, name: str) -> ContainerInfo | None:
        try:
            return parse_info(await self._client.ask(lambda package: package.inspect_container(name)))
        except EngineError as error:
            if error.status == 404:
                return None
            raise ConnectError(f"the engine refused: {error.message}", target=self._target) from error

    async def execute(self, request: ExecRequest) -> Process:
        made = await self._client.ask(
            lambda package: package.exec_create(
                request.container_id,
                list(request.argv),
                stdin=True,
                user=request.user,
                workdir=request.directory or None,
            )
        )
        exec_id = str(made["Id"])
        with DockerRequest(self._client) as started:
            stream: ByteStream = await started.run(lambda package: package.exec_start(exec_id, socket=True))
            started.release()

        async def status() -> int:
            return await self._exit_status(exec_id)

        return AttachedProcess(stream, status)

    async def _exit_status(self, exec_id: str) -> int:
        for pause in STATUS_PAUSES:
            await anyio.sleep(pause)
            try:
                said = await self._client.ask(lambda package: package.exec_inspect(exec_id))
            except EngineError as error:
                raise ConnectionLost(
                    f"the engine no longer knows the program: {error.message}", target=self._target
                ) from error
            if not said.get("Running") and said.get("ExitCode") is not None:
                return int(said["ExitCode"])
        raise ConnectionLost("connection lost while the program was running", target=self._target)

    async def copy_out(self, container_id: str, path: str, sink: Callable[[bytes], Awaitable[None]]) -> None:
        with DockerRequest(self._client) as request:
            named = os.fsencode(path)
            chunks, _ = await request.run(lambda package: package.get_archive(container_id, named, CHUNK))
            while data := await request.run(lambda _: _join_some(chunks)):
                await sink(data)

    async def fetch(self, image: str) -> None:
        try:
            await self._client.ask(lambda package: package.inspect_image(image))
        except EngineError as error:
            if error.status != 404:
                raise
            logger.info("%s: pulling the image %s", self._target, image)
            await self._client.ask(lambda package: _pull(package, image), PULL_TIMEOUT)

    async def create(self, scratch: TemporaryContainer) -> str:
        self._refuse_missing(scratch)
        body = api_body(scratch)
        made = await self._client.ask(lambda package: package.create_container_from_config(body, scratch.name))
        container_id = str(made["Id"])
        await self._client.ask(lambda package: package.start(container_id))
        return container_id

    def _refuse_missing(self, scratch: TemporaryContainer) -> None:
        """Refuse missing bind-mount sources: Podman's service would create them, Docker and ``podman run`` refuse."""
        if self.name != "podman" or self._endpoint.scheme != "unix" or sys.platform != "linux":
            return  # on other systems the engine runs in a virtual machine
        for mount in scratch.mounts:
            if mount.type == "bind" and not os.path.lexists(mount.source):
                raise EngineError(400, f"mount source {mount.source} does not exist")

    async def remove(self, container_id: str) -> None:
        try:
            await self._client.ask(lambda package: package.remove_container(container_id, v=True, force=True))
        except EngineError as error:
            if error.status not in (404, 409):  # removed, or being removed
                raise

    async def scratches(self) -> list[tuple[str, str]]:
        found = await self._client.ask(lambda package: package.containers(all=True, filters={"label": LABEL})) or []
        return [(str(item["Id"]), str((item.get("Labels") or {}).get(LABEL, ""))) for item in found]

    def interactive_argv(self, request: ExecRequest) -> list[str]:
        return [*self._program(), "exec", "-it", *exec_options(request), request.container_id, *request.argv]

    def _program(self) -> list[str]:
        if self.name == "podman":
            return ["podman", "--remote", "--url", self._endpoint.url]
        return ["docker", "-H", self._endpoint.url, *_tls_options(self._endpoint)]

    def describe(self) -> str:
        return f"{self.name} {self.version} API"


def _join_some(chunks: Iterator[bytes]) -> bytes:
    """Read about :data:`CHUNK` bytes; none at the end."""
    parts, size = [], 0
    while size < CHUNK and (part := next(chunks, b"")):
        parts.append(part)
        size += len(part)
    return b"".join(parts)


def _pull(package: APIClient, image: str) -> None:
    for line in package.pull(image, stream=True, decode=True):
        if isinstance(line, dict) and "error" in line:
            raise EngineError(404, str(line["error"] or "the image is not available"))


def _tls_options(endpoint: Endpoint) -> list[str]:
    if endpoint.tls is None:
        return []
    files = (("--tlscacert", endpoint.tls.ca), ("--tlscert", endpoint.tls.cert), ("--tlskey", endpoint.tls.key))
    return [
        "--tlsverify" if endpoint.tls.verify else "--tls",
        *(w for name, path in files if path for w in (name, path)),
    ]


async def open_docker_engine(endpoint: Endpoint, target: Target, timeout: float) -> DockerEngine:
    """Connect to an engine and query its version.

    Raises:
        ConnectError, ConnectionLost: no engine answers.
    """
    client = DockerClient(endpoint, choose_version("", ""), target, timeout)
    try:
        said = await client.ask(lambda package: package.version(api_version=False))
    except EngineError as error:
        raise ConnectError(f"no engine answers: {error.message}", target=target, hint=client.hint) from error
    said = said if isinstance(said, dict) else {}
    version = choose_version(str(said.get("ApiVersion", "")), str(said.get("MinAPIVersion", "")))
    return DockerEngine(DockerClient(endpoint, version, target, timeout), target, said)
