"""Fixtures of the fault tests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.faults.rig import Place, private_home, private_place
from tests.support.sshd import MakeSshd

from harness.testing.delay import delay_proxy


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A home of the test's own."""
    with private_home() as path:
        monkeypatch.setenv("HOME", str(path))
        for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME", "TMUX", "TMUX_PANE"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("SHELL", "/bin/bash")
        yield path


@pytest.fixture
def here(needs_tmux: None, home: Path) -> Iterator[Place]:
    """tmux on this machine."""
    with private_place(home) as place:
        yield place


@pytest.fixture(params=["openssh", "asyncssh"])
def engine(request: pytest.FixtureRequest) -> str:
    """Both SSH engines."""
    return str(request.param)


@pytest.fixture
async def far(needs_tmux: None, home: Path, make_sshd: MakeSshd, engine: str) -> AsyncIterator[Place]:
    """tmux behind SSH, over a link that can be cut, stalled and slowed."""
    server = make_sshd()
    async with delay_proxy("127.0.0.1", server.port) as proxy:
        key = " ".join((server.directory / "host_key.pub").read_text().split()[:2])
        server.known_hosts.write_text(f"[127.0.0.1]:{proxy.port} {key}\n")
        with private_place(home) as place:
            place.sshd, place.proxy = server, proxy
            place.target = f"ssh://{server.user}@127.0.0.1:{proxy.port}"
            place.config = replace(
                server.config(ssh_engine=engine), keepalive_interval=1, keepalive_count=2, connect_timeout=5
            )
            yield place
