"""Images for the tests, made here: no registry is asked. The poor ones hold a busybox or a shell and little else."""

from __future__ import annotations

import io
import re
import shutil
import subprocess
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.support.daemons import EngineUnavailable
from tests.support.debian import debian_rootfs

__all__ = ["IMAGES", "Image", "archive"]

ACCOUNTS = {
    "etc/passwd": "root:x:0:0:root:/root:/bin/sh\napp:x:1000:1000::/home/app:/bin/sh\n"
    "nobody:x:65534:65534:nobody:/:/sbin/nologin\n",
    "etc/group": "root:x:0:\napp:x:1000:\nnobody:x:65534:\n",
}
PAUSE = ("/pause/sleep", "1000000000")


@dataclass(frozen=True)
class Image:
    """An image: how its archive is made, what ``import`` changes in its settings, and what keeps it running."""

    make: Callable[[], bytes]
    changes: tuple[str, ...] = ()
    sleep: tuple[str, ...] = ("sleep", "1000000000")


def archive(name: str) -> bytes:
    """The root file system of an image, as a tar archive.

    Raises:
        EngineUnavailable: it cannot be made here.
    """
    return IMAGES[name].make()


@cache
def _busybox() -> bytes:
    path = shutil.which("busybox")
    if path is None:
        raise EngineUnavailable("not installed: busybox")
    return Path(path).read_bytes()


@cache
def _applets() -> tuple[str, ...]:
    listed = subprocess.run(["busybox", "--list"], capture_output=True, text=True, check=True).stdout
    return tuple(name for name in listed.split() if name != "busybox")


class Tree:
    """A root file system in the making."""

    def __init__(self) -> None:
        self._data = io.BytesIO()
        self._tar = tarfile.open(fileobj=self._data, mode="w")  # noqa: SIM115  # done() closes it

    def folder(self, path: str, mode: int = 0o755, owner: int = 0) -> Tree:
        return self._add(path, tarfile.DIRTYPE, mode, owner=owner)

    def file(self, path: str, data: bytes, mode: int = 0o644) -> Tree:
        return self._add(path, tarfile.REGTYPE, mode, data)

    def link(self, path: str, target: str) -> Tree:
        return self._add(path, tarfile.SYMTYPE, 0o777, link=target)

    def _add(self, path: str, kind: bytes, mode: int, data: bytes = b"", link: str = "", owner: int = 0) -> Tree:
        entry = tarfile.TarInfo(path)
        entry.type, entry.mode, entry.size, entry.linkname = kind, mode, len(data), link
        entry.uid = entry.gid = owner
        self._tar.addfile(entry, io.BytesIO(data))
        return self

    def done(self) -> bytes:
        self._tar.close()
        return self._data.getvalue()


def _small(*, tmp: bool = True) -> bytes:
    """Like Alpine: busybox for everything, ``ash`` for ``sh``."""
    tree = Tree()
    for name in ("bin", "etc", "home", "proc", "sys", "dev", "var", "usr", "usr/bin", "usr/local"):
        tree.folder(name)
    tree.folder("root", 0o700).folder("home/app", 0o700, 1000)
    if tmp:
        tree.folder("tmp", 0o1777).folder("var/tmp", 0o1777)
    for path, text in ACCOUNTS.items():
        tree.file(path, text.encode())
    tree.file("bin/busybox", _busybox(), 0o755)
    for name in _applets():
        tree.link(f"bin/{name}", "busybox")
    return tree.done()


def _bare(*, shell: bool) -> bytes:
    """Like a distroless image: no tools; a program that sleeps, and ``dash`` with its libraries or not even that."""
    tree = Tree().folder("pause").file("pause/sleep", _busybox(), 0o755)
    for source, path in _dash().items() if shell else ():
        tree.file(path, Path(source).read_bytes(), 0o755)
    return tree.done()


def _dash() -> dict[str, str]:
    """The files of a shell without any program (a busybox brings its own): where they are here, and there."""
    dash = shutil.which("dash")
    if dash is None:
        raise EngineUnavailable("not installed: dash")
    listed = subprocess.run(["ldd", dash], capture_output=True, text=True, check=True).stdout
    libraries = re.findall(r"(/\S+) \(0x", listed)
    return {dash: "bin/sh"} | {path: path.lstrip("/") for path in libraries}


IMAGES = {
    "debian": Image(lambda: debian_rootfs().read_bytes(), ('CMD ["/bin/bash"]',)),
    "debian-python": Image(lambda: debian_rootfs("-python").read_bytes(), ('CMD ["/bin/bash"]',)),
    "busybox": Image(_small, ('CMD ["/bin/sh"]',)),
    "no-tmp": Image(lambda: _small(tmp=False), ('CMD ["/bin/sh"]',)),
    "non-root": Image(_small, ('CMD ["/bin/sh"]', "USER app", "WORKDIR /home/app", "ENV COLOUR=blue")),
    "only-sh": Image(lambda: _bare(shell=True), sleep=PAUSE),
    "no-shell": Image(lambda: _bare(shell=False), sleep=PAUSE),
}
"""By name. ``debian`` has bash, procps and tmux; ``busybox`` is like Alpine; the others lack what their names say."""
