"""A pytest plugin with targets as fixtures: this machine, a host behind SSH and a container.

pytest loads it by its entry point. Tests that use the fixtures are asynchronous and run by anyio's plugin, which comes
with harness: mark them with ``@pytest.mark.anyio``, or set ``anyio_mode = "auto"``.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from ..context import ExecutionContext

__all__ = ["harness_container", "harness_local", "harness_ssh", "pytest_addoption"]

TARGETS = (
    ("ssh", "TARGET", "the host of the fixture harness_ssh (default: a server in the test itself)"),
    ("image", "IMAGE", "the image of the fixture harness_container"),
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options, and settings of the same names."""
    group = parser.getgroup("harness")
    for name, value, text in TARGETS:
        group.addoption(f"--harness-{name}", metavar=value, help=text)
        parser.addini(f"harness_{name}", text)


@pytest.fixture
def _harness_runner(request: pytest.FixtureRequest, anyio_backend_name: str) -> None:
    """Check that anyio's plugin runs the test: another one has an event loop of its own, and would wait forever."""
    if request.node.get_closest_marker("asyncio") is not None:
        pytest.fail(
            "the fixtures of harness need anyio's plugin, and pytest-asyncio runs this test:"
            " mark it with pytest.mark.anyio, in pytest-asyncio's strict mode",
            pytrace=False,
        )
    if anyio_backend_name != "asyncio":
        pytest.skip("harness runs on asyncio")


def _chosen(request: pytest.FixtureRequest, name: str) -> str:
    """Return an option, or the setting of that name; empty for neither."""
    return str(request.config.getoption(f"--harness-{name}") or request.config.getini(f"harness_{name}"))


@pytest.fixture
async def harness_local(
    _harness_runner: None, anyio_backend: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[ExecutionContext]:
    """Give this machine, in an empty directory, with job records of the test's own and without the user's settings."""
    from ..config import Config
    from ..context import connect

    with TemporaryDirectory(prefix="harness-state-", ignore_cleanup_errors=True) as state:
        monkeypatch.setenv("XDG_STATE_HOME", state)
        async with connect("local:", config=Config(cwd=str(tmp_path))) as ctx:
            yield ctx


@pytest.fixture
async def harness_ssh(
    _harness_runner: None, anyio_backend: object, request: pytest.FixtureRequest
) -> AsyncIterator[ExecutionContext]:
    """Give a host behind SSH: that of ``--harness-ssh``, else a server in the test itself, with an empty home."""
    from ..config import Config
    from ..context import connect
    from .ssh_server import embedded_ssh_server

    if target := _chosen(request, "ssh"):
        async with connect(target, config=Config()) as ctx:
            yield ctx
        return
    async with (
        embedded_ssh_server(shell="/bin/sh") as server,
        connect(server.target, config=server.config(dedicated_connection=True)) as ctx,
    ):
        yield ctx


@pytest.fixture
async def harness_container(
    _harness_runner: None, anyio_backend: object, request: pytest.FixtureRequest
) -> AsyncIterator[ExecutionContext]:
    """Give a new container of ``--harness-image``, which is removed after the test; without the option, skip."""
    from ..config import Config
    from ..context import connect

    image = _chosen(request, "image")
    if not image:
        pytest.skip("harness_container needs --harness-image IMAGE")
    async with connect(f"container://pytest-{secrets.token_hex(4)}", config=Config(image=image)) as ctx:
        yield ctx
