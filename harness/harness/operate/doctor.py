"""Doctor: check a target, its containers, this machine and its connections, and suggest fixes."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Protocol, cast

import anyio

from ..backend import Backend, Finding, fail, ok, warn
from ..config import Config
from ..discovery import find_backend, open_target
from ..errors import HarnessError, TargetNotFound, UnsupportedOperation
from ..results import Job, Status
from ..settings import Settings
from ..target import Target
from ..transport import Process
from .checks import PROBE, check_ssh_client, judge_capabilities, judge_facts, parse_facts

__all__ = [
    "ConnectionPoolBackend",
    "ContainerChecks",
    "Master",
    "check_connections",
    "check_containers",
    "examine",
    "is_container",
    "keeper",
]


# -- The connections that harness keeps open between its runs.
#
# The module of a backend that keeps connections, found by the entry point of its factory, also has ``list_masters``
# and ``disconnect`` of the types below.


class Master(Protocol):
    """One kept connection."""

    @property
    def name(self) -> str:
        """The host, for display."""

    @property
    def path(self) -> str:
        """Its control socket."""

    @property
    def pid(self) -> int | None:
        """Its process ID; None if it is unresponsive."""


class ConnectionPoolBackend(Protocol):
    """The interface of a backend that keeps connections."""

    async def list_masters(self) -> Sequence[Master]:
        """Return this user's kept connections, including unresponsive ones."""

    async def disconnect(self, config: Config, target: Target | None) -> Sequence[Master]:
        """Close the connection to a target, or all for None, and return those that were open."""

    async def explain_engine(self, target: Target, config: Config) -> Sequence[str]:
        """Return why a host of a fleet gets OpenSSH; nothing if it gets asyncssh."""


def keeper(scheme: str = "ssh") -> ConnectionPoolBackend:
    """Return the backend module that keeps the connections of a scheme.

    Raises:
        UnsupportedOperation: The backend keeps none.
    """
    module = sys.modules[find_backend(scheme).__module__]
    if not hasattr(module, "list_masters") or not hasattr(module, "disconnect"):
        raise UnsupportedOperation(f"the backend of {scheme}: keeps no connections")
    return cast(ConnectionPoolBackend, module)


async def check_engine(target: Target, config: Config) -> list[Finding]:
    """Return a finding about the SSH engine that a host gets in a fleet."""
    module = keeper()
    if config.ssh_engine not in {"default", "auto"} or not hasattr(module, "explain_engine"):
        return []
    try:
        reasons = await module.explain_engine(target, config)
    except HarnessError:
        return []  # the ssh configuration has a finding of its own
    return [ok("ssh engine", f"OpenSSH, because of: {'; '.join(reasons)}" if reasons else "asyncssh in a fleet")]


async def check_connections(settings: Settings, *, clean: bool) -> list[Finding]:
    """Return a finding about the kept connections; ``clean`` removes leftovers of unresponsive ones."""
    if settings.config.ssh_engine == "asyncssh":
        return []
    masters = await keeper().list_masters()
    dead = [master for master in masters if master.pid is None]
    kept = len(masters) - len(dead)
    if not dead:
        return [ok("connections", f"{kept} kept")]
    if not clean:
        return [warn("connections", f"{len(dead)} of {len(masters)} are dead", "harness doctor --clean")]
    _remove(dead)
    return [ok("connections", f"{len(dead)} dead ones removed, {kept} kept")]


def _remove(dead: Sequence[Master]) -> None:
    for master in dead:
        Path(master.path).unlink(missing_ok=True)


# -- Checks by the container backend, which knows its engines.


SCHEME = "container"
"""The scheme by which the container backend is found, whatever the engine."""


class ContainerChecks(Protocol):
    """The interface of the container backend's module."""

    async def examine_engines(self, target: Target | None, config: Config, *, clean: bool) -> list[Finding]:
        """Return findings about the engines of a target, or of this machine, and about leftovers there."""

    async def list_engines(self, config: Config) -> list[Finding]:
        """Return a finding about each engine of this machine."""


def is_container(target: Target) -> bool:
    """Return whether the target is a container, whose engine can start commands as any user."""
    try:
        return _module(target.last.scheme) == find_backend(SCHEME).__module__
    except TargetNotFound:
        return False


async def check_containers(settings: Settings, *, clean: bool) -> list[Finding]:
    """Return findings about each container of the target; ``clean`` also removes leftovers on this machine."""
    try:
        ours = find_backend(SCHEME)
    except TargetNotFound:
        return []
    examiner = cast(ContainerChecks, sys.modules[ours.__module__])
    hops = settings.target.hops
    targets = [Target(hops[:n]) for n, hop in enumerate(hops, 1) if _module(hop.scheme) == ours.__module__]
    findings = [
        finding
        for target in targets
        for finding in await examiner.examine_engines(target, settings.config, clean=clean)
    ]
    if not targets and clean:
        findings = await examiner.examine_engines(None, settings.config, clean=True)
    return findings


def _module(scheme: str) -> str:
    try:
        return find_backend(scheme).__module__
    except TargetNotFound:
        return ""


# -- All checks.


PROBE_TIMEOUT = 20.0
MANY_JOBS = 1000
OLD_JOB = 7 * 86400.0
CHANNELS_NEEDED = 2


async def examine(settings: Settings, *, clean: bool = False, opened: Backend | None = None) -> list[Finding]:
    """Run all applicable checks and return their findings; failures are findings, not exceptions.

    Args:
        settings: The settings, which name the target.
        clean: Also remove finished jobs beyond the limits, and leftovers of closed panes and connections.
        opened: The target's open backend; None opens the target.
    """
    findings = [_settings(settings)]
    for hop in settings.target.hops:
        if hop.scheme == "ssh":
            findings += await check_ssh_client(hop, settings.config)
            findings += await check_engine(Target((hop,)), settings.config)
            findings += await check_connections(settings, clean=clean)
    findings += await check_containers(settings, clean=clean)
    try:
        connection = open_target(settings.target, settings.config) if opened is None else nullcontext(opened)
        async with connection as backend:
            findings.append(ok("connection", f"{settings.target} as {backend.capabilities.user}"))
            findings += await _examine_backend(backend, settings, clean=clean)
    except HarnessError as error:
        findings.append(fail("connection", error.message, error.hint or "harness doctor -vv says more"))
    return findings


def _settings(settings: Settings) -> Finding:
    return ok("settings", ", ".join(settings.files) or "no file; the defaults hold ('harness init' writes one)")


async def _examine_backend(backend: Backend, settings: Settings, *, clean: bool) -> list[Finding]:
    found = backend.capabilities
    findings = judge_capabilities(found, tmux_wanted=settings.tmux is not False)
    before = time.time()
    facts = parse_facts(await _probe(backend, backend.transport.tmux_socket(settings.config.tmux_socket)))
    middle = before if "end" not in facts else (before + time.time()) / 2
    engine = is_container(settings.target)
    findings += judge_facts(facts, uid=found.uid, local_time=middle, by_engine=engine)
    findings += _channels(backend.transport.max_channels)
    if clean:
        findings.append(ok("clean", f"{await backend.jobs.clean()} ended jobs removed"))
    return [*findings, await _jobs(backend)]


async def _jobs(backend: Backend) -> Finding:
    try:
        return judge_jobs(await backend.jobs.list(), now=time.time())
    except UnsupportedOperation as error:
        return fail("jobs", error.message, error.hint or "")


async def _probe(backend: Backend, socket: str) -> str:
    arguments = (backend.capabilities.state_dir, os.environ.get("TERM", ""), socket)
    answer = bytearray()
    async with await backend.transport.open_process(["sh", "-c", PROBE, "sh", *arguments]) as process:
        await process.send_eof()
        with anyio.move_on_after(PROBE_TIMEOUT):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_drain, process)
                while chunk := await process.receive():
                    answer += chunk
    return answer.decode("utf-8", "replace")


async def _drain(process: Process) -> None:
    while await process.receive_stderr():
        pass


def _channels(limit: int | None) -> list[Finding]:
    if limit is None:
        return []
    if limit < CHANNELS_NEEDED:
        fix = f"MaxSessions {CHANNELS_NEEDED} or more in the host's sshd_config"
        return [warn("channels", f"sshd allows {limit} at once: no tmux session, and one operation at a time", fix)]
    return [ok("channels", f"at least {limit} at once")]


def judge_jobs(jobs: list[Job], *, now: float) -> Finding:
    """Return a finding about the jobs on the target."""
    running = [job for job in jobs if job.status is Status.RUNNING]
    old = [job.job_id for job in running if job.started is not None and now - job.started > OLD_JOB]
    said = f"{len(running)} running, {len(jobs) - len(running)} ended"
    if old:
        return warn("jobs", f"{said}; running for over a week: {' '.join(old)}", "harness jobs kill ID")
    if len(jobs) > MANY_JOBS:
        return warn("jobs", said, "harness doctor --clean")
    return ok("jobs", said)
