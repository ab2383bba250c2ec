"""The engines and images that container tests run on are what they seem, and leave nothing behind."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from tests.support.daemons import KINDS, EngineUnavailable, answers, recipe
from tests.support.debian import Mirror, _build, find_mirror
from tests.support.engines import PREFIX, ROOT, Engine, Engines, container, private_engine, shared_engine
from tests.support.sweep import leftovers

USER = """
import sys
from tests.support.engines import container, shared_engine
with shared_engine(sys.argv[1], sys.argv[2]) as engine, container(engine, "busybox"):
    print("up", flush=True)
    sys.stdin.read()
"""


@pytest.fixture(params=KINDS)
def engine(engines: Engines, request: pytest.FixtureRequest) -> Engine:
    return engines.get(request.param)


def test_a_container_runs_without_a_network_until_its_block_ends(engine: Engine) -> None:
    with container(engine) as one:
        assert one.run("sh", "-c", "echo $((6 * 7)); cat", stdin=b"in") == "42\nin"
        assert one.run("ls", "/sys/class/net").split() == ["lo"]
        assert [command for _, command in one.processes()] == ["sleep 1000000000"]
        assert one.id in engine.cli("ps", "-q", "--no-trunc")
    assert one.id not in engine.cli("ps", "-aq", "--no-trunc")


def test_a_container_takes_the_options_of_the_engine(engine: Engine) -> None:
    with container(engine, options=("--read-only", "--user", "4242:4242")) as one:
        assert one.run("id", "-u") == "4242"
        assert one.run("sh", "-c", "touch /x 2>/dev/null || echo refused", user="root") == "refused"


def test_a_container_lives_through_what_can_happen_to_it(engine: Engine) -> None:
    with container(engine) as one:
        state = ("inspect", "--format", "{{.State.Status}}", one.name)
        for verb, expected in [
            ("pause", "paused"),
            ("unpause", "running"),
            ("restart", "running"),
            ("stop", "exited"),
            ("start", "running"),
            ("kill", "exited"),  # Podman says stopped before it has tidied up
        ]:
            one.do(verb)
            assert engine.cli(*state).replace("stopped", "exited") == expected, verb


@pytest.mark.parametrize(
    ("image", "script", "expected"),
    [
        ("debian", "tmux -V >/dev/null && ps -o comm= -p 1 && bash -c 'echo ${BASH_VERSION%%.*}'", "sleep\n5"),
        (
            "busybox",
            "id -un; cd; pwd; test -w /tmp && echo tmp; tmux -V 2>&1 | grep -c found",
            "root\n/root\ntmp\n1",
        ),
        ("no-tmp", "ls -d /tmp /var/tmp 2>/dev/null; id -u", "0"),
        ("non-root", "id -un; pwd; echo $HOME $COLOUR", "app\n/home/app\n/home/app blue"),
        ("only-sh", "for i in cat ls mkdir rm sleep busybox; do command -v $i; done; echo no more", "no more"),
    ],
)
def test_an_image_has_and_lacks_what_its_name_says(engine: Engine, image: str, script: str, expected: str) -> None:
    with container(engine, image) as one:
        assert one.run("/bin/sh", "-c", script) == expected


def test_an_image_without_a_shell_has_none(engine: Engine) -> None:
    with container(engine, "no-shell") as one:
        with pytest.raises(AssertionError, match="no such file"):
            one.run("/bin/sh", "-c", "echo yes")
        assert [command for _, command in one.processes()] == ["/pause/sleep 1000000000"]


def test_the_engine_of_the_user_plays_no_part(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DOCKER_HOST", "DOCKER_CONTEXT", "CONTAINER_HOST", "CONTAINERS_CONF"):
        monkeypatch.setenv(name, "/nowhere")
    assert str(engine.recipe.directory) in engine.cli("info")
    assert set(engine.environ()) > {"DOCKER_HOST"} or engine.environ()["CONTAINER_HOST"] == f"unix://{engine.socket}"


@pytest.mark.parametrize("kind", KINDS)
def test_an_engine_ends_with_its_last_user_even_if_that_is_killed(engines: Engines, kind: str) -> None:
    engines.get(kind)  # or skip
    run = secrets.token_hex(4)
    directory = Path(tempfile.gettempdir(), f"{PREFIX}{run}-{kind}")
    with subprocess.Popen(
        [sys.executable, "-c", USER, kind, run], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as user:
        assert user.stdout is not None
        assert user.stdout.readline() == b"up\n"
        with shared_engine(kind, run) as engine:
            user.kill()
            user.wait()
            assert len(engine.cli("ps", "-q").split()) == 1, "the second user still has it"
            assert answers(engine.recipe.services[-1])
    assert leftovers(directory, directory.name) == []
    assert not directory.with_name(f"{directory.name}.users").exists()


@pytest.mark.parametrize("kind", KINDS)
def test_an_engine_whose_keeper_was_killed_too_is_removed_by_the_next_run(engines: Engines, kind: str) -> None:
    engines.get(kind)
    run = secrets.token_hex(4)
    directory = Path(tempfile.gettempdir(), f"{PREFIX}{run}-{kind}")
    with subprocess.Popen(
        [sys.executable, "-c", USER, kind, run], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as user:
        assert user.stdout is not None
        assert user.stdout.readline() == b"up\n"
        (keeper,) = subprocess.run(
            ["pgrep", "-f", f"tests.support.engine_keeper {kind} {directory}"], capture_output=True, check=True
        ).stdout.split()
        os.kill(int(keeper), signal.SIGKILL)
        user.kill()
    assert leftovers(directory, directory.name) != []
    with shared_engine(kind, secrets.token_hex(4)):
        assert leftovers(directory, directory.name) == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_private_engine_can_fall_over_and_come_back(engines: Engines, kind: str) -> None:
    engines.get(kind)
    with private_engine(kind) as (engine, daemon), container(engine) as one:
        daemon.kill()
        assert not answers(engine.recipe.services[-1])
        daemon.start()
        assert one.id in engine.cli("ps", "-aq", "--no-trunc")
    assert leftovers(engine.recipe.directory, engine.recipe.cgroup) == []


SITE = "http://mirror.example/debian"


@pytest.mark.parametrize(
    ("targets", "expected"),
    [
        (f"{SITE}-security x-security main Packages\n{SITE} x main Packages\n", Mirror(SITE, "x")),
        (f"{SITE} y main Packages\n{SITE} stable main Packages\n", Mirror(SITE, "stable")),
        (f"{SITE} oldoldstable main Packages\n", Mirror(SITE, "oldoldstable")),
        (f"{SITE} x contrib Packages\n{SITE} x main Translations\n{SITE} x-updates main Packages\n", None),
        ("", None),
    ],
)
def test_the_mirror_is_that_of_the_installed_release(targets: str, expected: Mirror | None) -> None:
    if expected is not None:
        assert find_mirror(targets, "x") == expected
        return
    with pytest.raises(EngineUnavailable, match="no mirror of x"):
        find_mirror(targets, "x")


@pytest.mark.usefixtures("needs_process")
def test_a_root_file_system_that_cannot_be_made_leaves_nothing_in_the_cache(tmp_path: Path) -> None:
    (tmp_path / "build-killed" / "root").mkdir(parents=True)
    with pytest.raises(EngineUnavailable, match="debootstrap"):
        _build(Mirror("http://127.0.0.1:9/debian", "stable"), tmp_path / "debian.tar")
    assert list(tmp_path.iterdir()) == []


def test_names_are_short_enough_for_sockets() -> None:
    directory = Path(tempfile.gettempdir(), f"{PREFIX}01234567-podman")
    assert all(len(str(service.socket)) < 90 for kind in KINDS for service in recipe(kind, directory).services)


def test_an_engine_keeps_no_directory_of_the_test_that_started_it(
    engines: Engines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engines.get("docker")
    for name in ("HOME", "XDG_RUNTIME_DIR", "TMPDIR"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.setattr(tempfile, "tempdir", tempfile.gettempdir())
    with private_engine("docker") as (engine, _), container(engine) as one:
        assert one.run("echo", "up") == "up"  # runc wants the directories that it is told of
