"""A small Debian (or Ubuntu) with bash, tmux and procps: the files of an image, made with ``debootstrap``.

The mirror and the suite are those that this machine's apt uses. The result is kept in the user's cache.
"""

from __future__ import annotations

import fcntl
import os
import platform
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.support.daemons import EngineUnavailable, search_path
from tests.support.sweep import unmount_below

__all__ = ["Mirror", "cache_directory", "debian_rootfs", "find_mirror", "locked"]

PACKAGES = ("tmux", "procps", "bash")
FLAVORS: dict[str, tuple[str, ...]] = {"": (), "-python": ("python3-venv", "openssh-client")}
"""By the end of the archive's name: further packages."""
VERSION = 1  # of the recipe below
LIMIT = 600.0
FIELDS = "$(SITE) $(RELEASE) $(COMPONENT) $(IDENTIFIER)"
DEAD_WEIGHT = ("usr/share/doc", "usr/share/man", "usr/share/locale", "usr/share/info", "var/cache/apt", "var/lib/apt")
_START = {name: os.environ.get(name) for name in ("HOME", "XDG_CACHE_HOME")}  # before a test changes them


@dataclass(frozen=True)
class Mirror:
    """Where packages come from."""

    site: str
    suite: str


def cache_directory() -> Path:
    """The folder of the user's cache that is for these tests."""
    base = _START["XDG_CACHE_HOME"] or os.path.join(_START["HOME"] or "/var/tmp", ".cache")
    return Path(base) / "harness-tests"


def debian_rootfs(flavor: str = "") -> Path:
    """A tar archive of the root file system of one of :data:`FLAVORS`; made when the cache has none.

    Raises:
        EngineUnavailable: it cannot be made here.
    """
    found = _attempt(flavor)
    if isinstance(found, EngineUnavailable):
        raise found
    return found


@cache
def _attempt(flavor: str) -> Path | EngineUnavailable:
    """One attempt in each process: without a mirror every other would only take as long."""
    try:
        mirror = find_mirror(_targets(), _codename())
        kept = cache_directory() / f"debian{flavor}-{mirror.suite}-{platform.machine()}-{VERSION}.tar"
        with locked(kept.with_suffix(".lock")):
            if not kept.exists():
                _build(mirror, kept, FLAVORS[flavor])
        return kept
    except EngineUnavailable as error:
        return error
    except (OSError, subprocess.SubprocessError) as error:
        return EngineUnavailable(f"no Debian image: {error}")


def find_mirror(targets: str, codename: str) -> Mirror:
    """The mirror of the installed release, among apt's targets as :data:`FIELDS` prints them.

    Raises:
        EngineUnavailable: apt has none.
    """
    rows = [line.split() for line in targets.splitlines()]
    mains = [row for row in rows if len(row) == 4 and row[2:] == ["main", "Packages"]]
    for site, release, *_ in mains:
        if release == codename:
            return Mirror(site, release)
    for site, release, *_ in mains:
        if re.fullmatch(r"(old)*stable|testing|unstable|sid", release):
            return Mirror(site, release)
    raise EngineUnavailable(f"apt names no mirror of {codename or 'this release'}")


def _targets() -> str:
    argv = ["apt-get", "indextargets", "--no-release-info", "--format", FIELDS]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True).stdout


def _codename() -> str:
    return platform.freedesktop_os_release().get("VERSION_CODENAME", "")


def _proxies() -> dict[str, str]:
    """apt's proxies, for debootstrap's downloads."""
    text = subprocess.run(["apt-config", "dump"], capture_output=True, text=True, timeout=60).stdout
    return {f"{kind}_proxy": url for kind, url in re.findall(r'^Acquire::(https?)::Proxy "([^"]+)";', text, re.M)}


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock between processes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _build(mirror: Mirror, kept: Path, more: tuple[str, ...] = ()) -> None:
    """Build aside, then rename: a build that is killed leaves no half archive, and the next removes its remains."""
    for old in kept.parent.glob("build-*"):
        _remove(old)
    folder = Path(tempfile.mkdtemp(prefix="build-", dir=kept.parent))
    try:
        root = folder / "root"
        _debootstrap(mirror, root, (*PACKAGES, *more))
        for name in DEAD_WEIGHT:
            _empty(root / name)
        subprocess.run(["tar", "-C", root, "-cf", folder / "rootfs.tar", "."], check=True, timeout=LIMIT)
        (folder / "rootfs.tar").replace(kept)
    finally:
        _remove(folder)


def _debootstrap(mirror: Mirror, root: Path, packages: tuple[str, ...]) -> None:
    program = shutil.which("debootstrap", path=search_path())
    if program is None or os.getuid():
        raise EngineUnavailable("no Debian image: it takes debootstrap and root")
    words = [program, "--variant=minbase", f"--include={','.join(packages)}", mirror.suite, str(root), mirror.site]
    environ = os.environ | {"PATH": search_path()} | _proxies()
    done = subprocess.run(words, env=environ, capture_output=True, text=True, errors="replace", timeout=LIMIT)
    if done.returncode:
        raise EngineUnavailable(f"no Debian image: debootstrap: {(done.stderr or done.stdout).strip()[-300:]}")


def _remove(folder: Path) -> None:
    """Remove a root file system in which debootstrap may have mounted something."""
    unmount_below(folder)
    shutil.rmtree(folder)


def _empty(folder: Path) -> None:
    """Remove what is in a folder, but not the folder."""
    for path in folder.glob("*"):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
