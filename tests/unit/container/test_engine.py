"""Which engine is asked, what its answers mean, and what people are told."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from harness.errors import ConfigError
from harness.target import Target
from harness_backends.container.docker_engine import choose_version
from harness_backends.container.endpoints import (
    DockerContext,
    EngineName,
    EnvironmentSnapshot,
    Tls,
    candidates,
    read_snapshot,
)
from harness_backends.container.information import parse_info, refusal

TARGET = Target.parse("docker://app")
DOCKER, ROOTLESS = "/var/run/docker.sock", "/run/user/7/docker.sock"
PODMAN, MINE = "/run/podman/podman.sock", "/run/user/7/podman/podman.sock"


def urls(engine: EngineName | None, **more: object) -> list[str]:
    seen = EnvironmentSnapshot(home="/home/me", runtime_dir="/run/user/7", **more)  # type: ignore[arg-type]  # fields by name
    return [place.url for place in candidates(engine, seen)]


@pytest.mark.parametrize(
    ("engine", "seen", "expected"),
    [
        ("docker", {}, []),
        ("docker", {"sockets": (ROOTLESS, DOCKER, PODMAN)}, [f"unix://{DOCKER}", f"unix://{ROOTLESS}"]),
        ("docker", {"sockets": (DOCKER,), "docker_host": "tcp://h:1"}, ["tcp://h:1"]),
        ("docker", {"docker_host": "h:2375"}, ["tcp://h:2375"]),
        ("docker", {"docker_host": "ssh://me@h", "docker_context": "c"}, ["ssh://me@h"]),
        ("docker", {"current_context": "default", "sockets": (DOCKER,)}, [f"unix://{DOCKER}"]),
        ("docker", {"current_context": "c", "contexts": (DockerContext("c", "unix:///c"),)}, ["unix:///c"]),
        (
            "docker",
            {
                "docker_context": "d",
                "current_context": "c",
                "contexts": (DockerContext("c", "unix:///c"), DockerContext("d", "unix:///d")),
            },
            ["unix:///d"],
        ),
        ("docker", {"container_host": "unix:///p", "sockets": (DOCKER,)}, [f"unix://{DOCKER}"]),
        ("docker", {"programs": ("docker", "podman")}, ["program:docker"]),
        (
            "podman",
            {"sockets": (PODMAN, MINE), "programs": ("podman",)},
            [f"unix://{MINE}", f"unix://{PODMAN}", "program:podman"],
        ),
        ("podman", {"container_host": "unix:///p", "docker_host": "unix:///d"}, ["unix:///p"]),
        (None, {"container_host": "unix:///p", "sockets": (DOCKER,)}, ["unix:///p"]),
        (None, {"container_host": "unix:///p", "docker_host": "unix:///d"}, ["unix:///d"]),
        (
            None,
            {"sockets": (PODMAN, DOCKER), "programs": ("docker", "podman")},
            [f"unix://{DOCKER}", f"unix://{PODMAN}", "program:docker", "program:podman"],
        ),
    ],
)
def test_the_place_is_the_one_that_the_engines_own_programs_use(
    engine: EngineName | None, seen: dict[str, object], expected: list[str]
) -> None:
    assert urls(engine, **seen) == expected


def test_a_host_of_the_environment_uses_tls_when_it_says_so() -> None:
    (place,) = candidates("docker", EnvironmentSnapshot(docker_host="tcp://h:2376", docker_tls_verify=True, home="/me"))
    assert place.tls == Tls("/me/.docker/ca.pem", "/me/.docker/cert.pem", "/me/.docker/key.pem")
    assert place.explicit


@pytest.mark.parametrize(
    "seen",
    [
        EnvironmentSnapshot(docker_context="gone"),
        EnvironmentSnapshot(docker_host="npipe://x"),
        EnvironmentSnapshot(docker_host="unix://"),
    ],
)
def test_an_address_that_cannot_be_used_is_an_error_of_the_configuration(seen: EnvironmentSnapshot) -> None:
    with pytest.raises(ConfigError):
        candidates("docker", seen)


def test_contexts_are_read_as_docker_stores_them(tmp_path: Path) -> None:
    digest = hashlib.sha256(b"far").hexdigest()
    meta = tmp_path / "contexts/meta" / digest
    tls = tmp_path / "contexts/tls" / digest / "docker"
    meta.mkdir(parents=True)
    tls.mkdir(parents=True)
    (tmp_path / "config.json").write_text(json.dumps({"currentContext": "far"}))
    (meta / "meta.json").write_text(json.dumps({"Name": "far", "Endpoints": {"docker": {"Host": "tcp://far:2376"}}}))
    (tls / "ca.pem").write_text("")
    seen = read_snapshot({"DOCKER_CONFIG": str(tmp_path), "HOME": "/nowhere", "PATH": "/nowhere"})
    (place,) = candidates("docker", seen)
    assert (place.url, place.tls) == ("tcp://far:2376", Tls(ca=str(tls / "ca.pem")))


def test_a_broken_configuration_is_named(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ConfigError, match=r"config\.json"):
        read_snapshot({"DOCKER_CONFIG": str(tmp_path), "HOME": "/nowhere"})


@pytest.mark.parametrize(
    ("newest", "oldest", "expected"),
    [
        ("1.41", "1.12", "1.41"),
        ("1.50", "1.24", "1.44"),
        ("1.60", "1.45", "1.45"),
        ("", "", "1.44"),
        ("1.40", "1.24", "1.40"),
    ],
)
def test_a_version_is_spoken_that_the_engine_understands(newest: str, oldest: str, expected: str) -> None:
    assert choose_version(newest, oldest) == expected


def inspected(**state: object) -> object:
    return {"Id": "a" * 64, "Name": "/app", "Config": {"Image": "shop:2"}, "State": state}


@pytest.mark.parametrize(
    ("state", "status", "hint"),
    [
        ({"Status": "exited", "ExitCode": 3}, "exited", "docker start app"),
        ({"Status": "running", "Running": True, "Paused": True}, "paused", "docker unpause app"),
        ({"Status": "restarting", "Restarting": True, "Running": True}, "restarting", "docker logs app"),
        ({"Status": "created"}, "created", "docker start app"),
        ({"Status": "dead", "Dead": True}, "dead", "docker rm -f app"),
        ({"Status": "removing"}, "removing", "new one"),
        ({"Status": "stopping"}, "stopping", "docker start app"),
        ({"Running": False}, "exited", "docker start app"),
        ({"Status": "odd"}, "odd", "docker ps -a"),
    ],
)
def test_a_state_that_takes_no_programs_is_an_error_with_its_fix(
    state: dict[str, object], status: str, hint: str
) -> None:
    info = parse_info(inspected(**state))
    fault = refusal(info, "docker", TARGET)
    assert info.status == status
    assert fault is not None
    assert hint in fault.hint
    assert "app" in str(fault)


@pytest.mark.parametrize(("killed", "said"), [(True, "(exit code 137, out of memory)"), (False, "(exit code 137)")])
def test_a_container_that_ran_out_of_memory_says_so(killed: bool, said: str) -> None:
    fault = refusal(parse_info(inspected(Status="exited", ExitCode=137, OOMKilled=killed)), "docker", TARGET)
    assert fault is not None
    assert fault.message == f"container app is stopped {said}"


@pytest.mark.parametrize(
    ("state", "shown"),
    [
        ({"Status": "running"}, "running"),
        ({"Running": True}, "running"),
        ({"Status": "running", "Health": {"Status": "unhealthy"}}, "running unhealthy"),
        ({"Status": "running", "Healthcheck": {"Status": "healthy"}}, "running healthy"),
        ({"Status": "running", "Health": {"Status": "none"}}, "running"),
    ],
)
def test_a_running_container_can_be_entered_and_tells_its_health(state: dict[str, object], shown: str) -> None:
    info = parse_info(inspected(**state))
    assert refusal(info, "docker", TARGET) is None
    assert info.state == shown
    assert (info.name, info.image, info.short_id) == ("app", "shop:2", "a" * 12)
