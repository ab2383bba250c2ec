"""Doctor: look at a target and at this machine, and say what is wrong with its fix."""

from __future__ import annotations

import os
import time

import anyio

from ..backend import Backend
from ..discovery import open_target
from ..errors import HarnessError
from ..results import Job, Status
from ..settings import Settings
from ..transport import Process
from .connections import check_connections
from .containers import check_containers, is_container
from .findings import Finding, fail, ok, warn
from .ssh_checks import check_ssh_client
from .target_checks import PROBE, judge_capabilities, judge_facts, parse_facts

__all__ = ["examine"]

PROBE_TIMEOUT = 20.0
MANY_JOBS = 1000
OLD_JOB = 7 * 86400.0
CHANNELS_NEEDED = 2


async def examine(settings: Settings, *, clean: bool = False) -> list[Finding]:
    """Run every check that applies; what fails is a finding, not an exception.

    Args:
        settings: they name the target.
        clean: also remove ended jobs beyond the limits, and what panes and connections that are gone have left.
    """
    findings = [_settings(settings)]
    for hop in settings.target.hops:
        if hop.scheme == "ssh":
            findings += await check_ssh_client(hop, settings.config)
            findings += await check_connections(settings, clean=clean)
    findings += await check_containers(settings, clean=clean)
    try:
        async with open_target(settings.target, settings.config) as backend:
            findings.append(ok("connection", f"{settings.target} as {backend.capabilities.user}"))
            findings += await _examine_backend(backend, settings, clean=clean)
    except HarnessError as error:
        findings.append(fail("connection", error.message, error.hint or "harness -vv doctor says more"))
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
    return [*findings, judge_jobs(await backend.jobs.list(), now=time.time())]


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
    """What the kept jobs tell."""
    running = [job for job in jobs if job.status is Status.RUNNING]
    old = [job.job_id for job in running if job.started is not None and now - job.started > OLD_JOB]
    said = f"{len(running)} running, {len(jobs) - len(running)} ended"
    if old:
        return warn("jobs", f"{said}; running for over a week: {' '.join(old)}", "harness jobs kill ID")
    if len(jobs) > MANY_JOBS:
        return warn("jobs", said, "harness doctor --clean")
    return ok("jobs", said)
