"""``fetch_url`` by targets with a terminal: beside the pane, here and over SSH."""

from __future__ import annotations

import anyio
from tests.support.desk import Desk, desk, everywhere, open_desk
from tests.support.toolbox import toolbox
from tests.support.web_servers import Reply, redirect, web_server

from harness.toolkit import ToolCall
from harness_tools.web import tools

__all__ = ["desk", "open_desk"]

HTML = {"Content-Type": "text/html; charset=utf-8"}


@everywhere
async def test_a_target_fetches_beside_its_pane(desk: Desk) -> None:
    executor = toolbox(tools(), execution=desk.ctx).executor
    long = "".join(f"<p>line {number} é</p>" for number in range(20_000)).encode()
    pages = {
        "/moved": redirect("/page"),
        "/page": Reply("<title>T</title><h1>Hello é</h1>".encode(), headers=HTML),
        "/long": Reply(long, headers=HTML),
        "/bytes": Reply(b"\x00\x01", headers={"Content-Type": "text/plain"}),
    }
    with web_server(pages) as server, anyio.fail_after(90):
        before = await desk.ctx.capture_pane()
        page = await executor.call(ToolCall("fetch_url", {"url": server.url("/moved"), "via": "target"}))
        assert "# Hello é" in page.result.text, page.result.text
        raw = await executor.call(ToolCall("fetch_url", {"url": server.url("/long"), "via": "target", "format": "raw"}))
        assert isinstance(raw.result.data, dict)
        assert (raw.result.data["bytes"], raw.result.data["truncated"]) == (len(long), False)
        odd = await executor.call(ToolCall("fetch_url", {"url": server.url("/bytes"), "via": "target"}))
        assert odd.result.error_code == "not_text"
        assert await desk.ctx.capture_pane() == before
