"""Contexts in containers, by each way that leads into one."""

from __future__ import annotations

import os
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.support.daemons import without_engines
from tests.support.engines import Container, Engine, Engines

from harness import ExecutionContext, connect
from harness.config import Config

__all__ = ["WAYS", "Way", "enter_way"]

WAYS = ("docker", "podman", "podman-program")
"""Docker's API, Podman's compatible service, and the ``podman`` program alone."""


@dataclass(frozen=True)
class Way:
    """An engine as the environment of this process leads to it."""

    engine: Engine
    name: str

    @asynccontextmanager
    async def connect(self, target: str | Container, **options: Any) -> AsyncIterator[ExecutionContext]:
        """A context in a container, with a tmux server of its own when one is asked for."""
        url = target.target if isinstance(target, Container) else target
        config = options.pop("config", None) or Config(tmux_socket=f"hx-{secrets.token_hex(4)}")
        async with connect(url, config=config, **options) as ctx:
            yield ctx


def enter_way(name: str, engines: Engines, patch: pytest.MonkeyPatch, home: Path) -> Way:
    """Make the environment lead to the engine of a way, and to no other."""
    kind, _, program = name.partition("-")
    engine = engines.get(kind)
    kept = without_engines()
    for variable in set(os.environ) - set(kept):
        patch.delenv(variable)
    for variable, value in {"PATH": kept["PATH"], "HOME": str(home), **engine.environ(api=not program)}.items():
        patch.setenv(variable, value)
    patch.delenv("XDG_RUNTIME_DIR", raising=False)
    patch.delenv("XDG_STATE_HOME", raising=False)
    return Way(engine, name)


MakeWay = Callable[[str], Way]


@pytest.fixture
def make_way(engines: Engines, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> MakeWay:
    """``make_way("podman-program")``."""

    def make(name: str) -> Way:
        return enter_way(name, engines, monkeypatch, tmp_path)

    return make
