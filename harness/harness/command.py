"""Requests of callers to a target, validated once and then passed on unchanged."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from types import NoneType
from typing import Literal

__all__ = [
    "Capture",
    "Command",
    "Keys",
    "LiveView",
    "OnTimeout",
    "check_text",
    "check_type",
    "observe_jobs",
    "parse_duration",
]

OnTimeout = Literal["keep", "kill"]
OutputCallback = Callable[[bytes], None]

DEFAULT_TIMEOUT = 120.0
DEFAULT_MAX_OUTPUT = 1 << 20
DEFAULT_WATCH_BYTES = 1 << 20
"""Bytes that a watcher of a pane may leave untaken before they are dropped and replaced by a new screen."""

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>ms|s|m|h|d)?")


def parse_duration(text: str | float) -> float:
    """Return seconds from a number or from ``"500ms"``, ``"30s"``, ``"10m"``, ``"1h"``, ``"1d"``.

    Raises:
        ValueError: The text is not a duration, or it is negative.
    """
    match = _DURATION.fullmatch(str(text).strip().lower())
    if match is None:
        raise ValueError(f"{text!r} is not a duration: write seconds, or 500ms, 30s, 10m, 1h, 1d")
    return float(match["number"]) * _UNITS[match["unit"] or "s"]


def check_type(value: object, name: str, *kinds: type, hint: str = "") -> None:
    """Refuse an argument of another type, naming the argument.

    Raises:
        TypeError: The value's type is not one of ``kinds``; ``hint`` is the remedy.
    """
    if not isinstance(value, kinds):
        wanted = " or ".join(map(_type_name, kinds))
        raise TypeError(f"{name} must be {wanted}, not {_type_name(type(value))}{hint and f': {hint}'}")


def _type_name(kind: type) -> str:
    return "None" if kind is NoneType else kind.__name__


def check_text(text: str, what: str) -> str:
    """Return the text if it can be encoded as UTF-8 with ``surrogateescape`` and contains no NUL.

    Raises:
        TypeError: It is not a ``str``; ``what`` is the argument's name.
        ValueError: It contains a NUL, or an unpaired surrogate.
    """
    check_type(text, what, str)
    if "\0" in text:
        raise ValueError(f"{what} must not contain a NUL byte")
    try:
        text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise ValueError(f"{what} contains {text[error.start]!a}, an unpaired surrogate, which is not text") from None
    return text


@dataclass(frozen=True, slots=True)
class LiveView:
    """An ``on_output`` callback for operators who watch.

    If much output is still to come after a command has ended or timed out, it gets only the end of that output, so that
    nothing waits for output that would not be read.

    Args:
        show: Called with the output.
        skipped: Called with the number of bytes that were skipped before the next output.
    """

    show: OutputCallback
    skipped: Callable[[int], None]

    def __call__(self, data: bytes) -> None:
        self.show(data)


_job_observer: ContextVar[Callable[[str], None] | None] = ContextVar("job_observer", default=None)


@contextmanager
def observe_jobs(observer: Callable[[str], None]) -> Iterator[None]:
    """Call a function with the job ID of every command inside, before the command is sent.

    A caller that is cancelled gets no result, and finds the command by this ID. Observers outside are called, too.
    """
    outer = _job_observer.get()

    def observe(job_id: str) -> None:
        if outer is not None:
            outer(job_id)
        observer(job_id)

    token = _job_observer.set(observe)
    try:
        yield
    finally:
        _job_observer.reset(token)


@dataclass(frozen=True, slots=True)
class Command:
    """One command to run; with ``wait`` False the call returns once it is dispatched, ``timeout`` is in seconds.

    ``on_output`` gets every byte of standard output in order, as it arrives, and of standard error, too, unless
    ``on_stderr`` gets that as a separate stream. Neither is truncated by ``max_output``; a :class:`LiveView` may get
    less. ``stdin`` as a path is a regular file on this machine, which is never loaded into memory as a whole.
    """

    command: str
    wait: bool = True
    timeout: float = DEFAULT_TIMEOUT
    on_timeout: OnTimeout = "keep"
    cwd: str | None = None
    env: tuple[tuple[str, str], ...] = ()
    stdin: bytes | Path | None = None
    user: str | None = None
    pane: str | None = None
    tty: bool | None = None
    on_output: OutputCallback | None = field(default=None, compare=False)
    on_stderr: OutputCallback | None = field(default=None, compare=False)
    max_output: int = DEFAULT_MAX_OUTPUT
    receive_early: bool = False
    """Whether to receive output while it runs, up to ``max_output``, so that it is not lost with the connection."""
    helper: bool = False
    """Whether a tool runs it for itself; its job is marked, so that lists of commands can omit it."""
    key: str | None = None
    """What its job is to be found by; only with ``job_id``."""
    job_id: str | None = None
    """The job ID that was reserved for it; None lets the backend choose one."""
    on_job: Callable[[str], None] | None = field(default_factory=_job_observer.get, compare=False, repr=False)
    """Called by the backend with the job ID before the command is sent; set by :func:`observe_jobs`."""

    def announce(self, job_id: str) -> None:
        """Report the job ID, which the command is about to get."""
        if self.on_job is not None:
            self.on_job(job_id)


@dataclass(frozen=True, slots=True)
class Capture:
    """What to capture of a pane, with the options of ``tmux capture-pane``; ``delay`` is in seconds."""

    pane: str | None = None
    target: str | None = None
    job_id: str | None = None
    start: int | Literal["-"] | None = None
    end: int | Literal["-"] | None = None
    join_wrapped_lines: bool = True
    preserve_trailing_spaces: bool = False
    include_escape_sequences: bool = False
    escape_non_printable: bool = False
    include_alternate_screen: bool = False
    delay: float = 0.0


@dataclass(frozen=True, slots=True)
class Keys:
    """Keys to type, in this order: ``literal_text``, ``keys`` (tmux names such as ``C-c``), Enter."""

    keys: tuple[str, ...] = ()
    literal_text: str | bytes | None = None
    enter: bool = False
    pane: str | None = None
    target: str | None = None
    delay: float = 0.0
