"""run_shell in a pane, its screen and keyboard, and the sessions and panes themselves: here and behind SSH."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.support.permits import says
from tests.support.shells_everywhere import Place, open_place
from tests.support.toolbox import Toolbox, toolbox

from harness import ExecutionContext, Status, connect
from harness.toolkit import CallOutcome, CallStatus, Registry, Tool, ToolCall
from harness.toolkit.contract import PermissionRequest
from harness.toolkit.interfaces import Verdict
from harness.toolkit.permissions.policy import RulePolicy
from harness.toolkit.permissions.questions import ApprovalScope
from harness_tools import background, terminal
from harness_tools.core import tools as core_tools

pytestmark = pytest.mark.usefixtures("needs_process")

WAIT = 60


def all_tools() -> list[Tool[Any]]:
    return [*core_tools(), *background.tools(), *terminal.tools()]


@pytest.fixture(params=["local+bash", "local+dash", "ssh+bash", "ssh+dash"])
async def place(
    needs_tmux: None, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Place]:
    async with open_place(request.param, monkeypatch) as opened:
        yield opened


@pytest.fixture
async def here(needs_tmux: None, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Place]:
    async with open_place("local+bash", monkeypatch) as opened:
        yield opened


def box_of(ctx: ExecutionContext) -> Toolbox:
    return toolbox(all_tools(), execution=ctx)


async def call(box: Toolbox, name: str, /, **arguments: Any) -> CallOutcome:
    with anyio.fail_after(2 * WAIT):
        return await box.executor.call(ToolCall(name, arguments))


async def facts(box: Toolbox, name: str, /, **arguments: Any) -> dict[str, Any]:
    outcome = await call(box, name, **arguments)
    assert outcome.status is CallStatus.OK, outcome.result.text
    assert isinstance(outcome.result.data, dict)
    return outcome.result.data


async def seen(box: Toolbox, text: str, **arguments: Any) -> str:
    """Wait until it is on a screen."""
    with anyio.fail_after(WAIT):
        while text not in (screen := (await call(box, "capture_pane", delay_ms=50, **arguments)).result.text):
            pass
    return screen


async def test_a_command_in_a_pane_has_its_own_streams_environment_input_and_directory(place: Place) -> None:
    box, home = box_of(place.ctx), place.home
    (home / "sub").mkdir()
    await facts(box, "run_shell", command=f"cd {home}; KEPT=no; export GIVEN=yes")
    text = "pwd; echo $KEPT$GIVEN-$A; cat; printf 'bad\\000\\n' >&2; printf 'no end'; (exit 3)"
    both = await call(
        box, "run_shell", command=text, env={"A": "x y"}, stdin="in\n", tty=False, working_dir=f"{home}/sub"
    )
    assert isinstance(both.result.data, dict)
    assert (both.result.data["stdout"], both.result.data["stderr"], both.result.data["exit_code"]) == (
        f"{home}/sub\nyes-x y\nin\nno end",
        "bad\0\n",
        3,
    )
    after = await facts(box, "run_shell", command="pwd; echo $KEPT$GIVEN-$A", tty=False)
    assert after["stdout"] == f"{home}\nyes-\n"
    many = await place.ctx.run_shell("seq 1 100000; echo bad >&2", tty=False, max_output=1000)
    assert (len(many.stdout_bytes), many.truncated, many.stderr) == (1000, 588_895 - 1000, "bad\n")
    assert many.stdout.startswith("1\n2\n")
    assert many.stdout.endswith("\n100000\n")


async def test_a_command_that_is_left_in_its_pane_goes_on_with_its_streams(place: Place) -> None:
    box = box_of(place.ctx)
    command = "echo so far; echo bad >&2; sleep 4000"
    kept = await facts(box, "run_shell", command=command, timeout_ms=500, on_timeout="background", tty=False)
    assert kept["status"] == "running"
    out = err = ""
    with anyio.fail_after(WAIT):
        while not (out and err):
            part = await facts(box, "bash_output", bash_id=kept["job_id"], wait=WAIT)
            out, err = out + part["stdout"], err + part["stderr"]
    assert (out, err, part["done"]) == ("so far\n", "bad\n", False)
    again = await place.ctx.wait(kept["job_id"], timeout=0.1)
    assert (again.status, again.stdout, again.stderr) == ("running", "so far\n", "bad\n")
    assert (await facts(box, "kill_shell", shell_id=kept["job_id"]))["status"] not in ("running", "unknown")
    assert (await facts(box, "run_shell", command="echo usable"))["stdout"] == "usable\n"


async def test_a_command_that_is_ended_at_its_time_keeps_what_it_wrote(here: Place) -> None:
    box = box_of(here.ctx)
    for tty, streams in ((None, "stdout:\nso far\nbad"), (False, "stdout:\nso far\nstderr:\nbad")):
        command = "echo so far; echo bad >&2; sleep 4000"
        killed = await call(box, "run_shell", command=command, timeout=5, on_timeout="kill", tty=tty)
        assert (killed.status, killed.result.error_code) == (CallStatus.TIMEOUT, "timed_out"), killed.result.text
        assert streams in killed.result.text


async def test_a_job_that_asks_is_seen_and_answered_by_its_id(place: Place) -> None:
    box = box_of(place.ctx)
    job = (await facts(box, "run_shell", command="printf 'Remove it? '; read x; echo you said $x", wait=False))[
        "job_id"
    ]
    assert (await seen(box, "Remove it?", bash_id=job)).rstrip().endswith("Remove it?")
    assert (await facts(box, "bash_output", bash_id=job, wait=WAIT))["stdout"] == "Remove it? "
    typed = await call(box, "send_keys", job_id=job, literal_text="yes <please>", enter=True, why="to answer")
    assert typed.status is CallStatus.OK
    await place.ctx.wait(job, timeout=WAIT)
    assert (await facts(box, "bash_output", bash_id=job))["stdout"].endswith("you said yes <please>\n")
    late = await call(box, "send_keys", bash_id=job, literal_text="rm x", enter=True)
    assert (late.result.error_code, "has ended" in late.result.text) == ("no_pane", True)
    assert "you said yes <please>" in (await call(box, "capture_pane", bash_id=job)).result.text


async def test_a_screen_that_a_program_hides_is_shown_and_without_one_it_is_said(here: Place) -> None:
    box = box_of(here.ctx)
    os.mkfifo(here.home / "gate")
    await facts(box, "run_shell", command="echo on the main screen")
    plain = await call(box, "capture_pane", include_alternate_screen=True)
    assert "on the main screen" in plain.result.text
    assert plain.result.text.endswith("[notice: there is no alternate screen; this is the main screen]")
    command = f"printf '\\033[?1049h\\033[Hfull %s' screen; read x <{here.home}/gate; printf '\\033[?1049l'"
    await facts(box, "run_shell", command=command, wait=1, on_timeout="keep")
    assert "on the main screen" not in await seen(box, "full screen")
    hidden = await call(box, "capture_pane", include_alternate_screen=True)
    assert "on the main screen" in hidden.result.text
    assert "full screen" not in hidden.result.text
    assert "notice" not in hidden.result.text
    (here.home / "gate").write_text("\n")


async def test_a_long_screen_is_cut_at_its_beginning_and_says_so(here: Place) -> None:
    box = box_of(here.ctx)
    await facts(box, "run_shell", command="seq 1 3000")
    shown = (await call(box, "capture_pane", start="-")).result
    assert shown.text.startswith("[... ")
    assert "characters left out" in shown.text.split("\n")[0]
    assert "\n3000\n" in shown.text
    assert len(shown.text) < 8_200


async def test_panes_and_sessions_are_made_listed_and_ended_and_those_in_use_are_protected(place: Place) -> None:
    box = box_of(place.ctx)
    offered = {tool.name for tool in (await box.executor.registry.available(place.ctx)).packs("panes").list()}
    assert offered == {
        *("capture_pane", "send_keys", "tmux_create_pane", "tmux_create_session"),
        *("tmux_kill_pane", "tmux_kill_session", "tmux_list_panes", "tmux_list_sessions"),
    }
    for cwd, code in (("~/nowhere", "file_not_found"), ("/etc/passwd", "not_a_directory")):
        assert (await call(box, "tmux_create_pane", name="build", cwd=cwd)).result.error_code == code
    made = await facts(box, "tmux_create_pane", name="build", cwd="~")
    assert (made["pane"], made["default"]) == ("build", False)
    assert (await facts(box, "run_shell", command="pwd", pane="build"))["stdout"] == f"{place.home}\n"
    listed = await call(box, "tmux_list_panes")
    assert "main (default)" in listed.result.text
    assert "build  %" in listed.result.text
    assert (await call(box, "tmux_create_pane", pane="build")).result.error_code == "pane_exists"
    default = next(pane["pane_id"] for pane in (await facts(box, "tmux_list_panes"))["panes"] if pane["default"])
    for pane in ("main", default):
        refused = (await call(box, "tmux_kill_pane", pane=pane)).result
        assert refused.error_code == "terminal_error"
        assert refused.text == "the default pane is protected; send_keys with C-c stops what runs in it"
    assert (await call(box, "tmux_kill_pane", pane="nowhere")).result.error_code == "pane_gone"
    assert (await call(box, "tmux_kill_pane", pane="build", session="other")).result.error_code == "other_session"
    await facts(box, "tmux_kill_pane", pane="build", session="harness")
    assert "build" not in (await call(box, "tmux_list_panes")).result.text
    too_many = await call(box, "tmux_create_session", session="third")
    assert (too_many.result.error_code, "max_sessions" in too_many.result.text) == ("terminal_error", True)
    async with place.again(max_sessions=3) as roomy:
        await facts(box_of(roomy), "tmux_create_session", session="second")
    assert "second" in (await call(box, "tmux_list_sessions")).result.text
    for session, code in (("harness", "terminal_error"), ("nowhere", "pane_gone")):
        assert (await call(box, "tmux_kill_session", session=session)).result.error_code == code
    await facts(box, "tmux_kill_session", session="second")
    assert [row["session"] for row in (await facts(box, "tmux_list_sessions"))["sessions"]] == ["harness"]
    assert (await facts(box, "run_shell", command="echo usable"))["stdout"] == "usable\n"


async def test_a_hostile_name_is_refused(here: Place) -> None:
    box = box_of(here.ctx)
    for name in ("x;kill-server", "a b", "-t", "=main", "%1", "a:b", "é", "x" * 65, "a\nb", "#{x}", "../x", "a.b"):
        for tool in ("tmux_create_pane", "tmux_create_session"):
            outcome = await call(box, tool, name=name)
            assert outcome.result.error_code in ("invalid_args", "terminal_error"), (name, tool, outcome.result)
    assert len((await facts(box, "tmux_list_panes"))["panes"]) == 1
    assert len((await facts(box, "tmux_list_sessions"))["sessions"]) == 1


async def test_the_pane_that_the_context_uses_is_protected(here: Place) -> None:
    async with connect("local:", tmux=True, pane="mine", config=here.config) as mine:
        box = box_of(mine)
        ids = {pane["pane"]: pane["pane_id"] for pane in (await facts(box, "tmux_list_panes"))["panes"]}
        for name in ("mine", ids["mine"]):
            assert (await call(box, "tmux_kill_pane", pane=name)).result.error_code == "pane_in_use"


async def test_keys_for_a_job_are_judged_by_what_reads_them_in_its_pane(here: Place) -> None:
    approver = says(ApprovalScope.ONCE)
    box = box_of(here.ctx)
    services = replace(box.executor.services, policy=RulePolicy(approver=approver))
    careful = replace(box, executor=replace(box.executor, services=services))
    asking = "printf 'Password: '; stty -echo; read x; stty echo; echo thanks"
    job = (await facts(box, "run_shell", command=asking, wait=False))["job_id"]
    await seen(box, "Password:", bash_id=job)
    assert (await call(careful, "send_keys", bash_id=job, literal_text="hunter3", enter=True)).status is CallStatus.OK
    assert len(approver.questions) == 1
    assert "secret" in approver.questions[0].what
    assert "hunter3" not in str([approver.questions, careful.ledger.begun])
    await here.ctx.wait(job, timeout=WAIT)
    gone = await call(careful, "send_keys", bash_id=job, literal_text="rm x", enter=True)
    assert (gone.result.error_code, len(approver.questions)) == ("no_pane", 2)


async def test_without_a_terminal_there_are_no_such_tools(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    async with connect("local:") as ctx:
        offered = {tool.name for tool in (await Registry(all_tools()).available(ctx)).list()}
        assert not any(name.startswith("tmux_") or name in ("capture_pane", "send_keys") for name in offered)
        box = box_of(ctx)
        job = (await facts(box, "run_shell", command="sleep 4000", wait=False))["job_id"]
        for tool in ("tmux_list_panes", "tmux_list_sessions"):
            assert (await call(box, tool)).result.error_code == "unsupported_operation"
        for tool in ("capture_pane", "send_keys"):
            more = {"enter": True} if tool == "send_keys" else {}
            assert (await call(box, tool, bash_id=job, **more)).result.error_code == "no_pane"
        assert (await call(box, "run_shell", command="x", tty=True)).result.error_code == "unsupported_operation"
        await ctx.kill(job)


async def test_keys_that_wait_are_judged_again_before_they_are_typed(here: Place) -> None:
    answers = [True, False, True, True]

    def answer(request: PermissionRequest) -> Verdict:
        return Verdict(not answers or answers.pop(0), "somebody types there", "a rule")

    box = toolbox(all_tools(), execution=here.ctx, answer=answer)
    denied = (await call(box, "send_keys", literal_text="echo first", delay_ms=1)).result
    assert denied.error_code == "denied"
    assert "somebody types there" in denied.text
    assert (await call(box, "send_keys", literal_text="echo second", delay_ms=1)).status is CallStatus.OK
    assert answers == []
    assert "echo first" not in await seen(box, "echo second")


@pytest.mark.usefixtures("needs_tmux")
@pytest.mark.parametrize("shell", ["bash", "dash"])
async def test_where_somebody_removed_the_logs_of_panes_commands_end_as_they_did_and_it_is_told(
    shell: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_place(f"local+{shell}", monkeypatch) as place:
        done = await facts(box_of(place.ctx), "run_shell", command="echo before", run_in_background=True)
        await place.ctx.wait(done["job_id"], timeout=WAIT)
        state = Path(os.environ["XDG_STATE_HOME"])
        for log in state.glob("harness/panes/*/log.*"):
            log.unlink()
        async with place.again(prompt_timeout=1.0) as other:
            for _ in range(2):
                found = await other.run_shell("echo after; (exit 3)", timeout=WAIT)
                assert (found.status, found.exit_code, found.stdout) == (Status.COMPLETED, 3, "after\n"), found
            read = await call(box_of(other), "bash_output", bash_id=done["job_id"])
            assert isinstance(read.result.data, dict)
            assert (read.result.data["stdout"], read.result.data["gone"]) == ("", True)
            assert "removed or truncated" in read.result.text
        again = await place.ctx.run_shell("echo still; (exit 4)", timeout=WAIT)
        assert (again.exit_code, again.stdout) == (4, "still\n"), again


@pytest.mark.usefixtures("needs_tmux")
@pytest.mark.parametrize("kind", ["local+bash", "local+bash+plain"])
async def test_a_pane_whose_oldest_logs_were_cleaned_away_goes_on_in_its_newest_one(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_place(kind, monkeypatch) as place:
        await place.ctx.run_shell("true", timeout=WAIT)
        (folder,) = (Path(os.environ["XDG_STATE_HOME"]) / "harness" / "panes").iterdir()
        (folder / "log.9").write_bytes(b"")  # as it is after hundreds of megabytes
        (folder / "log.0").rename(folder / "log.10")
        async with place.again() as other:
            found = await other.run_shell("echo after; (exit 3)", timeout=WAIT)
            assert (found.status, found.exit_code, found.stdout) == (Status.COMPLETED, 3, "after\n"), found
        async with connect(place.target, config=place.config) as reader:  # which has the log alone
            assert (await reader.read_job(found.job_id or "")).stdout.data == b"after\n"
