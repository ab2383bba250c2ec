"""Makes the pictures of docs/web.md: a real session whose model answers by a script, seen in Chromium."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
from tests.support.model_server import call, say
from tests.support.seats import open_seats
from tests.support.web_dashboard import Visit, browser, visit, web_program

MEDIA = Path(__file__).parents[1] / "docs/media"
WIDE = {"width": 1280, "height": 800}
PHONE = {"width": 390, "height": 844}
LOOK = r"""printf '\033[1mservice   state     since\033[0m\n'
printf 'api       \033[32mrunning\033[0m   3 days\n'
printf 'worker    \033[31mfailed\033[0m    2 min\n'
printf 'proxy     \033[32mrunning\033[0m   3 days\n'
"""


def shell(command: str, why: str) -> Any:
    arguments = {"command": command, "why": why, "risk": "low", "mutation": True, "privesc": False}
    return call("run_shell", arguments)


async def main() -> None:
    script = [
        shell("sh services", "see which service fails"),
        shell("echo restart worker >> restarted; sleep 1", "restart the failed worker"),
        say("The worker runs again."),
    ]
    with open_seats() as seats:
        (seats.home / "services").write_text(LOOK)
        seat = seats.take("--tmux", script=script, size=(120, 40), settings='[permissions]\nmode = "ask"\n')
        await seat.on_screen("»", "scripted")
        async with web_program(seats.program, seats.environment, "--name", "anna") as web, browser() as chromium:
            phone_url = web.invite("omar", "operator")
            async with (
                visit(chromium, web.url, viewport=WIDE, device_scale_factor=1.5) as page,
                visit(chromium, phone_url, viewport=PHONE, color_scheme="dark", device_scale_factor=1.5) as phone,
            ):
                seat.enter("The worker does not answer. Find out why, and fix it.")
                await page.sees("sh services", ".approval")
                await page.page.click(".approval button.primary")
                await page.sees("restart worker", ".approval")
                await picture(page, "web-sessions")
                await phone.sees("restart worker", ".approval")
                await picture(phone, "web-phone")
                await page.page.click("table a")
                await page.sees_in_pane("worker")
                await page.sees("sh services", ".conversation")
                await picture(page, "web-session")
                await page.page.click(".approval button.primary")
                await page.sees("The worker runs again", ".conversation")
                await page.page.click("nav >> text=Audit")
                await page.sees("dashboard: anna", "td")
                await picture(page, "web-audit")


async def picture(page: Visit, name: str) -> None:
    await page.page.wait_for_timeout(1500)
    await page.page.screenshot(path=MEDIA / f"{name}.png")


anyio.run(main)
