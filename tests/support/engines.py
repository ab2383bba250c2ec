"""Real container engines, and throw-away containers in them.

``engines`` gives a Docker Engine and a Podman that all test processes of a run share; each is started when the first
test wants it. ``container(engine, "busybox")`` is a running container that lives as long as the ``with`` block, and
``private_engine("docker")`` an engine to break.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import pytest
from tests.support.daemons import Daemon, EngineUnavailable, Recipe, recipe
from tests.support.debian import cache_directory, debian_rootfs, locked
from tests.support.images import IMAGES, archive
from tests.support.sweep import sweep

__all__ = ["Container", "Engine", "Engines", "container", "engines", "private_engine"]

ROOT = Path(__file__).parents[2]
PREFIX = "hxe-"
TIMEOUT = 60.0


@dataclass(frozen=True)
class Engine:
    """A running engine. ``socket`` serves its API."""

    recipe: Recipe

    @property
    def kind(self) -> str:
        """``docker`` or ``podman``; also the name of its command."""
        return self.recipe.kind

    @property
    def socket(self) -> Path:
        return self.recipe.socket

    def environ(self, *, api: bool = True) -> dict[str, str]:
        """The variables that lead a client here: Podman's to its service, or, without ``api``, to its files alone."""
        service = {"CONTAINER_HOST": f"unix://{self.socket}"} if self.kind == "podman" and api else {}
        return self.recipe.environ | service

    def cli(self, *arguments: str, stdin: bytes = b"", check: bool = True) -> str:
        """Run the engine's own command; its standard output without the last newline."""
        done = subprocess.run(
            [self.kind, *arguments],
            env=self.recipe.surroundings,
            input=stdin,
            capture_output=True,
            timeout=TIMEOUT,
        )
        assert not check or done.returncode == 0, (arguments, done.stdout[-300:], done.stderr[-300:])
        return done.stdout.decode(errors="replace").rstrip("\n")

    def image(self, name: str) -> str:
        """Make sure that an image of :data:`IMAGES` is there; its name in the engine. Skips where it cannot be made."""
        full = f"harness-test/{name}"
        with locked(self.recipe.directory / "images.lock"):
            if not self.cli("images", "-q", full):
                self._import(name, full)
        return full

    def _import(self, name: str, full: str) -> None:
        changes = [word for change in IMAGES[name].changes for word in ("--change", change)]
        try:
            data = archive(name)
        except EngineUnavailable as error:
            pytest.skip(str(error))
        self.cli("import", *changes, "-", full, stdin=data)


@dataclass(frozen=True)
class Container:
    """A container that a test may do anything to."""

    engine: Engine
    name: str
    id: str

    @property
    def target(self) -> str:
        return f"{self.engine.kind}://{self.name}"

    def run(self, *argv: str, stdin: bytes = b"", user: str = "") -> str:
        """Run a program in it, the engine's own way."""
        options = ["-i", *(["--user", user] if user else [])]
        return self.engine.cli("exec", *options, self.name, *argv, stdin=stdin)

    def do(self, verb: str, *options: str) -> None:
        """``stop``, ``kill``, ``pause``, ``unpause``, ``restart``, ``start``, ``rm`` it."""
        words = self.engine.recipe.remove if verb == "rm" else (verb,)
        self.engine.cli(*words, *options, self.name)

    def processes(self) -> list[tuple[int, str]]:
        """Its processes as this machine numbers them, with their command lines."""
        listed = self.engine.cli("top", self.name, *_TOP[self.engine.kind])
        found = re.findall(r"^ *(\d+) +(.+)$", listed, re.M)  # a command's further lines are left out
        return [(int(pid), command.rstrip()) for pid, command in found]


_TOP = {"docker": ("-eo", "pid,args"), "podman": ("hpid,args",)}


@contextmanager
def container(
    engine: Engine,
    image: str = "busybox",
    *,
    options: Sequence[str] = (),
    command: Sequence[str] | None = None,
    name: str = "",
) -> Iterator[Container]:
    """Start a container without a network, with the image's long sleep or another command; remove it at the end.

    It is stopped by KILL: a first process that minds no TERM would take ten seconds.

    ``options`` are those of the engine's ``run``: ``--read-only``, ``--user 1000``, ``--tmpfs /tmp``.
    """
    name = name or f"hx-{secrets.token_hex(4)}"
    sleep = IMAGES[image].sleep if command is None else command
    always = ("--network", "none", "--cgroup-parent", f"/{engine.recipe.cgroup}", "--stop-signal", "KILL")
    full = engine.image(image)
    try:
        made = _run(engine, name, (*always, *options, full, *sleep))
        yield Container(engine, name, made.splitlines()[-1])
    finally:
        engine.cli(*engine.recipe.remove, name, check=False)


def _run(engine: Engine, name: str, arguments: Sequence[str]) -> str:
    """Start a container; once more if the engine's runtime failed, which runc does now and then on a busy machine."""
    try:
        return engine.cli("run", "-d", "--name", name, *arguments)
    except AssertionError as error:
        if "level=fatal" not in str(error):
            raise
    engine.cli(*engine.recipe.remove, name)
    return engine.cli("run", "-d", "--name", name, *arguments)


@dataclass
class Engines:
    """The engines of this run of the tests."""

    run: str
    _stack: ExitStack = field(default_factory=ExitStack)
    _known: dict[str, Engine | EngineUnavailable] = field(default_factory=dict)

    def get(self, kind: str) -> Engine:
        """The shared engine of a kind; skips the test, with the reason, where it cannot be had."""
        if kind not in self._known:
            try:
                self._known[kind] = self._stack.enter_context(shared_engine(kind, self.run))
            except EngineUnavailable as error:
                self._known[kind] = error
        found = self._known[kind]
        if isinstance(found, EngineUnavailable):
            pytest.skip(f"no {kind} for the tests: {found}")
        return found

    def close(self) -> None:
        self._stack.close()


@contextmanager
def shared_engine(kind: str, run: str) -> Iterator[Engine]:
    """The engine that every test process of a run uses; it ends with the last of them."""
    _bury_the_dead()
    directory = Path(tempfile.gettempdir(), f"{PREFIX}{run}-{kind}")
    with locked(cache_directory() / "engines.lock"):
        users = _join(directory)
        if not (directory / "ready").exists():
            try:
                _start_keeper(kind, directory)
            except BaseException:
                users.close()
                raise
    try:
        yield Engine(recipe(kind, directory))
    finally:
        _leave(users)


def _join(directory: Path) -> IO[str]:
    """Be a user of the engine in a directory, or of the one to come; waits for the end of one that is going."""
    path = directory.with_name(f"{directory.name}.users")
    while True:
        users = path.open("a")
        fcntl.flock(users, fcntl.LOCK_SH)
        if path.exists() and path.stat().st_ino == os.fstat(users.fileno()).st_ino:
            return users
        users.close()


def _start_keeper(kind: str, directory: Path) -> None:
    """Start the process that owns the engine; returns when the engine answers."""
    keeper = subprocess.Popen(
        [sys.executable, "-m", "tests.support.engine_keeper", kind, str(directory)],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert keeper.stdout is not None
    with keeper.stdout:
        answer = keeper.stdout.readline().strip()
    if answer != "ready":
        raise EngineUnavailable(answer or "its keeper fell over")
    (directory / "ready").touch()
    keeper.returncode = 0  # it outlives us when others use the engine


def _leave(users: IO[str]) -> None:
    """Use the engine no longer; the last to leave waits until it has ended."""
    last = _is_last(users)
    users.close()
    if last:
        with contextlib.suppress(FileNotFoundError), Path(users.name).with_suffix(".keeper").open() as keeper:
            fcntl.flock(keeper, fcntl.LOCK_SH)


def _is_last(users: IO[str]) -> bool:
    try:
        fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _bury_the_dead() -> None:
    """Remove engines whose users and keeper were killed."""
    for path in Path(tempfile.gettempdir()).glob(f"{PREFIX}*.users"):
        with contextlib.suppress(OSError), path.open() as users:
            if _is_last(users):
                directory = path.with_suffix("")
                sweep(directory, directory.name)
                path.with_suffix(".keeper").unlink(missing_ok=True)
                path.unlink(missing_ok=True)


@contextmanager
def private_engine(kind: str) -> Iterator[tuple[Engine, Daemon]]:
    """An engine of one test's own, and its daemon, to be killed and started again."""
    directory = Path(tempfile.mkdtemp(prefix=PREFIX))
    daemon = Daemon(recipe(kind, directory))
    try:
        daemon.start()
        yield Engine(daemon.recipe), daemon
    except EngineUnavailable as error:
        pytest.skip(f"no {kind} for the tests: {error}")
    finally:
        daemon.stop()


@pytest.fixture(scope="session")
def engines() -> Iterator[Engines]:
    """The engines of this run."""
    run = hashlib.sha256(os.environ.get("PYTEST_XDIST_TESTRUNUID", secrets.token_hex(8)).encode()).hexdigest()[:8]
    found = Engines(run)
    yield found
    found.close()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Make what takes long, an image of Debian, before the time of a test runs. What fails is told by the tests."""
    if not session.config.option.collectonly and any(
        item.get_closest_marker(kind) for item in session.items for kind in ("docker", "podman")
    ):
        with contextlib.suppress(EngineUnavailable):
            debian_rootfs()
