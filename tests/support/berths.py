"""The containers that the contract is checked on, by the names that :data:`BERTHS` gives them."""

from __future__ import annotations

import secrets
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field

import pytest
from tests.support.engines import Container, Engines, container

from harness import ExecutionContext, connect
from harness.config import Config
from harness.discovery import open_target
from harness.target import Target
from harness.transport import Transport

__all__ = ["BERTHS", "Berth", "Berths", "end_tmux", "entered"]


@dataclass(frozen=True)
class Berth:
    """An engine, how it is asked, and an image (without tmux, tmux runs here)."""

    engine: str
    api: bool
    image: str


BERTHS = {
    "docker": Berth("docker", True, "debian"),
    "podman-api": Berth("podman", True, "debian"),
    "podman-cli": Berth("podman", False, "debian"),
    "docker-busybox": Berth("docker", True, "busybox"),
    "podman-busybox": Berth("podman", False, "busybox"),
}
ENGINE_VARIABLES = ("DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_CONFIG", "CONTAINER_HOST", "CONTAINERS_CONF")


@contextmanager
def entered(one: Container, *, api: bool = True) -> Iterator[None]:
    """The environment leads to the engine of a container, through its API or through its program."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ENGINE_VARIABLES:
            patch.delenv(name, raising=False)
        for name, value in one.engine.environ(api=api).items():
            patch.setenv(name, value)
        yield


@dataclass
class Berths:
    """Opens contexts and transports; there is one container for each name, made when it is first asked for."""

    engines: Engines
    stack: ExitStack = field(default_factory=ExitStack)
    made: dict[str, Container] = field(default_factory=dict)

    def container(self, name: str) -> Container:
        if name not in self.made:
            berth = BERTHS[name]
            self.made[name] = self.stack.enter_context(container(self.engines.get(berth.engine), berth.image))
        return self.made[name]

    @asynccontextmanager
    async def context(self, backend: str) -> AsyncIterator[ExecutionContext]:
        """A context of a backend, ``NAME`` or ``NAME+tmux``, with a tmux server of its own."""
        name, _, terminal = backend.partition("+")
        one, socket = self.container(name), f"hx-{secrets.token_hex(4)}"
        config = Config(tmux_socket=socket)
        with entered(one, api=BERTHS[name].api):
            async with connect(one.target, tmux=bool(terminal), config=config) as ctx:
                try:
                    yield ctx
                finally:
                    if terminal:
                        end_tmux(one, socket)

    @asynccontextmanager
    async def transport(self, name: str) -> AsyncIterator[Transport]:
        """A transport into a container."""
        one = self.container(name)
        with entered(one, api=BERTHS[name].api):
            async with open_target(Target.parse(one.target), Config()) as backend:
                yield backend.transport


def end_tmux(one: Container, socket: str, user: str = "") -> None:
    """End the tmux server of one check, in the container or here."""
    kill = ("tmux", "-L", socket, "kill-server")
    one.engine.cli("exec", *(["--user", user] if user else []), one.name, *kill, check=False)
    subprocess.run(kill, check=False, capture_output=True, timeout=20)
