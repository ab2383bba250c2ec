"""Which mount of a container a path is on, and whether the engine shows that mount from outside. Pure.

Docker's archive of a running container is made of its root file system and of the volumes that the engine mounted: a
file system in memory, ``/proc``, or what was mounted inside is not in it, and what they cover is.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

__all__ = ["hidden_by"]

_NETWORK = ("/etc/hosts", "/etc/hostname", "/etc/resolv.conf")
_ESCAPE = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class _Mount:
    number: str
    parent: str
    point: str


def hidden_by(lines: Iterable[str], path: str, volumes: Sequence[str]) -> str | None:
    """The mount point that keeps the engine from showing a path, or None when it shows what is there.

    Args:
        lines: those of ``/proc/self/mountinfo``.
        path: absolute, without links.
        volumes: where the engine has mounted something.
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
    """The mount point of a path, found as the kernel does, from the root down; None when that cannot be told."""
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
        if len(following.point) <= len(at.point):  # one on top of the other
            return None
        at = following
