"""The contexts that the contract is checked on."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import pytest
from tests.support.sshd import SshServer, start_sshd, system_user

from harness import ExecutionContext, connect
from harness.config import Config


@dataclass
class Place:
    """Where the checks run: directories of our own here, and a server with an account whose home is empty.

    The server and the account are made when they are first asked for.
    """

    stack: ExitStack
    directory: Path

    @cached_property
    def sshd(self) -> SshServer:
        option = f"SetEnv XDG_STATE_HOME={self.directory}/state" if os.getuid() else "# no options"
        server = start_sshd(self.directory, option)
        self.stack.callback(server.stop)
        return server

    @cached_property
    def user(self) -> str:
        """A throw-away account, or the current user when accounts cannot be made."""
        return self.stack.enter_context(system_user("/bin/bash")).name if os.getuid() == 0 else self.sshd.user

    @property
    def target(self) -> str:
        return f"ssh://{self.user}@127.0.0.1:{self.sshd.port}"


@contextmanager
def a_place() -> Iterator[Place]:
    """One sshd and one account for all checks."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(PrivateDirectory()))
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setenv("XDG_RUNTIME_DIR", str(stack.enter_context(PrivateDirectory())))
        patch.setenv("XDG_STATE_HOME", str(stack.enter_context(PrivateDirectory())))
        patch.setenv("HOME", str(stack.enter_context(PrivateDirectory())))
        patch.delenv("SSH_AUTH_SOCK", raising=False)
        yield Place(stack, directory)


@asynccontextmanager
async def open_context(place: Place, backend: str) -> AsyncIterator[ExecutionContext]:
    """A context of a backend as :data:`BACKENDS` names it, with a tmux server of its own."""
    kind, _, terminal = backend.partition("+")
    socket = f"hx-{secrets.token_hex(4)}"
    config = Config(tmux_socket=socket)
    if kind != "local":
        config = replace(place.sshd.config(ssh_engine=kind.removeprefix("ssh-")), tmux_socket=socket)
    target = "local:" if kind == "local" else place.target
    async with connect(target, tmux=bool(terminal), config=config) as ctx:
        try:
            yield ctx
        finally:
            if terminal:
                end_tmux(place if kind != "local" else None, socket)


def end_tmux(place: Place | None, socket: str) -> None:
    """End the tmux server of one check, as the user who owns it."""
    kill = ["tmux", "-L", socket, "kill-server"]
    as_user = ["setpriv", f"--reuid={place.user}", "--clear-groups"] if place and os.getuid() == 0 else []
    subprocess.run([*as_user, *kill], check=False, capture_output=True, timeout=20)


class PrivateDirectory:
    """A short-named private directory; control sockets need short names."""

    def __enter__(self) -> str:
        self.path = tempfile.mkdtemp(prefix="hx", dir="/tmp")
        os.chmod(self.path, 0o755)
        return self.path

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
