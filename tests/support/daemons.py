"""A Docker Engine and a Podman of the tests' own: data, sockets, settings and control groups in one directory each.

Nothing of the user's engine is read or touched: not its sockets, contexts, images, networks, locks or settings.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from tests.support.sweep import sweep

__all__ = ["KINDS", "Daemon", "EngineUnavailable", "Recipe", "recipe", "without_engines"]

KINDS = ("docker", "podman")
START = 30.0
STOP = 20.0
PING = b"GET /_ping HTTP/1.1\r\nHost: engine\r\nConnection: close\r\n\r\n"


class EngineUnavailable(Exception):
    """No engine can be started here; the reason."""


@dataclass(frozen=True)
class Service:
    """One program of an engine. ``ping`` says whether its socket speaks HTTP."""

    argv: tuple[str, ...]
    socket: Path
    ping: bool = True


@dataclass(frozen=True)
class Recipe:
    """What an engine consists of: files, then programs in the order of their start.

    ``environ`` is what a client on this machine needs to reach it; ``cgroup`` holds its containers.
    """

    kind: str
    directory: Path
    cgroup: str
    environ: dict[str, str]
    files: dict[str, str]
    services: tuple[Service, ...]

    @property
    def socket(self) -> Path:
        """Where the engine's API is served."""
        return self.services[-1].socket

    @property
    def surroundings(self) -> dict[str, str]:
        """The whole environment of its programs: nothing of a test's, whose directories go before the engine does."""
        return {"PATH": search_path(), "HOME": str(self.directory), "LC_ALL": "C.UTF-8"} | self.environ

    @property
    def remove(self) -> tuple[str, ...]:
        """The words that remove containers at once; Podman would ask them to end first, and wait."""
        return ("rm", "-f", "-v", *(("-t", "0") if self.kind == "podman" else ()))


def recipe(kind: str, directory: Path) -> Recipe:
    """The recipe of an engine in a directory (with a short name: sockets need it)."""
    return _docker(directory) if kind == "docker" else _podman(directory)


def _docker(directory: Path) -> Recipe:
    """Docker Engine with a containerd of its own: by default it would use the machine's."""
    containerd, api = directory / "containerd.sock", directory / "docker.sock"
    settings = f"""\
version = 2
root = "{directory}/containerd"
state = "{directory}/containerd-state"
disabled_plugins = ["io.containerd.grpc.v1.cri"]
[grpc]
address = "{containerd}"
"""
    dockerd = (
        *("dockerd", "--config-file", f"{directory}/daemon.json", "--containerd", str(containerd)),
        *("--data-root", f"{directory}/data", "--exec-root", f"{directory}/exec", "-p", f"{directory}/docker.pid"),
        *("-H", f"unix://{api}", "--iptables=false", "--ip6tables=false", "--bridge=none"),
        *("--default-ulimit", "nofile=1024:1024", "--exec-opt", "native.cgroupdriver=cgroupfs"),
        *("--cgroup-parent", f"/{directory.name}", "--group", str(os.getgid())),
    )
    return Recipe(
        "docker",
        directory,
        directory.name,
        {"DOCKER_HOST": f"unix://{api}", "DOCKER_CONFIG": f"{directory}/client"},
        {"containerd.toml": settings, "daemon.json": "{}"},
        (
            Service(("containerd", "--config", f"{directory}/containerd.toml"), containerd, ping=False),
            Service(dockerd, api),
        ),
    )


def _podman(directory: Path) -> Recipe:
    """Podman has no daemon; its service offers Docker's API on a socket. runc, as crun refuses hybrid cgroups."""
    api = directory / "podman.sock"
    text = json.dumps
    containers = f"""\
[containers]
default_ulimits = ["nofile=1024:1024", "nproc=32768:32768"]
netns = "none"
log_driver = "k8s-file"
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
lock_type = "file"
tmp_dir = {text(f"{directory}/tmp")}
static_dir = {text(f"{directory}/static")}
volume_path = {text(f"{directory}/volumes")}
[network]
network_config_dir = {text(f"{directory}/networks")}
"""
    storage = f"""\
[storage]
driver = "overlay"
graphroot = {text(f"{directory}/storage")}
runroot = {text(f"{directory}/run")}
"""
    return Recipe(
        "podman",
        directory,
        directory.name,
        {
            "CONTAINERS_CONF": f"{directory}/containers.conf",
            "CONTAINERS_STORAGE_CONF": f"{directory}/storage.conf",
        },
        {"containers.conf": containers, "storage.conf": storage},
        (Service(("podman", "system", "service", "--time=0", f"unix://{api}"), api),),
    )


class Daemon:
    """A running engine. :meth:`kill` and :meth:`start` again make it fall over and come back."""

    def __init__(self, one: Recipe) -> None:
        self.recipe = one
        self._running: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        """Start its programs, one after the other, and wait until each answers.

        Raises:
            EngineUnavailable: it cannot be started here.
        """
        self._refuse_what_is_missing()
        directory = self.recipe.directory
        directory.mkdir(mode=0o711, parents=True, exist_ok=True)
        for name, text in self.recipe.files.items():
            (directory / name).write_text(text)
        for service in self.recipe.services[len(self._running) :]:
            service.socket.unlink(missing_ok=True)
            self._running.append(self._launch(service))
            self._wait_for(service, self._running[-1])

    def _refuse_what_is_missing(self) -> None:
        if os.getuid():
            raise EngineUnavailable(f"a {self.recipe.kind} of the tests' own needs root")
        programs = [self.recipe.kind, "runc", *(service.argv[0] for service in self.recipe.services)]
        missing = [name for name in programs if shutil.which(name, path=search_path()) is None]
        if missing:
            raise EngineUnavailable(f"not installed: {', '.join(missing)}")

    def _launch(self, service: Service) -> subprocess.Popen[bytes]:
        with (self.recipe.directory / f"{service.argv[0]}.log").open("ab") as log:
            return subprocess.Popen(
                service.argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self.recipe.surroundings,
                start_new_session=True,
            )

    def _wait_for(self, service: Service, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + START
        while not answers(service):
            if process.poll() is not None or time.monotonic() > deadline:
                last = (self.recipe.directory / f"{service.argv[0]}.log").read_text(errors="replace").splitlines()[-3:]
                raise EngineUnavailable(f"{service.argv[0]} did not start: {' / '.join(last)}")
            time.sleep(0.02)  # the daemons do not tell

    @property
    def pid(self) -> int:
        """The process that serves the API."""
        return self._running[-1].pid

    def kill(self) -> None:
        """The engine falls over (SIGKILL); its containers may live on. :meth:`start` brings it back."""
        process = self._running.pop()
        process.kill()
        process.wait(STOP)

    def stop(self) -> None:
        """End containers, programs and everything that is left of them, and remove the directory."""
        if self._running:
            self._end_containers()
        for process in reversed(self._running):
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(STOP)
        self._running = []
        sweep(self.recipe.directory, self.recipe.cgroup)

    def _end_containers(self) -> None:
        environ = self.recipe.surroundings
        with contextlib.suppress(subprocess.TimeoutExpired):
            listed = _quietly(self.recipe.kind, "ps", "-aq", env=environ)
            if listed:
                _quietly(self.recipe.kind, *self.recipe.remove, *listed.split(), env=environ)


def _quietly(*argv: str, env: dict[str, str]) -> str:
    return subprocess.run(argv, env=env, capture_output=True, text=True, timeout=STOP).stdout


def search_path() -> str:
    """PATH with the folders of system programs, where daemons are."""
    return f"{os.environ.get('PATH', os.defpath)}:/usr/local/sbin:/usr/sbin:/sbin"


def without_engines() -> dict[str, str]:
    """Our environment, but for what leads to somebody's engine; with the folders of system programs."""
    led = ("DOCKER_", "CONTAINER_", "CONTAINERS_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(led)}
    return kept | {"PATH": search_path()}


def answers(service: Service) -> bool:
    """The service's socket takes connections and, where it speaks HTTP, a ping."""
    with socket.socket(socket.AF_UNIX) as probe, contextlib.suppress(OSError):
        probe.settimeout(5)
        probe.connect(str(service.socket))
        if not service.ping:
            return True
        probe.sendall(PING)
        return b" 200 " in probe.recv(64)
    return False
