"""Selection of the container engine and its endpoint, from the environment and docker contexts."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from harness.errors import ConfigError
from harness.system.account import home_directory

__all__ = [
    "DockerContext",
    "Endpoint",
    "EngineName",
    "EnvironmentSnapshot",
    "Tls",
    "candidates",
    "program",
    "read_snapshot",
]


# -- Selection of the engine and its endpoint from the environment. Pure.
#
# The order is that of the engines' own programs, so that ``harness --container app`` and ``docker exec app`` use the
# same container:
#
# - ``docker://``: ``DOCKER_HOST``; the context that ``DOCKER_CONTEXT`` or the docker configuration names; the socket of
#   the system's engine, of a rootless one, of Docker Desktop; the ``docker`` program (also from ``podman-docker``).
# - ``podman://``: ``CONTAINER_HOST``; the socket of Podman's service for this user; the ``podman`` program.
# - ``container://``, without an engine: what is configured explicitly above, else the first that answers, Docker first.
#
# An explicitly configured endpoint is used or reported as a failure; there is no fallback.


EngineName = Literal["docker", "podman"]
DEFAULT_CONTEXTS = ("", "default")
SCHEMES = ("unix", "tcp", "http", "https", "ssh")


@dataclass(frozen=True, slots=True)
class Tls:
    """The files of a TLS connection (empty: unused); ``verify``: check the server's certificate."""

    ca: str = ""
    cert: str = ""
    key: str = ""
    verify: bool = True


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One endpoint where an engine may answer.

    ``url`` is ``unix:///path``, ``tcp://host:port``, ``ssh://user@host`` or ``program:docker``; ``origin`` is the
    setting that names it.
    """

    engine: EngineName
    url: str
    origin: str
    explicit: bool = False
    tls: Tls | None = None

    @property
    def scheme(self) -> str:
        """The kind of endpoint."""
        return self.url.partition(":")[0]

    @property
    def address(self) -> str:
        """The path, the host with its port, or the program."""
        return self.url.partition(":")[2].removeprefix("//")

    def __str__(self) -> str:
        return f"{self.engine} at {self.url} ({self.origin})"


@dataclass(frozen=True, slots=True)
class DockerContext:
    """A docker context: its name, its endpoint, and its TLS files."""

    name: str
    host: str
    tls: Tls | None = None


@dataclass(frozen=True, slots=True)
class EnvironmentSnapshot:
    """The part of the environment that the selection depends on; ``sockets`` are the existing default sockets."""

    docker_host: str = ""
    docker_context: str = ""
    docker_tls_verify: bool = False
    docker_cert_path: str = ""
    container_host: str = ""
    home: str = ""
    runtime_dir: str = ""
    current_context: str = ""
    contexts: tuple[DockerContext, ...] = ()
    sockets: tuple[str, ...] = ()
    programs: tuple[EngineName, ...] = ()

    def usual_sockets(self, engine: EngineName) -> list[str]:
        """Return an engine's default sockets, the most likely first."""
        runtime = self.runtime_dir
        if engine == "docker":
            rootless = [f"{runtime}/docker.sock"] if runtime else []
            return ["/var/run/docker.sock", *rootless, f"{self.home}/.docker/run/docker.sock"]
        own = [f"{runtime}/podman/podman.sock"] if runtime else []
        return [*own, "/run/podman/podman.sock"]


def program(engine: EngineName) -> Endpoint:
    """Return the endpoint of an engine's program."""
    return Endpoint(engine, f"program:{engine}", "its program")


def candidates(engine: EngineName | None, seen: EnvironmentSnapshot) -> tuple[Endpoint, ...]:
    """Return the endpoints to try, in order; only one if it is configured explicitly. None means any engine.

    Raises:
        ConfigError: the environment names an unknown context or an invalid address.
    """
    names: tuple[EngineName, ...] = ("docker", "podman") if engine is None else (engine,)
    for name in names:
        named = _named(name, seen)
        if named is not None:
            return (named,)
    sockets = [place for name in names for place in _sockets(name, seen)]
    programs = [program(name) for name in names if name in seen.programs]
    return (*sockets, *programs)


def _named(engine: EngineName, seen: EnvironmentSnapshot) -> Endpoint | None:
    if engine == "podman":
        return _checked(engine, seen.container_host, "CONTAINER_HOST", None) if seen.container_host else None
    if seen.docker_host:
        return _checked(engine, seen.docker_host, "DOCKER_HOST", _environment_tls(seen))
    wanted, origin = (
        (seen.docker_context, "DOCKER_CONTEXT") if seen.docker_context else (seen.current_context, "docker context")
    )
    if wanted in DEFAULT_CONTEXTS:
        return None
    context = next((context for context in seen.contexts if context.name == wanted), None)
    if context is None:
        raise ConfigError(
            f"docker context {wanted!r} does not exist", hint=f"set by {origin}; list contexts with docker context ls"
        )
    return _checked(engine, context.host, f"docker context {wanted}", context.tls)


def _checked(engine: EngineName, url: str, origin: str, tls: Tls | None) -> Endpoint:
    url = url if "://" in url else f"tcp://{url}"
    endpoint = Endpoint(engine, url, origin, True, tls)
    if endpoint.scheme not in SCHEMES or not endpoint.address:
        raise ConfigError(f"{origin}: {url!r} is not a valid engine address", hint="use unix://, tcp:// or ssh://")
    return endpoint


def _environment_tls(seen: EnvironmentSnapshot) -> Tls | None:
    if not seen.docker_tls_verify:
        return None
    folder = seen.docker_cert_path or f"{seen.home}/.docker"
    return Tls(f"{folder}/ca.pem", f"{folder}/cert.pem", f"{folder}/key.pem")


def _sockets(engine: EngineName, seen: EnvironmentSnapshot) -> Iterator[Endpoint]:
    for path in seen.usual_sockets(engine):
        if path in seen.sockets:
            yield Endpoint(engine, f"unix://{path}", "socket")


# -- Reading the environment: variables, docker's configuration, sockets, programs.


ENGINES: tuple[EngineName, ...] = ("docker", "podman")


def read_snapshot(environ: Mapping[str, str] | None = None) -> EnvironmentSnapshot:
    """Read the environment that the selection of an engine depends on.

    Raises:
        ConfigError: docker's configuration cannot be read.
    """
    env = os.environ if environ is None else environ
    home = str(home_directory(env))
    folder = Path(env.get("DOCKER_CONFIG") or f"{home}/.docker")
    current = str(_read_json(folder / "config.json").get("currentContext", ""))
    wanted = env.get("DOCKER_CONTEXT", "") or current
    context = _read_context(folder, wanted) if wanted else None
    seen = EnvironmentSnapshot(
        docker_host=env.get("DOCKER_HOST", ""),
        docker_context=env.get("DOCKER_CONTEXT", ""),
        docker_tls_verify=bool(env.get("DOCKER_TLS_VERIFY")),
        docker_cert_path=env.get("DOCKER_CERT_PATH", ""),
        container_host=env.get("CONTAINER_HOST", ""),
        home=home,
        runtime_dir=env.get("XDG_RUNTIME_DIR", ""),
        current_context=current,
        contexts=(context,) if context else (),
        programs=tuple(name for name in ENGINES if shutil.which(name, path=env.get("PATH"))),
    )
    usual = [path for name in ENGINES for path in seen.usual_sockets(name)]
    return replace(seen, sockets=tuple(path for path in usual if os.path.exists(path)))


def _read_context(folder: Path, name: str) -> DockerContext | None:
    """Read a context as docker stores it: in directories named by the hash of its name."""
    digest = hashlib.sha256(name.encode()).hexdigest()
    meta = _read_json(folder / "contexts" / "meta" / digest / "meta.json")
    place = meta.get("Endpoints", {}).get("docker", {})
    if not place.get("Host"):
        return None
    files = folder / "contexts" / "tls" / digest / "docker"
    return DockerContext(name, str(place["Host"]), _context_tls(files, skip=bool(place.get("SkipTLSVerify"))))


def _context_tls(files: Path, *, skip: bool) -> Tls | None:
    found = {name: str(files / f"{name}.pem") for name in ("ca", "cert", "key") if (files / f"{name}.pem").exists()}
    return Tls(found.get("ca", ""), found.get("cert", ""), found.get("key", ""), not skip) if found or skip else None


def _read_json(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
    return data if isinstance(data, dict) else {}
