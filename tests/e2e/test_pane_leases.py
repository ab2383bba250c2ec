"""A pane that was taken over in a browser is given back when its operator leaves, and kept for a reconnect."""

from __future__ import annotations

import time

import anyio
import pytest
from tests.support.model_server import say
from tests.support.seats import Seats, seats
from tests.support.web_dashboard import Visit, browser, visit, web_program

from harness.live.sessions.pane_leases import LEASE_GRACE

__all__ = ["seats"]

pytestmark = pytest.mark.usefixtures("needs_browser", "needs_tmux")


async def open_pane(page: Visit) -> None:
    await page.page.click("table a")
    await page.sees_in_pane("[harness 0: 0]")


async def test_the_pane_of_an_operator_who_leaves_is_released_and_all_see_it(seats: Seats) -> None:
    seat = seats.take("--tmux", script=[say("hello")], size=(120, 40))
    await seat.on_screen("»", "scripted")
    async with (
        web_program(seats.program, seats.environment, "--name", "anna") as web,
        browser() as chromium,
        visit(chromium, web.invite("vera", "viewer")) as viewer,
    ):
        await open_pane(viewer)
        async with visit(chromium, web.url) as page:
            await open_pane(page)
            await page.page.click("text=Take over")
            await viewer.sees("dashboard: anna has taken over this pane")
        left = time.monotonic()
        await viewer.sees("Read only.")
        assert time.monotonic() - left > LEASE_GRACE / 2
        await viewer.page.click("nav >> text=Audit")
        await viewer.sees("dashboard_release_pane", "td")


async def test_an_operator_who_connects_again_keeps_the_pane_also_after_the_server_was_killed(seats: Seats) -> None:
    seat = seats.take("--tmux", script=[say("hello")], size=(120, 40))
    await seat.on_screen("»", "scripted")
    async with (
        web_program(seats.program, seats.environment, "--name", "anna") as web,
        browser() as chromium,
        visit(chromium, web.url) as page,
    ):
        await open_pane(page)
        await page.page.click("text=Take over")
        await page.sees("You type into this pane")
        await page.page.locator(".xterm-helper-textarea").focus()
        port = web.port
        web.end(kill=True)
        await page.sees("Not connected", "#connection")
        web.start(port)
        await page.page.wait_for_function("() => document.getElementById('connection').textContent === ''")
        await anyio.sleep(LEASE_GRACE + 3)
        await page.sees("You type into this pane")
        await page.page.keyboard.type("echo still-$((40 + 2))")
        await page.page.keyboard.press("Enter")
        await page.sees_in_pane("still-42")
        assert page.foreign == []
