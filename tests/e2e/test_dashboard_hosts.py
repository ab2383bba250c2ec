"""A run on many hosts in the dashboards: the state of each host, failed ones first, and the output of any of them."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from tests.support.fleet_hosts import FleetHosts
from tests.support.seats import Seats, seats
from tests.support.web_dashboard import axe_source, browser, visit, web_program

__all__ = ["seats"]

pytestmark = pytest.mark.usefixtures("needs_tmux")

HOSTS = ("one", "two", "three")
SETTINGS = "".join(f'[targets.{name}]\nurl = "local:"\n' for name in HOSTS)
FAILS_ONCE = (
    "echo begun-$((1 + 1)); mkdir turn 2>/dev/null && exit 3; "
    "while ! test -e go; do sleep 0.1; done; echo over-$((1 + 1)); sleep 600"
)
"""The first host fails. The numbers are in the output, and not in the command."""


@contextmanager
def running(seats: Seats, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """``harness run``, until the end of the test."""
    config = seats.private / "config/harness"
    config.mkdir(parents=True, exist_ok=True)
    (config / "config.toml").write_text(SETTINGS)
    argv, silent = [seats.program, "run", *words], subprocess.DEVNULL
    with subprocess.Popen(argv, env=seats.environment, cwd=seats.home, stdout=silent, stderr=silent) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.usefixtures("needs_browser")
async def test_a_run_on_many_hosts_has_its_page(seats: Seats) -> None:
    with running(seats, "--hosts", ",".join(HOSTS), "--", f"cd {seats.home}; {FAILS_ONCE}") as process:
        async with (
            web_program(seats.program, seats.environment) as web,
            browser() as chromium,
            visit(chromium, web.url) as page,
        ):
            await page.sees("1 failed", "table")
            await page.page.click("table a")
            await page.sees("exit code 3", "tbody tr:nth-child(1)")
            await page.sees("running", "tbody tr:nth-child(2)")
            await page.page.click("tbody tr:nth-child(1) button")
            await page.sees("[exit code 3]", ".output")
            await page.page.click("tbody tr:nth-child(2) summary")
            await page.page.click("tbody tr:nth-child(2) details button >> nth=0")
            await page.sees("begun-2", ".output")
            assert "over-2" not in await page.page.inner_text(".output")
            (seats.home / "go").touch()
            await page.sees("over-2", ".output")
            await page.page.fill("#host", "nowhere")
            await page.page.press("#host", "Enter")
            await page.sees("this run has no host nowhere")
            await page.page.reload()  # the kind of the session is not known at once then
            await page.sees("exit code 3", "tbody tr:nth-child(1)")
            await page.page.evaluate(axe_source())
            for width in (390, 1280):
                await page.page.set_viewport_size({"width": width, "height": 844})
                found = await page.page.evaluate("axe.run({ resultTypes: ['violations'] })")
                assert [
                    one["id"] for one in found["violations"] if one["impact"] in ("moderate", "serious", "critical")
                ] == []
                assert await page.page.evaluate("document.documentElement.scrollWidth") <= width
            process.kill()
            await page.sees("The run has ended")
            await page.sees("was running", "tbody tr:nth-child(2)")
            await page.sees("harness fleet show 1 lists it later")
            await page.sees("exit code 3", "tbody tr:nth-child(1)")
            assert (page.violations, page.foreign) == ([], [])


@pytest.mark.usefixtures("needs_browser")
async def test_the_page_of_a_command_shows_its_output(seats: Seats) -> None:
    command = "echo first-$((1 + 1)); while ! test -e go; do sleep 0.1; done; echo second-$((1 + 1)); sleep 600"
    with running(seats, "--", command):
        async with (
            web_program(seats.program, seats.environment, "--name", "anna") as web,
            browser() as chromium,
            visit(chromium, web.url) as page,
        ):
            await page.page.click("table a")
            await page.sees("first-2", ".output")
            (seats.home / "go").touch()
            await page.sees("second-2", ".output")
            await page.page.click("text=Read again")
            await page.sees("first-2\nsecond-2", ".output")
            await page.page.click("text=Cancel")
            await page.sees("This session has ended")
            await page.page.click("nav >> text=Audit")
            await page.sees("dashboard_cancel", "td")
            await page.sees("dashboard: anna", "td")
            assert (page.violations, page.foreign) == ([], [])


@pytest.mark.usefixtures("needs_browser")
async def test_the_panes_of_hosts_are_a_grid_and_that_of_a_command_is_shown(
    seats: Seats, fleet_hosts: FleetHosts
) -> None:
    """They are exact: a program that uses the alternate screen is seen as it is."""
    draw = "printf '\\033[?1049h\\033[H\\033[32mup-'; echo $((40 + 2)); while ! test -e ~/go; do sleep 0.1; done"
    with running(seats, *fleet_hosts.options, "--tmux", "--hosts", "web[1-3]", "--", draw):
        async with (
            web_program(seats.program, seats.environment) as web,
            browser() as chromium,
            visit(chromium, web.url) as page,
        ):
            await page.page.click("table a")
            await page.sees_in_pane("up-42\n")
            tiles = page.page.locator(".tile")
            await page.page.wait_for_function("() => document.querySelectorAll('.tile .xterm-fg-2').length === 3")
            titles = [text.partition("\n")[0].strip() for text in await tiles.all_inner_texts()]
            assert titles == ["web1", "web2", "web3"]
            (fleet_hosts.home("web2") / "go").touch()
            await page.sees("ok", ".badge.ok")
            await page.page.wait_for_function("() => document.querySelectorAll('.tile').length === 2")
            await page.page.click("nav >> text=Panes")
            await page.page.wait_for_function("() => document.querySelectorAll('.tile .badge.running').length === 2")
            await page.sees("web3", ".tile a")
            with running(seats, "--tmux", "--", "sleep 0.1; " + draw):
                await page.page.click("nav >> text=Sessions")
                await page.page.click("tr:has-text('local') a")
                await page.sees_in_pane("up-42\n")
                await page.sees("Read only.")
            assert (page.violations, page.foreign) == ([], [])


async def test_in_a_terminal_t_lists_the_hosts_and_shows_their_output(seats: Seats) -> None:
    with running(seats, "--hosts", ",".join(HOSTS), "--", f"cd {seats.home}; {FAILS_ONCE}"):
        top = seats.take("top", size=(100, 30), settings=SETTINGS)
        await top.on_screen("1 failed")
        top.press("t")
        await top.on_screen("failed", "exit code 3", "running")
        top.press("Enter")
        await top.on_screen("[exit code 3]", "[the end]")
        top.press("Escape")
        await top.on_screen("Enter: output of the first host")
        top.press("Down", "Enter")
        await top.on_screen("begun-2")
        (seats.home / "go").touch()
        await top.on_screen("over-2")
        top.press("Escape")
        await top.on_screen("h: of another one")
        top.press("h")
        await top.on_screen("output of the host named")
        top.enter("nowhere")
        await top.on_screen("this run has no host nowhere")
        top.press("Escape")
        await top.on_screen("h: of another one")
        top.press("Escape")
        await top.until(lambda: "Esc: close" not in top.screen, "the table")
        top.press("q")
        assert await top.ended() == 0


@pytest.mark.parametrize("option", [(), ("--tmux",)])
async def test_in_a_terminal_t_follows_a_command(seats: Seats, option: tuple[str, ...]) -> None:
    command = "echo first-$((1 + 1)); while ! test -e go; do sleep 0.1; done; echo second-$((1 + 1)); sleep 600"
    with running(seats, *option, "--", command):
        top = seats.take("top", size=(100, 30), settings=SETTINGS)
        await top.on_screen("running   run")
        top.press("t")
        await top.on_screen("first-2")
        (seats.home / "go").touch()
        await top.on_screen("second-2")
        top.press("Escape")
        await top.until(lambda: "Esc: close" not in top.screen, "the table")
        top.press("q")
        assert await top.ended() == 0
