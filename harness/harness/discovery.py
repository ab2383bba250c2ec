"""Find the backend of a target by entry point, and open the hops of a composed target."""

from __future__ import annotations

import glob
import importlib
import sys
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import cache
from typing import cast

from .backend import Backend, BackendFactory
from .config import Config
from .errors import TargetNotFound
from .target import Target
from .transport import Transport

__all__ = ["find_backend", "open_target", "schemes"]

GROUP = "harness.backends"


@cache
def _names() -> dict[str, str]:
    from importlib.metadata import entry_points  # slow to import, and seldom needed: see _listed

    return {point.name: point.value for point in entry_points(group=GROUP)}


@cache
def _listed() -> dict[str, str]:
    """Return the entry points in plain files of ``sys.path``: nearly always all, in a tenth of the time."""
    found: dict[str, str] = {}
    for directory in sys.path:
        for path in sorted(glob.glob(f"{glob.escape(directory or '.')}/*.dist-info/entry_points.txt")):
            with open(path, encoding="utf-8") as file:
                for name, value in _points(file.read()):
                    found.setdefault(name, value)
    return found


def _points(text: str) -> list[tuple[str, str]]:
    """Return the names and values in the group's section of an ``entry_points.txt``."""
    _, _, rest = f"\n{text}".partition(f"\n[{GROUP}]\n")
    lines = (line.partition("=") for line in rest.partition("\n[")[0].splitlines() if "=" in line)
    return [(name.strip(), value.partition("[")[0].strip()) for name, _, value in lines]


def schemes() -> list[str]:
    """Return the URL schemes of the installed backends, sorted."""
    return sorted(_names())


def find_backend(scheme: str) -> BackendFactory:
    """Return the factory of the backend for a URL scheme.

    Raises:
        TargetNotFound: No installed backend supports it.
    """
    value = _listed().get(scheme) or _names().get(scheme)
    if value is None:
        raise TargetNotFound(f"no backend for {scheme!r} targets", hint=f"installed: {', '.join(schemes()) or 'none'}")
    module, _, attribute = value.partition(":")
    return cast(BackendFactory, getattr(importlib.import_module(module), attribute))


def open_target(target: Target, config: Config) -> AbstractAsyncContextManager[Backend]:
    """Open a target hop by hop; each backend runs on the transport of the previous one.

    Raises:
        TargetNotFound: No installed backend supports a hop.
    """
    if len(target.hops) == 1:  # without a context manager of its own, as fleets have many idle hosts
        return find_backend(target.last.scheme)(target, config, None)
    return _open_hops(target, config)


@asynccontextmanager
async def _open_hops(target: Target, config: Config) -> AsyncIterator[Backend]:
    async with AsyncExitStack() as stack:
        transport: Transport | None = None
        for number, hop in enumerate(target.hops, 1):
            factory = find_backend(hop.scheme)
            here = Target(target.hops[:number])
            backend = await stack.enter_async_context(factory(here, config, transport))
            transport = backend.transport
        yield backend
