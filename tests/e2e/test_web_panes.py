"""What programs print into a pane, as a browser sees it: it can draw and nothing else, shows no secret, and waits for
no browser."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.support.model_server import say
from tests.support.seats import Seats, seats
from tests.support.web_dashboard import Visit, browser, visit, web_program

__all__ = ["seats"]

pytestmark = pytest.mark.usefixtures("needs_browser", "needs_tmux")

ESCAPES = {
    "titles": ["\x1b]0;stolen\x07", "\x1b]1;stolen\x07", "\x1b]2;stolen\x1b\\", "\x1bkstolen\x1b\\"],
    "clipboard": ["\x1b]52;c;c3RvbGVu\x07", "\x1b]52;c;?\x07", "\x1b]5522;type=write\x07"],
    "links": ["\x1b]8;;http://evil.example/\x07link\x1b]8;;\x07", "http://evil.example/plain "],
    "scripts": ["\x1b]8;;javascript:1\x07x\x1b]8;;\x07", "<script>alert(1)</script><img src=x onerror=alert(1)>"],
    "notifications": ["\x1b]9;stolen\x07", "\x1b]777;notify;a;b\x07", "\x1b]99;;stolen\x1b\\", "\x07"],
    "colors": ["\x1b]4;1;?\x07", "\x1b]10;?\x07", "\x1b]11;?\x1b\\", "\x1b]12;?\x07", "\x1b]11;#ffffff\x07"],
    "attributes": ["\x1b[c", "\x1b[>c", "\x1b[=c", "\x1b[x", "\x1b[>q", "\x1b[?u", "\x05", "\x1bZ"],
    "status": ["\x1b[5n", "\x1b[6n", "\x1b[?6n", "\x1b[?15n", "\x1b[?996n"],
    "modes": ["\x1b[?1$p", "\x1b[4$p", "\x1bP$qm\x1b\\", "\x1bP+q544e\x1b\\", "\x1b[1$w"],
    "windows": ["\x1b[14t", "\x1b[18t", "\x1b[21t", "\x1b[22;2t", "\x1b[3;0;0t", "\x1b[8;5;5t", "\x1b[2t"],
    "files": ["\x1b]1337;File=name=eA==;inline=1:AAAA\x07", "\x1b_Gf=24,s=1,v=1;AAAA\x1b\\"],
    "strings": ["\x1b^private\x1b\\", "\x1bXstart\x1b\\", "\x1b_application\x1b\\", "\x1bPunknown\x1b\\"],
}


@asynccontextmanager
async def at_the_pane(seats: Seats, web_url: str, chromium: Any, **options: Any) -> AsyncIterator[Visit]:
    """A visitor at the pane of the only session, who has taken it over."""
    async with visit(chromium, web_url, **options) as page:
        await page.page.click("table a")
        await page.sees_in_pane("[harness 0: 0]")
        await page.page.click("text=Take over")
        await page.sees("You type into this pane")
        yield page


async def run(page: Visit, line: str) -> None:
    await page.page.locator(".xterm-helper-textarea").focus()
    await page.page.keyboard.type(line)
    await page.page.keyboard.press("Enter")


async def test_no_escape_sequence_does_more_than_draw(seats: Seats) -> None:
    seat = seats.take("--tmux", script=[say("hello")], size=(120, 40))
    await seat.on_screen("»", "scripted")
    everything = "".join(f"{name} {sequence}\r\n" for name, found in ESCAPES.items() for sequence in found)
    (seats.home / "escapes").write_text(everything)
    async with (
        web_program(seats.program, seats.environment) as web,
        browser() as chromium,
        at_the_pane(seats, web.url, chromium, permissions=["clipboard-read", "clipboard-write"]) as page,
    ):
        await page.page.evaluate("navigator.clipboard.writeText('mine')")
        title = await page.page.title()
        opened: list[object] = []

        def noted(one: object) -> None:
            opened.append(one)

        page.page.context.on("page", noted)
        page.page.on("dialog", noted)
        before = await page.page.evaluate("[...document.querySelectorAll('.xterm')].length")
        await page.page.evaluate("""() => {
            const send = WebSocket.prototype.send;
            window.sent = [];
            WebSocket.prototype.send = function (data) { window.sent.push(data); return send.call(this, data); };
        }""")
        await run(page, "cat escapes; sleep 1; echo over-$((1 + 1))")
        await page.sees_in_pane("over-2")
        await page.page.wait_for_timeout(1000)
        sent = [json.loads(one) for one in await page.page.evaluate("window.sent")]
        typed = "".join(one["arguments"]["text"] for one in sent if one.get("action") == "type")
        assert typed == "cat escapes; sleep 1; echo over-$((1 + 1))\r"
        assert await page.page.title() == title
        assert await page.page.locator(".xterm a").count() == 0
        rows = page.page.locator(".xterm-rows > div")
        for number in range(0, await rows.count(), 2):
            await rows.nth(number).click(position={"x": 20, "y": 3}, modifiers=["Control"], force=True)
        assert (opened, page.foreign, page.violations) == ([], [], [])
        assert await page.page.evaluate("[...document.querySelectorAll('.xterm')].length") == before
        background = "getComputedStyle(document.querySelector('.pane')).backgroundColor"
        assert await page.page.evaluate(background) == "rgb(16, 22, 29)"
        await page.page.click("nav >> text=Audit")
        await page.page.focus("#audit-text")
        await page.page.keyboard.press("Control+V")
        assert await page.page.input_value("#audit-text") == "mine"


async def test_a_long_paste_is_typed_whole_or_refused_whole(seats: Seats) -> None:
    seat = seats.take("--tmux", script=[say("hello")], size=(120, 40))
    await seat.on_screen("»", "scripted")
    text = "".join(f"{number:05} {'x' * 90}é\n" for number in range(600))
    paste = """text => {
        const data = new DataTransfer();
        data.setData("text/plain", text);
        const event = new ClipboardEvent("paste", { clipboardData: data, bubbles: true });
        document.querySelector(".xterm-helper-textarea").dispatchEvent(event);
    }"""
    async with (
        web_program(seats.program, seats.environment) as web,
        browser() as chromium,
        at_the_pane(seats, web.url, chromium) as page,
    ):
        await run(page, "cat > pasted; echo over-$((1 + 1))")
        await page.page.evaluate(paste, "y" * 100_001)
        await page.sees("nothing was typed")
        await page.page.evaluate(paste, text)
        await page.page.locator(".xterm-helper-textarea").focus()
        await page.page.keyboard.press("Control+D")
        await page.sees_in_pane("over-2")
        assert (seats.home / "pasted").read_text() == text


async def test_a_secret_printed_byte_by_byte_reaches_no_browser(seats: Seats) -> None:
    secret = "ghp_" + "Zx9" * 12
    seat = seats.take("--tmux", script=[say("hello")], size=(120, 40))
    await seat.on_screen("»", "scripted")
    lines = [f"printf %s {letter}; sleep 0.02" for letter in secret]
    (seats.home / "slowly").write_text("\n".join([*lines, "echo", "echo end-$((1 + 1))", ""]))
    received: list[bytes] = []

    def heard(data: str | bytes) -> None:
        received.append(data if isinstance(data, bytes) else data.encode())

    async with (
        web_program(seats.program, seats.environment) as web,
        browser() as chromium,
        visit(chromium, web.url) as page,
    ):
        await page.sees("local", "table")
        page.page.on("websocket", lambda one: one.on("framereceived", heard))
        await page.page.reload()
        await page.page.click("table a")
        await page.sees_in_pane("[harness 0: 0]")
        await page.page.click("text=Take over")
        await page.sees("You type into this pane")
        await run(page, "sh slowly")
        await page.sees_in_pane("end-2")
        await page.page.reload()
        await page.sees_in_pane("end-2")
        text = b"".join(frame[5:] if frame[:1] == b"\0" else frame for frame in received)
        assert b"end-2" in text
        assert secret.encode() not in text
        assert secret[:12].encode() not in text
        assert secret not in await page.screen()


async def test_a_key_asks_for_no_frame_before_its_echo(seats: Seats) -> None:
    seat = seats.take("--tmux", script=[say("hello")], size=(120, 40))
    await seat.on_screen("»", "scripted")
    async with (
        web_program(seats.program, seats.environment) as web,
        browser() as chromium,
        at_the_pane(seats, web.url, chromium) as page,
    ):
        await run(page, "echo to''gether")
        await page.sees_in_pane("together")
        # a blinking cursor would be an animation that never ends; a transition of the page does
        await page.page.wait_for_function("() => document.hasFocus() && document.getAnimations().length === 0")


FLOOD = """
import sys, time
piece, longest, last = (b"x" * 99 + b"\\n") * 655, 0.0, time.monotonic()
for _ in range(100 * 1000 * 1000 // len(piece)):
    sys.stdout.buffer.write(piece); sys.stdout.flush()
    now = time.monotonic(); longest = max(longest, now - last); last = now
open(sys.argv[1], "w").write(str(longest))
"""


@contextmanager
def stopped(mark: str) -> Iterator[int]:
    """Stop all processes of a browser, by a word of their command lines; yields how many."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                line = (entry / "cmdline").read_bytes().decode(errors="replace")
            except OSError:
                continue
            if mark in line:
                found.append(int(entry.name))
    for pid in found:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield len(found)
    finally:
        for pid in found:
            os.kill(pid, signal.SIGCONT)


@pytest.mark.usefixtures("needs_time")
@pytest.mark.timeout(600)
async def test_a_flood_waits_for_no_stopped_browser_which_then_gets_a_fresh_screen(
    seats: Seats, tmp_path: Path
) -> None:
    seat = seats.take("--tmux", script=[say("hello")], size=(120, 40))
    await seat.on_screen("»", "scripted")
    (seats.home / "flood.py").write_text(FLOOD)

    async def written(path: Path) -> float:
        with anyio.fail_after(240):
            while not path.exists() or not path.read_text():  # noqa: ASYNC110  # another process writes it
                await anyio.sleep(0.1)
        return float(path.read_text())

    mark = f"hx-profile-{os.getpid()}"
    async with (
        web_program(seats.program, seats.environment) as web,
        browser(f"--hx-mark={mark}") as chromium,
        at_the_pane(seats, web.url, chromium) as page,
    ):
        command = f"{sys.executable} flood.py"
        await run(page, f"{command} watched; echo first-$((1 + 1))")
        watched = await written(seats.home / "watched")
        await page.sees_in_pane("first-2")
        await run(page, f"sleep 2; {command} stopped; echo second-$((1 + 1))")
        await anyio.sleep(0.5)
        with stopped(mark) as count:
            assert count > 0
            gap = await written(seats.home / "stopped")
        assert gap <= 0.5, (gap, watched)
        await page.sees_in_pane("second-2")
        assert web.process is not None
        status = Path(f"/proc/{web.process.pid}/status").read_text()
        assert next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) < 250_000  # KiB
