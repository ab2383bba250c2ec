"""The dashboard in a real browser: real harness processes, and a model that answers by a script."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest
from tests.support.model_server import Answer, call, say
from tests.support.seats import Seats, seats
from tests.support.web_dashboard import axe_source, browser, visit, web_program

__all__ = ["seats"]

pytestmark = pytest.mark.usefixtures("needs_browser", "needs_tmux")


def shell(command: str, **more: Any) -> Answer:
    why = {"why": "to see", "risk": "low", "mutation": True, "privesc": False}
    return call("run_shell", {"command": command, **why, **more})


async def test_a_call_is_approved_and_its_output_is_seen_live(seats: Seats) -> None:
    seat = seats.take("--tmux", script=[shell("echo one-$((40 + 2)) > one; cat one"), say("all done")], size=(120, 40))
    await seat.on_screen("»", "scripted")
    async with (
        web_program(seats.program, seats.environment) as web,
        browser() as chromium,
        visit(chromium, web.url) as page,
    ):
        await page.sees("local", "table")
        await page.page.click("table a")
        await page.sees("Take over")
        seat.enter("go")
        await page.sees("waits for approval", ".approval")
        assert not (seats.home / "one").exists()
        await page.page.click(".approval button.primary")
        await page.sees_in_pane("one-42")
        await page.sees("all done", ".conversation")
        assert (page.violations, page.foreign) == ([], [])


async def test_calls_are_changed_and_denied_and_the_audit_names_who_did(seats: Seats) -> None:
    script = [shell("touch one"), shell("touch two"), say("all done")]
    seat = seats.take("--tmux", script=script, size=(120, 40))
    await seat.on_screen("»", "scripted")
    async with (
        web_program(seats.program, seats.environment, "--name", "anna") as web,
        browser() as chromium,
        visit(chromium, web.url) as page,
    ):
        seat.enter("go")
        await page.sees("touch one", ".approval")  # on the overview
        session = await page.page.get_attribute("table a", "href")
        await page.page.click("table a")
        await page.sees("touch one", "details.call")
        await page.page.click(".approval summary")
        await page.page.fill(".approval textarea", "touch edited")
        await page.page.click("text=Approve this instead")
        await page.sees("touch two", ".approval")
        assert (seats.home / "edited").exists()
        await page.page.click(".approval button.danger >> nth=0")
        await seat.sees("all done")
        assert not (seats.home / "one").exists()
        assert not (seats.home / "two").exists()
        await page.sees("failed: denied", "details.call")
        await page.sees("touch one done", "details.call summary")
        assert await page.page.locator("details.call").count() == 2
        await page.page.click("nav >> text=Audit")
        await page.sees("dashboard: anna", "td")
        await page.page.fill("#audit-text", "touch edited")
        await page.page.click("text=Search")
        await page.sees("1 call", "[role=status]")
        await page.page.click("td button")
        await page.sees("as dashboard: anna changed it", "dd")
        await page.page.evaluate("fragment => { location.hash = fragment }", session)
        await page.sees("all done", ".conversation")
        stored = await page.page.locator("details.call summary").all_inner_texts()
        assert [text.strip() for text in stored] == ["run_shell touch one", "run_shell touch two"]  # one was denied
        assert (page.violations, page.foreign) == ([], [])


async def test_a_pane_is_taken_over_and_given_back_while_a_viewer_watches(seats: Seats) -> None:
    seat = seats.take("--tmux", script=[say("hello"), say("again")], size=(120, 40))
    await seat.on_screen("»", "scripted")
    async with web_program(seats.program, seats.environment, "--name", "anna") as web, browser() as chromium:
        viewer_url = web.invite("vera", "viewer")
        async with visit(chromium, web.url) as page, visit(chromium, viewer_url) as viewer:
            for one in (page, viewer):
                await one.page.click("table a")
                await one.sees_in_pane("[harness 0: 0]")
            await viewer.sees("Read only.")
            assert await viewer.page.locator("text=Take over").count() == 0
            await page.page.click("text=Take over")
            await page.sees("You type into this pane")
            await viewer.sees("dashboard: anna has taken over this pane")
            await viewer.page.locator(".xterm-helper-textarea").focus()
            await viewer.page.keyboard.type("echo typed by the viewer")
            await page.page.locator(".xterm-helper-textarea").focus()
            await page.page.keyboard.type("echo $((40 + 2)) > typed; echo seen-$((1 + 1))")
            await page.page.keyboard.press("Enter")
            for one in (page, viewer):
                await one.sees_in_pane("seen-2")
            assert (seats.home / "typed").read_text() == "42\n"
            assert "by the viewer" not in await page.screen()
            await page.page.click("text=Give it back")
            await viewer.sees("Read only.")
            await page.page.locator(".xterm-helper-textarea").focus()
            await page.page.keyboard.type("echo too late")
            await page.page.click("text=Resume")
            await page.sees("idle", ".badge")
            assert "too late" not in await page.screen()
            assert (page.violations, viewer.violations, page.foreign, viewer.foreign) == ([], [], [], [])


async def test_a_late_answer_and_a_lost_session_are_shown(seats: Seats) -> None:
    script = [shell("touch one"), say("all done"), shell("touch two"), say("all done again")]
    seat = seats.take("--tmux", script=script, size=(120, 40))
    await seat.on_screen("»", "scripted")
    async with (
        web_program(seats.program, seats.environment, "--name", "anna") as web,
        browser() as chromium,
        visit(chromium, web.url) as anna,
        visit(chromium, web.invite("omar", "operator")) as omar,
    ):
        seat.enter("go")
        await omar.sees("touch one", ".approval")
        deny = await omar.page.query_selector(".approval button.danger")
        assert deny is not None
        await anna.page.click("table a")
        await anna.sees("touch one", ".approval")
        cancel = await anna.page.query_selector(".head button.danger")
        assert cancel is not None
        await anna.page.click(".approval button.primary")
        await seat.sees("all done")
        await deny.evaluate("button => button.click()")  # as one that was pressed a moment too late
        await omar.sees("Deny: this approval request is over", "#notice")
        await omar.page.click("#notice button")
        assert await omar.page.inner_text("#notice") == ""
        seat.press("Enter")  # keys for a question that was answered elsewhere are dropped until a pause, or Enter
        seat.enter("next")
        await anna.sees("touch two", ".approval")
        await cancel.evaluate("button => button.click()")  # it was for the turn before
        await anna.sees("Cancel the turn: that turn has ended; nothing was cancelled", "#notice")
        await anna.page.click(".approval button.primary")
        await seat.sees("all done again")
        await anna.page.click("text=Take over")
        await anna.sees("You type into this pane")
        await omar.page.click("table a")
        await omar.sees("dashboard: anna has taken over this pane")
        seat.signal("SIGKILL")
        for one in (anna, omar):
            await one.sees("lost", ".badge")
            await one.sees("Read only.")
            assert "anna has taken over" not in await one.page.inner_text(".head")
            assert (one.violations, one.foreign) == ([], [])
        an_hour_ahead = """() => import("./dom.js").then((dom) => {
            dom.setClock(Date.now() / 1000 - 3600);
            return [dom.since(Date.now() / 1000 - 3605), dom.visible("a\u202eb")];
        })"""
        assert await omar.page.evaluate(an_hour_ahead) == ["5 s", "a\\u202eb"]


CLICK_ON_NEXT = """([x, y]) => new MutationObserver((_, observer) => {
    if (!document.querySelector(".approval")?.innerText.includes("touch two")) return;
    observer.disconnect();
    requestAnimationFrame(() => {
        const button = [...document.querySelectorAll(".approval button")].find((one) => {
            const box = one.getBoundingClientRect();
            return box.left <= x && x <= box.right && box.top <= y && y <= box.bottom;
        });
        window.below = button?.textContent;
        const hit = document.elementFromPoint(x, y);
        hit.click(); // as the mouse does
        window.clicked = hit.closest("button")?.textContent ?? "nothing";
    });
}).observe(document.body, { childList: true, subtree: true })"""
"""Clicks on a place as soon as the second call is shown there."""


async def test_a_second_click_does_not_approve_the_call_that_came_under_the_mouse(seats: Seats) -> None:
    seat = seats.take("--tmux", script=[shell("touch one"), shell("touch two"), say("all done")], size=(120, 40))
    await seat.on_screen("»", "scripted")
    async with (
        web_program(seats.program, seats.environment) as web,
        browser() as chromium,
        visit(chromium, web.url) as page,
    ):
        seat.enter("go")
        await page.sees("touch one", ".approval")
        approve = page.page.locator(".approval button.primary >> nth=0")
        box = await approve.bounding_box()
        assert box is not None
        await page.page.evaluate(CLICK_ON_NEXT, [box["x"] + box["width"] / 2, box["y"] + box["height"] / 2])
        await approve.click()
        await page.page.wait_for_function("() => window.clicked")
        assert await page.page.evaluate("[window.below, window.clicked]") == ["Approve", "nothing"]
        await approve.click()  # once it takes clicks
        await seat.sees("all done")
        assert (seats.home / "two").exists()
        same_node = """() => import("./dom.js").then(({ reconcile }) => {
            const list = document.body.appendChild(document.createElement("div"));
            const build = () => document.createElement("button");
            const draw = (...keys) => reconcile(list, keys.map((key) => [key, 1]), build);
            draw("a", "b");
            list.lastChild.focus();
            draw("b");
            return document.activeElement.dataset.key;
        })"""
        assert await page.page.evaluate(same_node) == "b"  # its focus survives the end of the one before it


async def test_a_killed_server_is_reconnected_to_with_the_same_login(seats: Seats) -> None:
    seat = seats.take("--tmux", script=[shell("echo back-$((40 + 2)) > back; cat back"), say("done")], size=(120, 40))
    await seat.on_screen("»", "scripted")
    async with (
        web_program(seats.program, seats.environment) as web,
        browser() as chromium,
        visit(chromium, web.url) as page,
    ):
        await page.page.click("table a")
        await page.sees_in_pane("[harness 0: 0]")
        port = web.port
        web.end(kill=True)
        await page.sees("Not connected", "#connection")
        seat.enter("go")
        web.start(port)
        await page.sees("waits for approval", ".approval")
        await page.page.click(".approval button.primary")
        await page.sees_in_pane("back-42")
        assert await page.page.inner_text("#connection") == ""
        assert page.foreign == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_everyone_can_use_it(seats: Seats, scheme: str) -> None:
    """axe-core finds nothing moderate or serious, on a wide screen and on a phone; nothing is wider than the phone."""
    seat = seats.take("--tmux", script=[shell("touch one"), say("done")], size=(120, 40))
    await seat.on_screen("»", "scripted")
    options: dict[str, Any] = {"color_scheme": scheme, "viewport": {"width": 390, "height": 844}}
    async with (
        web_program(seats.program, seats.environment) as web,
        browser() as chromium,
        visit(chromium, web.url, **options) as page,
    ):
        seat.enter("go")
        await page.sees("waits for approval", ".approval")
        link = await page.page.get_attribute("table a", "href")
        await page.page.evaluate(axe_source())
        for fragment in ("#/", link, "#/panes", "#/audit", "#/recordings"):
            await page.page.evaluate("fragment => { location.hash = fragment }", fragment)
            await page.page.wait_for_timeout(1500)
            for width in (390, 1280):
                await page.page.set_viewport_size({"width": width, "height": 844})
                found = await page.page.evaluate("axe.run({ resultTypes: ['violations'] })")
                serious = [
                    (one["id"], one["impact"], [node["html"][:200] for node in one["nodes"]])
                    for one in found["violations"]
                    if one["impact"] in ("moderate", "serious", "critical")
                ]
                assert serious == [], (fragment, width)
                wide = await page.page.evaluate("document.documentElement.scrollWidth")
                assert wide <= width, (fragment, width)
        assert page.foreign == []


async def test_a_call_is_approved_with_the_keyboard_alone(seats: Seats) -> None:
    seat = seats.take("--tmux", script=[shell("touch one"), say("all done")], size=(120, 40))
    await seat.on_screen("»", "scripted")
    async with (
        web_program(seats.program, seats.environment) as web,
        browser() as chromium,
        visit(chromium, web.url) as page,
    ):
        seat.enter("go")
        await page.sees("waits for approval", ".approval")
        await page.sees("A call waits for approval", "#announcements")
        for _ in range(40):
            await page.page.keyboard.press("Tab")
            if await page.page.evaluate("document.activeElement.textContent") == "Approve":
                break
        await page.page.keyboard.press("Enter")
        await seat.sees("all done")
        assert (seats.home / "one").exists()


async def test_a_recording_is_played(seats: Seats) -> None:
    command = "printf 'first \\033[31mred\\033[0m\\n'; sleep 1; echo last"
    argv = [seats.program, "run", "--tmux", "--record", "--", "sh", "-c", command]
    done = subprocess.run(argv, env=seats.environment, cwd=seats.home, capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr
    async with (
        web_program(seats.program, seats.environment) as web,
        browser() as chromium,
        visit(chromium, web.url) as page,
    ):
        await page.page.click("nav >> text=Recordings")
        await page.page.click("table a")
        await page.sees_in_pane("last")
        await page.page.click("text=Play")
        await page.page.click(".marks button >> nth=0")
        await page.sees("of", "[role=status]")
        await page.page.click("text=Speed")
        await page.sees_in_pane("first red")
        assert (page.violations, page.foreign) == ([], [])


async def test_a_background_job_is_followed_and_killed(seats: Seats) -> None:
    command = "touch one; while :; do echo still here; sleep 0.2; done"
    script = [shell(command, wait=False), say("it runs")]
    seat = seats.take(script=script, size=(120, 40))
    await seat.on_screen("»", "scripted")
    async with (
        web_program(seats.program, seats.environment) as web,
        browser() as chromium,
        visit(chromium, web.url) as page,
    ):
        seat.enter("go")
        await page.page.click(".approval button.primary")
        await seat.sees("it runs")
        await page.page.click("table a")
        await page.page.click("text=List all")
        await page.page.click(".job >> text=Output")
        await page.sees("still here", ".output")
        await page.page.click(".job >> text=Kill")
        await page.sees("complete", "[role=status]")
        await page.page.click("text=List all")
        await page.sees("ended", ".job")
        assert (page.violations, page.foreign) == ([], [])


async def test_without_a_login_the_page_says_how_to_log_in(seats: Seats) -> None:
    async with web_program(seats.program, seats.environment) as web, browser() as chromium:
        async with visit(chromium, web.base) as stranger:
            await stranger.sees("harness web invite")
        async with visit(chromium, web.url) as page:
            await page.sees("No session runs")
            async with visit(chromium, web.url) as late:
                await late.sees("this link was used before")
            await page.page.click("text=Log out")
            await page.sees("You are not logged in here")
            await page.page.reload()
            await page.sees("You are not logged in here")
