"""This machine as a target, with a home in which there is a secret."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from harness import connect
from harness.context import ExecutionContext

__all__ = ["here"]


@pytest.fixture
async def here(needs_process: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ExecutionContext]:
    """This machine, with a home of its own."""
    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh/id_rsa").write_text("key")
    for name in ("HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR"):
        monkeypatch.setenv(name, str(home))
    async with connect("local:") as ctx:
        yield ctx
