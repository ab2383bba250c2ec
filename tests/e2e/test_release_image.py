"""The image of a release, built by Podman from a Debian that the tests made, and from wheels: without a network."""

from __future__ import annotations

import json
import secrets
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.support.engines import Engine, Engines

ROOT = Path(__file__).parents[2]
RUN_OPTIONS = ("run", "--rm", "--read-only", "--cap-drop=ALL")
RUN_OPTIONS += ("--tmpfs=/tmp", "--tmpfs=/home/harness:mode=1777")
BUILD_TIMEOUT = 300
Run = Callable[..., str]


@pytest.fixture(scope="module", params=["podman"])
def podman(needs_process: None, engines: Engines, request: pytest.FixtureRequest) -> Engine:
    return engines.get(request.param)


@pytest.fixture(scope="module")
def run(podman: Engine, needs_release: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """Runs the program of the image."""
    base = podman.image("debian-python")
    dist = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", str(dist), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True, timeout=120)
    version = podman.cli("run", "--rm", base, "python3", "-c", "import sys; print('%d.%d' % sys.version_info[:2])")
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--dest", str(dist), "--python-version", version]
    subprocess.run([*pip, "--only-binary=:all:", *dist.glob("*.whl")], check=True, capture_output=True, timeout=300)
    name = f"harness-test/release-{secrets.token_hex(4)}"
    words = ["build", "--isolation", "chroot", "--tag", name, "--file", str(ROOT / "scripts/image/Containerfile")]
    words += [word for pair in (f"BASE={base}", "EXTRAS=", "PIP_NO_INDEX=1") for word in ("--build-arg", pair)]
    done = subprocess.run(
        ["podman", *words, str(dist)],
        env=podman.recipe.surroundings,
        capture_output=True,
        text=True,
        timeout=BUILD_TIMEOUT,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    yield lambda *arguments: podman.cli(*RUN_OPTIONS, name, *arguments)
    podman.cli("rmi", "--force", name)


@pytest.mark.timeout(900)
def test_the_image_runs_commands_without_root_on_a_read_only_system(run: Run) -> None:
    assert run("run", "--", "id -u; pwd; command -v harness pip").split() == [
        "10001",
        "/home/harness",
        "/opt/harness/bin/harness",
    ]


@pytest.mark.timeout(900)
def test_the_image_has_ssh_and_tmux(run: Run) -> None:
    about = json.loads(run("--version", "--json"))
    assert about["ssh"].startswith("OpenSSH")
    assert about["tmux"].startswith("tmux ")
    assert run("--tmux", "run", "--", "echo in a pane") == "in a pane"


@pytest.mark.timeout(900)
def test_doctor_finds_no_fault_in_the_image(run: Run) -> None:
    report = json.loads(run("--json", "doctor"))
    assert [finding for finding in report["installation"] if finding["level"] == "fail"] == []
