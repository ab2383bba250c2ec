"""Accounts of this machine whose ``sudo`` asks for a password, and what a test looks at for leaks of it."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.sshd import SshServer, SystemUser

from harness import ExecutionContext, connect
from harness.login import LoginQuestion, use_prompter

__all__ = [
    "PASSWORD",
    "Answers",
    "FailureCount",
    "ProcessWatch",
    "SudoHost",
    "counted_failures",
    "leaks",
    "sudo_rule",
    "watched_processes",
]

PASSWORD = "corr3ct-h0rse b'attery"


@contextmanager
def sudo_rule(user: SystemUser, rule: str) -> Iterator[None]:
    """Let the account use ``sudo`` by a file of sudoers, which is removed at the end."""
    path = Path("/etc/sudoers.d", f"zz-{user.name}")
    text = f"Defaults:{user.name} !syslog,!mail_badpass,!mail_no_user,!mail_no_perms\n{user.name} {rule}\n"
    subprocess.run(["visudo", "-c", "-q", "-f", "-"], input=text, text=True, check=True)
    path.touch(mode=0o440)
    path.write_text(text)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


@dataclass(frozen=True)
class FailureCount:
    """The failed logins of an account that pam_faillock counts for its ``sudo``."""

    user: SystemUser
    directory: Path

    @property
    def rule(self) -> str:
        """The line of sudoers that lets its ``sudo`` use pam_faillock."""
        return f"Defaults:{self.user.name} pam_service=zz-{self.user.name}"

    def take(self) -> int:
        """Return the count, and start again from 0."""
        words = ["faillock", "--dir", str(self.directory), "--user", self.user.name]
        shown = subprocess.run(words, capture_output=True, text=True, check=True).stdout
        subprocess.run([*words, "--reset"], check=True)
        return sum(line.endswith(" V") for line in shown.splitlines())


@contextmanager
def counted_failures(user: SystemUser, directory: Path) -> Iterator[FailureCount]:
    """Create a service of PAM with pam_faillock for the account's ``sudo`` alone."""
    options = f"dir={directory} deny=100"
    path = Path("/etc/pam.d", f"zz-{user.name}")
    path.write_text(
        f"auth required pam_faillock.so preauth {options}\n"
        "auth [success=1 default=ignore] pam_unix.so\n"
        f"auth [default=die] pam_faillock.so authfail {options}\n"
        f"auth sufficient pam_faillock.so authsucc {options}\n"
        "auth required pam_deny.so\naccount required pam_permit.so\nsession required pam_permit.so\n"
    )
    try:
        yield FailureCount(user, directory)
    finally:
        path.unlink()


@dataclass
class Answers:
    """A prompter with prepared answers, which keeps the questions."""

    answers: list[str | None] = field(default_factory=list)
    asked: list[LoginQuestion] = field(default_factory=list)

    async def answer(self, question: LoginQuestion) -> str | None:
        self.asked.append(question)
        return self.answers.pop(0)


@dataclass
class ProcessWatch:
    """Where a text was seen in the argument lists and environments of this machine's processes."""

    text: bytes
    seen: set[str] = field(default_factory=set)
    rounds: int = 0
    _ended: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        while not self._ended.is_set():
            self.rounds += 1
            for entry in Path("/proc").iterdir():
                if entry.name.isdecimal():
                    self._look(entry)

    def _look(self, entry: Path) -> None:
        for name in ("cmdline", "environ"):
            try:
                if self.text in (entry / name).read_bytes():
                    self.seen.add(f"{name} of {(entry / 'comm').read_text().strip()}")
            except OSError:
                continue

    def stop(self) -> None:
        self._ended.set()


@contextmanager
def watched_processes(text: str) -> Iterator[ProcessWatch]:
    """Read all argument lists and environments again and again, as fast as possible."""
    watch = ProcessWatch(text.encode())
    thread = threading.Thread(target=watch.run)
    thread.start()
    try:
        yield watch
    finally:
        watch.stop()
        thread.join()


@dataclass
class SudoHost:
    """A host whose account may use ``sudo`` with a password."""

    server: SshServer
    user: SystemUser

    @property
    def target(self) -> str:
        return f"ssh://{self.user.name}@127.0.0.1:{self.server.port}"

    @property
    def state(self) -> Path:
        return self.user.home / ".local/state/harness"

    @asynccontextmanager
    async def connect(
        self, prompter: Answers | None, tmux: bool = False, **config: Any
    ) -> AsyncIterator[ExecutionContext]:
        config = {"dedicated_connection": True, **config}
        with use_prompter(prompter):
            async with connect(self.target, tmux=tmux, config=self.server.config(**config)) as ctx:
                yield ctx


def leaks(host: SudoHost) -> list[str]:
    """The files of the account that contain the password."""
    files = [path for path in host.user.home.rglob("*") if path.is_file()]
    return [str(path) for path in files if PASSWORD.encode() in path.read_bytes()]
