"""Targets that a program of this machine gives: chroot, nsenter and unshare, for real."""

from __future__ import annotations

import io
import os
import secrets
import subprocess
import tarfile
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.support.daemons import EngineUnavailable
from tests.support.images import archive
from tests.support.kubernetes import stand_in_cluster
from tests.support.namespaces import namespaces
from tests.support.sweep import unmount_below

from harness import ExecutionContext, connect
from harness.config import Config
from harness.context import backend_of
from harness.discovery import open_target
from harness.target import ExecTarget, Target
from harness.transport import Transport

__all__ = ["PROGRAMS", "ProgramTargets", "root_directory"]

PROGRAMS = ("exec-chroot", "exec-chroot-busybox", "exec-nsenter", "exec-unshare", "kubectl")
"""``kubectl`` is the real one; its cluster is a stand-in."""
UNSHARE = ExecTarget(("unshare", "--mount", "--uts", "--ipc", "--", "{argv}"))


@dataclass
class ProgramTargets:
    """Opens contexts and transports; each target is made when it is first asked for."""

    stack: ExitStack = field(default_factory=ExitStack)
    made: dict[str, str] = field(default_factory=dict)

    def target(self, name: str) -> str:
        if name not in self.made:
            self.made[name] = self._make(name)
        return self.made[name]

    def _make(self, name: str) -> str:
        if name == "exec-unshare":
            return "exec://unshare"
        if name == "exec-nsenter":
            return f"nsenter://{self.stack.enter_context(namespaces())}"
        if name == "kubectl":
            directory = Path(self.stack.enter_context(tempfile.TemporaryDirectory(prefix="hx", dir="/tmp")))
            cluster = self.stack.enter_context(stand_in_cluster(directory))
            cluster.start_pod("shop", "cart-0")
            self.stack.enter_context(pytest.MonkeyPatch.context()).setenv("KUBECONFIG", cluster.kubeconfig)
            return "k8s://shop/cart-0"
        image = "busybox" if name.endswith("busybox") else "debian"
        return f"chroot://{self.stack.enter_context(root_directory(image))}"

    @asynccontextmanager
    async def context(self, backend: str) -> AsyncIterator[ExecutionContext]:
        """A context of a backend, ``NAME`` or ``NAME+tmux``, with a tmux server of its own."""
        name, _, terminal = backend.partition("+")
        config = Config(tmux_socket=f"hx-{secrets.token_hex(4)}", exec_targets=(("unshare", UNSHARE),))
        async with connect(self.target(name), tmux=bool(terminal), config=config) as ctx:
            try:
                yield ctx
            finally:
                if terminal:
                    end_tmux(ctx, config)

    @asynccontextmanager
    async def transport(self, name: str) -> AsyncIterator[Transport]:
        """A transport through a program."""
        config = Config(exec_targets=(("unshare", UNSHARE),))
        async with open_target(Target.parse(self.target(name)), config) as backend:
            yield backend.transport


def end_tmux(ctx: ExecutionContext, config: Config) -> None:
    """End the tmux server of one check, on the target or here."""
    socket = backend_of(ctx).transport.tmux_socket(config.tmux_socket)
    kill = ["tmux", "-L", socket, "kill-server"]
    for words in (ctx.interactive_command(kill), kill):
        subprocess.run(words, check=False, capture_output=True, timeout=20)


@contextmanager
def root_directory(image: str, *, mounts: tuple[str, ...] = ("proc", "dev")) -> Iterator[str]:
    """A directory with the files of an image, and with ``/proc`` and ``/dev`` or one of them."""
    try:
        data = archive(image)
    except EngineUnavailable as error:
        pytest.skip(str(error))
    with tempfile.TemporaryDirectory(prefix="hx", dir="/tmp") as directory:
        os.chmod(directory, 0o755)
        with tarfile.open(fileobj=io.BytesIO(data)) as tree:
            tree.extractall(directory, filter="fully_trusted")
        try:
            for name in mounts:
                mount("--rbind", f"/{name}", f"{directory}/{name}")
                mount("--make-rslave", f"{directory}/{name}")
            yield directory
        finally:
            unmount_below(Path(directory))


def mount(*words: str) -> None:
    subprocess.run(["mount", *words], check=True, capture_output=True, timeout=20)
