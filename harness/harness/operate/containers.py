"""Doctor's questions to the backend of containers, which knows its engines."""

from __future__ import annotations

import sys
from typing import Protocol, cast

from ..config import Config
from ..discovery import find_backend
from ..errors import TargetNotFound
from ..settings import Settings
from ..target import Target
from .findings import Finding

__all__ = ["check_containers", "is_container"]

SCHEME = "container"


class Examiner(Protocol):
    """What the module of that backend offers."""

    async def examine_engines(self, target: Target | None, config: Config, *, clean: bool) -> list[Finding]:
        """Findings about the engines of a target, or of this machine, and about what was left behind there."""


def is_container(target: Target) -> bool:
    """An engine starts the commands of this target; it can do so as any user."""
    try:
        return _module(target.last.scheme) == find_backend(SCHEME).__module__
    except TargetNotFound:
        return False


async def check_containers(settings: Settings, *, clean: bool) -> list[Finding]:
    """Findings about each container of the target; ``clean`` also removes what was left behind on this machine."""
    try:
        ours = find_backend(SCHEME)
    except TargetNotFound:
        return []
    examiner = cast(Examiner, sys.modules[ours.__module__])
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
