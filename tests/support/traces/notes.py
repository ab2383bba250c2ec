"""What is noted between the events of a pane: calls, what is learnt from the target, what is asked of tmux.

None of it changes the pane by itself. It is there for whoever replaces the code that does something about it::

    note.call      [function, arguments]      one of :data:`CALLS` begins; deadlines show as ``end`` with ``timed_out``
    note.done      [function, result]         and has returned, or raised
    note.front     [fields that are not default]   the foreground was looked at
    note.over      [job, prompt, answer]      it was asked whether a job is over
    note.tmux      [names of commands]        this was asked of tmux
    note.answer    [texts]                    and this is what it said
    note.log       [bytes]                    a piece of the log, where there is no stream
    note.screen    [text]                     the screen or the scrollback
"""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import fields
from types import NoneType, UnionType
from typing import Any

import pytest

from harness.command import Command
from harness.results import ShellResult
from harness_backends.posix.state_directory import JobStore
from harness_backends.tmux.channel.control_client import ControlClient
from harness_backends.tmux.channel.single_commands import SingleCommands
from harness_backends.tmux.jobs import unstarted_commands
from harness_backends.tmux.jobs.false_end_check import EndCheck
from harness_backends.tmux.jobs.pane_job import PaneJob
from harness_backends.tmux.jobs.runner import PaneRunner
from harness_backends.tmux.pane import nested_shells, pane_log
from harness_backends.tmux.pane.foreground import Foreground, PaneInspector
from harness_backends.tmux.pane.pane_state import Pane
from harness_backends.tmux.pane.pane_table import PaneTable
from harness_backends.tmux.sources import job_output
from harness_backends.tmux.sources.stream_gaps import StreamGaps

from .canonical import text_of
from .recorder import Recorder, Trace

__all__ = ["CALLS", "noting"]

METHODS: tuple[tuple[type, str], ...] = (
    (PaneRunner, "run"),
    (PaneRunner, "end"),
    (PaneRunner, "until_over"),
    (StreamGaps, "catch_up"),
    (PaneTable, "end"),
    (EndCheck, "check"),
)
FUNCTIONS: tuple[tuple[Any, str], ...] = (
    (nested_shells, "install_markers"),
    (unstarted_commands, "ensure_started"),
    (pane_log, "rotate_log"),
    (unstarted_commands, "recreate_pane_files"),
    (job_output, "read_output"),
    (job_output, "read_unended"),
)
CALLS = (*(f"{owner.__name__}.{name}" for owner, name in METHODS), *(name for _, name in FUNCTIONS))
NAMES = re.compile(r"\b(?:[a-z]+-)+(?:keys|option|pane|panes|shell|message|buffer)\b")
SHORT = 200
_SERVICE = object()
"""Stands for an argument that is no value: a link, a runner."""

_current: ContextVar[Trace | None] = ContextVar("pane whose trace is written", default=None)


FORMS: tuple[tuple[type | UnionType, Callable[[Any], Any]], ...] = (
    (NoneType | bool | int, lambda value: value),
    (float, lambda _: "seconds"),
    (str, lambda text: str(text)[:SHORT]),
    (PaneJob, lambda job: {"job": job.job_id}),
    (Command, lambda command: _short(command, [item.name for item in fields(Command)])),
    (ShellResult, lambda result: _short(result, ["status", "exit_code", "job_id"])),
    (Foreground, lambda front: _short(front, [item.name for item in fields(Foreground) if item.name != "stack"])),
)


def _short(value: object, names: list[str]) -> dict[str, Any]:
    """Those of its attributes that are texts, numbers or nothing."""
    found = {name: getattr(value, name) for name in names}
    return {name: _known(item) for name, item in found.items() if isinstance(item, str | int)}


def _known(value: object) -> Any:
    """An argument or a result, as far as it can be told in short."""
    return next((form(value) for kind, form in FORMS if isinstance(value, kind)), _SERVICE)


class _Notes:
    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder

    def trace_in(self, arguments: tuple[Any, ...]) -> Trace | None:
        """The trace of the pane that is among the arguments, or of the caller."""
        for value in arguments:
            if isinstance(value, Pane | PaneJob):
                return self.recorder.trace_of(value)
        return _current.get()

    def call(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        """An asynchronous function whose beginning and end are noted."""

        @functools.wraps(original)
        async def called(*arguments: Any, **options: Any) -> Any:
            trace = self.trace_in(arguments)
            given = [_known(value) for value in (*arguments, *options.values())]
            self.recorder.note(trace, "call", [name, [value for value in given if value is not _SERVICE]])
            token = _current.set(trace)
            try:
                result = await original(*arguments, **options)
            except BaseException as error:
                self.recorder.note(trace, "done", [name, f"raised {type(error).__name__}"])
                raise
            finally:
                _current.reset(token)
            self.recorder.note(trace, "done", [name, None if _known(result) is _SERVICE else _known(result)])
            return result

        return called

    def answer(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        """An asynchronous method whose arguments and answer are noted together."""

        @functools.wraps(original)
        async def asked(owner: Any, *arguments: Any) -> Any:
            result = await original(owner, *arguments)
            trace = self.trace_in(arguments) or self.recorder.trace_of_job(str(arguments[0]))
            given = [_known(value) for value in arguments if isinstance(value, str)]
            self.recorder.note(trace, name, [*given, _known(result)])
            return result

        return asked

    def tmux(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """What is asked of tmux for a pane, and its answer."""

        @functools.wraps(original)
        async def request(owner: Any, *commands: tuple[str, ...], **options: Any) -> Any:
            trace = _current.get() or self.recorder.trace_of_pane(word for command in commands for word in command)
            names = [name for command in commands for name in NAMES.findall(" ".join(command[:1] + command[4:]))]
            self.recorder.note(trace, "tmux", names)
            blocks = await original(owner, *commands, **options)
            texts = [block.text for block in blocks if block.text]
            if any(command[0] == "capture-pane" for command in commands):
                self.recorder.note(trace, "screen", texts)
            elif texts:
                self.recorder.note(trace, "answer", [text[:SHORT] for text in texts])
            return blocks

        return request

    def log(self, original: Callable[..., AsyncIterator[bytes]]) -> Callable[..., AsyncIterator[bytes]]:
        """The pieces of the log that are read where there is no stream."""

        @functools.wraps(original)
        async def read(*arguments: Any) -> AsyncIterator[bytes]:
            async for chunk in original(*arguments):
                self.recorder.note(_current.get(), "log", [text_of(chunk)])
                yield chunk

        return read


@contextmanager
def noting(recorder: Recorder) -> Iterator[None]:
    """Note it while the recorder watches."""
    notes = _Notes(recorder)
    with pytest.MonkeyPatch.context() as patch:
        for owner, name in METHODS:
            patch.setattr(owner, name, notes.call(f"{owner.__name__}.{name}", getattr(owner, name)))
        for module, name in FUNCTIONS:
            _replace(patch, name, getattr(module, name), notes.call(name, getattr(module, name)))
        patch.setattr(PaneInspector, "foreground", notes.answer("front", PaneInspector.foreground))
        patch.setattr(JobStore, "settle", notes.answer("over", JobStore.settle))
        patch.setattr(ControlClient, "request", notes.tmux(ControlClient.request))
        patch.setattr(SingleCommands, "ask", notes.tmux(SingleCommands.ask))
        patch.setattr(job_output, "read_range", notes.log(job_output.read_range))
        yield


def _replace(patch: pytest.MonkeyPatch, name: str, before: object, after: object) -> None:
    """Wherever a function was imported."""
    for module in [module for key, module in sys.modules.items() if key.startswith("harness_backends.tmux")]:
        if getattr(module, name, None) is before:
            patch.setattr(module, name, after)
