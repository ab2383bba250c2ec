"""Makes the pictures of docs/web.md: real sessions whose model answers by a script, seen in Chromium."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
from tests.support.fleet_hosts import open_fleet_hosts
from tests.support.model_server import call, say
from tests.support.seats import Seats, open_seats
from tests.support.sshd import sshd_maker
from tests.support.web_dashboard import Visit, browser, visit, web_program

MEDIA = Path(__file__).parents[1] / "docs/media"
WIDE = {"width": 1280, "height": 800}
PHONE = {"width": 390, "height": 844}
LOOK = r"""printf '\033[1mservice   state     since\033[0m\n'
printf 'api       \033[32mrunning\033[0m   3 days\n'
printf 'worker    \033[31mfailed\033[0m    2 min\n'
printf 'proxy     \033[32mrunning\033[0m   3 days\n'
"""
HOSTS = [f"web{number}" for number in range(1, 7)]
UPGRADE = r"""case $PWD in *web4) echo "E: dpkg was interrupted" >&2; exit 100 ;; *web5 | *web6) exit ;; esac
for package in base-files libc6 libssl3 openssl curl nginx-common nginx; do
printf 'Setting up \033[1m%s\033[0m ... \033[32mdone\033[0m\n' $package; sleep 0.$(($$ % 6 + 4)); done
printf '\033[33mrestarting nginx\033[0m\n'; sleep 600
"""


def shell(command: str, why: str) -> Any:
    arguments = {"command": command, "why": why, "risk": "low", "mutation": True, "privesc": False}
    return call("run_shell", arguments)


@contextmanager
def upgrade(seats: Seats) -> Iterator[None]:
    """A command on six hosts, each behind its own sshd."""
    with sshd_maker() as make_sshd, open_fleet_hosts(make_sshd, HOSTS) as hosts:
        for name in HOSTS:
            (hosts.home(name) / "upgrade").write_text(UPGRADE)
        argv = [seats.program, *hosts.options, "run", "--tmux", "--hosts", "web[1-6]", "--", "cd; sh upgrade"]
        environment = seats.environment | {"HARNESS_WIDTH": "72", "HARNESS_HEIGHT": "14"}
        with subprocess.Popen(argv, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as run:
            try:
                yield
            finally:
                run.kill()


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
                with upgrade(seats):
                    await page.sees("1 failed", "table")
                    await in_the_session(seat, page, phone)
                    await of_the_run(page, phone)


async def in_the_session(seat: Any, page: Visit, phone: Visit) -> None:
    seat.enter("The worker does not answer. Find out why, and fix it.")
    await page.sees("sh services", ".approval")
    await page.page.click(".approval button.primary")
    await page.sees("restart worker", ".approval")
    await picture(page, "web-sessions")
    await phone.sees("restart worker", ".approval")
    await picture(phone, "web-phone")
    await page.page.click("tr:has-text('agent') a")
    await page.sees_in_pane("worker")
    await page.sees("sh services", ".conversation")
    await picture(page, "web-session")
    await page.page.click(".approval button.primary")
    await page.sees("The worker runs again", ".conversation")
    await page.page.click("nav >> text=Audit")
    await page.sees("dashboard: anna", "td")
    await picture(page, "web-audit")


async def of_the_run(page: Visit, phone: Visit) -> None:
    for one in (page, phone):
        await one.page.click("nav >> text=Sessions")
        await one.page.click("tr:has-text('fleet') a")
        await one.page.wait_for_function("() => document.querySelectorAll('.tile').length === 3")
        await one.sees("restarting nginx", ".tile:last-child")
    await picture(page, "web-fleet")
    await picture(phone, "web-fleet-phone")


async def picture(page: Visit, name: str) -> None:
    await page.page.wait_for_timeout(1500)
    await page.page.screenshot(path=MEDIA / f"{name}.png")


anyio.run(main)
