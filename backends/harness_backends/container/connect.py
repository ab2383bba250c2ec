"""Finding the container that a target names: the engine that answers, and the container's id."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from harness.config import Config
from harness.errors import ConnectError, ConnectionLost, HarnessError
from harness.target import Target
from harness.transport import Transport

from ..local import LocalTransport
from .api import open_api_engine
from .cli import open_cli_engine
from .endpoint import Endpoint, EngineName, candidates, program
from .engine import Engine
from .environment import read_snapshot
from .info import ContainerInfo, not_found, refusal

__all__ = ["Found", "find_container", "open_engine"]

_NAMES: dict[str, EngineName] = {"docker": "docker", "podman": "podman"}


@dataclass(frozen=True, slots=True)
class Found:
    """A container, its engine, and the transport that the engine's program runs on, if it runs elsewhere."""

    engine: Engine
    info: ContainerInfo
    base: Transport | None


@asynccontextmanager
async def find_container(target: Target, config: Config, base: Transport | None) -> AsyncIterator[Found]:
    """Find the container on this machine, or with ``base`` on another; it must take programs.

    Raises:
        TargetNotFound: no engine knows it.
        ConnectError: no engine answers, or the container is in no state to be entered.
    """
    wanted = _NAMES.get(target.last.scheme)
    if base is not None:
        yield await _find_on(target, [program(name) for name in _both(wanted)], base, config)
        return
    places = candidates(wanted, read_snapshot())
    if not places:
        raise no_engine(wanted, target)
    if places[0].scheme == "ssh":
        async with _entered_host(places[0], target, config) as host:
            yield await _find_on(target, [program(places[0].engine)], host, config)
        return
    yield await _find_on(target, places, None, config)


def _both(wanted: EngineName | None) -> tuple[EngineName, ...]:
    return (wanted,) if wanted is not None else ("docker", "podman")


def no_engine(wanted: EngineName | None, target: Target) -> ConnectError:
    """Nothing of an engine is on this machine."""
    name = wanted or "docker or podman"
    return ConnectError(
        f"no {name} on this machine",
        target=target,
        hint="start its engine, or set DOCKER_HOST or CONTAINER_HOST; --ssh HOST enters containers of another machine",
    )


async def _find_on(target: Target, places: Sequence[Endpoint], base: Transport | None, config: Config) -> Found:
    """The first engine that has the container; else the first fault, or where it was looked for."""
    asked: list[str] = []
    faults: list[HarnessError] = []
    for place in places:
        try:
            engine = await open_engine(place, target, base, config)
            info = await engine.inspect(target.last.host)
        except (ConnectError, ConnectionLost) as error:
            faults.append(error)
            continue
        if info is not None:
            return _enterable(Found(engine, info, base), target)
        asked.append(engine.describe())
    if asked:
        raise not_found(target.last.host, asked, [fault.message for fault in faults], target)
    raise faults[0]


def _enterable(found: Found, target: Target) -> Found:
    fault = refusal(found.info, found.engine.name, target)
    if fault is not None:
        raise fault
    return found


async def open_engine(place: Endpoint, target: Target, base: Transport | None, config: Config) -> Engine:
    """The engine at a place.

    Raises:
        ConnectError, ConnectionLost: it does not answer.
    """
    if place.scheme == "program":
        return await open_cli_engine(place.engine, target, base or LocalTransport(Target.parse("local:")), base is None)
    return await open_api_engine(place, target, config.connect_timeout)


@asynccontextmanager
async def _entered_host(place: Endpoint, target: Target, config: Config) -> AsyncIterator[Transport]:
    """The host of an ``ssh://`` address, entered as every SSH target is."""
    from ..ssh import open_transport as open_ssh

    async with open_ssh(Target.parse(place.url.partition("/run/")[0].rstrip("/")), config, None) as host:
        yield host
