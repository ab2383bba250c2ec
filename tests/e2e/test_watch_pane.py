"""A watched pane: a terminal that is fed what a watcher gets shows what the pane shows, and watching delays nothing."""

from __future__ import annotations

import re
import secrets
import shlex
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import libtmux
import pytest
from tests.support.desk import Desk, OpenDesk, desk, everywhere, open_desk, until

from harness import UnsupportedOperation, connect
from harness.pane_events import Closed, JobEnded, JobStarted, Output, PaneEvent, Resized, Screen
from harness_backends.tmux.pane.pane_state import Pane
from harness_backends.tmux.sources import stream_gaps
from harness_backends.tmux.terminal import TmuxTerminal

__all__ = ["desk", "open_desk"]

LIMIT = 90.0
MARKER = re.compile(rb"\x1b\]133;[^\x00-\x1f]*(?:\x07|\x1b\\)")
"""A whole one: the shell's variables contain the beginnings of markers, and ``set`` prints them."""


@dataclass
class Seen:
    """What a watcher got."""

    events: list[PaneEvent] = field(default_factory=list)
    over: bool = False

    async def watch(self, events: AsyncIterator[PaneEvent]) -> None:
        async for event in events:
            self.events.append(event)
        self.over = True

    def of(self, *kinds: type) -> list[PaneEvent]:
        return [event for event in self.events if isinstance(event, kinds)]

    @property
    def data(self) -> bytes:
        """What a terminal is fed that begins with the last screen."""
        begin = max(place for place, event in enumerate(self.events) if isinstance(event, Screen))
        first = self.events[begin]
        assert isinstance(first, Screen)
        return first.content + b"".join(event.data for event in self.events[begin:] if isinstance(event, Output))

    @property
    def raw(self) -> bytes:
        return b"".join(
            event.data if isinstance(event, Output) else event.content
            for event in self.events
            if isinstance(event, Output | Screen)
        )


@asynccontextmanager
async def watching(desk: Desk, pane: str | None = None) -> AsyncIterator[Seen]:
    seen = Seen()
    async with anyio.create_task_group() as tasks, desk.ctx.watch_pane(pane) as events:
        tasks.start_soon(seen.watch, events)
        await until(lambda: seen.events)
        yield seen
        tasks.cancel_scope.cancel()


def pane_of(desk: Desk) -> Pane:
    terminal = desk.ctx._terminal
    assert isinstance(terminal, TmuxTerminal)
    pane = terminal._table.by_name("main")
    assert pane is not None
    return pane


@contextmanager
def terminal(data: bytes, columns: int, rows: int) -> Iterator[libtmux.Server]:
    """A terminal that was fed this: the pane of another tmux server."""
    server = libtmux.Server(socket_name=f"em-{secrets.token_hex(4)}", config_file="/dev/null")
    with tempfile.TemporaryDirectory(prefix="hx") as folder:
        file, done = Path(folder, "data"), Path(folder, "done")
        file.write_bytes(data)
        show = f"stty raw -echo; cat {shlex.quote(str(file))}; : >{shlex.quote(str(done))}; exec sleep 60"
        try:
            server.cmd("new-session", "-d", "-x", str(columns), "-y", str(rows), "sh", "-c", show)
            deadline = time.monotonic() + 30
            while not done.exists():
                assert time.monotonic() < deadline
                time.sleep(0.02)
            yield server
        finally:
            server.kill()


SHOWN = "#{cursor_x},#{cursor_y} #{alternate_on} #{cursor_flag} #{scroll_region_upper} #{keypad_cursor_flag}"


def picture(server: libtmux.Server, pane: str = "") -> tuple[list[str], list[str]]:
    where = ("-t", pane) if pane else ()
    shown = server.cmd("capture-pane", "-p", "-e", "-N", *where).stdout
    return shown, server.cmd("display-message", "-p", *where, SHOWN).stdout


async def alike(desk: Desk, seen: Seen) -> None:
    """Fail unless a terminal that was fed what was seen shows what the pane shows, once all of it has arrived."""
    deadline = anyio.current_time() + 20
    shown, expected = ([""], [""]), picture(desk.tmux, "=harness:main")
    while shown != expected and anyio.current_time() < deadline:
        data, screen = seen.data, seen.of(Screen)[-1]
        assert isinstance(screen, Screen)
        with terminal(data, screen.columns, screen.rows) as server:
            while seen.data == data and anyio.current_time() < deadline:
                shown, expected = picture(server), picture(desk.tmux, "=harness:main")
                if shown == expected:
                    break
                await anyio.sleep(0.1)  # until tmux has read it, which it does not tell
    assert shown == expected


STATES = {
    "colors": r"printf '\033[1;31mred\033[0m \033[44mon blue   \033[0m x\n'",
    "wide": "echo '漢字 é 👩 ﷽ x'; printf '%0.s漢' $(seq 100); echo",
    "full rows": "printf '%0200d\\n%060d%060d' 1 2 3",
    "line drawing": r"printf '\033(0lqqqk\033(B text\n'",
    "many lines": "seq 200",
    "alternate": r"printf 'main\n\033[?1049h\033[5;7Hother \033[7mreverse\033[0m\033[?25l'; cat gate",
    "region": r"printf '\033[3;9r\033[5;5Hhere\033[?1h'; cat gate; printf '\033[r\033[?1l'",
    "no wrap": r"printf '\033[?7l\033[4;4H'; cat gate; printf '\033[?7h'",
}


async def draw(desk: Desk, command: str) -> None:
    """Run a command, or until it waits in the state that it has drawn."""
    await desk.ctx.run_shell("mkfifo gate")
    await desk.ctx.run_shell(command, wait=0.2 if "cat gate" in command else True)
    await until(lambda: "cat gate" not in command or desk.processes("cat gate"))


@pytest.mark.parametrize("command", STATES.values(), ids=STATES)
async def test_a_screen_shows_the_pane_as_it_is(desk: Desk, command: str) -> None:
    with anyio.fail_after(LIMIT):
        await draw(desk, command)
        async with watching(desk) as seen:
            await alike(desk, seen)


@pytest.mark.parametrize("command", STATES.values(), ids=STATES)
async def test_what_follows_a_screen_leads_to_what_the_pane_shows(desk: Desk, command: str) -> None:
    with anyio.fail_after(LIMIT):
        async with watching(desk) as seen:
            await draw(desk, command)
            await alike(desk, seen)


@everywhere
async def test_jobs_are_reported_at_their_place_in_the_output(desk: Desk) -> None:
    with anyio.fail_after(LIMIT):
        async with watching(desk) as seen:
            await desk.ctx.run_shell("echo one; (exit 3)")
            await until(lambda: seen.of(JobEnded))
    start, end = seen.of(JobStarted)[0], seen.of(JobEnded)[0]
    assert isinstance(start, JobStarted)
    assert isinstance(end, JobEnded)
    assert (start.command, end.exit_code, end.status) == ("echo one; (exit 3)", 3, "completed")
    assert start.job_id == end.job_id
    between = seen.events[seen.events.index(start) : seen.events.index(end)]
    assert b"".join(event.data for event in between if isinstance(event, Output)) == b"one\r\n"


async def test_a_running_job_is_reported_after_the_first_screen(desk: Desk) -> None:
    with anyio.fail_after(LIMIT):
        await desk.ctx.run_shell("echo begun; sleep 30", wait=0.5)
        await until(lambda: desk.processes("sleep 30"))
        async with watching(desk) as seen:
            await until(lambda: len(seen.events) > 1)
    assert isinstance(seen.events[1], JobStarted)
    assert seen.events[1].command == "echo begun; sleep 30"


@pytest.mark.parametrize("shell", ["/bin/bash", "/usr/bin/zsh", "/bin/dash", "/usr/bin/fish"])
async def test_a_watcher_gets_no_marker_and_no_nonce(open_desk: OpenDesk, shell: str) -> None:
    desk = await open_desk(shell=shell)
    with anyio.fail_after(LIMIT):
        async with watching(desk) as seen:
            await desk.ctx.run_shell("sh", wait=1.0)
            inner = await desk.ctx.run_shell("echo inner")
            assert inner.stdout == "inner\n"
            nonces = (await desk.ctx.run_helper(f"cat {shlex.quote(str(desk.state))}/panes/*/nonce")).stdout
            await desk.ctx.run_shell(f"for n in {nonces.strip()}; do printf '%s' $n; printf '\\033[32m'; done; set")
            async with watching(desk) as later:
                await until(lambda: later.events)
            shells = pane_of(desk).shells
    known = [nonce.encode() for nonce in {*nonces.split(), *(shell.nonce for shell in shells)}]
    assert len(known) >= 2
    for data in (seen.raw, later.raw):
        assert MARKER.findall(data) == []
        assert [nonce for nonce in known if nonce in data] == []


async def test_a_nonce_that_is_printed_letter_by_letter_is_masked(desk: Desk) -> None:
    with anyio.fail_after(LIMIT):
        async with watching(desk) as seen:
            letters = 'n=$hxn; while [ -n "$n" ]; do printf %s "${n%"${n#?}"}"; n=${n#?}; sleep 0.01; done'
            assert (await desk.ctx.run_shell(letters, timeout=30)).exit_code == 0
            nonce = (await desk.ctx.run_shell("echo $hxn")).stdout_bytes.strip()
            await until(lambda: seen.raw.count(b"*" * 16) >= 2)
    assert len(nonce) == 20
    assert nonce[:8] not in seen.raw


async def test_a_resized_pane_is_shown_again(desk: Desk) -> None:
    with anyio.fail_after(LIMIT):
        async with watching(desk) as seen:
            await desk.ctx.run_shell("seq 50; echo a line that is too long for a screen of thirty columns")
            desk.tmux.cmd("resize-window", "-t", "=harness:main", "-x", "30", "-y", "9")
            await until(lambda: seen.of(Resized))
            await desk.ctx.run_shell("echo after")
            await alike(desk, seen)
    resized, screen = seen.of(Resized)[0], seen.of(Screen)[-1]
    assert isinstance(resized, Resized)
    assert isinstance(screen, Screen)
    assert (resized.columns, resized.rows) == (screen.columns, screen.rows) == (30, 9)


async def test_a_closed_pane_ends_the_watch(desk: Desk) -> None:
    with anyio.fail_after(LIMIT):
        await desk.ctx.create_pane("other")
        async with watching(desk, "other") as seen:
            await desk.ctx.kill_pane("other")
            await until(lambda: seen.over)
    assert isinstance(seen.events[-1], Closed)


@everywhere
async def test_after_a_lost_connection_a_new_screen_follows(desk: Desk) -> None:
    with anyio.fail_after(LIMIT):
        async with watching(desk) as seen:
            await desk.ctx.run_shell("echo one")
            clients = desk.tmux.cmd("list-clients", "-F", "#{client_pid} #{client_flags}").stdout
            reader = next(line.split()[0] for line in clients if "no-output" not in line)
            await desk.ctx.run_shell(
                f"(sleep 0.5; seq 30; echo behind; sleep 2.5; echo later) & kill -9 {reader}", wait=1
            )
            await until(lambda: len(seen.of(Screen)) > 1, 30)
            await until(lambda: b"\nlater" in seen.data)  # the output, not the command line
            await alike(desk, seen)


async def test_a_watcher_that_does_not_take_anything_delays_nothing_and_gets_a_new_screen(desk: Desk) -> None:
    with anyio.fail_after(LIMIT):
        async with desk.ctx.watch_pane(max_bytes=100_000) as idle, watching(desk) as seen:
            assert isinstance(await anext(idle), Screen)
            result = await desk.ctx.run_shell("seq 1 300000", timeout=60, max_output=1 << 24)
            assert result.stdout_bytes == b"".join(b"%d\n" % number for number in range(1, 300_001))
            late = Seen()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(late.watch, idle)
                await until(lambda: late.of(Screen))
                await alike(desk, late)
                tasks.cancel_scope.cancel()
            assert [type(event) for event in late.events[:3]] == [JobStarted, JobEnded, Screen]
            assert b"300000" in seen.data


async def test_a_watch_that_ends_after_output_was_dropped_ends_with_a_screen(desk: Desk) -> None:
    with anyio.fail_after(LIMIT):
        async with desk.ctx.watch_panes(max_bytes=100_000) as watches:
            watch = await anext(watches)
            assert isinstance(await anext(watch.events), Screen)
            await desk.ctx.run_shell("seq 1 300000", timeout=60)
            watches.end()
            events = [event async for event in watch.events]
    assert isinstance(last := events[-1], Screen)
    assert b"300000" in last.content


async def test_output_that_waits_is_joined_and_complete(desk: Desk) -> None:
    with anyio.fail_after(LIMIT):
        async with desk.ctx.watch_panes() as watches:
            watch = await anext(watches)
            assert isinstance(await anext(watch.events), Screen)
            await desk.ctx.run_shell("seq 1 20000", timeout=60)
            watches.end()
            pieces = [event.data async for event in watch.events if isinstance(event, Output)]
    assert b"".join(b"%d\r\n" % number for number in range(1, 20_001)) in b"".join(pieces)
    assert max(map(len, pieces)) <= 64 << 10
    assert len(pieces) < 40, [len(piece) for piece in pieces]


async def test_a_flood_freezes_no_program_while_a_watcher_sleeps(desk: Desk) -> None:
    """The program notes the longest gap between two of its writes."""
    program = desk.home / "flood.py"
    program.write_text(
        "import sys, time\nline = b'x' * 99 + b'\\n'\nlast, gap = time.monotonic(), 0\n"
        "for _ in range(10000):\n    sys.stdout.buffer.write(line * 40); sys.stdout.buffer.flush()\n"
        "    now = time.monotonic(); gap = max(gap, now - last); last = now\n"
        "open('gap', 'w').write(str(gap))\n"
    )
    with anyio.fail_after(LIMIT):
        async with desk.ctx.watch_pane() as idle:
            assert isinstance(await anext(idle), Screen)
            await desk.ctx.run_shell(f"{sys.executable} flood.py", timeout=60)
    assert float((desk.home / "gap").read_text()) < 0.5


_ROW = re.compile(rb"\x1b\[\d+;1H")
_SEQUENCE = re.compile(rb"\x1b(?:\[[0-9;?]*[a-zA-Z]|[()][0-9A-Z])|\x0f")


def numbers_shown(seen: Seen) -> list[int]:
    """The numbers of a flood that a terminal has been fed with since the last screen, without the first and last."""
    text = _SEQUENCE.sub(b"", _ROW.sub(b" ", seen.data))
    return [int(number) for number in text.split() if number.isdigit()][1:-1]


async def fall_behind(desk: Desk, seen: Seen) -> None:
    """Take nothing for longer than tmux waits in a flood, until the screen of that time has arrived."""
    await until(lambda: b"1000" in seen.data)
    screens = len(seen.of(Screen))
    time.sleep(2.5)  # noqa: ASYNC251  # the whole event loop
    await until(lambda: len(seen.of(Screen)) > screens)


@pytest.mark.slow
async def test_a_watcher_misses_nothing_after_the_last_screen_when_this_process_fell_behind(desk: Desk) -> None:
    with anyio.fail_after(LIMIT):
        async with watching(desk) as seen:
            job = await desk.ctx.run_shell("seq 1 1000000000", wait=False, pane="main")
            await fall_behind(desk, seen)
            await until(lambda: len(numbers_shown(seen)) > 1000, LIMIT)
            shown = numbers_shown(seen)
            await desk.ctx.kill(job.job_id or "")
            assert shown == list(range(shown[0], shown[0] + len(shown)))


@pytest.mark.slow
async def test_a_watcher_gets_screens_while_the_log_of_a_flood_is_read(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_gaps, "CHUNK", 1000)  # as over a connection that is slower than the flood
    with anyio.fail_after(LIMIT):
        async with watching(desk) as seen:
            job = await desk.ctx.run_shell("seq 1 1000000000", wait=False, pane="main")
            await fall_behind(desk, seen)
            last = numbers_shown(seen)[-1]
            for _ in range(2):
                await until(lambda last=last: numbers_shown(seen)[-1] > last + 1000)
                last = numbers_shown(seen)[-1]
            monkeypatch.undo()
            await desk.ctx.kill(job.job_id or "")


async def test_twenty_watchers_see_the_same(desk: Desk) -> None:
    with anyio.fail_after(LIMIT):
        kept = [Seen() for _ in range(20)]
        async with anyio.create_task_group() as tasks:

            async def one(seen: Seen) -> None:
                async with desk.ctx.watch_pane() as events:
                    await seen.watch(events)

            for number, seen in enumerate(kept):
                tasks.start_soon(one, seen)
                if number % 5 == 0:
                    await desk.ctx.run_shell(f"echo {number}")
            await until(lambda: all(seen.events for seen in kept))
            await desk.ctx.run_shell("seq 500")
            await until(lambda: all(b"500\r\n" in seen.data for seen in kept))
            await anyio.sleep(0.3)
            tasks.cancel_scope.cancel()
        assert all(len(seen.of(Screen)) == 1 for seen in kept)
        for seen in (kept[0], kept[-1]):
            await alike(desk, seen)
    assert pane_of(desk).watchers is None


async def test_fallback_mode_says_that_it_cannot_be_watched(open_desk: OpenDesk) -> None:
    desk = await open_desk(control_mode="never")
    with pytest.raises(UnsupportedOperation, match="no control mode"):
        async with desk.ctx.watch_pane():
            pass
    async with connect() as ctx:
        with pytest.raises(UnsupportedOperation, match="needs a terminal"):
            async with ctx.watch_pane():
                pass
