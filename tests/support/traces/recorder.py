"""Records, while tests run, every event that changes a pane or a job of a pane, and all attributes after it.

It watches the classes from outside: each outermost call of a method of :class:`Pane` and :class:`PaneJob`, and each
attribute that other code sets. What such code learns from the target, and what it asks of tmux, is noted in between; it
changes nothing.
"""

from __future__ import annotations

import functools
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import MISSING, dataclass, field, fields
from typing import Any

from harness.command import Command
from harness_backends.tmux.jobs.pane_job import PaneJob
from harness_backends.tmux.pane.pane_state import Pane

from .canonical import TIMES, WOKEN, Watch, argument, plain

__all__ = ["JOB_CALLS", "PANE_CALLS", "Recorder", "Trace", "recording"]

PANE_CALLS = (
    "feed",
    "scan",
    "pause",
    "settle",
    "restart_scan",
    "push_shell",
    "pop_shell",
    "notify",
    "found_in",
    "lose",
)
JOB_CALLS = ("start", "feed", "touch", "finish", "withdraw", "is_output")
MOST_EVENTS = 1500
MAX_BYTES = 1 << 19
"""Where a trace ends."""
INSIDE = ("harness_backends.", "harness.")


@dataclass(eq=False)
class Trace:
    """What happened to one pane."""

    pane: weakref.ref[Pane]
    shell: str
    test: str
    events: list[list[Any]] = field(default_factory=list)
    jobs: list[PaneJob] = field(default_factory=list)
    times: dict[tuple[int, str], tuple[float, int]] = field(default_factory=dict)
    size: int = 0
    unseen: int = 0
    """Changes that no event explains."""
    ended: bool = False

    def __post_init__(self) -> None:
        self.watch = Watch(self.when)

    def when(self, owner: object, name: str, value: float) -> float:
        """The number of the event in which a time was taken; ``seconds`` is a difference of two."""
        if value in (0.0, -60.0):
            return value
        known = self.times.get((id(owner), name))
        if known is None or known[0] != value:
            known = self.times[id(owner), name] = (value, len(self.events))
        if name == "seconds":
            return known[1] - self.when(owner, "began", owner.began)  # type: ignore[attr-defined]  # a job
        return known[1]


class Recorder:
    """Keeps the traces of all panes; ``test`` is the name of the test that runs."""

    def __init__(self, keep: Callable[[Trace], None]) -> None:
        self.test = ""
        self._keep = keep
        self._traces: dict[int, Trace] = {}
        self._of_job: dict[int, Trace] = {}
        self._depth = 0

    def trace_of(self, owner: object) -> Trace | None:
        """The trace that goes on for a pane, or the pane of a job."""
        found = self._of_job.get(id(owner)) if isinstance(owner, PaneJob) else self._traces.get(id(owner))
        return None if found is None or found.ended else found

    def trace_of_job(self, job_id: str) -> Trace | None:
        """The trace of the pane in which this process runs a job of that id; the newest, where ids came again."""
        traces = reversed(list(self._traces.values()))
        return next((trace for trace in traces if any(job.job_id == job_id for job in trace.jobs)), None)

    def trace_of_pane(self, words: Iterable[str]) -> Trace | None:
        """The trace of the pane whose id of tmux is among the words; none where several servers have that id."""
        asked = set(words)
        found = [trace for trace in self._traces.values() if (pane := trace.pane()) and pane.pane_id in asked]
        return found[0] if len(found) == 1 else None

    # -- what is watched

    def made(self, pane: Pane, arguments: list[Any]) -> None:
        """A pane begins its trace."""
        trace = Trace(weakref.ref(pane, lambda _: self.end(trace)), pane.shell.kind, self.test)
        self._traces[id(pane)] = trace
        self._add(trace, ["pane", arguments, trace.watch.look(pane)])

    @contextmanager
    def call(self, owner: Pane | PaneJob, name: str, arguments: list[Any]) -> Iterator[None]:
        """The outermost call of a method of a pane or a job."""
        trace = self.trace_of(owner)
        pane = trace.pane() if trace is not None else None
        if self._depth or trace is None or pane is None:
            yield
            return
        job = owner if isinstance(owner, PaneJob) else None
        self._see(trace, pane)
        changed = pane.changed
        with self.inside():
            try:
                yield
            except BaseException:
                trace.ended = True
                raise
        event = [name, arguments] if job is None else [f"job.{name}", [job.job_id, *arguments]]
        woken = {"woken": True} if pane.changed is not changed else {}
        self._add(trace, [*event, trace.watch.look(pane, job) | woken])

    def wrote(self, owner: Pane | PaneJob, name: str) -> None:
        """Other code has set an attribute, or changed a list."""
        trace = self.trace_of(owner)
        pane = trace.pane() if trace is not None else None
        if self._depth or trace is None or pane is None:
            return
        with self.inside():
            if name == "jobs":
                for job in pane.jobs:
                    self._attached(trace, job)
            job = owner if isinstance(owner, PaneJob) else None
            self._see(trace, pane, job, _writer())

    @contextmanager
    def inside(self) -> Iterator[None]:
        """What is done meanwhile is no event of its own."""
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1

    def note(self, trace: Trace | None, name: str, arguments: list[Any]) -> None:
        """Something that was learnt or asked, and changes nothing by itself."""
        pane = trace.pane() if trace is not None else None
        if trace is None or pane is None or trace.ended:
            return
        self._see(trace, pane)
        self._add(trace, [f"note.{name}", arguments, {}])

    # -- the events

    def _attached(self, trace: Trace, job: PaneJob) -> None:
        if id(job) in self._of_job:
            return
        self._of_job[id(job)] = trace
        trace.jobs.append(job)
        self._add(trace, ["job", [job_arguments(job)], trace.watch.add(job)])

    def _see(self, trace: Trace, pane: Pane, job: PaneJob | None = None, writer: str = "") -> None:
        """Take up what other code has changed since the last event."""
        changed = trace.watch.look(pane, job)
        if changed:
            trace.unseen += not writer
            values = {
                key: _written(trace, pane, key, value) for key, value in changed.items() if not key.endswith(WOKEN)
            }
            self._add(trace, ["set", [writer, values], changed])

    @staticmethod
    def _add(trace: Trace, event: list[Any]) -> None:
        trace.events.append(event)
        trace.size += len(str(event))
        trace.ended = trace.ended or len(trace.events) >= MOST_EVENTS or trace.size >= MAX_BYTES

    # -- the end

    def end(self, trace: Trace) -> None:
        """Keep a trace whose pane is not used any more."""
        for job in trace.jobs:
            self._of_job.pop(id(job), None)
        for key in [key for key, known in self._traces.items() if known is trace]:
            del self._traces[key]
        self._keep(trace)

    def end_all(self) -> None:
        """Keep all of them."""
        for trace in list(self._traces.values()):
            self.end(trace)


def job_arguments(job: PaneJob) -> dict[str, Any]:
    """What a job was made with."""
    command = {
        item.name: value if isinstance(value := getattr(job.command, item.name), str | int | float | None) else True
        for item in fields(Command)
        if item.default is MISSING or getattr(job.command, item.name) != item.default
    }
    names = ("job_id", "pane", "log", "offset", "nonce", "secret")
    return {name: getattr(job, name) for name in names} | {"command": command, "skip": job.collector.reported}


def _written(trace: Trace, pane: Pane, key: str, value: Any) -> Any:
    """A value that another one can be made of: of bytes and collectors the canonical form is not enough."""
    job_id, _, name = key.rpartition(".")
    if name == "missed":
        return argument(pane.missed)
    if name == "collector":
        return {"skip": next(job for job in trace.jobs if job.job_id == job_id).collector.reported}
    return "now" if name in TIMES and value not in (0.0, -60.0) else value


def _writer() -> str:
    """The function of the product that is about to set an attribute."""
    frame = sys._getframe(2)
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if module.startswith(INSIDE):
            return f"{module.rpartition('.')[2]}.{frame.f_code.co_qualname}"
        frame = frame.f_back  # type: ignore[assignment]  # it ends with None
    return "test"


# -- watching the classes


class _Told(list[Any]):
    """A list of a pane or a job that tells of its changes."""

    def __init__(self, recorder: Recorder, owner: Any, name: str, values: list[Any]) -> None:
        super().__init__(values)
        self._tell = lambda: recorder.wrote(owner, name)


class _ToldEvent:
    """An event that tells when it is set."""

    def __init__(self, tell: Callable[[], None], event: Any) -> None:
        self._event, self._tell = event, tell

    def set(self) -> None:
        self._event.set()
        self._tell()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._event, name)


def _telling(name: str) -> Callable[..., Any]:
    original = getattr(list, name)

    def method(self: _Told, *arguments: Any) -> Any:
        result = original(self, *arguments)
        self._tell()
        return result

    return method


for _name in ("append", "remove", "pop", "insert", "extend", "clear", "__setitem__", "__delitem__", "__iadd__"):
    setattr(_Told, _name, _telling(_name))


def _setter(recorder: Recorder) -> Callable[[Any, str, Any], None]:
    def set_attribute(owner: Any, name: str, value: Any) -> None:
        if isinstance(value, list) and not isinstance(value, _Told):
            value = _Told(recorder, owner, name, value)
        if name == "reported":
            value = _ToldEvent(lambda: recorder.wrote(owner, name), value)
        object.__setattr__(owner, name, value)
        recorder.wrote(owner, name)

    return set_attribute


def _watched(recorder: Recorder, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def method(owner: Any, *arguments: Any, **options: Any) -> Any:
        given = [argument(value) for value in (*arguments, *options.values())]
        with recorder.call(owner, name, given):
            return original(owner, *arguments, **options)

    return method


def _made(recorder: Recorder, original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def init(pane: Pane, *arguments: Any) -> None:
        with recorder.inside():
            original(pane, *arguments)
            recorder.made(pane, [plain(value) for value in arguments])

    return init


def _quiet(recorder: Recorder, original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def init(job: PaneJob, *arguments: Any, **options: Any) -> None:
        with recorder.inside():
            original(job, *arguments, **options)

    return init


@contextmanager
def recording(recorder: Recorder) -> Iterator[None]:
    """Watch all panes and jobs that are made meanwhile."""
    wanted: list[tuple[type, str, Any]] = [
        (Pane, "__init__", _made(recorder, Pane.__init__)),
        (PaneJob, "__init__", _quiet(recorder, PaneJob.__init__)),
    ]
    wanted += [(Pane, name, _watched(recorder, name, getattr(Pane, name))) for name in PANE_CALLS]
    wanted += [(PaneJob, name, _watched(recorder, name, getattr(PaneJob, name))) for name in JOB_CALLS]
    wanted += [(owner, "__setattr__", _setter(recorder)) for owner in (Pane, PaneJob)]
    before = [(owner, name, owner.__dict__.get(name)) for owner, name, _ in wanted]
    for owner, name, value in wanted:
        setattr(owner, name, value)
    try:
        yield
    finally:
        for owner, name, value in before:
            if value is None:
                delattr(owner, name)
            else:
                setattr(owner, name, value)
