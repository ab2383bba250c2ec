"""Which engine to talk to, and where: decided from what the environment says. Pure; reading it is in ``environment``.

The order is the one that the engines' own programs use, so that ``harness --container app`` means the container that
``docker exec app`` means:

- ``docker://``: ``DOCKER_HOST``; the context that ``DOCKER_CONTEXT`` or the docker configuration names; the socket of
  the system's engine, of a rootless one, of Docker Desktop; the ``docker`` program (which ``podman-docker`` provides).
- ``podman://``: ``CONTAINER_HOST``; the socket of Podman's service for this user; the ``podman`` program.
- ``container://``, no engine named: what is named explicitly above, else whatever answers, Docker first.

What is named explicitly is used or reported, and nothing else is tried instead.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from harness.errors import ConfigError

__all__ = ["Context", "Endpoint", "EngineName", "Snapshot", "Tls", "candidates", "program"]

EngineName = Literal["docker", "podman"]
DEFAULT_CONTEXTS = ("", "default")
SCHEMES = ("unix", "tcp", "http", "https", "ssh")


@dataclass(frozen=True, slots=True)
class Tls:
    """Files of a TLS connection; an empty path is not used. ``verify``: check the server's certificate."""

    ca: str = ""
    cert: str = ""
    key: str = ""
    verify: bool = True


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One place where an engine may answer.

    ``url`` is ``unix:///path``, ``tcp://host:port``, ``ssh://user@host`` or ``program:docker``; ``origin`` says what
    named it.
    """

    engine: EngineName
    url: str
    origin: str
    explicit: bool = False
    tls: Tls | None = None

    @property
    def scheme(self) -> str:
        """What kind of place it is."""
        return self.url.partition(":")[0]

    @property
    def address(self) -> str:
        """The path, the host with its port, or the program."""
        return self.url.partition(":")[2].removeprefix("//")

    def __str__(self) -> str:
        return f"{self.engine} at {self.url} ({self.origin})"


@dataclass(frozen=True, slots=True)
class Context:
    """A docker context: its name, where it leads, and its TLS files."""

    name: str
    host: str
    tls: Tls | None = None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What of the environment the choice depends on. ``sockets`` are those of the usual places that exist."""

    docker_host: str = ""
    docker_context: str = ""
    docker_tls_verify: bool = False
    docker_cert_path: str = ""
    container_host: str = ""
    home: str = ""
    runtime_dir: str = ""
    current_context: str = ""
    contexts: tuple[Context, ...] = ()
    sockets: tuple[str, ...] = ()
    programs: tuple[EngineName, ...] = ()

    def usual_sockets(self, engine: EngineName) -> list[str]:
        """Where an engine listens unless told otherwise, the likeliest first."""
        runtime = self.runtime_dir
        if engine == "docker":
            rootless = [f"{runtime}/docker.sock"] if runtime else []
            return ["/var/run/docker.sock", *rootless, f"{self.home}/.docker/run/docker.sock"]
        own = [f"{runtime}/podman/podman.sock"] if runtime else []
        return [*own, "/run/podman/podman.sock"]


def program(engine: EngineName) -> Endpoint:
    """The place of an engine that is asked through its own program."""
    return Endpoint(engine, f"program:{engine}", "its program")


def candidates(engine: EngineName | None, seen: Snapshot) -> tuple[Endpoint, ...]:
    """Where to look for an engine, in order; one place only when it was named explicitly. None is any engine.

    Raises:
        ConfigError: the environment names a context or an address that cannot be used.
    """
    names: tuple[EngineName, ...] = ("docker", "podman") if engine is None else (engine,)
    for name in names:
        named = _named(name, seen)
        if named is not None:
            return (named,)
    sockets = [place for name in names for place in _sockets(name, seen)]
    programs = [program(name) for name in names if name in seen.programs]
    return (*sockets, *programs)


def _named(engine: EngineName, seen: Snapshot) -> Endpoint | None:
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
            f"there is no docker context {wanted!r}", hint=f"named by {origin}; docker context ls lists them"
        )
    return _checked(engine, context.host, f"docker context {wanted}", context.tls)


def _checked(engine: EngineName, url: str, origin: str, tls: Tls | None) -> Endpoint:
    url = url if "://" in url else f"tcp://{url}"
    endpoint = Endpoint(engine, url, origin, True, tls)
    if endpoint.scheme not in SCHEMES or not endpoint.address:
        raise ConfigError(f"{origin}: {url!r} is not an address of an engine", hint="use unix://, tcp:// or ssh://")
    return endpoint


def _environment_tls(seen: Snapshot) -> Tls | None:
    if not seen.docker_tls_verify:
        return None
    folder = seen.docker_cert_path or f"{seen.home}/.docker"
    return Tls(f"{folder}/ca.pem", f"{folder}/cert.pem", f"{folder}/key.pem")


def _sockets(engine: EngineName, seen: Snapshot) -> Iterator[Endpoint]:
    for path in seen.usual_sockets(engine):
        if path in seen.sockets:
            yield Endpoint(engine, f"unix://{path}", "socket")
