"""A pytest plugin: what a test takes of the machine is a mark, which its fixtures set; a test that takes more fails.

A test asks for a resource by a fixture, ``needs_tmux``, its own or one that another of its fixtures asks for. Where the
resource is not there, the test is left out, and the summary says why. A parameter that names a backend, such as
``docker-busybox+tmux``, or a shell asks as well; so does ``engines``. What asks for nothing is ``pure``: it starts
no program.
"""

from __future__ import annotations

import grp
import os
import re
import shutil
import sys
from collections.abc import Generator, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from .slow import is_slow

__all__ = [
    "RESOURCES",
    "needs_asciinema",
    "needs_browser",
    "needs_desktop",
    "needs_frameworks",
    "needs_kubectl",
    "needs_mandoc",
    "needs_node",
    "needs_process",
    "needs_release",
    "needs_root",
    "needs_ssh",
    "needs_time",
    "needs_tmux",
    "skip_without_ssh_terminal",
    "ssh_terminal",
]

RESOURCES = {
    "process": "starts programs",
    "tmux": "starts a tmux server",
    "ssh": "starts an SSH server on loopback",
    "docker": "starts a Docker Engine",
    "kubectl": "starts kubectl",
    "podman": "starts Podman",
    "node": "starts programs of Node.js",
    "browser": "starts Chromium, with Playwright",
    "asciinema": "starts asciinema's own program",
    "desktop": "sends notifications over a D-Bus session of its own",
    "release": "installs with uv and pipx from a package index",
    "mandoc": "checks manual pages with mandoc and groff",
    "frameworks": "runs agents of LangGraph, the OpenAI Agents SDK and smolagents",
    "dask": "starts a scheduler and workers of Dask",
    "root": "needs to be root: makes accounts, mounts file systems",
    "shells": "needs another shell than bash and dash",
    "slow": "takes long (tests/support/slow.py)",
}
BACKENDS = {
    "local": {"process"},
    "ssh": {"process", "ssh"},
    "openssh": {"process", "ssh"},
    "asyncssh": {"process", "ssh"},
    "docker": {"process", "docker"},
    "podman": {"process", "podman"},
    "exec": {"process", "root"},
    "kubectl": {"process", "root", "kubectl"},
}
"""The resources of a backend, by the first word of its name; ``+tmux`` behind it adds tmux."""
ASCIINEMA = Path(sys.executable).with_name("asciinema")
"""A program of the environment that runs the tests."""
FRAMEWORKS = Path(os.environ.get("HARNESS_VENVS", Path(__file__).parents[2] / ".venv")) / "frameworks/bin/python"
"""The Python of an environment with other projects' frameworks, which take an older release of the MCP SDK."""
WAYS = "api|cli|program|busybox|openssh|asyncssh|chroot|nsenter|unshare"
RELEASE_TOOLS = Path(os.environ.get("HARNESS_VENVS") or Path(__file__).parents[2] / ".venv") / "release/bin"
BACKEND = re.compile(rf"({'|'.join(BACKENDS)})(?:-(?:{WAYS}))*(?:\+(\w+))?")
SHELL = re.compile(r"(?:/\S*/)?(?:zsh|fish|mksh|ksh|yash|tcsh|csh|ash|busybox(?: a?sh)?|posh)")
PROGRAMS = {
    "tmux": "tmux",
    "sshd": "ssh",
    "docker": "docker",
    "kubectl": "kubectl",
    "dockerd": "docker",
    "podman": "podman",
    "node": "node",
    "npm": "node",
    "npx": "node",
    "chromium": "browser",
    "asciinema": "asciinema",
    "dbus-daemon": "desktop",
    "uv": "release",
    "pipx": "release",
    "cyclonedx-py": "release",
    "mandoc": "mandoc",
    "groff": "mandoc",
}


def skip_without(resource: str, *programs: str) -> None:
    """Leave the test out, with the reason, when a program is not there."""
    missing = [name for name in programs if shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/sbin") is None]
    if missing:
        pytest.skip(f"needs {resource}: there is no {' and no '.join(missing)}")


@pytest.fixture(scope="session")
def needs_process() -> None:
    """The test starts programs."""


@pytest.fixture(scope="session")
def needs_tmux(needs_process: None) -> None:
    """The test starts a tmux server."""
    skip_without("tmux", "tmux")


@pytest.fixture(scope="session")
def needs_ssh(needs_process: None) -> None:
    """The test starts an SSH server."""
    skip_without("ssh", "sshd", "ssh")


@pytest.fixture(scope="session")
def ssh_terminal(needs_ssh: None) -> None:
    """The test logs in with a terminal."""
    skip_without_ssh_terminal()


def skip_without_ssh_terminal() -> None:
    """Leave the test out where an SSH server of an ordinary user cannot give a terminal.

    sshd gives a terminal to the group ``tty``, which only root may do, unless the kernel has done so (``gid=5`` in the
    options of ``/dev/pts``).
    """
    if os.geteuid() == 0:
        return
    ours, theirs = os.openpty()
    group = os.fstat(theirs).st_gid
    os.close(ours)
    os.close(theirs)
    with suppress(KeyError):
        if group != grp.getgrnam("tty").gr_gid:
            pytest.skip("needs root: /dev/pts gives terminals to another group than tty, which sshd wants to change")


@pytest.fixture(scope="session")
def needs_kubectl(needs_process: None) -> None:
    """The test starts ``kubectl``."""
    skip_without("kubectl", "kubectl")


@pytest.fixture(scope="session")
def needs_node(needs_process: None) -> None:
    """The test starts programs of Node.js."""
    skip_without("node", "node", "npm")


@pytest.fixture(scope="session")
def needs_browser(needs_node: None) -> None:
    """The test starts Chromium; Playwright drives it with a program of Node.js."""
    skip_without("browser", "chromium")


@pytest.fixture(scope="session")
def needs_asciinema(needs_process: None) -> None:
    """The test starts asciinema."""
    if not ASCIINEMA.exists():
        pytest.skip(f"needs asciinema: there is no {ASCIINEMA}")


@pytest.fixture(scope="session")
def needs_desktop(needs_process: None) -> None:
    """The test sends notifications to a desktop."""
    skip_without("desktop", "notify-send", "dbus-daemon")


@pytest.fixture(scope="session")
def needs_frameworks(needs_process: None) -> Path:
    """The test runs programs that use other projects' frameworks, with this Python."""
    if not FRAMEWORKS.exists():
        pytest.skip("needs frameworks: scripts/test has not made their environment")
    return FRAMEWORKS


@pytest.fixture(scope="session")
def needs_mandoc(needs_process: None) -> None:
    """The test checks manual pages."""
    skip_without("mandoc", "mandoc", "groff")


@pytest.fixture(scope="session")
def needs_release(needs_process: None) -> Path:
    """The test uses the programs of ``.venv/release``, which ``scripts/test`` makes, and a package index."""
    if not (RELEASE_TOOLS / "cyclonedx-py").exists():
        pytest.skip(f"needs release: there is no {RELEASE_TOOLS}")
    return RELEASE_TOOLS


@pytest.fixture(scope="session")
def needs_root(needs_process: None) -> None:
    """The test does what only root may do."""
    if os.geteuid() != 0:
        pytest.skip("needs root")


@pytest.fixture(scope="session")
def needs_time() -> None:
    """The test takes long, whatever the table of slow tests says."""


# -- the marks


def flatten(values: Iterable[Any]) -> Iterator[Any]:
    """The values, and those in the tuples among them."""
    for value in values:
        if isinstance(value, tuple):
            yield from flatten(value)
        else:
            yield value


def backend_resources(values: Iterable[Any]) -> set[str]:
    """The resources of the backends that parameters name."""
    found: set[str] = set()
    for value in flatten(values):
        backend = BACKEND.fullmatch(value) if isinstance(value, str) else None
        if backend is not None:
            found |= BACKENDS[backend[1]] | ({"tmux"} if backend[2] == "tmux" else set())
    return found


def resources_of(item: pytest.Item) -> set[str]:
    """The marks of a test: by its fixtures and its parameters."""
    fixtures = getattr(item, "fixturenames", ())
    found = {name.removeprefix("needs_") for name in fixtures if name.startswith("needs_")}
    found = {"slow" if name == "time" else name for name in found}
    spec = getattr(item, "callspec", None)
    values = spec.params.values() if spec is not None else ()
    by_name = backend_resources(values)
    if "engines" in fixtures and not by_name:
        by_name = {"process", "docker", "podman"}
    found |= by_name
    if "process" in found and any(isinstance(value, str) and SHELL.fullmatch(value) for value in flatten(values)):
        found.add("shells")
    return found or {"pure"}


def pytest_configure(config: pytest.Config) -> None:
    for name, meaning in {**RESOURCES, "pure": "starts no program", "contract": "the contract of a backend"}.items():
        config.addinivalue_line("markers", f"{name}: {meaning}; set by fixtures, see tests/support/resources.py")
    config.addinivalue_line(
        "markers", "real_starts: each start of the program is an exec, see tests/support/program.py"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for name in resources_of(item):
            item.add_marker(name)
        if is_slow(item):
            item.add_marker("slow")


# -- the guard


class StartedPrograms:
    """The resources that the running test has taken, each with the program that it started."""

    def __init__(self) -> None:
        self.resources: dict[str, str] = {}
        sys.addaudithook(self._audit)

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "subprocess.Popen":
            self._add(arguments[1] or [arguments[0]])
        elif event == "os.posix_spawn":
            self._add(arguments[1])
        elif event in ("os.fork", "os.forkpty"):
            self.resources.setdefault("process", event)

    def _add(self, argv: Any) -> None:
        first = argv[0] if isinstance(argv, list | tuple) and argv else argv
        name = os.path.basename(os.fsdecode(first))
        self.resources.setdefault("process", name)
        if name in PROGRAMS:
            self.resources.setdefault(PROGRAMS[name], name)


STARTED = StartedPrograms()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if call.when != "call":  # what is torn down may be an earlier test's, which it shared with the module
        return report
    unmarked = {name: by for name, by in STARTED.resources.items() if item.get_closest_marker(name) is None}
    STARTED.resources.clear()
    if unmarked and report.passed:
        report.outcome = "failed"
        report.longrepr = f"it took {unmarked} without the mark: ask for needs_{min(unmarked)}, or a fixture that does"
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    STARTED.resources.clear()
