"""A pane in a browser: from a key to the screen, what viewers cost, and whether a stopped one is waited for."""

from __future__ import annotations

import os
import pty
import random
import select
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from anyio import to_thread
from tests.support.web_dashboard import browser, visit, web_program

from .model import Line, Row, at_most
from .process_tree import MARK, Mark
from .timing import WARM_UP
from .ttyd import TTYD, serve_ttyd
from .world import ROOT, Size, World

__all__ = ["view_row"]

HARNESS, TMUX = "harness web", "tmux alone"
VIEWERS = (1, 5, 20)
KEY_LIMIT, GAP_LIMIT = 30, 500
"""Milliseconds from a key to the screen, and of the longest gap of a flooding program."""
LINE_START, ROUNDS_IN_A_LINE = "line-", 12
KEY_TIMEOUT, FLOOD_TIMEOUT = 30, 240
BUSY = "while :; do seq 1 50; sleep 0.1; done"
SETTLE = 1.0
"""Seconds after the last viewer was sent something until it is measured."""
FLOOD = """
import sys, time
piece, longest, last = (b"x" * 99 + b"\\n") * 655, 0.0, time.monotonic()
for _ in range(int(sys.argv[2]) // len(piece)):
    sys.stdout.buffer.write(piece); sys.stdout.flush()
    now = time.monotonic(); longest = max(longest, now - last); last = now
open(sys.argv[1], "w").write(str(longest))
"""
TIMES = """() => {
    window.wanted = "";
    document.addEventListener("keydown", () => { window.began = performance.now(); }, true);
    new MutationObserver(() => {
        const rows = document.querySelector(".xterm-rows");
        if (!window.wanted || !rows?.textContent.includes(window.wanted)) return;
        window.wanted = "";
        window.elapsed = performance.now() - window.began;
    }).observe(document.body, { subtree: true, childList: true, characterData: true });
}"""
NOTES = (
    "A key is timed in Chromium, from its event to the change of the page's elements that shows it. The pages of "
    "harness and ttyd show the same pane, take turns, and draw with xterm.js as elements. tmux alone is a client of "
    "that pane in a terminal that draws nothing.",
    "Viewers read all that they are sent and draw nothing; they are not counted. The pane prints 500 lines a second. "
    "Counted are tmux with its clients, and the session and the server of harness, or ttyd. ttyd starts a client of "
    "tmux for each viewer; harness reads the pane once.",
    "The stopped viewer is a process that was sent SIGSTOP. The gap is the longest time between two writes of 65 kB.",
)


@dataclass
class Shown:
    """A tmux pane, and the URL or socket of its viewers. ``mark`` is on all processes that are counted."""

    kind: str
    socket: str
    pane: str
    where: str
    mark: Mark = field(default_factory=Mark)

    def type(self, line: str) -> None:
        """Type a line into the pane."""
        _tmux(self.socket, "send-keys", "-t", self.pane, line, "Enter")

    def interrupt(self) -> None:
        """End what runs in the pane."""
        _tmux(self.socket, "send-keys", "-t", self.pane, "C-c")


def _tmux(socket: str, *words: str) -> str:
    argv = ["tmux", "-f", "/dev/null", "-L", socket, *words]
    return subprocess.run(argv, check=True, capture_output=True, timeout=60, text=True).stdout


async def view_row(world: World, size: Size, ttyd: Path | None, missing: str) -> Row:
    """What a pane in a browser costs, beside ttyd on the same pane and tmux alone.

    Args:
        world: Where the bench runs.
        size: How much is measured.
        ttyd: The program; None measures without it.
        missing: Why there is none.
    """
    lines = await _keys(world, size, ttyd)
    checks = [at_most("a key in a browser is on its screen", lines[0].median, KEY_LIMIT)]
    for count in VIEWERS:
        lines += await _viewers(world, size, ttyd, count)
    floods = await _floods(world, size, ttyd)
    lines += floods
    checks.append(at_most("a flood waits for no stopped browser", floods[0].median, GAP_LIMIT))
    absent = () if ttyd is not None else (Line(TTYD, (), group="key to screen", note=missing),)
    return Row("view", "A pane in a browser", (*lines, *absent), tuple(checks), NOTES)


# -- what is shown


@asynccontextmanager
async def _harness(world: World) -> AsyncIterator[Shown]:
    """A session of harness, and its dashboard."""
    socket, mark = world.new_socket(), Mark()
    environment = {**os.environ, MARK: mark.value}
    program = str(Path(sys.executable).with_name("harness"))
    with _session(socket, environment) as session:
        assert session.stdout is not None
        pane = await to_thread.run_sync(session.stdout.readline)
        async with web_program(program, environment) as web:
            yield Shown("harness", socket, pane.strip(), web.url, mark)


@contextmanager
def _session(socket: str, environment: Mapping[str, str]) -> Iterator[subprocess.Popen[str]]:
    """The process of a session; it is ended, and waited for."""
    argv = [sys.executable, "-m", "tests.bench.view_session", socket]
    pipe = subprocess.PIPE
    with subprocess.Popen(argv, env=environment, stdin=pipe, stdout=pipe, text=True, cwd=ROOT) as session:
        try:
            yield session
        finally:
            session.communicate(timeout=60)


@asynccontextmanager
async def _ttyd(world: World, program: Path) -> AsyncIterator[Shown]:
    """A pane of tmux, and ttyd."""
    async with _plain(world) as shown:
        with serve_ttyd(program, _attach(shown.socket), {MARK: shown.mark.value}) as url:
            yield Shown("ttyd", shown.socket, shown.pane, url, shown.mark)


@asynccontextmanager
async def _plain(world: World) -> AsyncIterator[Shown]:
    """A pane of tmux."""
    socket, mark = world.new_socket(), Mark()
    argv = ["tmux", "-f", "/dev/null", "-L", socket, "new-session", "-d", "-x", "150", "-y", "40", "/bin/sh"]
    subprocess.run(argv, env={**os.environ, MARK: mark.value}, check=True, timeout=60)
    pane = _tmux(socket, "list-panes", "-F", "#{pane_id}").strip()
    try:
        yield Shown("tmux", socket, pane, socket, mark)
    finally:
        _tmux(socket, "kill-server")


def _attach(socket: str) -> list[str]:
    return ["tmux", "-L", socket, "attach-session", "-f", "ignore-size"]


def _sides(world: World, ttyd: Path | None) -> dict[str, Callable[[], Any]]:
    """Return what opens each side, by its name."""
    sides: dict[str, Callable[[], Any]] = {HARNESS: lambda: _harness(world)}
    if ttyd is not None:
        sides[TTYD] = lambda: _ttyd(world, ttyd)
    return {**sides, TMUX: lambda: _plain(world)}


# -- from a key to the screen


class Keys:
    """Random keys, which all sides type into one line of the pane."""

    LETTERS = "QUVWYIO"
    """Letters that are in no escape sequence with which tmux draws a character."""

    def __init__(self) -> None:
        self._random = random.Random(7)  # the same keys in each run
        self._line = ""

    def start_line(self, shown: Shown) -> None:
        """Clear the pane, whose lines ttyd would break elsewhere, and start a line that is nowhere else."""
        _tmux(shown.socket, "send-keys", "-t", shown.pane, "Enter")
        while (
            _tmux(shown.socket, "display-message", "-p", "-t", shown.pane, "#{cursor_x} #{cursor_y}").strip() != "0 0"
        ):
            time.sleep(0.01)  # what is typed before the pane is cleared would be cleared, too
        _tmux(shown.socket, "send-keys", "-t", shown.pane, "-l", LINE_START)
        self._line = LINE_START

    def next(self) -> tuple[str, str]:
        """Return a key, and the line once it is on the screen."""
        self._line += self._random.choice(self.LETTERS)
        return self._line[-1], self._line


Timed = Callable[[], Awaitable[float]]
"""Presses a key; returns the milliseconds until it is on the screen."""


async def _keys(world: World, size: Size, ttyd: Path | None) -> list[Line]:
    keys = Keys()
    async with AsyncExitStack() as stack:
        shown = await stack.enter_async_context(_harness(world))
        chromium = await stack.enter_async_context(browser())
        page = await stack.enter_async_context(visit(chromium, shown.where))
        await page.page.click("table a")
        await page.sees_in_pane("[harness 0: 0]")
        shown.type("while :; do clear; read line; done")
        await page.page.click("text=Take over")
        await page.sees("You type into this pane")
        sides = {HARNESS: await _typing(page.page, keys)}
        if ttyd is not None:
            url = stack.enter_context(serve_ttyd(ttyd, _attach(shown.socket), {}))
            other = await stack.enter_async_context(visit(chromium, url))
            await other.page.wait_for_selector(".xterm-rows")
            sides[TTYD] = await _typing(other.page, keys)
        sides[TMUX] = stack.enter_context(_typing_at_a_terminal(shown.socket, keys))
        return await _time_turns(sides, size.pick(100, 5), lambda: keys.start_line(shown))


async def _time_turns(sides: Mapping[str, Timed], rounds: int, start_line: Callable[[], None]) -> list[Line]:
    """Let the sides take turns; they time themselves."""
    values: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(WARM_UP + rounds):
        if number % ROUNDS_IN_A_LINE == 0:
            start_line()
        for name, press in sides.items():
            elapsed = await press()
            if number >= WARM_UP:
                values[name].append(elapsed)
    return [Line(name, tuple(taken), group="key to screen") for name, taken in values.items()]


async def _typing(page: Any, keys: Keys) -> Timed:
    """Return what presses a key in a page."""
    await page.evaluate(TIMES)

    async def press() -> float:
        await page.locator(".xterm-helper-textarea").focus()
        key, wanted = keys.next()
        await page.evaluate("wanted => { window.wanted = wanted }", wanted)
        await page.keyboard.press(f"Shift+{key}")
        await page.wait_for_function("() => window.wanted === ''", timeout=KEY_TIMEOUT * 1000)
        return float(await page.evaluate("window.elapsed"))

    return press


@contextmanager
def _typing_at_a_terminal(socket: str, keys: Keys) -> Iterator[Timed]:
    """Yield what presses a key at a client of tmux."""
    pid, descriptor = pty.fork()
    if not pid:
        os.execvp("tmux", _attach(socket))  # in the child

    def read(wait: float) -> bytes:
        return os.read(descriptor, 1 << 16) if select.select([descriptor], [], [], wait)[0] else b""

    def press_now() -> float:
        while read(0.1):  # what the other sides have typed
            pass
        key, _ = keys.next()
        began = time.perf_counter()
        os.write(descriptor, key.encode())
        while key.encode() not in (data := read(KEY_TIMEOUT)):
            assert data, "the key is not echoed"
        return (time.perf_counter() - began) * 1e3

    try:
        yield lambda: to_thread.run_sync(press_now)
    finally:
        os.close(descriptor)
        os.waitpid(pid, 0)


# -- what viewers cost


@contextmanager
def _viewing(shown: Shown, count: int) -> Iterator[subprocess.Popen[bytes]]:
    """So many viewers, each of which was sent something."""
    argv = [sys.executable, "-m", "tests.bench.view_clients", shown.kind, str(count), shown.where, shown.mark.value]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT) as process:
        try:
            assert process.stdout is not None
            if process.stdout.readline() != b"ready\n":
                raise RuntimeError(f"the viewers of {shown.kind} ended with {process.wait(10)}")
            yield process
        finally:
            process.send_signal(signal.SIGCONT)
            process.kill()


async def _viewers(world: World, size: Size, ttyd: Path | None, count: int) -> list[Line]:
    """Processor time and memory of each side, one after the other."""
    number = f"{count} viewer{'' if count == 1 else 's'}"
    times, memories = [], []
    for name, opened in _sides(world, ttyd).items():
        async with opened() as shown:
            shown.type(BUSY)
            share, memory = await to_thread.run_sync(_cost, shown, count, size.pick(10, 2))
            shown.interrupt()
        times.append(Line(name, (share,), "%", f"{number}, processor"))
        memories.append(Line(name, (memory,), "MB", f"{number}, memory"))
    return [*times, *memories]


def _cost(shown: Shown, count: int, seconds: int) -> tuple[float, float]:
    """Return the percentage of a processor, and the megabytes, that a side with viewers takes."""
    with _viewing(shown, count):
        time.sleep(SETTLE)
        before, began = shown.mark.cpu(), time.perf_counter()
        time.sleep(seconds)
        used, elapsed = shown.mark.cpu() - before, time.perf_counter() - began
        return used / elapsed * 100, shown.mark.memory()


# -- a stopped browser


async def _floods(world: World, size: Size, ttyd: Path | None) -> list[Line]:
    lines = []
    for name, opened in _sides(world, ttyd).items():
        async with opened() as shown:
            gap = await to_thread.run_sync(_gap, shown, world.directory, size.pick(100, 5) * 1_000_000)
        lines.append(Line(name, (gap,), "ms", "longest gap of a flood, the viewer is stopped"))
    return lines


def _gap(shown: Shown, directory: Path, length: int) -> float:
    """Return the longest gap, in milliseconds, of a program that floods the pane while its viewer is stopped."""
    result, program = directory / f"gap-{shown.socket}", directory / "flood.py"
    program.write_text(FLOOD)
    with _viewing(shown, 1) as viewer:
        stopped = [viewer.pid, *_clients_of(viewer.pid)]
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        try:
            shown.type(f"{sys.executable} {program} {result} {length}")
            deadline = time.monotonic() + FLOOD_TIMEOUT
            while not result.exists() or not result.read_text():
                assert time.monotonic() < deadline, "the flood does not end"
                time.sleep(0.1)
        finally:
            for pid in stopped:
                os.kill(pid, signal.SIGCONT)
    return float(result.read_text()) * 1e3


def _clients_of(pid: int) -> list[int]:
    """The processes that another one has started."""
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
