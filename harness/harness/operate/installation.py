"""Doctor's checks of the installation on this machine: what harness is and what it can use, whatever the target.

What commands on this machine need in order to run (login shell, tmux server, locale, jobs) belongs to the target
``local:``, which :mod:`.doctor` checks as any other target.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import cast

import anyio
import anyio.to_thread

from ..backend import Finding, ok, warn
from ..backend import fail as failed
from ..config import Config
from ..discovery import find_backend
from ..errors import HarnessError, TargetNotFound
from ..extras import DISTRIBUTION, EXTRAS, install_command
from ..settings import user_config_path
from ..system.account import home_directory, login_shell
from ..system.private_files import state_home
from .checks import judge_disk, judge_tmux_version
from .doctor import SCHEME, ContainerChecks

__all__ = ["about", "check_installation", "extras_installed", "program_output"]

PROGRAM_TIMEOUT = 5.0
CHECK_TIMEOUT = 20.0
"""Seconds for the checks that ask another program: engines of containers and the keyring."""
MAX_START_FILE = 1 << 20
DAY = 86400.0


async def check_installation(config: Config) -> list[Finding]:
    """Run all checks of this installation; failures are findings, not exceptions."""
    findings = await anyio.to_thread.run_sync(_local_checks)
    keyring = await _bounded("keyring", _check_keyring)
    return [*findings, keyring, *await _check_engines(config)]


def _local_checks() -> list[Finding]:
    return [
        check_python(),
        check_program(),
        *check_extras(),
        check_ssh(),
        judge_tmux_version(program_output("tmux", "-V"), wanted=False, here=True),
        *check_directories(),
        check_disk(),
        check_clock(),
        check_completion(Path(os.environ.get("SHELL") or login_shell()).name),
        check_manual(),
    ]


# -- what runs


def _own() -> Distribution | None:
    try:
        return distribution(DISTRIBUTION)
    except PackageNotFoundError:
        return None


def check_python() -> Finding:
    """Return a finding about the Python, which may be newer than the ones that were tested."""
    number = f"{sys.version_info[0]}.{sys.version_info[1]}"
    message = f"{sys.version.split()[0]}, {sys.executable}"
    own = _own()
    tested = own.metadata.get_all("Classifier") or [] if own else []
    if own is not None and f"Programming Language :: Python :: {number}" not in tested:
        return warn("python", f"{message}: harness is not tested with {number}", "install harness with a tested Python")
    return ok("python", message)


def check_program() -> Finding:
    """Return a finding about harness's version and place, and whether its name on ``PATH`` is this one."""
    own = _own()
    message = f"{own.version if own else 'unknown version'}, {sys.prefix}"
    scripts = Path(sysconfig.get_path("scripts")) / "harness"
    found = shutil.which("harness")
    if found is None:
        return warn("harness", f"{message}: not on PATH", f"add {scripts.parent} to PATH")
    if os.path.exists(scripts) and not os.path.samefile(os.path.realpath(found), os.path.realpath(scripts)):
        return warn("harness", f"{message}: another one is first on PATH: {found}", "remove one, or change PATH")
    return ok("harness", message)


@dataclass(frozen=True, slots=True)
class Extra:
    """One extra: the packages that it requires, and those that are missing."""

    packages: tuple[str, ...]
    missing: tuple[str, ...]


_REQUIREMENT = re.compile(r"""([\w.-]+)[^;]*;.*\bextra\s*==\s*['"]([\w-]+)['"]""")


def extras_installed() -> dict[str, Extra]:
    """Return each extra that a user can need, and whether its packages are installed; versions are not compared."""
    own = _own()
    needed: dict[str, list[str]] = {name: [] for name in EXTRAS}
    for line in own.requires or [] if own else []:
        match = _REQUIREMENT.fullmatch(line)
        if match and match[2] in needed and match[1] != DISTRIBUTION:
            needed[match[2]].append(match[1])
    return {name: Extra(tuple(names), tuple(filter(_is_missing, names))) for name, names in needed.items()}


def _is_missing(package: str) -> bool:
    try:
        distribution(package)
    except PackageNotFoundError:
        return True
    return False


def check_extras() -> Iterator[Finding]:
    """Return a finding about the installed extras, one for each incomplete one, and one about the missing ones."""
    found = extras_installed()
    there = [name for name, extra in found.items() if not extra.missing]
    yield ok("extras", f"installed: {', '.join(there) or 'none'}")
    absent = [name for name, extra in found.items() if extra.missing]
    for name in absent:
        extra = found[name]
        command = install_command(f"{DISTRIBUTION}[{name}]")
        if len(extra.missing) < len(extra.packages):
            lacking = ", ".join(extra.missing)
            yield Finding("extras", "ok", f"incomplete: {name} ({EXTRAS[name]}) lacks {lacking}", command)
        else:
            yield Finding("extras", "ok", f"not installed: {name} ({EXTRAS[name]})", command)


def program_output(*argv: str) -> str:
    """Return the first line that a program prints; empty if it is not installed, fails or does not end."""
    if shutil.which(argv[0]) is None:
        return ""
    with suppress(OSError, subprocess.TimeoutExpired):
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=PROGRAM_TIMEOUT, check=False)
        lines = (done.stdout or done.stderr).decode("utf-8", "replace").splitlines()  # ssh prints its version there
        return lines[0].strip() if lines and done.returncode == 0 else ""
    return ""


def check_ssh() -> Finding:
    """Return a finding about the ssh client; hosts need it, or the extra ``asyncssh``."""
    version = program_output("ssh", "-V")
    if version:
        return ok("ssh", f"{version}, {shutil.which('ssh')}")
    instead = "; asyncssh takes its place" if not extras_installed()["asyncssh"].missing else ""
    found = shutil.which("ssh")
    message = f"{found} does not print its version" if found else f"not installed{instead}"
    return warn("ssh", message, "install openssh-client, to work on other machines")


# -- files


def check_directories() -> Iterator[Finding]:
    """Return findings about who may read or change the settings, the state and the runtime directory."""
    yield _check_directory("settings files", user_config_path().parent, others=0o022)
    yield _check_directory("state files", state_home(), others=0o077)
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    if runtime:
        yield _check_directory("runtime files", Path(runtime), others=0o077)
    else:
        yield ok("runtime files", "XDG_RUNTIME_DIR is not set: connections are kept below /tmp, in a private directory")


def _check_directory(check: str, path: Path, *, others: int) -> Finding:
    """Return a finding about a directory.

    Args:
        check: The name of the check.
        path: The directory.
        others: The permissions that other users must not have.
    """
    try:
        problem = _problem_of(path, path.stat(), others)
    except FileNotFoundError:
        return ok(check, f"{path}: not created yet")
    except OSError as error:
        problem = f"{(error.strerror or 'error').lower()}", "make it accessible for you"
    return failed(check, f"{path}: {problem[0]}", problem[1]) if problem else ok(check, str(path))


def _problem_of(path: Path, status: os.stat_result, others: int) -> tuple[str, str] | None:
    """Return what is wrong with a directory and what to do; None if nothing is."""
    mode = stat.S_IMODE(status.st_mode)
    if not stat.S_ISDIR(status.st_mode):
        return "not a directory", "move it away"
    if status.st_uid != os.geteuid():
        return f"belongs to user ID {status.st_uid}", f"chown {os.geteuid()} {path}"
    if mode & others:
        return f"accessible to other users: mode {mode:o}", f"chmod {mode & ~others:o} {path}"
    return None if os.access(path, os.W_OK | os.X_OK) else ("cannot be written", f"chmod u+rwx {path}")


def check_disk() -> Finding:
    """Return a finding about the free space for conversations, recordings and the audit log."""
    path = state_home()
    existing = next(one for one in (path, *path.parents) if os.path.exists(one))
    try:
        free = shutil.disk_usage(existing).free
    except OSError as error:
        return warn("free space", f"{existing}: {(error.strerror or 'error').lower()}", "check the file system")
    return judge_disk("free space", free // 1024, f"for {path}")


def check_clock() -> Finding:
    """Return a finding about the clock: it cannot be earlier than this installation was made."""
    now = time.time()
    with suppress(OSError):
        made = Path(__file__).stat().st_mtime
        if made > now + DAY:
            return failed("time", f"{_utc(now)}, but harness was installed at {_utc(made)}", "set the clock")
    synchronized = program_output("timedatectl", "show", "--property=NTPSynchronized", "--value")
    said = {"yes": "synchronized", "no": "not synchronized"}.get(synchronized, "synchronization unknown")
    if synchronized == "no":
        return warn("time", f"{_utc(now)}, {said}", "timedatectl set-ntp true, or run another NTP client")
    return ok("time", f"{_utc(now)}, {said}")


def _utc(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(seconds))


# -- the shell and the manual


def completion_places(shell: str) -> list[Path]:
    """Return the files in which a shell's completion of harness is looked for: start-up files and its directories."""
    home = home_directory()
    data = Path(os.environ.get("XDG_DATA_HOME") or home / ".local/share")
    config = Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config")
    zdotdir = Path(os.environ.get("ZDOTDIR") or home)
    places: Mapping[str, Sequence[Path]] = {
        "bash": (
            *(home / name for name in (".bashrc", ".bash_completion", ".bash_profile", ".profile")),
            data / "bash-completion/completions/harness",
            Path("/usr/share/bash-completion/completions/harness"),
            Path("/etc/bash_completion.d/harness"),
            Path("/etc/bash.bashrc"),
        ),
        "zsh": (
            zdotdir / ".zshrc",
            zdotdir / ".zshenv",
            Path("/usr/share/zsh/site-functions/_harness"),
            Path("/usr/local/share/zsh/site-functions/_harness"),
            Path("/usr/share/zsh/vendor-completions/_harness"),
        ),
        "fish": (
            config / "fish/completions/harness.fish",
            config / "fish/config.fish",
            data / "fish/vendor_completions.d/harness.fish",
            Path("/usr/share/fish/vendor_completions.d/harness.fish"),
        ),
    }
    return list(places.get(shell, ()))


_INSTALL: Mapping[str, str] = {
    "bash": """echo 'eval "$(harness completion bash)"' >>~/.bashrc""",
    "zsh": """echo 'eval "$(harness completion zsh)"' >>~/.zshrc""",
    "fish": "harness completion fish >~/.config/fish/completions/harness.fish",
}


def check_completion(shell: str) -> Finding:
    """Return a finding about the completion for a shell; a start-up file may load it from a file that is not read."""
    if shell not in _INSTALL:
        return ok("completion", f"not available for {shell or 'an unknown shell'}: bash, zsh and fish have it")
    for path in completion_places(shell):
        if _mentions_completion(path):
            return ok("completion", f"{shell}: {path}")
    return Finding("completion", "ok", f"{shell}: not found in its start-up files", _INSTALL[shell])


def _mentions_completion(path: Path) -> bool:
    with suppress(OSError):
        if stat.S_ISREG(path.stat().st_mode):
            with path.open("rb") as file:
                text = file.read(MAX_START_FILE)
            lines = [line for line in text.splitlines() if not line.lstrip().startswith(b"#")]
            return any(b"harness completion" in line or b"_harness_completion" in line for line in lines)
    return False


def check_manual() -> Finding:
    """Return a finding about the manual pages of this installation."""
    folder = Path(sys.prefix, "share/man/man1")
    if not os.path.exists(folder / "harness.1"):
        return Finding("manual", "ok", f"no manual pages in {folder}", "install harness again, from its wheel")
    if program_output("man", "-w", "harness"):
        return ok("manual", "man harness")
    return ok("manual", f"man -M {folder.parent} harness")


# -- the keyring and the engines of containers


async def _bounded(check: str, work: Callable[[], Finding]) -> Finding:
    with anyio.move_on_after(CHECK_TIMEOUT):
        return await anyio.to_thread.run_sync(work, abandon_on_cancel=True)
    return warn(check, f"no answer within {CHECK_TIMEOUT:g} s", "see whether it waits for you to unlock it")


def _check_keyring() -> Finding:
    try:
        import keyring
        import keyring.backends.fail
    except ImportError:
        return ok("keyring", "keys of models are read from variables, files and commands; the extra keyring is missing")
    try:
        found = keyring.get_keyring()
    except Exception as error:  # any backend of any package
        return warn("keyring", f"it cannot be used: {error}", "check its configuration: keyring diagnose")
    if isinstance(found, keyring.backends.fail.Keyring):
        return ok("keyring", "none is available on this machine")
    return ok("keyring", str(getattr(found, "name", type(found).__name__)))


async def _check_engines(config: Config) -> list[Finding]:
    try:
        module = sys.modules[find_backend(SCHEME).__module__]
    except TargetNotFound:
        return []
    with anyio.move_on_after(CHECK_TIMEOUT):
        try:
            return await cast(ContainerChecks, module).list_engines(config)
        except HarnessError as error:
            return [warn("containers", error.message, error.hint or "check the engine's address")]
    return [warn("containers", f"no answer within {CHECK_TIMEOUT:g} s", "check that the engine is healthy")]


# -- the facts of `harness --version --json`


def about() -> dict[str, object]:
    """Return the versions of harness and of what it uses, for reports of faults."""
    own = _own()
    return {
        "version": own.version if own else None,
        "python": sys.version.split()[0],
        "executable": sys.executable,
        "extras": {name: not extra.missing for name, extra in extras_installed().items()},
        "ssh": program_output("ssh", "-V") or None,
        "tmux": program_output("tmux", "-V") or None,
    }
