"""Checks of engines and containers for ``harness doctor``, and removal of orphaned temporary containers."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack

from harness.backend import Finding, fail, ok, warn
from harness.config import Config
from harness.discovery import open_target
from harness.errors import ConnectError, HarnessError
from harness.target import Target
from harness.transport import Transport

from .endpoints import Endpoint
from .engine import Engine, EngineError
from .information import ContainerInfo, refusal
from .lookup import engine_places, open_engine
from .owner_processes import running_processes, this_machine
from .temporary_container import orphaned, parse_maker

__all__ = ["examine_engines", "judge_container", "list_engines"]

HERE = Target.parse("local:")


async def examine_engines(target: Target | None, config: Config, *, clean: bool) -> list[Finding]:
    """Check the engines of a container target, the container, and orphaned temporary containers.

    Args:
        target: a container, possibly on a host; None checks the engines of this machine, and ignores missing ones.
        config: settings.
        clean: remove temporary containers whose harness process has exited.
    """
    findings: list[Finding] = []
    async with AsyncExitStack() as stack:
        base = await _base(target, config, stack)
        for engine in await _engines(target, config, base, stack, findings):
            findings += await _examine(engine, target, config, clean=clean)
    return findings


async def list_engines(config: Config) -> list[Finding]:
    """Return a finding about each engine of this machine, or one if none is found.

    Raises:
        HarnessError: the environment names an invalid or unreachable address.
    """
    async with AsyncExitStack() as stack:
        try:
            places, base = await engine_places(HERE, config, None, stack)
        except ConnectError:
            return [ok("containers", "no engine: neither docker nor podman is installed")]
        findings: dict[str, Finding] = {}
        for place in places:
            if place.engine not in findings or findings[place.engine].level != "ok":
                findings[place.engine] = await _judge_engine(place, base, config)
    return list(findings.values())


async def _judge_engine(place: Endpoint, base: Transport | None, config: Config) -> Finding:
    try:
        return ok("containers", (await open_engine(place, HERE, base, config)).describe())
    except HarnessError as error:
        return warn("containers", f"{place}: {error.message}", error.hint or "start it, if you need it")


async def _examine(engine: Engine, target: Target | None, config: Config, *, clean: bool) -> list[Finding]:
    """Check one engine; without a target, an engine that is not running is ignored."""
    try:
        seen = [*await _look(engine, target, config), *await _left_behind(engine, clean=clean)]
    except (EngineError, HarnessError) as error:
        if target is None:
            return []
        return [fail("engine", f"{engine.describe()}: {error}", "check that it is healthy")]
    return seen if target is None else [ok("engine", engine.describe()), *seen]


async def _base(target: Target | None, config: Config, stack: AsyncExitStack) -> Transport | None:
    if target is None or target.base is None or target.base.last.scheme == "local":
        return None
    return (await stack.enter_async_context(open_target(target.base, config))).transport


async def _engines(
    target: Target | None, config: Config, base: Transport | None, stack: AsyncExitStack, findings: list[Finding]
) -> list[Engine]:
    """Return the engines that answer; with a target, failures become findings."""
    engines: list[Engine] = []
    try:
        places, base = await engine_places(target or HERE, config, base, stack)
    except HarnessError as error:
        if target is not None:
            findings.append(fail("engine", error.message, error.hint or "start one"))
        return []
    faults: list[Finding] = []
    for place in places:
        try:
            engines.append(await open_engine(place, target or HERE, base, config))
        except HarnessError as error:
            faults.append(fail("engine", f"{place}: {error.message}", error.hint or "start it"))
    if target is not None and not engines:
        findings += faults
    return _distinct(engines)


def _distinct(engines: Sequence[Engine]) -> list[Engine]:
    """Return each engine once, as it may answer at its socket and to its program."""
    return list({engine.name: engine for engine in reversed(engines)}.values())[::-1]


async def _look(engine: Engine, target: Target | None, config: Config) -> list[Finding]:
    if target is None or config.image:
        return []
    info = await engine.inspect(target.last.host)
    return judge_container(info, engine.name, target) if info is not None else []


def judge_container(info: ContainerInfo, engine: str, target: Target) -> list[Finding]:
    """Return the findings about a container's state."""
    said = f"{info.name} {info.short_id} of {info.image}, {info.state}"
    fault = refusal(info, engine, target)
    if fault is not None:
        return [fail("container", fault.message, fault.hint)]
    if info.health == "unhealthy":
        return [warn("container", said, f"{engine} inspect {info.name} shows the output of its health check")]
    return [ok("container", said)]


async def _left_behind(engine: Engine, *, clean: bool) -> list[Finding]:
    machine, boot = this_machine()
    alive = running_processes()
    labelled = [(container_id, parse_maker(label)) for container_id, label in await engine.scratches()]
    dead = [container_id for container_id, maker in labelled if maker and orphaned(maker, machine, boot, alive)]
    if not dead:
        return [ok("temporary containers", f"{len(labelled)} in use at {engine.name}")] if labelled else []
    if not clean:
        said = f"{len(dead)} of {len(labelled)} at {engine.name} have no running harness process"
        return [warn("temporary containers", said, "harness doctor --clean")]
    for container_id in dead:
        await engine.remove(container_id)
    return [ok("temporary containers", f"{len(dead)} removed at {engine.name}")]
