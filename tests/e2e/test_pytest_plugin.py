"""The pytest plugin gives targets to the tests of other projects."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.engines import Engines
from tests.support.sshd import SshServer

TESTS = """
import os, pytest
pytestmark = pytest.mark.anyio

async def test_local(harness_local, tmp_path):
    done = await harness_local.run_shell("echo made > here; pwd; echo $XDG_STATE_HOME")
    where, state = done.stdout.split()
    assert (where, (tmp_path / "here").read_text()) == (str(tmp_path), "made\\n")
    assert state == os.environ["XDG_STATE_HOME"] and "harness-state-" in state

async def test_ssh(harness_ssh):
    assert (await harness_ssh.run_shell("exit 3")).exit_code == 3
    assert str(harness_ssh.target).startswith("ssh://")

async def test_container(harness_container):
    assert (await harness_container.run_shell("cat /etc/hostname")).ok
    assert str(harness_container.target).startswith("container://pytest-")
"""


OTHER_PLUGIN = """
import pytest

def pytest_itemcollected(item):  # as pytest-asyncio does in its automatic mode
    item.add_marker(pytest.mark.asyncio)
"""


def outcome(folder: Path, *words: str, **variables: str) -> str:
    """Run pytest on the tests in a clean environment; returns what it prints."""
    (folder / "test_targets.py").write_text(TESTS)
    environment = {"HOME": str(folder), "PATH": os.environ["PATH"], "LANG": "C.UTF-8", **variables}
    argv = [sys.executable, "-W", "error", "-m", "pytest", "-rs", "-p", "no:cacheprovider", *words, "test_targets.py"]
    done = subprocess.run(argv, cwd=folder, env=environment, capture_output=True, text=True, timeout=100)
    return done.stdout + done.stderr


@pytest.mark.usefixtures("needs_process")
def test_this_machine_and_a_host_are_given_without_any_setting(tmp_path: Path) -> None:
    said = outcome(tmp_path, "-k", "local or ssh")
    assert "2 passed" in said, said
    assert not (tmp_path / ".local").exists()


@pytest.mark.usefixtures("needs_process")
def test_a_container_is_left_out_without_an_image(tmp_path: Path) -> None:
    assert "harness_container needs --harness-image IMAGE" in outcome(tmp_path, "-k", "container")


@pytest.mark.usefixtures("needs_process")
def test_a_test_of_another_asynchronous_plugin_fails_at_once(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(OTHER_PLUGIN)
    said = outcome(tmp_path, "-k", "local or ssh", "-o", "markers=asyncio")
    assert "mark it with pytest.mark.anyio" in said, said
    assert "2 errors" in said


def test_a_host_of_the_options_is_used(sshd: SshServer, tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text(f"[pytest]\nharness_ssh = ssh://nobody@127.0.0.1:{sshd.port}\n")
    said = outcome(tmp_path, "-k", "ssh")
    assert f"nobody@127.0.0.1:{sshd.port}" in said, said  # it was asked, and does not let in without a key
    assert "1 error" in said


@pytest.mark.parametrize("kind", ["docker", "podman"])
def test_a_container_of_the_image_is_given_and_removed(engines: Engines, kind: str, tmp_path: Path) -> None:
    engine = engines.get(kind)
    variables = engine.environ()
    path = variables.pop("PATH", os.environ["PATH"])
    said = outcome(tmp_path, "-k", "container", "--harness-image", engine.image("busybox"), PATH=path, **variables)
    assert "1 passed" in said, said
    assert "pytest-" not in engine.cli("ps", "-a", "--format", "{{.Names}}")
