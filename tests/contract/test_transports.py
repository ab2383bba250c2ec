"""Every transport keeps the contract that its ABC's docstrings state."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.support.berths import BERTHS, Berths
from tests.support.places import Place
from tests.support.program_targets import PROGRAMS, ProgramTargets

from harness.config import Config
from harness.discovery import open_target
from harness.target import Target
from harness.testing.contract import TransportCheck, run_transport_check, transport_checks
from harness.transport import Transport

TRANSPORTS = ("local", "ssh-openssh", "ssh-asyncssh")
CONTAINERS = ("docker", "podman-api", "podman-busybox")


@asynccontextmanager
async def open_transport(place: Place, berths: Berths, programs: ProgramTargets, name: str) -> AsyncIterator[Transport]:
    if name in BERTHS or name in PROGRAMS:
        async with berths.transport(name) if name in BERTHS else programs.transport(name) as transport:
            yield transport
        return
    if name == "local":
        async with open_target(Target.parse("local:"), Config()) as backend:
            yield backend.transport
        return
    config = place.sshd.config(ssh_engine=name.removeprefix("ssh-"))
    async with open_target(Target.parse(place.target), config) as backend:
        yield backend.transport


@pytest.mark.parametrize("item", transport_checks(), ids=lambda item: item.name)
@pytest.mark.parametrize("name", [*TRANSPORTS, *CONTAINERS, *PROGRAMS])
async def test_transport(
    place: Place, berths: Berths, programs: ProgramTargets, name: str, item: TransportCheck
) -> None:
    async with open_transport(place, berths, programs, name) as transport:
        await run_transport_check(item, transport)
