"""``harness forward --background``: a process of its own, which leaves the terminal when all forwards work."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ....errors import ConfigError, HarnessError
from ....login import LoginQuestion, Prompter, current_prompter, use_prompter
from ....system.private_files import make_private, state_home
from ....target import Target, mask_password
from ...exits import HARNESS_FAILED, SIGNALLED
from ...output import print_json, readable
from ...streams import Interruption, run_async
from .display import Display, status_document

if TYPE_CHECKING:
    from ....forwards.forwarder import ForwardStatus
    from ...runtime import CliSession

__all__ = ["run_in_background"]

MAX_LOG_BYTES = 256 << 10
"""Maximum size of a log; the one before it is kept, too."""
MAX_LOG_SECONDS = 30 * 86400.0
"""Age from which the logs of earlier forwards are removed."""

log = logging.getLogger(__name__)


def run_in_background(session: CliSession, run: Callable[[Display, Interruption], Awaitable[int]]) -> int:
    """Run forwards in a child process, and return when all of them work, or when it has failed.

    Args:
        session: The program's session.
        run: Runs the forwards.
    """
    reading, writing = os.pipe()
    child = os.fork()  # before any thread or event loop exists
    if child == 0:
        os.close(reading)
        _close_inherited()
        return _run_child(session, run, writing)
    os.close(writing)
    with open(reading, "rb") as reports:
        report = reports.read()
    if not report:
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        return SIGNALLED - code if code < 0 else code or HARNESS_FAILED
    document = json.loads(report)
    if session.json:
        print_json(document)
        return 0
    for text in document.pop("texts"):
        click.echo(readable(text))
    click.echo(f"{document['name']}: runs as process {child}; 'harness forward stop {document['name']}' ends it")
    return 0


def _close_inherited() -> None:
    """Close what the caller left open for its programs, such as the lock of a script: it would stay open too long."""
    for number in [int(name) for name in os.listdir("/dev/fd")]:
        with suppress(OSError):  # the directory itself is closed again
            if number > 2 and os.get_inheritable(number):
                os.close(number)


def _run_child(session: CliSession, run: Callable[[Display, Interruption], Awaitable[int]], descriptor: int) -> int:
    display = _BackgroundDisplay(descriptor, as_json=session.json)
    try:
        code = run_async(partial(run, display))
        if display.has_started:
            log.info("ended: %s", "stopped" if code == 0 else f"signal {code - SIGNALLED}")
        return code
    except HarnessError as error:
        if display.has_started:  # else the message is printed
            log.error("ended: %s", error)
        raise


class _DetachingPrompter:
    """Asks at the terminal until this process has left it."""

    def __init__(self, prompter: Prompter) -> None:
        self._prompter = prompter
        self.is_detached = False

    async def answer(self, question: LoginQuestion) -> str | None:
        """See :class:`Prompter`."""
        return None if self.is_detached else await self._prompter.answer(question)


class _BackgroundDisplay(Display):
    """Reports to the process that waits, then leaves the terminal and writes a log."""

    def __init__(self, descriptor: int, *, as_json: bool) -> None:
        super().__init__(as_json=True)
        self._descriptor = descriptor
        self._reports_json = as_json
        self._prompter: _DetachingPrompter | None = None

    def questions(self) -> AbstractContextManager[None]:
        prompter = current_prompter()
        if prompter is None:
            return nullcontext()
        self._prompter = _DetachingPrompter(prompter)
        return use_prompter(self._prompter)

    def start(self, name: str, target: Target, status: Callable[[], ForwardStatus]) -> None:
        self._status = status
        _open_log(name)
        document: dict[str, Any] = {**status_document(name, target, status()), "pid": os.getpid()}
        if not self._reports_json:
            document["texts"] = [str(spec) for spec in status().specs]
        os.write(self._descriptor, json.dumps(document).encode())  # fails if nothing waits any more
        os.close(self._descriptor)
        if self._prompter is not None:
            self._prompter.is_detached = True
        _leave_terminal()
        for spec in status().specs:  # the log is all that is left to write to
            log.info("%s over %s", spec, mask_password(str(target)))

    def update(self) -> None:
        """Print nothing: the log has it."""

    def end(self) -> None:
        """Print nothing."""


def _leave_terminal() -> None:
    with suppress(PermissionError):  # it leads a process group already
        os.setsid()
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(nothing, number)
    os.close(nothing)


# -- the log


class _PrivateLog(RotatingFileHandler):
    """A log of limited size that only its owner may read."""

    def _open(self) -> Any:
        return open(self.baseFilename, self.mode, encoding="utf-8", errors="backslashreplace", opener=_open_private)


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)


def _open_log(name: str) -> None:
    """Write all log records of harness to the log of the forwards from now on.

    Raises:
        ConfigError: The log cannot be written.
    """
    directory = state_home() / "forwards"
    try:
        make_private(directory, failure=lambda message, hint: ConfigError(f"{directory}: {message}", hint=hint))
        _remove_old_logs(directory)
        handler = _PrivateLog(directory / f"{name}.log", maxBytes=MAX_LOG_BYTES, backupCount=1)
    except OSError as error:
        raise ConfigError(f"{directory}: {(error.strerror or str(error)).lower()}") from error
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    logging.getLogger().addHandler(handler)
    for package in ("harness", "harness_backends"):
        logger = logging.getLogger(package)
        logger.setLevel(min(logger.level or logging.INFO, logging.INFO))


def _remove_old_logs(directory: Path) -> None:
    from ....live.forwards import is_name_held

    for path in directory.iterdir():
        with suppress(OSError):
            is_old = time.time() - path.lstat().st_mtime > MAX_LOG_SECONDS
            if is_old and not is_name_held(path.name.removesuffix(".1").removesuffix(".log")):
                path.unlink()
