"""The tools for reports where a terminal is, here and over SSH."""

from __future__ import annotations

from typing import Any

import anyio
from tests.support.desk import Desk, desk, everywhere, open_desk
from tests.support.toolbox import toolbox

from harness.toolkit import ToolCall
from harness_tools.dev import tools

__all__ = ["desk", "open_desk"]

BUILD = r"printf '\033[1ma.c:1:2: \033[31merror:\033[0m no\n'; echo 'b.c:3: warning: perhaps' >&2; exit 2"
MARKERS = "<<<<<<< a\nx\n=======\ny\n>>>>>>> b\n"


@everywhere
async def test_reports_are_the_same_in_a_terminal_and_over_ssh(desk: Desk) -> None:
    made = toolbox(tools(), execution=desk.ctx)

    async def call(name: str, **arguments: Any) -> Any:
        outcome = await made.executor.call(ToolCall(name, arguments))
        assert not outcome.result.is_error, outcome.result.text
        return outcome.result.data

    with anyio.fail_after(110):
        for tty in (None, False):
            job = await desk.ctx.run_shell(f"({BUILD})", tty=tty)
            found = await call("errs", job_id=job.job_id)
            assert [(one["file"], one["line"], one["severity"]) for one in found["errors"]] == [
                ("a.c", 1, "error"),
                ("b.c", 3, "warning"),
            ]
            assert found["notices"] == [f"job {job.job_id} ended with exit code 2"]
        await desk.ctx.write_file(f"{desk.home}/a.json", '[{"n": 1}, {"n": 2}]')
        await desk.ctx.write_file(f"{desk.home}/merged", MARKERS)
        steps = [{"op": "sort_by", "key": "n", "desc": True}, {"op": "format", "template": "n={n}"}]
        for source in ({"exec": "cat ~/a.json; echo beside >&2"}, {"file": "~/a.json"}):
            assert (await call("transform", pipeline=steps, **source))["result"] == ["n=2", "n=1"]
        assert (await call("conflicts", file="~/merged"))["files"][0]["conflicts"][0]["theirs"] == "y"
