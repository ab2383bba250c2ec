"""The classes of panes and jobs do what was recorded of them, event by event and attribute by attribute."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
from tests.support.pane_shells import PANE_SHELLS
from tests.support.traces.library import kept_traces, normalised
from tests.support.traces.notes import noting
from tests.support.traces.recorder import Recorder, Trace, recording
from tests.support.traces.replay import Replay

from harness.command import Command
from harness_backends.tmux.jobs.output_collector import OutputCollector
from harness_backends.tmux.jobs.pane_job import PaneJob
from harness_backends.tmux.jobs.runner import PaneRunner
from harness_backends.tmux.pane.pane_state import Pane

NONCE = "a" * 20
KINDS = tuple("ash" if shell == "busybox" else shell for shell in PANE_SHELLS)


@cache
def traces() -> list[dict[str, Any]]:
    return kept_traces()


def difference(events: list[Any]) -> str:
    """The first event after which an attribute is not what it was when the trace was recorded; empty when none is."""
    replay = Replay()
    with replay.clock():
        for replay.number, (name, arguments, expected) in enumerate(events):
            found = json.loads(json.dumps(replay.change(name, arguments)))
            if found != expected:
                other = {key for key in (*found, *expected) if found.get(key) != expected.get(key)}
                was, now = ({key: state.get(key) for key in sorted(other)} for state in (expected, found))
                return f"event {replay.number}, {name} {arguments!r:.200}: recorded {was}, now {now}"
    return ""


@pytest.mark.parametrize("kind", KINDS)
def test_every_trace_is_reproduced(kind: str) -> None:
    found = {trace["test"]: difference(trace["events"]) for trace in traces() if trace["shell"] == kind}
    assert found, f"no trace of {kind} is kept: CONTRIBUTING.md says how to record"
    different = {test: text for test, text in found.items() if text}
    assert not different, f"{len(different)} of {len(found)} differ, the first: {next(iter(different.items()))}"


def test_traces_tell_of_every_end_and_of_every_way_to_learn_of_it() -> None:
    values: dict[str, set[Any]] = {}
    names: set[str] = set()
    for trace in traces():
        for name, _, changed in trace["events"]:
            names.add(name)
            for key, value in changed.items():
                if isinstance(value, str | bool):
                    values.setdefault(key.rpartition(".")[2], set()).add(value)
    assert {"running", "completed", "timed_out", "interrupted", "shell_exited", "unknown"} <= values["status"]
    assert {"starting", "prompt", "running", "ended", "continuation"} == values["phase"]
    assert all(True in values[name] for name in ("gone", "paused", "doubtful", "unsent", "attention", "announced"))
    assert {"feed", "scan", "settle", "pause", "push_shell", "lose", "job.feed", "set", "note.tmux"} <= names


def test_a_trace_holds_nothing_that_differs_in_the_next_recording() -> None:
    """What was renamed once stays as it is, so the names are those that the rules give, and no others."""
    for trace in traces()[::10]:
        assert normalised(copy.deepcopy(trace["events"])) == trace["events"], trace["test"]


# -- the recorder


def test_what_is_noted_exists() -> None:
    with noting(Recorder(lambda _: None)):
        assert hasattr(PaneRunner.run, "__wrapped__")
    assert not hasattr(PaneRunner.run, "__wrapped__")


def recorded(work: Callable[[Pane], None]) -> list[Any]:
    """The events of one pane while something is done with it."""
    kept: list[Trace] = []
    recorder = Recorder(kept.append)
    with recording(recorder):
        pane = Pane("%1", "@1", "main", "uid", "bash", NONCE)
        work(pane)
        recorder.end_all()
    (trace,) = kept
    assert trace.unseen == 0
    events: list[Any] = json.loads(json.dumps(trace.events))
    return events


async def test_each_call_and_each_attribute_that_is_set_is_one_event_which_a_replay_repeats() -> None:
    def work(pane: Pane) -> None:
        job = PaneJob("7", Command("true"), "main", "log", 0, NONCE, OutputCollector(100), "secret")
        pane.jobs.append(job)
        pane.held = "7"
        pane.feed(f"\x1b]133;C;{NONCE};7\x07out\x1b]133;D;3;{NONCE};7;sec".encode())
        pane.feed(b"ret\x07")
        job.notices.append("told")
        job.reported.set()

    events = recorded(work)
    assert [name for name, *_ in events] == ["pane", "job", "set", "set", "feed", "feed", "set", "set"]
    first, second, notices, reported = (changed for *_, changed in events[4:])
    assert (first["phase"], first["running"], first["7.started"], first["7.collector"]["data"]) == (
        "running",
        7,
        True,
        "out",
    )
    assert (second["7.status"], second["7.exit_code"], second["jobs"]) == ("completed", 3, [])
    assert first["7.woken"] is second["7.woken"] is True
    assert (notices, reported) == ({"7.notices": ["told"]}, {"7.reported": True})
    assert difference(events) == ""


async def test_a_callback_that_raises_is_its_callers_and_disturbs_nobody_who_reads_the_pane() -> None:
    calls = []

    def refuse(data: bytes) -> None:
        calls.append(data)
        raise ValueError

    def work(pane: Pane) -> None:
        job = PaneJob("7", Command("true"), "main", "log", 0, NONCE, OutputCollector(100, refuse))
        pane.jobs.append(job)
        job.start()
        job.feed(b"out")
        job.feed(b"more")
        assert isinstance(job.callback_error, ValueError)
        assert job.collector.data == b"outmore"
        job.read_again()
        job.start()
        job.feed(b"outmore and")

    assert [name for name, *_ in recorded(work)].count("job.feed") == 3
    assert calls == [b"out"]


def test_a_difference_names_the_event_and_the_attribute() -> None:
    events = copy.deepcopy(next(trace["events"] for trace in traces() if len(trace["events"]) > 5))
    name, arguments, changed = next(event for event in events[1:] if event[2])
    changed["phase"] = "nowhere"
    found = difference(events)
    assert "'phase': 'nowhere'" in found, (name, arguments, found)
