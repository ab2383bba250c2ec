"""Hosts in memory: each has a drawn delay, and may be down, lose its connection or fail; no process, no network."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from unittest.mock import patch

import anyio

from harness.backend import Backend, Capabilities
from harness.command import Command
from harness.config import Config
from harness.errors import ConnectError, ConnectionLost, HarnessError
from harness.fleets import Host
from harness.results import Job, ShellResult, Status
from harness.target import Hop, Target
from harness.terminal import Terminal
from harness.testing.memory import MemoryFiles
from harness.transport import Transport

__all__ = ["KINDS", "Plan", "simulated_hosts"]

KINDS = ("ok", "failed", "down", "lost", "unknown")
"""What may become of a host: it ends with 0 or 1, is not reached, loses its connection before or after it ran."""
WEIGHTS = (95, 2, 1, 1, 1)
CAPABILITIES = Capabilities(user="user", uid=1000, home="/home/user", shell="/bin/sh", system="simulated")
FILES = MemoryFiles("/home/user")


@dataclass(frozen=True)
class Plan:
    """What becomes of each host, by its name, and how long a login and a command take, in seconds."""

    kinds: dict[str, str]
    login: float
    command: float
    seed: int

    @classmethod
    def draw(cls, count: int, *, login: float, command: float, seed: int) -> Plan:
        """Draw the hosts ``h1`` to ``hCOUNT``."""
        source = random.Random(seed)  # not a secret
        kinds = source.choices(KINDS, WEIGHTS, k=count)
        return cls({f"h{number}": kind for number, kind in enumerate(kinds, 1)}, login, command, seed)

    @property
    def hosts(self) -> tuple[Host, ...]:
        """The hosts of a fleet."""
        return tuple(Host(name, Target((Hop("simulated", name),))) for name in self.kinds)

    def counts(self) -> dict[str, int]:
        """How many hosts there are of each kind."""
        return {kind: sum(found == kind for found in self.kinds.values()) for kind in KINDS}


@contextmanager
def simulated_hosts(plan: Plan) -> Iterator[None]:
    """Let targets ``simulated:NAME`` be the hosts of a plan."""
    source = random.Random(plan.seed)  # not a secret

    @asynccontextmanager
    async def factory(target: Target, config: Config, base: Transport | None) -> AsyncIterator[Backend]:
        name = str(target.last.host)
        await anyio.sleep(source.uniform(0.5, 1.5) * plan.login)
        if plan.kinds[name] == "down":
            raise ConnectError(f"connect to host {name} port 22: No route to host", target=target)
        yield _Host(target, plan, source)

    with patch("harness.discovery.find_backend", lambda scheme: factory):  # not a mock, which would record each call
        yield


class _Host(Backend):
    """A host that answers after a drawn delay."""

    __slots__ = ("jobs", "target")
    capabilities = CAPABILITIES
    files = FILES

    def __init__(self, target: Target, plan: Plan, source: random.Random) -> None:
        self.target = target
        self.jobs = _Jobs(target, plan, source)

    @property
    def transport(self) -> None:  # type: ignore[override]  # nothing runs behind it
        return None

    def open_terminal(self, session: str, *, create: bool = True) -> AbstractAsyncContextManager[Terminal]:
        raise NotImplementedError


class _Jobs:
    """The commands of a host."""

    __slots__ = ("_plan", "_source", "_target")

    def __init__(self, target: Target, plan: Plan, source: random.Random) -> None:
        self._target = target
        self._plan = plan
        self._source = source

    async def run(self, command: Command) -> ShellResult:
        kind = self._plan.kinds[str(self._target.last.host)]
        if kind == "lost":
            raise _lost(self._target)
        command.announce("1")
        await anyio.sleep(self._source.expovariate(1 / self._plan.command))
        if kind == "unknown":
            return ShellResult(command.command, Status.UNKNOWN, None, b"", job_id="1")
        output = b"up\n" if kind == "ok" else b"down\n"
        return ShellResult(command.command, Status.COMPLETED, int(kind == "failed"), output, job_id="1")

    async def list(self) -> list[Job]:
        return []


def _lost(target: Target) -> HarnessError:
    return ConnectionLost("the connection was lost before the command was sent", target=target)
