"""Feeds the events of a trace to today's classes, without tmux and without a target."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from typing import Any

import anyio
import pytest

from harness.command import Command
from harness.results import Status
from harness_backends.posix.pane_jobs.prompt_markers import PromptMarker, PromptMarkerScanner
from harness_backends.tmux.jobs.output_collector import collector_for
from harness_backends.tmux.jobs.pane_job import PaneJob
from harness_backends.tmux.pane.pane_state import Pane, PaneShell

from .canonical import TIMES, State, Watch

__all__ = ["Difference", "Replay", "replayed"]


class Difference(AssertionError):
    """The classes do not do what the trace says."""


class Replay:
    """One pane, and what the events of its trace have made of it."""

    def __init__(self) -> None:
        self.number = 0
        self.watch = Watch(lambda _owner, _name, value: value)
        self.pane: Pane
        self.jobs: dict[str, PaneJob] = {}
        self.given: list[bytes] = []
        """What the callbacks of its jobs were given."""

    @contextmanager
    def clock(self) -> Iterator[None]:
        """Whoever asks for the time gets the number of the event."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(anyio, "current_time", lambda: float(self.number))
            patch.setattr(time, "monotonic", lambda: float(self.number))
            yield

    def change(self, name: str, arguments: list[Any]) -> State:
        """Let one event happen; returns every attribute that has another value after it."""
        if name.startswith("note."):
            return {}
        job = self._job_of(name, arguments)
        if name == "job" and job is not None:
            return self.watch.add(job)
        changed = self.pane.changed if name != "pane" else None
        self._happen(name, arguments, job)
        woken = changed is not None and self.pane.changed is not changed
        return self.watch.look(self.pane, job) | ({"woken": True} if woken else {})

    def _job_of(self, name: str, arguments: list[Any]) -> PaneJob | None:
        if name == "job":
            job = _new_job(arguments[0], self.given.append)
            self.jobs[job.job_id] = job
            return job
        if name.startswith("job."):
            return self.jobs[arguments[0]]
        if name == "set":
            ids = {key.rpartition(".")[0] for key in arguments[1]} - {""}
            return self.jobs[min(ids)] if ids else None
        return None

    def _happen(self, name: str, arguments: list[Any], job: PaneJob | None) -> None:
        if name == "pane":
            self.pane = Pane(*arguments)
        elif name == "set":
            for key, value in arguments[1].items():
                self._set(key, value)
        elif job is not None:
            _call_job(job, name.removeprefix("job."), arguments[1:])
        else:
            _call_pane(self.pane, name, arguments)

    def _set(self, key: str, value: Any) -> None:
        job_id, _, name = key.rpartition(".")
        owner: Any = self.jobs[job_id] if job_id else self.pane
        if name == "reported":
            owner.reported.set()
        else:
            setattr(owner, name, self._value(owner, name, value))

    def _value(self, owner: Any, name: str, value: Any) -> Any:
        """The value whose canonical form this is."""
        if value == "now" and name in TIMES:
            return float(self.number)
        if name in ("jobs", "ended_twice"):
            return [self.jobs[job_id] for job_id in value]
        if name == "collector":
            return collector_for(owner.command, value["skip"])
        return MADE_OF[name](value) if name in MADE_OF and value is not None else copy.deepcopy(value)


MADE_OF: dict[str, Callable[[Any], Any]] = {
    "shells": lambda shells: [PaneShell(*shell) for shell in shells],
    "status": Status,
    "ending": Status,
    "missed": lambda text: bytearray(text, "latin-1"),
    "place": tuple,
    "callback_error": lambda text: type(text.removeprefix("raised "), (Exception,), {})(),
}


def _new_job(arguments: dict[str, Any], callback: Any) -> PaneJob:
    names = ("job_id", "pane", "log", "offset", "nonce", "secret")
    given = dict(arguments["command"])
    callbacks = {item.name for item in fields(Command) if item.name in ("on_output", "on_stderr")}
    command = Command(**{name: callback if name in callbacks else value for name, value in given.items()})
    collector = collector_for(command, arguments["skip"])
    made = {name: arguments[name] for name in names}
    return PaneJob(command=command, collector=collector, began=time.monotonic(), **made)


def _call_job(job: PaneJob, name: str, arguments: list[Any]) -> None:
    match name:
        case "start":
            job.start(soon=bool(arguments and arguments[0]))
        case "feed":
            job.feed(arguments[0].encode("latin-1"))
        case "finish":
            job.finish(Status(arguments[0]), *arguments[1:])
        case "is_output":
            (mark,) = PromptMarkerScanner(job.nonce).feed(arguments[0].encode("latin-1"))
            assert isinstance(mark, PromptMarker)
            job.is_output(mark)
        case "touch":
            job.touch()
        case "withdraw":
            job.withdraw()
        case _:
            raise Difference(f"no such event: job.{name}")


def _call_pane(pane: Pane, name: str, arguments: list[Any]) -> None:
    match name:
        case "feed" | "scan":
            getattr(pane, name)(arguments[0].encode("latin-1"))
        case "settle":
            pane.settle(arguments[0].encode("latin-1"), arguments[1])
        case "push_shell":
            pane.push_shell(PaneShell(*arguments[0]))
        case "lose":
            pane.lose(Status(arguments[0]), arguments[1])
        case "pause" | "restart_scan" | "pop_shell" | "notify" | "found_in":
            getattr(pane, name)(*arguments)
        case _:
            raise Difference(f"no such event: {name}")


def replayed(events: list[list[Any]]) -> list[list[Any]]:
    """The same events, with what today's classes make of each."""
    replay, found = Replay(), []
    with replay.clock():
        for replay.number, (name, arguments, *_) in enumerate(events):
            found.append([name, arguments, replay.change(name, arguments)])
    return found
