"""Plays a recording in the operator's terminal, which is as before when it ends."""

from __future__ import annotations

import os
import select
import signal
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

from .asciicast import CastEvent
from .directory import Recording
from .export import inert_events

__all__ = ["play", "play_times"]

RESTORED = "\x1b[r\x1b[?1l\x1b>\x1b[?6l\x1b[?7h\x1b[4l\x1b[?1049l\x1b[0m\x1b(B\x1b)B\x0f\x1b[?25h"
"""Resets the modes that :mod:`.inert_output` lets pass."""
CLEARED = "\x1b[0m\x1b[2J\x1b[H"
PAUSE, QUIT = frozenset(b" p"), frozenset(b"qQ\x03\x04")


def play_times(
    events: Sequence[CastEvent], *, speed: float, idle_limit: float | None, start: float
) -> list[tuple[float, CastEvent]]:
    """Return the events with the seconds to wait before each; those before ``start`` are shown at once. Pure."""
    timed, last = [], start
    for event in events:
        wait = max(0.0, event.time - last)
        last = max(last, event.time)
        timed.append(((min(wait, idle_limit) if idle_limit is not None else wait) / speed, event))
    return timed


def play(
    recording: Recording,
    *,
    speed: float = 1.0,
    idle_limit: float | None = None,
    start: float = 0.0,
    end: float | None = None,
) -> bool:
    """Play a recording on standard output; with a keyboard, the space bar pauses and ``q`` quits.

    Args:
        recording: The recording.
        speed: How many times as fast as it was recorded.
        idle_limit: Maximum seconds without output, before ``speed``.
        start: Seconds from its start to begin at, with the screen of that moment.
        end: Seconds from its start to end at.

    Returns:
        False if the operator quit.
    """
    events = [event for event in inert_events(recording.events) if end is None or event.time <= end]
    write = sys.stdout.buffer.write
    with _keyboard() as keys, _unprocessed_output(), _screen(recording.header.rows):
        write(CLEARED.encode())
        for wait, event in play_times(events, speed=speed, idle_limit=idle_limit, start=start):
            if wait > 0 and not keys.wait(wait):
                return False
            if event.code == "o":
                write(event.data.encode("utf-8", "replace"))
                sys.stdout.buffer.flush()
    return True


@contextmanager
def _screen(rows: int) -> Iterator[None]:
    """Leave the terminal's modes as they are by default, with the cursor below the recording."""
    try:
        yield
    finally:
        below = f"\x1b[{rows};1H" if sys.stdout.isatty() else ""
        sys.stdout.buffer.write(f"{RESTORED}{below}\r\n".encode())
        sys.stdout.buffer.flush()


@contextmanager
def _unprocessed_output() -> Iterator[None]:
    """Let the terminal not add returns to newlines: the recording has its own."""
    if not sys.stdout.isatty():
        yield
        return
    descriptor = sys.stdout.fileno()
    before = termios.tcgetattr(descriptor)
    changed = termios.tcgetattr(descriptor)
    changed[1] &= ~termios.OPOST
    try:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, changed)
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


class _Keys:
    """The keyboard while a recording plays; ``descriptor`` is None without one."""

    def __init__(self, descriptor: int | None) -> None:
        self._descriptor = descriptor

    def wait(self, seconds: float) -> bool:
        """Wait, and longer while the operator pauses; return False if they quit."""
        if self._descriptor is None:
            time.sleep(seconds)
            return True
        until: float | None = time.monotonic() + seconds
        while until is None or until > time.monotonic():
            left = None if until is None else max(0.0, until - time.monotonic())
            if not select.select([self._descriptor], [], [], left)[0]:
                return True
            pressed = set(os.read(self._descriptor, 64))
            if not pressed or pressed & QUIT:
                return False
            if pressed & PAUSE:
                seconds, until = (
                    (max(0.0, until - time.monotonic()), None)
                    if until is not None
                    else (
                        seconds,
                        time.monotonic() + seconds,
                    )
                )
        return True


@contextmanager
def _keyboard() -> Iterator[_Keys]:
    """Read single keys, without echo, until left; also after a signal the terminal is as before."""
    if not (sys.stdin is not None and sys.stdin.isatty()):
        yield _Keys(None)
        return
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    with _signals():
        try:
            tty.setcbreak(descriptor, termios.TCSAFLUSH)
            yield _Keys(descriptor)
        finally:
            termios.tcsetattr(descriptor, termios.TCSAFLUSH, before)


@contextmanager
def _signals() -> Iterator[None]:
    """Turn signals that end the program into exceptions, and ignore the one that stops it."""

    def leave(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    handlers: dict[int, Callable[..., Any] | signal.Handlers] = {
        signal.SIGTERM: leave,
        signal.SIGHUP: leave,
        signal.SIGTSTP: signal.SIG_IGN,
    }
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
