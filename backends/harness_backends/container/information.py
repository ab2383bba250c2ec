"""The state of a container and its mounts as an engine reports them, and errors about it. Pure."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from harness.errors import ConnectError, TargetGone, TargetNotFound
from harness.target import Target

from .temporary_container import LABEL, TemporaryContainer

__all__ = [
    "ContainerInfo",
    "container_removed",
    "create_failed",
    "hidden_by",
    "no_shell",
    "not_found",
    "parse_info",
    "refusal",
    "replaced",
]


# -- The mount of a path in a container, and whether the engine's archive includes it. Pure.
#
# Docker's archive of a running container contains its root file system and the volumes that the engine mounted. A
# file system in memory, ``/proc``, or a mount from inside is missing, and the archive shows what they hide.


_NETWORK = ("/etc/hosts", "/etc/hostname", "/etc/resolv.conf")
_ESCAPE = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class _Mount:
    number: str
    parent: str
    point: str


def hidden_by(lines: Iterable[str], path: str, volumes: Sequence[str]) -> str | None:
    """Return the mount point that hides a path from the engine; None if the engine shows the path.

    Args:
        lines: the lines of ``/proc/self/mountinfo``.
        path: absolute, without links.
        volumes: the mount points of the engine.
    """
    point = _mount_of([mount for line in lines if (mount := _parse(line)) is not None], path)
    shown = max((volume for name in volumes if _covers(volume := posixpath.normpath(name), path)), key=len, default="/")
    return None if point is not None and (point == shown or point in _NETWORK) else point or "/"


def _parse(line: str) -> _Mount | None:
    words = line.split(" ")
    if len(words) < 6:
        return None
    return _Mount(words[0], words[1], _ESCAPE.sub(lambda found: chr(int(found[1], 8)), words[4]))


def _covers(point: str, path: str) -> bool:
    return point in ("/", path) or path.startswith(f"{point}/")


def _mount_of(mounts: Sequence[_Mount], path: str) -> str | None:
    """Find the mount point of a path like the kernel, from the root down; return None if it is ambiguous."""
    numbers = {mount.number for mount in mounts}
    roots = [mount for mount in mounts if mount.point == "/" and mount.parent not in numbers - {mount.number}]
    if len(roots) != 1:
        return None
    at = roots[0]
    while True:
        inner = [mount for mount in mounts if mount.parent == at.number and mount is not at]
        on_the_way = [mount for mount in inner if _covers(mount.point, path)]
        if not on_the_way:
            return at.point
        following = min(on_the_way, key=lambda mount: len(mount.point))
        if len(following.point) <= len(at.point):  # mounts on top of each other
            return None
        at = following


# -- The state of a container as an engine reports it, and errors about it. Pure.


SHORT = 12


@dataclass(frozen=True, slots=True)
class ContainerInfo:
    """A container's state from ``inspect``; ``health`` is empty if the image has no health check."""

    container_id: str
    name: str
    image: str
    status: str
    health: str = ""
    started_at: str = ""
    exit_code: int = 0
    out_of_memory: bool = False
    """True if the container or a program in it was killed for exceeding its memory."""
    label: str = ""
    """The owner label of a temporary container."""
    mounts: tuple[str, ...] = ()
    """The mount points of volumes and directories that the engine has mounted."""

    @property
    def short_id(self) -> str:
        """The shortened id, as the engines display it."""
        return self.container_id[:SHORT]

    @property
    def state(self) -> str:
        """The status and health for messages."""
        return f"{self.status} {self.health}".strip()


def parse_info(data: Any) -> ContainerInfo:
    """Parse the JSON of Docker's or Podman's ``inspect``."""
    state = _part(data, "State")
    health = _part(state, "Health") or _part(state, "Healthcheck")
    said = str(health.get("Status", "") or "")
    return ContainerInfo(
        container_id=str(data.get("Id", "")),
        name=str(data.get("Name", "")).lstrip("/"),
        image=str(_part(data, "Config").get("Image") or data.get("ImageName") or data.get("Image", "")),
        status=_status(state),
        health="" if said == "none" else said,
        started_at=str(state.get("StartedAt", "")),
        exit_code=int(state.get("ExitCode") or 0),
        out_of_memory=bool(state.get("OOMKilled")),
        label=str(_part(_part(data, "Config"), "Labels").get(LABEL, "")),
        mounts=tuple(_mounts(data.get("Mounts"))),
    )


def _mounts(data: Any) -> Iterator[str]:
    for mount in data if isinstance(data, list) else ():
        if isinstance(mount, dict) and mount.get("Type") in ("bind", "volume") and mount.get("Destination"):
            yield str(mount["Destination"])


def _part(data: Any, key: str) -> dict[str, Any]:
    found = data.get(key) if isinstance(data, dict) else None
    return found if isinstance(found, dict) else {}


def _status(state: dict[str, Any]) -> str:
    for flag in ("Dead", "Paused", "Restarting"):
        if state.get(flag):
            return flag.lower()
    return str(state.get("Status") or ("running" if state.get("Running") else "exited")).lower()


_STATES = {
    "paused": ("is paused", "{engine} unpause {name}"),
    "restarting": ("is restarting", "wait until it stays up; {engine} logs {name} may show why it restarts"),
    "dead": ("is dead: it is being removed, or the engine could not remove it", "{engine} rm -f {name}"),
    "removing": ("is being removed", "start a new one"),
    "created": ("was never started", "{engine} start {name}"),
    "configured": ("was never started", "{engine} start {name}"),
    "initialized": ("was never started", "{engine} start {name}"),
    "exited": ("is stopped (exit code {code}{why})", "{engine} start {name}"),
    "stopped": ("is stopped (exit code {code}{why})", "{engine} start {name}"),
    "stopping": ("is being stopped", "{engine} start {name}"),
}


_PASSING = frozenset({"paused", "restarting"})
"""States that can end without a new start."""


def refusal(info: ContainerInfo, engine: str, target: Target) -> ConnectError | None:
    """Return the error for a container that is not running; None if it is."""
    if info.status == "running":
        return None
    fault, hint = _STATES.get(info.status, (f"is {info.status}", "{engine} ps -a shows it"))
    why = ", out of memory" if info.out_of_memory else ""
    kind = ConnectError if info.status in _PASSING or info.status not in _STATES else TargetGone
    return kind(
        f"container {info.name} {fault.format(code=info.exit_code, why=why)}",
        target=target,
        hint=hint.format(engine=engine, name=info.name),
    )


def not_found(name: str, asked: Sequence[str], faults: Sequence[str], target: Target) -> TargetNotFound:
    """Return the error if none of the engines that answered has the container.

    Args:
        name: The container's name or id.
        asked: The engines that answered, each with its version.
        faults: Why the other engines could not be reached.
        target: For the message.
    """
    names = " or ".join(" ".join(engine.split()[:2]) for engine in asked)
    hint = f"{asked[0].split(maxsplit=1)[0]} ps -a lists all containers"
    return TargetNotFound(f"no container {name!r} in {names}", target=target, hint="; ".join((hint, *faults)))


def create_failed(scratch: TemporaryContainer, said: str, target: Target, *, has_image: bool) -> ConnectError:
    """Return the error for a failed creation of a temporary container; ``has_image``: its image is present."""
    if '"sh"' in said:
        return no_shell(scratch.image, said, target)
    return ConnectError(
        f"could not create a container from image {scratch.image}: {said}",
        target=target,
        hint="check --memory, --cpus, --network and --mount, which are passed to the engine unchanged"
        if has_image
        else "check the image's name, and that the engine can pull it",
    )


def container_removed(info: ContainerInfo, target: Target) -> TargetGone:
    """Return the error for a container that no longer exists."""
    return TargetGone(
        f"container {info.name} ({info.short_id}) was removed", target=target, hint="reconnect to use a new one"
    )


def replaced(info: ContainerInfo, now: ContainerInfo, target: Target) -> TargetGone:
    """Return the error for a container whose name another one has now."""
    return TargetGone(
        f"container {info.name} was replaced (now {now.short_id}, expected {info.short_id})",
        target=target,
        hint="reconnect to use the new container; nothing ran in it",
    )


def no_shell(image: str, said: str, target: Target) -> ConnectError:
    """Return the error for an image without ``sh``, with the relevant part of the runtime's message."""
    found = re.search(r'exec: ("?sh"?:[^:]*)', said)
    return ConnectError(
        f"the image {image} has no shell: {found[1].strip() if found else said}",
        target=target,
        hint="harness needs a POSIX sh on the container's PATH; a debug variant of the image may have one",
    )
