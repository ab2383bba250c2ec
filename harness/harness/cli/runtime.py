"""From options to an open target: settings, redacted logs, observers and the connection."""

from __future__ import annotations

import logging
import sys
import threading
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click
from anyio import to_thread

from ..context import ExecutionContext, connect
from ..discovery import open_target
from ..settings import Settings, load_settings
from ..terminal import Sessions
from .named_commands import connection_options, target_options, use_target_options
from .options import Invocation, invocation_of
from .output import warn
from .streams import Interruption, run_async

if TYPE_CHECKING:
    from ..agent.settings import AgentSettings
    from ..agent.trace import Observer
    from ..fleets.in_process import UseContext
    from ..live.announcement import Announcement
    from ..notifications.notifier import Notifier
    from ..toolkit.redaction.redactor import Redactor
    from ..toolkit.values import JsonObject

__all__ = [
    "LOOKS",
    "PLAIN",
    "CliSession",
    "TargetRequirements",
    "announced",
    "logs_cleaned",
    "logs_shown",
    "observers_of",
    "on_target",
    "session_of",
]


# -- Redaction of logs: with ``-vvv`` the libraries of model providers log whole requests.


_tracebacks = logging.Formatter()


@contextmanager
def logs_cleaned(redact: Callable[[str], str]) -> Iterator[None]:
    """Redact every log record created inside, by any thread, for any handler."""
    before = logging.getLogRecordFactory()

    def made(*args: Any, **named: Any) -> logging.LogRecord:
        record = before(*args, **named)
        _clean(record, redact)
        return record

    logging.setLogRecordFactory(made)
    try:
        yield
    finally:
        logging.setLogRecordFactory(before)


def _clean(record: logging.LogRecord, redact: Callable[[str], str]) -> None:
    try:
        text = record.getMessage()
    except Exception:  # the format does not fit its arguments; logging itself reports that
        return
    clean = redact(text)
    if clean != text:
        record.msg, record.args = clean, ()
    if record.exc_info and record.exc_info[0] is not None:
        record.exc_text = redact(_tracebacks.formatException(record.exc_info))


# -- Settings, logging and the connection.


LEVELS = (logging.WARNING, logging.INFO, logging.DEBUG)


class TargetRequirements(NamedTuple):
    """What a command needs of its target."""

    terminal: bool | None = None
    """True needs tmux, False needs no tmux, None leaves it to the operator."""
    create: bool = False
    """Whether to create a missing session or pane; only if the command runs something, as a typo would create one."""
    pane: bool = True
    """Whether the command works on the chosen pane."""


PLAIN: Final = TargetRequirements(terminal=False)
"""The target, without tmux."""
LOOKS: Final = TargetRequirements(terminal=True)
"""The target, with an existing pane."""


class CliSession:
    """One run of the program: its invocation and its settings."""

    def __init__(self, invocation: Invocation) -> None:
        self.invocation = invocation
        self.settings: Settings = load_settings(invocation.choices)
        self.announcement: Announcement | None = None
        """Shows this process's sessions in dashboards, once it is announced."""
        self.notifier: Notifier | None = None
        """Notifies of this process's sessions, once it is open; None if nothing is configured."""
        for warning in self.settings.warnings:
            warn(warning, as_json_document=invocation.json)

    @property
    def json(self) -> bool:
        """Whether to print results as JSON."""
        return self.invocation.json

    @asynccontextmanager
    async def open(self, needs: TargetRequirements) -> AsyncIterator[ExecutionContext]:
        """Connect to the target as the command needs it."""
        tmux, pane = self.terminal_of(needs)
        target, config = self.settings.target, self.settings.config
        with self.questions():
            async with connect(target, tmux=tmux, pane=pane, config=config, create=needs.create) as ctx:
                logging.getLogger("harness").info("connected: %s", ctx.describe())
                if not (config.record and needs.create):
                    yield ctx
                    return
                from .recording import record_session  # seldom needed

                choices, show_warning = self.invocation.choices, partial(warn, as_json_document=self.json)
                async with record_session(ctx, self.settings, choices, tmux, show_warning):
                    yield ctx

    def host_recording(
        self, needs: TargetRequirements, tmux: bool | str, hosts: int, *, by_workers: bool = False
    ) -> UseContext | None:
        """Return what records the panes of each of so many hosts; None if nothing is recorded.

        With ``by_workers``, the workers of a scheduler connect to them.
        """
        if not (self.settings.config.record and needs.create):
            return None
        from .recording import host_recording  # seldom needed

        show_warning = partial(warn, as_json_document=self.json)
        if by_workers:
            show_warning("nothing is recorded: the workers of the scheduler connect to the hosts")
            return None
        return host_recording(self.settings, self.invocation.choices, tmux, hosts, show_warning)

    @asynccontextmanager
    async def notified(self, kind: str) -> AsyncIterator[Notifier | None]:
        """Send notifications while the context is open, if the settings or ``--notify`` configure any.

        Args:
            kind: The command, as for :func:`.announcement.announce`.

        Yields:
            The notifier; None if no notifications are configured.

        Raises:
            ConfigError: A setting is wrong, or an untrusted file sets one.
        """
        if not (self.invocation.notify or "notifications" in self.settings.tables):
            yield None
            return
        from .notifications import open_notifications  # seldom needed

        async with open_notifications(self.invocation, kind) as notifier:
            self.notifier = notifier
            try:
                yield notifier
            finally:
                self.notifier = None

    def terminal_of(self, needs: TargetRequirements) -> tuple[bool | str, str | None]:
        """Return the arguments ``tmux`` and ``pane`` of :func:`harness.connect` for a command."""
        tmux = self.settings.tmux
        if needs.terminal is not None:
            tmux = (tmux or True) if needs.terminal else False
        return tmux, self.settings.pane if needs.pane and tmux is not False else None

    @asynccontextmanager
    async def open_sessions(self) -> AsyncIterator[Sessions]:
        """Open the target's tmux sessions, without attaching to one."""
        tmux, config = self.settings.tmux, self.settings.config
        name = tmux if isinstance(tmux, str) else config.session
        with self.questions():
            async with open_target(self.settings.target, config) as backend, backend.open_sessions(name) as sessions:
                yield sessions

    def questions(self) -> AbstractContextManager[None]:
        """Let logins inside ask the operator, unless --batch was given."""
        if not self.invocation.batch:
            return nullcontext()
        from ..login import use_prompter

        return use_prompter(None)


@asynccontextmanager
async def announced(session: CliSession, kind: str) -> AsyncIterator[Announcement]:
    """Announce this process to dashboards while the context is open.

    Args:
        session: The program's session.
        kind: The command, as for :func:`.announcement.announce`.
    """
    from ..live.announcement import announce

    async with announce(kind, is_shown=session.settings.config.announce) as announcement:
        session.announcement = announcement
        try:
            yield announcement
        finally:
            session.announcement = None


def session_of(ctx: click.Context) -> CliSession:
    """Return the session of a command and set up logging."""
    invocation = invocation_of(ctx)
    if invocation.color is False:
        ctx.color = False
    _set_up_logging(invocation.verbose)
    options_of = connection_options if invocation.several else target_options
    use_target_options(options_of(invocation.choices))
    return CliSession(invocation)


def on_target(
    session: CliSession,
    work: Callable[[ExecutionContext, Interruption], Awaitable[int | None]],
    needs: TargetRequirements,
) -> int:
    """Open the session's target, run ``work`` on it, and return its exit code."""

    async def main(interruption: Interruption) -> int:
        async with session.open(needs) as ctx:
            with interruption.reaches():
                return await work(ctx, interruption) or 0
        return 0  # cancelled; run_async returns the exit code

    return run_async(main)


def _set_up_logging(verbose: int) -> None:
    level = LEVELS[min(verbose, len(LEVELS) - 1)]
    logging.basicConfig(
        stream=sys.stderr,
        level=logging.WARNING,
        format="harness: %(name)s: %(message)s" if verbose else "harness: %(message)s",
    )
    for name in ("harness", "harness_backends"):
        logging.getLogger(name).setLevel(level)
    logging.captureWarnings(True)  # warnings of libraries are for developers, so they need -v
    logging.getLogger("py.warnings").setLevel(logging.WARNING if verbose else logging.ERROR)
    if verbose >= 3:
        logging.getLogger().setLevel(logging.DEBUG)


# -- Observers of the agent: a trace with ``--trace``, and telemetry if it is enabled.


@asynccontextmanager
async def observers_of(
    session: CliSession, settings: AgentSettings | None, redactor: Redactor, target: ExecutionContext
) -> AsyncIterator[Sequence[Observer]]:
    """Open the observers of an agent, which must be closed before them, and redact logs meanwhile.

    Raises:
        HarnessError: The trace cannot be written, or telemetry is enabled and cannot be sent.
    """
    from ..agent.trace import open_trace
    from ..agent.trace.telemetry import open_telemetry

    version = await to_thread.run_sync(_version)
    async with AsyncExitStack() as stack:
        stack.enter_context(logs_cleaned(redactor.text))
        found: list[Observer] = []
        if session.invocation.trace:
            about: JsonObject = {"harness": version, "target": str(target.target)}
            trace = open_trace(Path(session.invocation.trace), redactor, about)
            found.append(await stack.enter_async_context(trace))
        telemetry = await stack.enter_async_context(
            open_telemetry(
                redactor,
                wanted=settings is not None and settings.telemetry,
                content=settings is not None and settings.telemetry_content,
                about={"service.version": version, "harness.target": str(target.target)},
            )
        )
        yield (*found, telemetry) if telemetry is not None else tuple(found)


def _version() -> str:
    from importlib.metadata import version

    return version("harness-ops")


# -- Log records at the prompt: lines above the input, instead of text across it.


class _Shown(logging.Handler):
    """Handler that shows records in the drawing thread; those of other threads wait for its next one or a flush."""

    def __init__(self, show: Callable[[str], None]) -> None:
        super().__init__()
        self._show = show
        self._waiting: deque[str] = deque(maxlen=100)
        self._thread = threading.get_ident()

    def emit(self, record: logging.LogRecord) -> None:
        self._waiting.append(self.format(record))
        self.flush()

    def flush(self) -> None:
        while self._waiting and threading.get_ident() == self._thread:
            self._show(self._waiting.popleft())


@contextmanager
def logs_shown(show: Callable[[str], None]) -> Iterator[Callable[[], None]]:
    """Call ``show`` with each record logged inside, always in the thread that entered.

    Yields:
        A function that shows waiting records of other threads.
    """
    root = logging.getLogger()
    before = root.handlers[:]
    handler = _Shown(show)
    handler.setFormatter(logging.Formatter("%(name)s: %(message)s"))
    root.handlers[:] = [handler]
    logging.captureWarnings(True)
    try:
        yield handler.flush
    finally:
        logging.captureWarnings(False)
        handler.flush()
        root.handlers[:] = before
