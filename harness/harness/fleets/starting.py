"""Which hosts of a call start, and when: waves, a limit of failed hosts, and the end of starting."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TypeVar

import anyio

from ..command import observe_jobs
from ..errors import HarnessError

__all__ = [
    "Count",
    "HostInterrupted",
    "HostNotStarted",
    "HostRun",
    "StartOptions",
    "Starting",
    "resolve_count",
    "split_into_waves",
]

T = TypeVar("T")
Count = int | str
"""A number of hosts, or a percentage of a call's hosts such as ``"10%"``."""
_PERCENTAGE = re.compile(r"(\d{1,3}(?:\.\d{1,6})?)%", re.ASCII)
_NUMBER = re.compile(r"\d{1,9}", re.ASCII)


def resolve_count(value: Count, total: int) -> int:
    """Return the number of hosts that a number or a percentage of ``total`` means: at least 1, rounded down.

    Raises:
        ValueError: It is neither a number from 1 nor a percentage above 0% and up to 100%.
    """
    text = str(value).strip()
    if match := _PERCENTAGE.fullmatch(text):
        share = Fraction(match[1])
        if 0 < share <= 100:
            return max(int(total * share / 100), 1)
    elif _NUMBER.fullmatch(text) and int(text) >= 1:
        return int(text)
    raise ValueError(f"{value!r} is not a number of hosts from 1, nor a percentage such as '10%'")


def split_into_waves(items: Sequence[T], sizes: Count | Sequence[Count] | None) -> list[Sequence[T]]:
    """Split the hosts of a call into waves.

    Args:
        items: The hosts.
        sizes: The size of every wave, or of each wave (the last one repeats); None is one wave.

    Raises:
        ValueError: A size is wrong or missing.
    """
    if sizes is None:
        return [items]
    given = [sizes] if isinstance(sizes, int | str) else list(sizes)
    if not given:
        raise ValueError("rolling needs the size of a wave")
    counts = [resolve_count(size, len(items)) for size in given]
    waves: list[Sequence[T]] = []
    start = 0
    while start < len(items):
        size = counts[min(len(waves), len(counts) - 1)]
        waves.append(items[start : start + size])
        start += size
    return waves


@dataclass(frozen=True, slots=True)
class StartOptions:
    """How a call starts its hosts; see :meth:`Fleet.map`."""

    forks: int
    max_fail: Count | None
    rolling: Count | Sequence[Count] | None
    retries: int
    on_start: Callable[[str], None] | None
    on_wave: Callable[[Sequence[str]], Awaitable[None]] | None

    def __post_init__(self) -> None:
        if self.forks < 1 or self.retries < 0:
            raise ValueError("forks must be at least 1, and retry_unreachable at least 0")

    def failure_limit(self, total: int) -> int | None:
        """Return the number of failed hosts after which nothing more starts; None is no limit."""
        if self.max_fail is not None:
            return resolve_count(self.max_fail, total)
        return None if self.rolling is None else 1


class HostNotStarted(HarnessError):
    """A host was left out: nothing was sent to it, though it may be reachable."""


class HostInterrupted(HarnessError):
    """What ran on a host was interrupted, and has no result."""


@dataclass(eq=False)
class HostRun:
    """What runs on one host."""

    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    job_id: str | None = None
    """The newest command's job; None before a command is sent."""

    def set_job(self, job_id: str) -> None:
        """Store the job ID of the command that is about to be sent."""
        self.job_id = job_id


class Starting:
    """Whether a call may start a further host.

    Args:
        max_fail: The number of failed hosts after which nothing more starts; None means unlimited.
    """

    def __init__(self, max_fail: int | None) -> None:
        self._max_fail = max_fail
        self._failed = 0
        self._logins: set[anyio.CancelScope] = set()
        self.running: dict[str, HostRun] = {}
        """The hosts that have started and not ended."""
        self.refusal = ""
        """Why nothing more starts; empty while hosts may start."""

    def stop(self, reason: str) -> None:
        """Start nothing more, and end waiting for logins; the first reason is kept."""
        self.refusal = self.refusal or reason
        for scope in self._logins:
            scope.cancel()

    @contextmanager
    def login(self) -> Iterator[None]:
        """End the code inside when nothing more starts; it must not have started a host."""
        with anyio.CancelScope() as scope:
            self._logins.add(scope)
            try:
                yield
            finally:
                self._logins.discard(scope)

    def interrupt(self, reason: str) -> None:
        """Start nothing more, and cancel what runs on each host."""
        self.stop(reason)
        for run in self.running.values():
            run.scope.cancel()

    @contextmanager
    def run(self, name: str) -> Iterator[HostRun]:
        """Count a host as running inside.

        Yields:
            What runs there, with the job of the newest command; :meth:`interrupt` cancels its scope.
        """
        run = self.running[name] = HostRun()
        try:
            with observe_jobs(run.set_job):
                yield run
        finally:
            del self.running[name]

    def record_failure(self) -> None:
        """Count a host that started and failed; at the limit, start nothing more."""
        self._failed += 1
        if self._max_fail is not None and self._failed >= self._max_fail:
            self.stop(f"the limit of failed hosts (max_fail {self._max_fail}) was reached")
