"""File operations on this machine through a shell of choice, with nothing in the environment but HOME and PATH."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from harness.backend import Capabilities
from harness.errors import ConnectError
from harness.target import Target
from harness.transport import Process
from harness_backends.local.transport import LocalProcess, LocalTransport
from harness_backends.posix.files.files import PosixFiles
from harness_backends.posix.persistent_shell import open_held_shell

SYSTEM_PATH = "/usr/bin:/bin:/usr/sbin:/sbin"


@dataclass(frozen=True)
class Flavour:
    """One kind of target: its shell, and the programs that its PATH lacks or has alone."""

    name: str
    shell: tuple[str, ...]
    busybox: bool = False
    without: tuple[str, ...] = ()
    system: tuple[str, ...] = ()
    prefix: tuple[str, ...] = ()


DASH = Flavour("dash", ("dash",))
BASH = Flavour("bash", ("bash", "--posix"))
MKSH = Flavour("mksh", ("mksh",))
BUSYBOX = Flavour("busybox", ("busybox", "ash"), busybox=True)
BARE = Flavour(  # busybox's own shell would find its applets without PATH
    "bare",
    ("dash",),
    busybox=True,
    without=("stat", "sha256sum", "readlink", "realpath", "flock", "timeout", "base64", "openssl"),
    system=("cksum",),
)
FLAVOURS = (DASH, BASH, MKSH, BUSYBOX, BARE)
BUSYBOX_APPLETS = """
    awk base64 cat chgrp chmod chown cp cut date dd df echo env false find flock grep head id ln ls mkdir mktemp
    mv od printf readlink realpath rm rmdir sed sh sha256sum sleep stat sync tail tar tee test timeout touch tr true
    uname wc
"""


class FlavouredTransport(LocalTransport):
    """Starts ``sh`` as the flavour's shell, with a clean environment; counts channels and can refuse a second one."""

    def __init__(self, flavour: Flavour, home: Path, path: str) -> None:
        super().__init__(Target.parse("local:"))
        self._shell = flavour.shell
        self._prefix = (*flavour.prefix, "env", "-i", f"HOME={home}", f"PATH={path}", f"TMPDIR={home}")
        self.opened = 0
        self.single = False
        self._started: list[LocalProcess] = []

    def signal_last(self, number: signal.Signals) -> None:
        """Send a signal to the newest process and all that it started."""
        os.killpg(self._started[-1]._child.pid, number)

    def kill_all(self) -> None:
        """Kill every process and all that they started, as a crash would."""
        for process in self._started:
            if process._child.returncode is None:
                os.killpg(process._child.pid, signal.SIGKILL)

    async def open_process(self, argv: Sequence[str]) -> Process:
        if self.single and self.opened:
            raise ConnectError("no more channels", target=self.target)
        self.opened += 1
        words = [*_absolute(self._shell), *argv[1:]] if argv[0] == "sh" else list(argv)
        process = await super().open_process([*self._prefix, *words])
        assert isinstance(process, LocalProcess)
        self._started.append(process)
        return process


def _absolute(shell: tuple[str, ...]) -> list[str]:
    program = shutil.which(shell[0])
    assert program, f"{shell[0]} is not installed"
    return [program, *shell[1:]]


def _path(flavour: Flavour, directory: Path) -> str:
    if not flavour.busybox:
        return SYSTEM_PATH
    directory.mkdir(exist_ok=True)
    busybox = shutil.which("busybox")
    assert busybox
    for applet in BUSYBOX_APPLETS.split():
        if applet not in flavour.without and not (directory / applet).exists():
            (directory / applet).symlink_to(busybox)
    for program in flavour.system:
        if not (directory / program).exists():
            (directory / program).symlink_to(_absolute((program,))[0])
    return str(directory)


@dataclass
class FileTarget:
    """An open target, and its home directory on this machine."""

    files: PosixFiles
    home: Path
    transport: FlavouredTransport
    root: Path = field(default=Path("/"))


@asynccontextmanager
async def open_file_target(flavour: Flavour, directory: Path) -> AsyncIterator[FileTarget]:
    """File operations through the flavour's shell; the home directory is a new one below ``directory``."""
    home = directory / "home"
    home.mkdir(exist_ok=True)
    transport = FlavouredTransport(flavour, home, _path(flavour, directory / "applets"))
    async with open_held_shell(transport) as shell:
        capabilities = Capabilities(home=str(home), uid=os.getuid())
        files = PosixFiles(shell, transport, capabilities, lambda: LocalTransport(transport.target))
        try:
            yield FileTarget(files, home, transport)
        finally:
            await files.aclose()


@asynccontextmanager
async def unprivileged_target(flavour: Flavour) -> AsyncIterator[FileTarget]:
    """As :func:`open_file_target`, as a user who may not do everything; the test's own files are somebody else's."""
    with tempfile.TemporaryDirectory(prefix="harness-files-") as name:
        directory = Path(name)
        os.chmod(directory, 0o755)
        user = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups") if os.getuid() == 0 else ()
        async with open_file_target(replace(flavour, prefix=user), directory) as target:
            if user:
                os.chown(target.home, 65534, 65534)
            yield target
