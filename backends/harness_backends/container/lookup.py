"""Lookup of a target's container and its engine."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from importlib import import_module

import anyio
import anyio.lowlevel
import anyio.to_thread

from harness.config import Config
from harness.errors import ConnectError, ConnectionLost, HarnessError
from harness.extras import install_extra
from harness.target import Target
from harness.transport import Transport

from ..local.transport import LocalTransport
from .endpoints import Endpoint, EngineName, candidates, program, read_snapshot
from .engine import Engine, EngineError
from .information import ContainerInfo, create_failed, not_found, refusal
from .owner_processes import this_process
from .program_engine import open_cli_engine
from .temporary_container import TemporaryContainer, temporary_container_from_config

__all__ = ["LocatedContainer", "engine_places", "find_container", "open_engine"]

logger = logging.getLogger(__name__)

_NAMES: dict[str, EngineName] = {"docker": "docker", "podman": "podman"}


@dataclass(frozen=True, slots=True)
class LocatedContainer:
    """A container, its engine, and the transport of the engine's program if that runs on another host."""

    engine: Engine
    info: ContainerInfo
    base: Transport | None


@asynccontextmanager
async def find_container(target: Target, config: Config, base: Transport | None) -> AsyncIterator[LocatedContainer]:
    """Find a running container on this machine, or with ``base`` on another host.

    Raises:
        TargetNotFound: no engine knows the container.
        ConnectError: no engine answers, or the container is not running.
    """
    async with AsyncExitStack() as stack:
        places, base = await engine_places(target, config, base, stack)
        yield await stack.enter_async_context(_on(target, places, base, config))


async def engine_places(
    target: Target, config: Config, base: Transport | None, stack: AsyncExitStack
) -> tuple[tuple[Endpoint, ...], Transport | None]:
    """Return the endpoints of the target's engine, and the transport of their host if that is another one.

    Raises:
        ConnectError: no engine is available here, or the host of its address cannot be reached.
        ConfigError: the environment names an invalid address.
    """
    wanted = _NAMES.get(target.last.scheme)
    if base is not None:
        return tuple(map(program, _both(wanted))), base
    places = candidates(wanted, read_snapshot())
    if not places:
        raise no_engine(wanted, target)
    if places[0].scheme != "ssh":
        return places, None
    host = await stack.enter_async_context(_entered_host(places[0], target, config))
    return (program(places[0].engine),), host


def _both(wanted: EngineName | None) -> tuple[EngineName, ...]:
    return (wanted,) if wanted is not None else ("docker", "podman")


def no_engine(wanted: EngineName | None, target: Target) -> ConnectError:
    """Return the error for a machine without an engine."""
    name = wanted or "docker or podman"
    return ConnectError(
        f"no {name} on this machine",
        target=target,
        hint="start the engine, or set DOCKER_HOST or CONTAINER_HOST; for containers of another host use --ssh HOST",
    )


@asynccontextmanager
async def _on(
    target: Target, places: Sequence[Endpoint], base: Transport | None, config: Config
) -> AsyncIterator[LocatedContainer]:
    """Find the container, or create a temporary one that is removed when the context exits."""
    if not config.image:
        yield await _find_on(target, places, base, config)
        return
    engine = await _first_engine(target, places, base, config)
    async with temporary_container(engine, target, config) as info:
        yield LocatedContainer(engine, info, base)


async def _first_engine(target: Target, places: Sequence[Endpoint], base: Transport | None, config: Config) -> Engine:
    faults: list[HarnessError] = []
    for place in places:
        try:
            return await open_engine(place, target, base, config)
        except (ConnectError, ConnectionLost) as error:
            faults.append(error)
    raise faults[0]


@asynccontextmanager
async def temporary_container(engine: Engine, target: Target, config: Config) -> AsyncIterator[ContainerInfo]:
    """Create a container of ``config.image`` with the target's name, and remove it when the context exits.

    Raises:
        ConnectError: it cannot be created, the image has no shell, or the image does not exist.
    """
    scratch = temporary_container_from_config(config, target.last.host, this_process())
    try:
        await engine.fetch(scratch.image)
    except EngineError as error:
        raise create_failed(scratch, error.message, target, has_image=False) from error
    try:
        with anyio.CancelScope(shield=True):  # a partly created container could not be removed
            container_id = await _create(engine, scratch)
    except EngineError as error:
        raise create_failed(scratch, error.message, target, has_image=True) from error
    try:
        await anyio.lowlevel.checkpoint_if_cancelled()
        info = await engine.inspect(container_id)
        if info is None:
            raise ConnectError(f"container {scratch.name} exited immediately", target=target)
        yield info
    finally:
        with anyio.CancelScope(shield=True):
            await _remove(engine, container_id)


async def _create(engine: Engine, scratch: TemporaryContainer) -> str:
    try:
        return await engine.create(scratch)
    except (EngineError, HarnessError):
        with suppress(EngineError, HarnessError):
            made = await engine.inspect(scratch.name)
            if made is not None and made.label == scratch.label:  # not another process's container of that name
                await engine.remove(made.container_id)
        raise


async def _remove(engine: Engine, container_id: str) -> None:
    try:
        await engine.remove(container_id)
    except (EngineError, HarnessError) as error:
        logger.warning("container %s was not removed (run harness doctor --clean): %s", container_id[:12], error)


async def _find_on(
    target: Target, places: Sequence[Endpoint], base: Transport | None, config: Config
) -> LocatedContainer:
    """Return the container from the first engine that has it, else raise the first error or TargetNotFound."""
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
            return _enterable(LocatedContainer(engine, info, base), target)
        asked.append(engine.describe())
    if asked:
        raise not_found(target.last.host, asked, [fault.message for fault in faults], target)
    raise faults[0]


def _enterable(found: LocatedContainer, target: Target) -> LocatedContainer:
    fault = refusal(found.info, found.engine.name, target)
    if fault is not None:
        raise fault
    return found


async def open_engine(place: Endpoint, target: Target, base: Transport | None, config: Config) -> Engine:
    """Connect to the engine at an endpoint.

    Raises:
        ConnectError, ConnectionLost: the engine does not answer.
    """
    if place.scheme == "program":
        return await open_cli_engine(place.engine, target, base or LocalTransport(Target.parse("local:")), base is None)
    try:
        await anyio.to_thread.run_sync(import_module, "docker")  # takes longer than a command
        from .docker_engine import open_docker_engine
    except ImportError:
        raise ConnectError(
            f"engines behind a socket need the docker package: {place}", target=target, hint=install_extra("docker")
        ) from None
    return await open_docker_engine(place, target, config.connect_timeout)


@asynccontextmanager
async def _entered_host(place: Endpoint, target: Target, config: Config) -> AsyncIterator[Transport]:
    """Connect to the host of an ``ssh://`` address like to any SSH target."""
    from ..ssh import open_transport as open_ssh

    async with open_ssh(Target.parse(place.url.partition("/run/")[0].rstrip("/")), config, None) as host:
        yield host
