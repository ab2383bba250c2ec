"""``--tmux current`` and ``harness lend``: any pane of the operator's own tmux is read, lent ones are typed into."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import stat
import struct
import subprocess
import termios
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.support.desk import until
from tests.support.operator_tmux import OperatorTmux, operator_tmux
from tests.support.permits import says
from tests.support.program import Program
from tests.support.toolbox import toolbox

from harness import ExecutionContext, connect
from harness.errors import PaneBusy, PaneGone, TerminalError, UnsupportedOperation
from harness.toolkit import CallOutcome, CallStatus, ToolCall
from harness.toolkit.permissions.policy import RulePolicy
from harness.toolkit.permissions.questions import ApprovalScope
from harness.toolkit.permissions.rules.settings import Mode, PermissionSettings
from harness_backends.tmux.operator_panes import server as operator_server
from harness_backends.tmux.operator_panes import terminal as operator_terminal
from harness_backends.tmux.operator_panes.server import parse_rows, rows_format
from harness_tools import terminal
from harness_tools.core import tools as core_tools


@pytest.fixture
def own(needs_tmux: None, program: Program, monkeypatch: pytest.MonkeyPatch) -> Iterator[OperatorTmux]:
    """The operator's tmux; this process is as one in its first pane."""
    with operator_tmux(program) as opened:
        for name, value in (program.environ | opened.environ()).items():
            monkeypatch.setenv(name, value)
        yield opened


@asynccontextmanager
async def current(pane: str | None = None) -> AsyncIterator[ExecutionContext]:
    async with connect("local:", tmux="current", pane=pane) as ctx:
        yield ctx


def lends(own: OperatorTmux) -> list[Path]:
    return sorted((own.program.home / "state/harness/lent-panes").glob("*.json"))


def at_prompt(own: OperatorTmux, pane: str) -> bool:
    return own.screen(pane).rstrip().endswith(("#", "$"))


async def test_the_operator_lends_a_pane_lists_it_and_takes_it_back(own: OperatorTmux) -> None:
    pane, other = own.open("cat"), own.open("cat")
    form = "#{pane_title} #{window_layout} #{pane_input_off}"
    before = own.tmux("show-options", "-p", "-t", pane), own.show(pane, form)
    assert await own.types("lend") == (0, "harness: no pane is lent\n")
    code, said = await own.types("lend", pane, "%99")
    assert (code, said.splitlines()[0]) == (1, f"harness: pane {pane} (work:1.0, cat): lent until ended")
    code, said = await own.types("lend", pane, "--for", "30m")
    assert (code, said) == (0, f"harness: pane {pane} (work:1.0, cat): lent for 30 min (before: lent until ended)\n")
    assert [stat.S_IMODE(path.stat().st_mode) for path in (*lends(own), lends(own)[0].parent)] == [0o600, 0o700]
    code, said = await own.types("--json", "lend")
    assert [(one["pane_id"], one["lent"]) for one in json.loads(said)] == [(pane, True)]
    code, said = await own.types("--tmux", "current", "keys", "--pane", "work:1.0", "--text", "typed; here;", "--enter")
    assert (code, said) == (0, "")
    await until(lambda: own.screen(pane).count("typed; here;") == 2)
    assert own.tmux("list-buffers") == ""
    assert (own.tmux("show-options", "-p", "-t", pane), own.show(pane, form)) == before
    code, said = await own.types("--tmux", "current", "capture")  # the only one that is lent
    assert (code, said.count("typed; here;")) == (0, 2)
    code, said = await own.types("--tmux", "current", "keys", "--pane", other, "x")
    assert (code, f"nothing was typed into pane {other} (work:2.0): it is not lent" in said) == (1, True)
    code, said = await own.types("lend", "--end")
    assert (code, said, lends(own)) == (0, f"harness: pane {pane} (work:1.0, cat): not lent\n", [])
    assert await own.types("lend", "--end") == (0, "harness: no pane is lent\n")
    asked = {"_HARNESS_COMPLETE": "zsh_complete", "COMP_LINE": "harness lend "}
    completed = own.program.run(**asked, **own.environ()).stdout.decode().split()
    assert completed[1::3] == [own.shell, pane, other]
    code, said = await own.types("--tmux", "current", "run", "echo $0; pwd")
    assert (code, said.splitlines()[-1]) == (0, os.getcwd())
    code, said = await own.types("--tmux", "current", "--pane", other, "run", "true")
    assert (code, "no command runs in a pane of your own tmux" in said) == (125, True)


async def test_only_an_operator_at_a_pane_that_is_not_lent_can_lend(own: OperatorTmux) -> None:
    lent, other = own.open("bash --norc"), own.open("cat")
    program, inside = own.program, own.environ()
    with open(own.show(own.shell, "#{pane_tty}"), "rb") as keyboard:  # noqa: ASYNC230  # as an agent's program may do
        opened = subprocess.run(
            [program.path, "lend", other],
            stdin=keyboard,
            capture_output=True,
            start_new_session=True,
            env=program.environ | inside,
            timeout=30,
        )
    for refused in (opened, program.run("lend", other, **inside)):
        assert (refused.returncode, b"only an operator can lend a pane" in refused.stderr) == (1, True)
    own.press(own.shell, f"script -qec '{program.path} lend {other}' /dev/null; echo code $?")  # a terminal of its own
    await until(lambda: "code 1" in own.screen(own.shell), timeout=30)
    assert (await own.types("lend", lent))[0] == 0
    code, said = await own.types("lend", other, pane=lent)
    assert (code, "this pane is lent, so an agent may have typed this" in said, len(lends(own))) == (1, True, 1)
    outside = program.run("lend")
    assert (outside.returncode, b"needs a terminal inside tmux" in outside.stderr) == (125, True)
    with pytest.raises(UnsupportedOperation, match="has no pane of another target"):
        async with connect("ssh://nowhere.invalid", tmux="current"):
            pass
    (program.home / "harness.toml").write_text('tmux = "current"\n')
    project = program.run("panes", **inside)
    assert (project.returncode, b"this directory is not trusted" in project.stderr) == (125, True)


async def test_a_lend_ends_with_the_panes_program_and_with_the_server(own: OperatorTmux) -> None:
    pane = own.open("cat")
    assert (await own.types("lend", pane))[0] == 0
    async with current() as ctx:
        await ctx.send_keys(literal_text=b"first\0\xff", enter=True, pane=pane)
        await until(lambda: "first" in own.screen(pane))
        own.tmux("respawn-pane", "-k", "-t", pane, "cat")
        with pytest.raises(TerminalError, match="it is not lent"):
            await ctx.send_keys("x", pane=pane)
    assert (await own.types("lend", pane))[0] == 0
    shell, server = own.shell, own.show(pane, "#{pid}")
    own.tmux("kill-server")
    await until(lambda: not Path(f"/proc/{server}").exists())
    own.start()
    assert (own.open("cat"), own.shell) == (pane, shell)
    with pytest.raises(TerminalError, match="was restarted after this terminal was opened"):
        async with current():
            pass
    os.environ["TMUX"] = own.environ()["TMUX"]
    async with current() as ctx:
        with pytest.raises(TerminalError, match="it is not lent"):
            await ctx.send_keys("x", pane=pane)
        with pytest.raises(PaneGone):
            await ctx.capture_pane(pane="%77")
    assert "x" not in own.screen(pane)


async def test_a_lend_may_have_a_time(own: OperatorTmux) -> None:
    pane = own.open("cat")
    assert (await own.types("lend", pane, "--for", "1h"))[0] == 0
    file = lends(own)[0]
    async with current() as ctx:
        assert [one.lent for one in await ctx.list_panes() if one.pane_id == pane] == [True]
        file.write_text(json.dumps(json.loads(file.read_text()) | {"until": 1.0}))
        with pytest.raises(TerminalError, match="it is not lent"):
            await ctx.send_keys("x", pane=pane)
        file.write_text(json.dumps(json.loads(file.read_text()) | {"until": None}))
        await ctx.send_keys("x", pane=pane)
        file.chmod(0o666)
        with pytest.raises(TerminalError, match="it is not lent"):
            await ctx.send_keys("x", pane=pane)


async def test_a_pane_that_changes_before_the_keys_arrive_is_never_typed_into(
    own: OperatorTmux, monkeypatch: pytest.MonkeyPatch
) -> None:
    pane = own.open("cat")
    assert (await own.types("lend", pane))[0] == 0
    run = operator_server.run_tmux

    async def run_late(socket: str, commands: tuple[tuple[str, ...], ...], *more: object) -> str:
        if any("paste-buffer" in word for command in commands for word in command):
            own.tmux("respawn-pane", "-k", "-t", pane, "cat")
        return await run(socket, commands, *more)  # type: ignore[arg-type]  # as it was called

    monkeypatch.setattr(operator_server, "run_tmux", run_late)
    async with current() as ctx:
        with pytest.raises(PaneGone, match="has changed; nothing was done"):
            await ctx.send_keys(literal_text="rm -rf precious", enter=True, pane=pane)
    assert "precious" not in own.screen(pane)
    assert own.tmux("list-buffers") == ""


async def test_no_password_is_typed_and_no_locked_pane_nor_the_own_one(own: OperatorTmux) -> None:
    pane, locked = own.open("bash --norc"), own.open("cat")
    code, said = await own.types("lend", pane, locked, own.shell)
    assert (code, len(lends(own))) == (0, 3), said
    own.press(pane, "read -rsp 'Say it: ' x; echo got $x")
    await until(lambda: own.screen(pane).rstrip().endswith("Say it:"))
    own.tmux("select-pane", "-d", "-t", locked)
    async with current() as ctx:
        with pytest.raises(TerminalError, match="hides what is typed, as for a password"):
            await ctx.send_keys(literal_text="hunter2", enter=True, pane=pane)
        await ctx.send_keys("C-c", pane=pane)
        await until(lambda: at_prompt(own, pane))
        with pytest.raises(TerminalError, match="its keyboard is locked"):
            await ctx.send_keys("x", pane=locked)
        with pytest.raises(TerminalError, match="harness itself runs there"):
            await ctx.send_keys("y", pane=own.shell)
        for refused in (
            ctx.create_pane("a"),
            ctx.kill_pane(pane),
            ctx.run_shell("true", pane=pane),
            ctx.list_sessions(),
        ):
            with pytest.raises(UnsupportedOperation):
                await refused
        assert (await ctx.run_shell("echo $((1 + 1))")).stdout == "2\n"
        assert (ctx.has_terminal, ctx.has_panes) == (False, True)
    assert "hunter2" not in own.screen(pane)


@contextmanager
def attached(own: OperatorTmux) -> Iterator[int]:
    """Attach a client, and give its keyboard."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("HHHH", 21, 100, 0, 0))
    argv = ["tmux", "-S", str(own.socket), "attach"]
    client = subprocess.Popen(
        argv, stdin=theirs, stdout=theirs, stderr=theirs, env=own.program.environ, start_new_session=True
    )
    try:
        yield ours
    finally:
        client.terminate()
        client.wait(20)
        os.close(ours)
        os.close(theirs)


async def test_harness_does_not_type_while_an_operator_does(own: OperatorTmux, monkeypatch: pytest.MonkeyPatch) -> None:
    pane = own.open("cat")
    assert (await own.types("lend", pane))[0] == 0
    own.tmux("select-window", "-t", "work:1")
    with attached(own) as keyboard:
        await until(lambda: own.tmux("list-clients"))
        pressed = time.monotonic()
        os.write(keyboard, b"mine")
        await until(lambda: "mine" in own.screen(pane))
        async with current() as ctx:
            with monkeypatch.context() as patch:
                patch.setattr(operator_terminal, "QUIET_SECONDS", 60.0)  # a busy machine may need 2 s until here
                with pytest.raises(PaneBusy, match="an operator pressed a key there"):
                    await ctx.send_keys("x", pane=pane)
            with anyio.fail_after(20):
                while not await typed(ctx, pane):
                    pass
            assert time.monotonic() - pressed > 0.9  # tmux tells of keys in whole seconds
        await until(lambda: "minex" in own.screen(pane))


async def typed(ctx: ExecutionContext, pane: str) -> bool:
    try:
        await ctx.send_keys("x", pane=pane)
    except PaneBusy:
        return False
    return True


async def test_an_agents_calls_are_judged_as_in_panes_of_harness(own: OperatorTmux) -> None:
    lent, private = own.open("bash --norc"), own.open("cat")
    own.tmux("send-keys", "-t", private, "-l", "private")
    assert (await own.types("lend", lent))[0] == 0
    await until(lambda: at_prompt(own, lent))
    approver = says(ApprovalScope.ONCE)
    async with current() as ctx:
        box = toolbox([*core_tools(), *terminal.tools()], execution=ctx)
        policy = RulePolicy(PermissionSettings(mode=Mode.AUTO), approver=approver)
        executor = replace(box.executor, services=replace(box.executor.services, policy=policy))

        async def call(name: str, **arguments: Any) -> CallOutcome:
            return await executor.call(ToolCall(name, arguments))

        unlent = await call("send_keys", pane=private, literal_text="x")
        assert (unlent.status, "is not lent" in unlent.result.text, approver.questions) == (CallStatus.DENIED, True, [])
        edited = await call("send_keys", literal_text="#")  # no pane is named: the only lent one
        assert edited.status is CallStatus.OK, edited.result.text
        assert f"; pane {lent};" in approver.questions.pop().reason
        own.tmux("send-keys", "-t", lent, "C-u")
        await until(lambda: at_prompt(own, lent))
        assert (await call("capture_pane", pane=lent)).status is CallStatus.OK
        assert approver.questions == []
        assert "private" in (await call("capture_pane", pane=private)).result.text
        assert "is not lent" in approver.questions.pop().reason
        done = await call("send_keys", pane=lent, literal_text="echo $((40 + 2))", enter=True)
        assert done.status is CallStatus.OK, done.result.text
        assert "typed into the operator's own bash" in approver.questions.pop().reason
        await until(lambda: "\n42" in own.screen(lent))
        wiped = await call("send_keys", pane=lent, literal_text="rm -rf /", enter=True)
        assert (wiped.status, approver.questions) == (CallStatus.DENIED, [])
        own.press(lent, "read -rp 'Password: ' x")
        await until(lambda: own.screen(lent).rstrip().endswith("Password:"))
        answered = await call("send_keys", pane=lent, literal_text="correct horse", enter=True)
        assert (answered.status, approver.questions) == (CallStatus.DENIED, [])
        assert "correct horse" not in repr(box.ledger.denied)
        lending = await call("run_shell", command=f"{own.program.path} lend {private}")
        assert (lending.status, approver.questions) == (CallStatus.DENIED, [])
        second = own.open("cat")
        assert (await own.types("lend", second))[0] == 0
        unnamed = await call("send_keys", literal_text="x")
        assert (unnamed.status, approver.questions) == (CallStatus.DENIED, [])
        assert "name a pane: 2 panes" in unnamed.result.text
        listed = (await call("tmux_list_panes")).result.text
        assert (f"{lent}  100x20  bash" in listed, ", not lent" in listed) == (True, True)


def test_what_a_pane_calls_itself_makes_no_row() -> None:
    assert rows_format("t").startswith("t\t#{pid}@")
    row = "t\t1@2@3@0@0\t%5\t3\t0\t0\t1\t0\t1\t80\t24\t/dev/pts/1\t\twork\tcat\t/tmp/a"
    faked = "\nx\t1@2@9@0@0\t%6\t9\t0\t0\t1\t0\t1\t80\t24\t/dev/pts/1\t\twork\tcat\t/tmp/b"
    found = parse_rows(row + faked + "\n", "t")
    assert [(one.pane_id, one.name, one.cwd, one.is_active) for one in found] == [("%5", "work:1.0", "/tmp/a", True)]
