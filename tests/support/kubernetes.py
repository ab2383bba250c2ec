"""A stand-in for a Kubernetes cluster: the part of the API that ``kubectl exec`` uses, and pods that are namespaces.

The client is the real ``kubectl``. An API server with a kubelet and a container runtime is not in Debian. The stand-in
speaks the protocol of ``exec`` (WebSocket, ``v5.channel.k8s.io``) and does with programs what a runtime does: each is
the leader of a session of its own, gets the end of its input when the client is gone, and is not killed.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.support.namespaces import namespaces
from websockets.asyncio.server import ServerConnection, serve
from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response
from websockets.typing import Subprotocol

__all__ = ["StandInCluster", "stand_in_cluster"]

PROTOCOL = Subprotocol("v5.channel.k8s.io")
STDIN, STDOUT, STDERR, ERROR, CLOSE = 0, 1, 2, 3, 255
DISCOVERY: dict[str, Any] = {
    "/api": {"kind": "APIVersions", "versions": ["v1"]},
    "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": []},
    "/api/v1": {
        "kind": "APIResourceList",
        "groupVersion": "v1",
        "resources": [
            {"name": "pods", "singularName": "pod", "namespaced": True, "kind": "Pod", "verbs": ["get", "list"]},
            {
                "name": "pods/exec",
                "singularName": "",
                "namespaced": True,
                "kind": "PodExecOptions",
                "verbs": ["create"],
            },
        ],
    },
}


@dataclass
class Pod:
    """A pod with one container: a process that keeps its namespaces."""

    pid: int
    stack: ExitStack


@dataclass
class StandInCluster:
    """The pods by namespace and name, the server, and the configuration that leads to it."""

    directory: Path
    pods: dict[tuple[str, str], Pod] = field(default_factory=dict)
    connections: set[ServerConnection] = field(default_factory=set)
    port: int = 0
    loop: asyncio.AbstractEventLoop | None = None

    @property
    def kubeconfig(self) -> str:
        """The path of a configuration with the contexts ``here`` (the current one) and ``dead``."""
        path = self.directory / "kubeconfig"
        clusters = {"here": f"http://127.0.0.1:{self.port}", "dead": "http://127.0.0.1:9"}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "here",
            "clusters": [{"name": name, "cluster": {"server": url}} for name, url in clusters.items()],
            "users": [{"name": "nobody", "user": {}}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": "nobody"}} for name in clusters],
        }
        path.write_text(json.dumps(config))
        return str(path)

    def start_pod(self, namespace: str, name: str) -> None:
        """Start a pod, in place of the one of that name."""
        self.delete_pod(namespace, name)
        stack = ExitStack()
        self.pods[namespace, name] = Pod(stack.enter_context(namespaces()), stack)

    def delete_pod(self, namespace: str, name: str) -> None:
        if (pod := self.pods.pop((namespace, name), None)) is not None:
            pod.stack.close()

    def cut(self) -> None:
        """Cut all connections, as a load balancer does."""
        assert self.loop is not None
        for connection in list(self.connections):
            self.loop.call_soon_threadsafe(connection.transport.abort)

    # -- the server

    def respond(self, connection: ServerConnection, request: Request) -> Response | None:
        """Answer a plain request; None for an upgrade of ``exec``."""
        parts = urlsplit(request.path)
        if parts.path in DISCOVERY:
            return as_json(HTTPStatus.OK, DISCOVERY[parts.path])
        words = parts.path.removeprefix("/api/v1/namespaces/").split("/")
        if len(words) == 1:
            return as_json(HTTPStatus.OK, {"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": words[0]}})
        if len(words) < 3 or words[1] != "pods":
            return as_json(HTTPStatus.NOT_FOUND, failure("NotFound", f"no resource {parts.path}"))
        if (words[0], words[2]) not in self.pods:
            return as_json(HTTPStatus.NOT_FOUND, failure("NotFound", f'pods "{words[2]}" not found'))
        container = parse_qs(parts.query).get("container", ["main"])[0]
        if container != "main":
            said = f"container {container} is not valid for pod {words[2]}"
            return as_json(HTTPStatus.BAD_REQUEST, failure("BadRequest", said))
        return None if words[3:] == ["exec"] else as_json(HTTPStatus.OK, pod_object(words[0], words[2]))

    async def exec(self, connection: ServerConnection) -> None:
        assert connection.request is not None
        parts = urlsplit(connection.request.path)
        words = parts.path.split("/")
        pod = self.pods[words[4], words[6]]
        self.connections.add(connection)
        try:
            await Exec(connection, pod.pid, parse_qs(parts.query, keep_blank_values=True)["command"]).run()
        finally:
            self.connections.discard(connection)


@dataclass
class Exec:
    """One program in a pod, and its connection."""

    connection: ServerConnection
    pid: int
    command: list[str]

    async def run(self) -> None:
        process = await asyncio.create_subprocess_exec(
            *("nsenter", f"--target={self.pid}", "--all", "--", *self.command),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        feeding = asyncio.create_task(self.feed(process.stdin))
        try:
            await asyncio.gather(self.pass_on(STDOUT, process.stdout), self.pass_on(STDERR, process.stderr))
            code = await process.wait()
            with suppress(ConnectionClosed):
                await self.connection.send(bytes([ERROR]) + json.dumps(ended(code)).encode())
        finally:
            feeding.cancel()

    async def feed(self, stdin: asyncio.StreamWriter) -> None:
        with suppress(ConnectionClosed, BrokenPipeError, ConnectionResetError):
            async for message in self.connection:
                assert isinstance(message, bytes)
                if message[0] == STDIN:
                    stdin.write(message[1:])
                    await stdin.drain()
                elif message == bytes([CLOSE, STDIN]):
                    stdin.close()
        stdin.close()

    async def pass_on(self, channel: int, stream: asyncio.StreamReader) -> None:
        """Send a stream; without a client it is read and dropped."""
        while data := await stream.read(32768):
            with suppress(ConnectionClosed):
                await self.connection.send(bytes([channel]) + data)


def as_json(status: HTTPStatus, body: Any) -> Response:
    data = json.dumps(body).encode()
    headers = Headers({"Content-Type": "application/json", "Content-Length": str(len(data)), "Connection": "close"})
    return Response(status.value, status.phrase, headers, data)


def failure(reason: str, message: str, **details: Any) -> dict[str, Any]:
    code = {"NotFound": 404, "BadRequest": 400}.get(reason, 500)
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "reason": reason,
        "message": message,
        "details": details,
        "code": code,
    }


def ended(code: int) -> dict[str, Any]:
    if code == 0:
        return {"metadata": {}, "status": "Success"}
    causes = [{"reason": "ExitCode", "message": str(code if code > 0 else 128 - code)}]
    return failure("NonZeroExitCode", f"command terminated with non-zero exit code: exit code {code}", causes=causes)


def pod_object(namespace: str, name: str) -> dict[str, Any]:
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"containers": [{"name": "main", "image": "none"}]},
        "status": {"phase": "Running"},
    }


@contextmanager
def stand_in_cluster(directory: Path) -> Iterator[StandInCluster]:
    """A cluster without pods, in a thread of its own."""
    cluster = StandInCluster(directory)
    started, stop = threading.Event(), asyncio.Event()

    async def main() -> None:
        cluster.loop = asyncio.get_running_loop()
        async with serve(
            cluster.exec,
            "127.0.0.1",
            0,
            process_request=cluster.respond,
            subprotocols=[PROTOCOL],
            compression=None,
            max_size=None,
            ping_interval=None,
        ) as server:
            cluster.port = next(iter(server.sockets)).getsockname()[1]
            started.set()
            await stop.wait()
            for connection in list(cluster.connections):
                connection.transport.abort()

    thread = threading.Thread(target=asyncio.run, args=(main(),))
    thread.start()
    try:
        assert started.wait(20)
        yield cluster
    finally:
        for namespace, name in list(cluster.pods):
            cluster.delete_pod(namespace, name)
        assert cluster.loop is not None
        cluster.loop.call_soon_threadsafe(stop.set)
        thread.join(20)
