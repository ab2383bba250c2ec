"""Runs on many hosts that survive the death of their controller: what was asked, and how each host answered.

A run is a directory of this user: ``run.json``, written before anything starts; ``outcomes.jsonl``, a line for each
answer; ``stdin``; ``lock``, which its controller holds; ``cancelled``. Whether a host has started is never read here:
the host knows the job by its key, so that asking again runs nothing twice.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from ..errors import ConfigError, ConnectError, ConnectionLost, HarnessError
from ..results import ShellResult, Status
from ..system.private_files import is_locked, make_private, state_home
from ..target import Target
from .host_commands import HostCommand, RunCancelled, host_key
from .hosts import Host
from .outcomes import HostOutcome

__all__ = [
    "Answer",
    "KeptRun",
    "RunStore",
    "runs_directory",
]

FINAL = frozenset({Status.COMPLETED, Status.TIMED_OUT, Status.INTERRUPTED, Status.SHELL_EXITED})
DAY = 86_400.0


@dataclass(frozen=True, slots=True)
class Answer:
    """What a host answered last: a status of its job, or an error."""

    host: str
    status: str | None = None
    exit_code: int | None = None
    job_id: str | None = None
    error: str | None = None
    unreachable: bool = False
    cancelled: bool = False
    started: bool = True

    @property
    def final(self) -> bool:
        """Whether the command has ended, so that the host need not be asked again."""
        return self.status in {status.value for status in FINAL}

    @property
    def settled(self) -> bool:
        """Whether nothing that the host answers later can change this."""
        return self.final or self.cancelled

    @property
    def ok(self) -> bool:
        """Whether the command ended with 0."""
        return self.status == Status.COMPLETED.value and self.exit_code == 0


@dataclass(frozen=True, slots=True)
class KeptRun:
    """A run that is kept; :class:`RunStore` creates and finds it.

    ``call`` has the arguments of ``run_shell``; ``created`` is a Unix time; ``origin`` is the run that it repeats;
    ``given_key`` replaces the key that is made of the run and the host.
    """

    number: int
    directory: Path
    token: str
    command: str
    hosts: tuple[Host, ...]
    call: Mapping[str, Any] = field(default_factory=dict)
    tmux: bool | str = False
    pane: str | None = None
    created: float = 0.0
    origin: int | None = None
    given_key: str | None = None

    def key(self, host: str) -> str:
        """Return the key of the command on a host."""
        return host_key(self.token, host) if self.given_key is None else self.given_key

    def command_for(self, host: str, action: Literal["start", "wait", "cancel"] = "start") -> HostCommand:
        """Return what is asked of a host.

        Args:
            host: The name of the host.
            action: Start the command or wait for the job that did, only wait, or cancel it.
        """
        return HostCommand(self.command, self.key(host), self.stdin, self.call, action)

    @property
    def stdin(self) -> Path | None:
        """The file with the standard input of the commands, if they have one."""
        path = self.directory / "stdin"
        return path if path.exists() else None

    # -- answers

    def record(self, outcome: HostOutcome[ShellResult]) -> None:
        """Store what a host answered.

        Raises:
            OSError: The file cannot be written. Nothing depends on it but what ``show`` prints.
        """
        line = json.dumps(asdict(_answer(outcome))) + "\n"
        descriptor = os.open(self.directory / "outcomes.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(descriptor, line.encode())
        finally:
            os.close(descriptor)

    def answers(self) -> dict[str, Answer]:
        """Return the last answer of each host, but not one that is less than what was known: a lost connection.

        Raises:
            HarnessError: They cannot be read.
        """
        path = self.directory / "outcomes.jsonl"
        try:
            lines = path.read_text(errors="replace").split("\n")
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise HarnessError(f"{path}: {error.strerror}", hint="it has the answers of the hosts") from error
        found: dict[str, Answer] = {}
        for line in lines[:-1]:  # the last one is empty, or was cut off by a crash
            try:
                answer = Answer(**json.loads(line))
            except (ValueError, TypeError):
                continue
            if answer.settled or answer.host not in found or not found[answer.host].settled:
                found[answer.host] = answer
        return found

    def unfinished(self) -> tuple[Host, ...]:
        """Return the hosts whose command has not ended, as far as is known here."""
        answers = self.answers()
        return tuple(host for host in self.hosts if host.name not in answers or not answers[host.name].final)

    def _drop_stdin(self) -> None:
        answers = self.answers()
        if all(host.name in answers and answers[host.name].ok for host in self.hosts):
            (self.directory / "stdin").unlink(missing_ok=True)

    # -- control

    @contextmanager
    def held(self) -> Iterator[None]:
        """Be the controller of the run; at its end, the copy of the standard input goes if nothing can need it again.

        Raises:
            HarnessError: Another process is.
        """
        descriptor = os.open(self.directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                owner = os.read(descriptor, 20).decode("ascii", "replace").strip()
                raise HarnessError(
                    f"run {self.number} is still going on, in process {owner or '(unknown)'}",
                    hint=f"harness fleet wait {self.number} waits for it, harness fleet cancel {self.number} ends it",
                ) from None
            os.ftruncate(descriptor, 0)
            os.write(descriptor, b"%d\n" % os.getpid())
            yield
            self._drop_stdin()
        finally:
            os.close(descriptor)

    @property
    def controlled(self) -> bool:
        """Whether a process controls the run now."""
        return is_locked(self.directory / "lock")

    @property
    def cancelled(self) -> bool:
        """Whether :meth:`cancel` was called, in any process."""
        return (self.directory / "cancelled").exists()

    def cancel(self) -> None:
        """Let the controller, if there is one, start nothing more."""
        (self.directory / "cancelled").touch(0o600)


def _answer(outcome: HostOutcome[ShellResult]) -> Answer:
    result, error = outcome.result, outcome.error
    if result is not None:
        return Answer(outcome.host, result.status.value, result.exit_code, result.job_id)
    unreachable = isinstance(error, ConnectError | ConnectionLost)
    cancelled = isinstance(error, RunCancelled)
    started = not outcome.left_out
    return Answer(outcome.host, error=str(error or ""), unreachable=unreachable, cancelled=cancelled, started=started)


# -- the directory of the runs


def runs_directory(environ: Mapping[str, str] | None = None) -> Path:
    """Return ``$XDG_STATE_HOME/harness/fleets``, or ``~/.local/state/harness/fleets``."""
    return state_home(environ) / "fleets"


class RunStore:
    """The runs of this user, by number.

    Args:
        directory: The default is :func:`runs_directory`.
        keep: Seconds that a run is kept: not longer than the hosts keep its keys (``jobs_max_age``).
    """

    def __init__(self, directory: Path | None = None, *, keep: float = 13 * DAY) -> None:
        self.directory = directory or runs_directory()
        self._keep = keep

    def create(
        self,
        command: str,
        hosts: Sequence[Host],
        *,
        call: Mapping[str, Any] | None = None,
        stdin: bytes | Path | None = None,
        tmux: bool | str = False,
        pane: str | None = None,
        origin: int | None = None,
        key: str | None = None,
    ) -> KeptRun:
        """Store a new run before it starts, and remove old ones.

        Args:
            command: Shell text.
            hosts: The hosts.
            call: Further arguments of ``run_shell``, as JSON values.
            stdin: The standard input of the commands; a copy is stored.
            tmux: As for :func:`harness.fleet`, like ``pane``.
            origin: The run that this one repeats.
            key: The key of the command on every host; None chooses one that no other run has.

        Raises:
            HarnessError: It cannot be stored.
        """
        try:
            make_private(self.directory, failure=self._failure)
            self._prune()
            number, directory = self._new_directory()
            token = secrets.token_hex(8)
            run = KeptRun(
                number, directory, token, command, tuple(hosts), call or {}, tmux, pane, time.time(), origin, key
            )
            if stdin is not None:
                _copy(stdin, directory / "stdin")
            _write(directory / "run.json", json.dumps(_document(run), indent=1))
        except OSError as error:
            raise self._failure(f"the run cannot be stored: {error.strerror}", "free some space there") from error
        return run

    def open(self, number: int) -> KeptRun:
        """Return a run.

        Raises:
            ConfigError: Unknown number.
        """
        run = _load(self.directory / str(number))
        if run is None:
            raise ConfigError(f"no run {number}", hint="list the runs with: harness fleet list")
        return run

    def runs(self) -> list[KeptRun]:
        """Return all runs, oldest first."""
        return [run for number in self.numbers() if (run := _load(self.directory / str(number))) is not None]

    def check_fresh(self, run: KeptRun) -> None:
        """Refuse a run that is so old that a host may have forgotten what it ran.

        Raises:
            HarnessError: It is older than the runs that are kept.
        """
        if time.time() - run.created > self._keep:
            raise HarnessError(
                f"run {run.number} is older than {self._keep / DAY:.0f} days, so a host may have forgotten its job",
                hint=f"harness fleet show {run.number} prints what is known; start a new run for the other hosts",
            )

    def numbers(self) -> list[int]:
        """Return the numbers of the kept runs, also of those that cannot be read."""
        try:
            return sorted(int(name) for name in os.listdir(self.directory) if name.isdecimal())
        except FileNotFoundError:
            return []

    def _new_directory(self) -> tuple[int, Path]:
        number = max(self.numbers(), default=0)
        while True:
            number += 1
            try:
                (self.directory / str(number)).mkdir(0o700)
            except FileExistsError:
                continue
            return number, self.directory / str(number)

    def _prune(self) -> None:
        """Remove runs beyond the age; the newest one stays, so that numbers are not used again."""
        for number in self.numbers()[:-1]:
            path = self.directory / str(number)
            with suppress(FileNotFoundError):  # another process was first
                if time.time() - path.stat().st_mtime > self._keep:
                    shutil.rmtree(path, ignore_errors=True)

    def _failure(self, message: str, hint: str) -> HarnessError:
        return HarnessError(f"{self.directory}: {message}", hint=hint)


def _document(run: KeptRun) -> dict[str, Any]:
    return {
        "number": run.number,
        "token": run.token,
        "command": run.command,
        "hosts": [{"name": host.name, "target": str(host.target)} for host in run.hosts],
        "call": dict(run.call),
        "tmux": run.tmux,
        "pane": run.pane,
        "created": run.created,
        "origin": run.origin,
        "given_key": run.given_key,
    }


def _load(directory: Path) -> KeptRun | None:
    """Return a run; None if it is missing or was not stored completely, so that nothing of it has started."""
    try:
        values = json.loads((directory / "run.json").read_text())
        hosts = tuple(Host(host["name"], Target.parse(host["target"])) for host in values.pop("hosts"))
        return KeptRun(directory=directory, hosts=hosts, **values)
    except (OSError, ValueError, TypeError, KeyError, HarnessError):
        return None


def _write(path: Path, text: str) -> None:
    """Write a file at once, and durably: what it describes starts next."""
    beside = path.with_suffix(".new")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(descriptor)
    beside.replace(path)


def _copy(source: bytes | Path, path: Path) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        if isinstance(source, bytes):
            file.write(source)
            return
        with source.open("rb") as given:
            shutil.copyfileobj(given, file)
