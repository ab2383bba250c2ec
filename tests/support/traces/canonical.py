"""A pane and its jobs as JSON: every attribute, in a form that a recording and a replay have in common.

Keys are the names of attributes, those of jobs with the job's id before them (``7.status``). Times are numbers of
events: a time is the number of the event in which it was taken. Bytes are texts of the same length (Latin-1).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields
from types import NoneType, UnionType
from typing import Any

from harness.command import Command
from harness_backends.posix.pane_jobs.prompt_markers import PromptMarker, PromptMarkerScanner
from harness_backends.tmux.jobs.output_collector import OutputCollector
from harness_backends.tmux.jobs.pane_job import PaneJob
from harness_backends.tmux.pane.pane_state import Pane, PaneShell

__all__ = ["TIMES", "WOKEN", "State", "Times", "Watch", "argument", "plain", "text_of"]

State = dict[str, Any]
Times = Callable[[object, str, float], float]

TIMES = frozenset({"prompt_time", "typed", "began", "ended_at", "seconds", "unanswered"})
APART = frozenset({"lock", "reattaching", "changed", "active", "stop_waiting", "on_change", "watchers", "_is_hidden"})
"""Locks belong to those who hold them, and what ends its waiting to the runner; the two events are replaced whenever
somebody is woken, which ``woken`` tells. Watchers decide nothing."""
WOKEN = ".woken"
"""Behind a job's id: whoever waits for activity of the job was woken."""
BYTES_SHOWN = 100


def text_of(data: bytes | bytearray) -> str:
    """Bytes as a text that JSON can hold."""
    return bytes(data).decode("latin-1")


def _content(data: bytes | bytearray) -> Any:
    """Bytes as they are when they are few, else how many, their checksum, and how they begin."""
    if len(data) <= BYTES_SHOWN:
        return text_of(data)
    return [len(data), zlib.crc32(data), text_of(data[:16])]


def _collector(collector: OutputCollector) -> State:
    held = collector._held
    return {
        "data": _content(collector.data),
        "total": collector.total,
        "reported": collector.reported,
        "truncated": collector.kept().omitted,
        "settled": collector.settled,
        "begun": collector._started,
        "held": None if held is None else _content(held),
        "carry": text_of(collector._newlines._carry),
    }


FORMS: tuple[tuple[type | UnionType, Callable[[Any], Any]], ...] = (
    (NoneType | bool | int | float, lambda value: value),
    (str, str),  # a status too
    (bytes | bytearray, _content),
    (PaneJob, lambda job: job.job_id),
    (OutputCollector, _collector),
    (PaneShell, lambda shell: [shell.nonce, shell.kind, shell.files, shell.pid, shell.image]),
    (PromptMarkerScanner, lambda scanner: text_of(scanner._held)),
    (Command, lambda command: command.command),
    (list | tuple, lambda values: [plain(value) for value in values]),
    (BaseException, lambda error: f"raised {type(error).__name__}"),
)


def plain(value: Any) -> Any:
    """A value of an attribute, or an argument of an event, as JSON."""
    for kind, form in FORMS:
        if isinstance(value, kind):
            return form(value)
    return bool(value.is_set())  # an event


def argument(value: Any) -> Any:
    """An argument of a call, whole."""
    if isinstance(value, bytes | bytearray):
        return text_of(value)
    return text_of(value.raw) if isinstance(value, PromptMarker) else plain(value)


def _attributes(owner: object) -> Iterable[tuple[str, Any]]:
    names = [item.name for item in fields(owner)] if isinstance(owner, PaneJob) else vars(owner)
    return [(name, getattr(owner, name)) for name in names if name not in APART]


def _owned(owner: object, prefix: str, times: Times) -> State:
    found = {}
    for name, value in _attributes(owner):
        found[prefix + name] = times(owner, name, value) if name in TIMES else plain(value)
    return found


@dataclass
class Watch:
    """The jobs whose attributes an event can change, and the last known value of each attribute."""

    times: Times
    live: list[PaneJob] = field(default_factory=list)
    active: dict[str, object] = field(default_factory=dict)
    state: State = field(default_factory=dict)

    def add(self, job: PaneJob) -> State:
        """A job is new; returns its attributes."""
        self.live.append(job)
        self.active[job.job_id] = job.active
        return self._taken(_owned(job, f"{job.job_id}.", self.times))

    def look(self, pane: Pane, job: PaneJob | None = None) -> State:
        """Every attribute, of the pane and of the jobs that had not ended or that of the event, that has changed."""
        found = _owned(pane, "", self.times)
        woken = {}
        for known in self.live if job is None or job in self.live else [*self.live, job]:
            found |= _owned(known, f"{known.job_id}.", self.times)
            if self.active.get(known.job_id) is not known.active:
                self.active[known.job_id] = known.active
                woken[f"{known.job_id}{WOKEN}"] = True
        self.live = [known for known in self.live if known in pane.jobs or not known.done.is_set()]
        return self._taken(found) | woken

    def _taken(self, found: State) -> State:
        before, self.state = self.state, self.state | found
        return {key: value for key, value in found.items() if key not in before or before[key] != value}
