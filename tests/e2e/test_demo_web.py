"""``harness demo --web``: one command shows the demo in a real browser, which answers it, and C-c ends all of it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
import pytest
from tests.support.web_dashboard import browser, visit

from harness.errors import HarnessError
from harness.operate import demo_web

pytestmark = pytest.mark.usefixtures("needs_browser", "needs_tmux")

DEMO = [str(Path(sys.executable).with_name("harness")), "demo", "--web"]
LIMIT = 60


@pytest.fixture
def scratch() -> Iterator[Path]:
    """A home, and a place for temporary files and sockets; short, because socket paths are."""
    with TemporaryDirectory(prefix="hd-", dir="/tmp") as folder:
        (Path(folder) / "tmp").mkdir()
        yield Path(folder)


@contextmanager
def demo(scratch: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The demo, and the link that it prints."""
    here = {"HOME": str(scratch), "TMPDIR": str(scratch / "tmp"), "XDG_RUNTIME_DIR": str(scratch)}
    env = here | {"PATH": os.environ["PATH"], "TERM": "xterm", "LANG": "C.UTF-8"}
    with subprocess.Popen(DEMO, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            link = next((line for line in process.stdout if "#token=" in line), "")
            assert link, process.communicate()
            yield process, link.strip()
        finally:
            process.send_signal(signal.SIGTERM)


def processes_of(scratch: Path) -> list[str]:
    """The processes that were started with this home, but for those that are ending."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdecimal() and f"={scratch}".encode() in (entry / "environ").read_bytes():
                found.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue
    return found


async def nothing_is_left(scratch: Path) -> None:
    with anyio.move_on_after(30):  # the processes of a tmux server end after it, by the signal of their terminal
        while processes_of(scratch):  # noqa: ASYNC110  # of other processes
            await anyio.sleep(0.05)
    assert processes_of(scratch) == []
    assert list((scratch / "tmp").iterdir()) == []


async def test_the_demo_is_answered_in_the_browser_and_ends_with_all_its_processes(scratch: Path) -> None:
    with demo(scratch) as (process, link):
        async with browser() as chromium, visit(chromium, link) as page:
            await page.sees("edit waits for approval", ".approval")
            await page.page.click("table a")
            await page.sees_in_pane("access.log")
            await page.sees("I look at the sizes", ".conversation")  # it was said before the page was opened
            await page.page.click(".approval button.primary")
            await page.sees("run_shell waits for approval", ".approval")
            await page.page.click(".approval button.primary")
            await page.sees("Done: all logs are packed", ".conversation")
            await page.page.click("nav >> text=Audit")
            await page.sees("dashboard: ", "td")
            assert (page.violations, page.foreign) == ([], [])
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=LIMIT)
    assert (process.returncode, errors) == (0, "")
    assert re.search(r"answer it in the dashboard\n +dashboard: .*: yes", output)
    assert "Cleaned up" in output
    await nothing_is_left(scratch)


async def test_a_denied_call_and_a_hangup_in_the_middle_end_the_demo_cleanly(scratch: Path) -> None:
    with demo(scratch) as (process, link):
        async with browser() as chromium, visit(chromium, link) as page:
            await page.sees("edit waits for approval", ".approval")
            await page.page.click(".approval button.danger >> nth=0")
            await page.sees("run_shell waits for approval", ".approval")
        process.send_signal(signal.SIGHUP)
        output, errors = process.communicate(timeout=LIMIT)
    assert (process.returncode, errors) == (0, ""), output
    assert ": no\n" in output
    await nothing_is_left(scratch)


async def test_a_killed_demo_leaves_nothing(scratch: Path) -> None:
    with demo(scratch) as (process, link):
        async with browser() as chromium, visit(chromium, link) as page:
            await page.sees("edit waits for approval", ".approval")
            process.kill()
            await page.sees("Not connected", "#connection")
    await nothing_is_left(scratch)


async def test_a_dashboard_that_does_not_start_ends_the_demo(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo_web, "START", "import sys; sys.exit(3)")
    with pytest.raises(HarnessError, match="the dashboard did not start"):
        await demo_web.run_web_demo(say=lambda line: None)


async def test_an_agent_that_ends_ends_the_demo(monkeypatch: pytest.MonkeyPatch) -> None:
    start = "import sys, time; 'web' in sys.argv and (print('#token=x', flush=True), time.sleep(60)); sys.exit(3)"
    monkeypatch.setattr(demo_web, "START", start)
    with anyio.fail_after(30), pytest.raises(HarnessError, match="the agent ended with exit code 3"):
        await demo_web.run_web_demo(say=lambda line: None)
