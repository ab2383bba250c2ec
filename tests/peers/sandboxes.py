"""The sandboxes that inspect_ai's checks run in, and the checks that one cannot pass by design."""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field, fields, replace
from pathlib import Path

from inspect_ai.util import SandboxEnvironment
from inspect_ai.util._sandbox.registry import registry_find_sandboxenv
from tests.support.berths import BERTHS, entered
from tests.support.berths import end_tmux as end_container_tmux
from tests.support.engines import Container, Engines, container
from tests.support.places import Place, end_tmux
from tests.support.sshd import accounts_locked

from harness.config import Config
from harness.inspect_sandbox import SandboxConfig

__all__ = ["GAPS", "SANDBOXES", "Gap", "Sandboxes", "alone", "gap_of", "result_table", "settings_text"]

ACCOUNTS = {"docker-busybox": "app"}
"""Ordinary users that images have; the others get ``checker``."""

NO_PROCESS_LIMIT = ("--pids-limit", "-1")
"""Commands in panes leave zombies where a container's first process reaps none; Podman allows 2,048 processes."""


@dataclass(frozen=True)
class Gap:
    """A check that some sandboxes cannot pass."""

    check: str
    sandboxes: tuple[str, ...]
    reason: str


SANDBOXES = {
    "local": "this machine, as root",
    "local+tmux": "this machine, as root, in tmux",
    "ssh-openssh": "SSH, OpenSSH's engine",
    "ssh-openssh+tmux": "SSH, OpenSSH's engine, in tmux",
    "ssh-asyncssh": "SSH, asyncssh's engine",
    "ssh-asyncssh+tmux": "SSH, asyncssh's engine, in tmux",
    "docker": "Docker",
    "docker+tmux": "Docker, in tmux",
    "podman-api": "Podman",
    "podman-api+tmux": "Podman, in tmux",
    "docker-busybox": "Docker, an image of busybox",
}
"""What the documentation calls each: SSH and containers are entered as an ordinary user."""

GAPS = (
    Gap("test_read_file_not_allowed", ("local", "local+tmux"), "root may read a file that nobody has leave to read"),
    Gap("test_exec_as_user", ("docker-busybox",), "the check makes an account with adduser, which the image lacks"),
    Gap("test_cwd_custom", ("docker-busybox",), "the check looks for env in /usr/bin, and the image has it in /bin"),
)


def result_table(checks: Sequence[str]) -> str:
    """The table of the documentation: what the tests make sure of, since a gap must fail and all else must pass."""
    rows = ["| sandbox | passes | fails by design |", "|---|--:|---|"]
    for name, words in SANDBOXES.items():
        gaps = [gap for gap in GAPS if name in gap.sandboxes]
        reasons = "; ".join(f"`{gap.check}`: {gap.reason}" for gap in gaps)
        rows.append(f"| {words} | {len(checks) - len(gaps)} of {len(checks)} | {reasons} |")
    return "\n".join(rows)


SHARED = {
    "test_read_and_write_file_including_directory_absolute",
    "test_write_text_file_is_directory",
    "test_write_binary_file_is_directory",
    "test_cwd_absolute",
}
"""Checks that use one path below /tmp."""


def gap_of(check: str, sandbox: str) -> Gap | None:
    """The gap of a check in a sandbox; without root, this machine has none."""
    if sandbox.startswith("local") and os.geteuid() != 0:
        return None
    return next((gap for gap in GAPS if gap.check == check and sandbox in gap.sandboxes), None)


@contextmanager
def alone(check: str, sandbox: str) -> Iterator[None]:
    """Wait until no other test process uses what a check uses of this machine."""
    if sandbox.partition("+")[0] in BERTHS:
        yield
    elif check == "test_exec_as_user":
        with accounts_locked():
            yield
    elif check in SHARED:
        with Path(tempfile.gettempdir(), "hx-peers.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
    else:
        yield


def settings_text(config: Config) -> str:
    """A settings file with what differs from the defaults."""
    default = Config()
    chosen = {item.name: getattr(config, item.name) for item in fields(Config)}
    return "".join(
        f"{name} = {json.dumps(value)}\n" for name, value in chosen.items() if value != getattr(default, name)
    )


@dataclass
class Sandboxes:
    """Makes sandboxes as an evaluation does: by the registered name and a configuration."""

    place: Place
    engines: Engines
    folder: Path
    stack: ExitStack
    _containers: dict[str, Container] = field(default_factory=dict)

    @asynccontextmanager
    async def open(self, name: str) -> AsyncIterator[SandboxEnvironment]:
        """A sandbox of :data:`SANDBOXES`, with a tmux server of its own."""
        provider = registry_find_sandboxenv("harness")
        socket = f"hx-{secrets.token_hex(4)}"
        with self.configured(name, socket) as config:
            made = await provider.sample_init("self_check", config, {})
            try:
                yield made["default"]
            finally:
                await provider.sample_cleanup("self_check", config, made, False)

    @contextmanager
    def configured(self, name: str, socket: str) -> Iterator[SandboxConfig]:
        """The configuration of a sandbox whose tmux server has a socket of that name; the server ends with it."""
        kind, _, terminal = name.partition("+")
        if kind in BERTHS:
            one, account = self._container(kind)
            with entered(one, api=BERTHS[kind].api):
                target = f"{one.engine.kind}://{account}@{one.name}"
                yield self._config(target, Config(tmux_socket=socket), terminal)
                if terminal:
                    end_container_tmux(one, socket, user=account)
            return
        place = None if kind == "local" else self.place
        config = place.sshd.config(ssh_engine=kind.removeprefix("ssh-")) if place else Config()
        if place:
            self._allow_sudo()
        yield self._config(place.target if place else "local:", replace(config, tmux_socket=socket), terminal)
        if terminal:
            end_tmux(place, socket)

    def _config(self, target: str, config: Config, terminal: str) -> SandboxConfig:
        settings = self.folder / f"{config.tmux_socket}.toml"
        settings.write_text(settings_text(config))
        return SandboxConfig(target=target, tmux=bool(terminal), settings_file=str(settings))

    def _container(self, kind: str) -> tuple[Container, str]:
        """A container and an ordinary user in it."""
        account = ACCOUNTS.get(kind, "checker")
        if kind not in self._containers:
            berth = BERTHS[kind]
            made = container(self.engines.get(berth.engine), berth.image, options=NO_PROCESS_LIMIT)
            self._containers[kind] = one = self.stack.enter_context(made)
            if kind not in ACCOUNTS:
                one.run("useradd", "--create-home", account)
        return self._containers[kind], account

    def _allow_sudo(self) -> None:
        """Let the account of the server become every user, where accounts can be made."""
        if os.geteuid() != 0:
            return
        rule = Path("/etc/sudoers.d", self.place.user)
        if not rule.exists():
            rule.touch(mode=0o440)
            rule.write_text(f"{self.place.user} ALL=(ALL) NOPASSWD: ALL\n")
            self.stack.callback(rule.unlink)
