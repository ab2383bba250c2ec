"""tmux on this machine with the panes' shells on the target; and what several watchers of one session do."""

from __future__ import annotations

import os
import secrets
import shutil
from dataclasses import replace
from pathlib import Path

import anyio
import pytest
from tests.support.desk import OpenDesk, open_desk, until
from tests.support.sshd import MakeSshd

from harness import FileError, PaneBusy, PaneGone, Status, UnsupportedOperation, connect
from harness_backends.tmux.jobs.job_killing import JobKiller
from harness_backends.tmux.pane.pane_state import Pane

__all__ = ["open_desk"]

LIMIT = 64 << 10


def path_without_tmux(folder: Path) -> Path:
    """A PATH with every program of this machine but tmux."""
    folder.mkdir(mode=0o755)
    for directory in os.environ["PATH"].split(":"):
        for program in Path(directory).glob("*") if os.path.isdir(directory) else ():
            if program.name != "tmux" and not (folder / program.name).exists():
                (folder / program.name).symlink_to(program)
    return folder


@pytest.fixture
def lacking(ssh_terminal: None, tmp_path: Path) -> dict[str, str]:
    """Start-up files of an account that finds no tmux."""
    tmp_path.chmod(0o755)
    line = f"export PATH={path_without_tmux(tmp_path / 'bin')}\n"
    return {".bashrc": line, ".bash_profile": line}


@pytest.mark.parametrize(("at", "told"), [("local", False), ("auto", True)])
async def test_a_target_without_tmux_has_its_session_here(
    open_desk: OpenDesk, lacking: dict[str, str], at: str, told: bool
) -> None:
    desk = await open_desk("ssh", rc=lacking, tmux_host=at)
    first = await desk.ctx.run_shell("command -v tmux; echo $SSH_CONNECTION | wc -w; (exit 3)")
    assert (first.status, first.exit_code, first.stdout) == (Status.COMPLETED, 3, "4\n"), first
    assert any("tmux is not installed on the target" in notice for notice in first.notices) is told, first
    await desk.ctx.run_shell("cd /var; A=kept")
    second = await desk.ctx.run_shell("pwd; echo $A; printf 'a\\tb'; printf '\\001'")
    assert (second.exit_code, second.stdout_bytes) == (0, b"/var\nkept\na\tb\x01"), second
    assert not any("not installed" in notice for notice in second.notices)
    kept = (desk.state / "jobs" / f"{second.job_id}.exit").read_text()
    assert kept.startswith("0 completed ")


@pytest.mark.parametrize("engine", ["openssh", "asyncssh"])
async def test_a_server_that_gives_no_terminal_is_named_with_what_to_do(
    make_sshd: MakeSshd, needs_tmux: None, engine: str
) -> None:
    sshd = make_sshd("PermitTTY no")
    config = replace(sshd.config(ssh_engine=engine), tmux_host="local", tmux_socket=f"hx-{secrets.token_hex(4)}")
    with anyio.fail_after(20), pytest.raises(UnsupportedOperation) as told:
        async with connect(sshd.target, tmux=True, config=config):
            pass
    assert str(told.value).startswith(f"{sshd.target}: the target gives no terminal (PTY allocation request failed")
    assert "PermitTTY" in (told.value.hint or "")


async def test_what_goes_wrong_in_a_session_here_is_told_of_the_target(
    open_desk: OpenDesk, lacking: dict[str, str]
) -> None:
    desk = await open_desk("ssh", rc=lacking)
    for wait in (True, False):
        with pytest.raises(FileError, match="/nowhere") as told:
            await desk.ctx.run_shell("pwd", cwd="/nowhere", wait=wait)
        assert str(told.value).startswith(f"{desk.ctx.target}: "), told.value
    with pytest.raises(PaneGone) as gone:
        await desk.ctx.run_shell("pwd", pane="nowhere")
    assert str(gone.value).startswith(f"{desk.ctx.target}: "), gone.value


async def test_nothing_is_typed_into_a_program_that_took_the_place_of_a_shell(
    open_desk: OpenDesk, lacking: dict[str, str]
) -> None:
    desk = await open_desk("ssh", rc=lacking)
    await desk.ctx.run_shell("true")
    pane = desk.tmux.panes[0]
    desk.tmux.cmd("respawn-pane", "-k", "-t", pane.id, "stty raw -echo; printf there; dd bs=1 2>/dev/null | od -An -c")
    await until(lambda: pane.capture_pane() == ["there"])
    with pytest.raises(PaneBusy, match="respawn-pane"):
        await desk.ctx.run_shell("echo late")
    assert pane.capture_pane() == ["there"]


async def test_a_session_here_keeps_kills_and_answers(open_desk: OpenDesk, lacking: dict[str, str]) -> None:
    desk = await open_desk("ssh", rc=lacking)
    job = await desk.ctx.run_shell("echo begun; sleep 300.25", timeout=1)
    assert (job.status, job.stdout) == (Status.RUNNING, "begun\n"), job
    assert desk.processes("sleep 300.25")
    await desk.ctx.kill(job.job_id or "")
    assert not desk.processes("sleep 300.25")
    asked = await desk.ctx.run_shell('read -r x; echo "got $x"', timeout=20)
    assert asked.status is Status.RUNNING
    await desk.ctx.send_keys(literal_text="it", enter=True)
    done = await desk.ctx.wait(asked.job_id or "", timeout=10)
    assert done.stdout.endswith("got it\n")
    assert [pane.name for pane in await desk.ctx.list_panes()] == ["main"]


@pytest.mark.parametrize("how", ["timeout", "kill"])
async def test_what_a_ctrl_c_ended_before_the_target_was_asked_is_no_end_of_its_own(
    open_desk: OpenDesk, lacking: dict[str, str], monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """The C-c is typed here, and its effect may be recorded there before the script that ends the rest begins."""
    type_interrupt = JobKiller._interrupt

    async def and_wait(self: JobKiller, pane: Pane) -> None:
        job = pane.job
        await type_interrupt(self, pane)
        assert job is not None
        with anyio.fail_after(20):
            await job.done.wait()

    desk = await open_desk("ssh", rc=lacking)
    monkeypatch.setattr(JobKiller, "_interrupt", and_wait)
    command = "echo begun; sleep 300.31 & sleep 300.32"
    if how == "timeout":
        result = await desk.ctx.run_shell(command, timeout=1, on_timeout="kill")
        job_id, expected = result.job_id or "", Status.TIMED_OUT
        assert (result.status, result.exit_code) == (expected, None), result
    else:
        job_id, expected = (await desk.ctx.run_shell(command, timeout=1)).job_id or "", Status.INTERRUPTED
        assert (await desk.ctx.kill(job_id)).status is expected
    assert not desk.processes("sleep 300.31")
    assert (await desk.ctx.job(job_id)).status is expected
    assert (desk.state / "jobs" / f"{job_id}.exit").read_text() == f"130 {expected}\n"


async def test_keys_that_are_lost_with_the_client_are_typed_again(open_desk: OpenDesk, lacking: dict[str, str]) -> None:
    """The pane names the job by then; the shell that has not read it is on the target."""
    desk = await open_desk("ssh", rc=lacking)
    await desk.ctx.run_shell("true")
    clients = desk.tmux.cmd("list-clients", "-F", "#{client_pid} #{client_flags}").stdout
    (client,) = (line.split()[0] for line in clients if "no-output" not in line)
    kill = f"kill -9 {client} 2>/dev/null; sleep 0.3"  # until then the server has noticed
    typed = "#{==:#{@harness_typed},#{@harness_busy}}"
    desk.tmux.cmd("set-hook", "-g", "after-set-buffer", f"if-shell -F -t =harness: '{typed}' 'run-shell \"{kill}\"'")
    with anyio.fail_after(20):
        result = await desk.ctx.run_shell("echo once >>runs; echo out", timeout=15)
    assert (result.status, result.exit_code, result.stdout) == (Status.COMPLETED, 0, "out\n"), result
    assert (desk.home / "runs").read_text() == "once\n"


async def test_a_job_of_a_session_here_outlives_its_harness(open_desk: OpenDesk, lacking: dict[str, str]) -> None:
    desk = await open_desk("ssh", rc=lacking)
    await desk.ctx.run_shell("mkfifo gate")
    job = await desk.ctx.run_shell("echo begun; cat gate; seq 1 30000; (exit 7)", wait=False)
    job_id, expected = job.job_id or "", "begun\n" + "".join(f"{line}\n" for line in range(1, 30001))
    async with connect(str(desk.ctx.target), tmux=True, config=desk.config) as other:  # on this machine too
        assert (await other.job(job_id)).status is Status.RUNNING
        pieces = other.follow(job_id)
        assert await anext(pieces) == b"begun\n"
        await desk.open_gate()
        rest = b"".join([piece async for piece in pieces])
        assert rest.decode() == expected.removeprefix("begun\n")
        done = await other.wait(job_id, timeout=10)
        assert (done.status, done.exit_code, done.stdout) == (Status.COMPLETED, 7, expected)
    async with connect(str(desk.ctx.target), config=desk.config) as plain:  # without a terminal
        assert (await plain.wait(job_id, timeout=10)).stdout == expected
        record = desk.state / "jobs" / f"{job_id}.cmd"
        record.write_bytes(record.read_bytes().replace(b"#% host: ", b"#% host: another-"))  # as from another machine
        done = await plain.wait(job_id, timeout=10)
        assert (done.status, done.exit_code, done.stdout) == (Status.COMPLETED, 7, "")
        assert any("where its tmux runs" in notice for notice in done.notices)
        with pytest.raises(UnsupportedOperation, match="where its tmux runs"):
            async for _ in plain.follow(job_id):
                pass


@pytest.mark.parametrize("tmux", [True, False])
async def test_a_job_of_a_session_here_is_killed_by_others(
    open_desk: OpenDesk, lacking: dict[str, str], tmux: bool
) -> None:
    desk = await open_desk("ssh", rc=lacking)
    job = await desk.ctx.run_shell("sleep 300.75; touch next", wait=False)
    await until(lambda: desk.processes("sleep 300.75"))
    async with connect(str(desk.ctx.target), tmux=tmux, config=desk.config) as other:
        killed = await other.kill(job.job_id or "")
    assert killed.status is Status.INTERRUPTED
    assert not desk.processes("sleep 300.75")
    assert not (desk.home / "next").exists()


async def test_the_target_may_be_demanded(open_desk: OpenDesk, lacking: dict[str, str]) -> None:
    with pytest.raises(UnsupportedOperation, match="tmux is not installed on the target") as caught:
        await open_desk("ssh", rc=lacking, tmux_host="target")
    assert 'tmux_host = "local"' in str(caught.value.hint)


@pytest.mark.usefixtures("needs_ssh")
@pytest.mark.usefixtures("ssh_terminal")
async def test_a_target_with_tmux_uses_it_unless_told_otherwise(open_desk: OpenDesk) -> None:
    assert shutil.which("tmux")
    desk = await open_desk("ssh")
    there = await desk.ctx.run_shell("echo ${TMUX:+inside}")
    assert (there.stdout, there.notices) == ("inside\n", ())
    here = await open_desk("ssh", tmux_host="local")
    assert (await here.ctx.run_shell("echo outside${TMUX:+ no}")).stdout == "outside\n"


async def test_two_watchers_rotate_a_panes_log_and_lose_nothing(open_desk: OpenDesk) -> None:
    one = await open_desk(job_log_max_bytes=LIMIT)
    two = await open_desk(job_log_max_bytes=LIMIT, tmux_socket=one.config.tmux_socket)
    ran: dict[str, tuple[int, str]] = {}
    for number in range(24):
        desk = (one, two)[number % 2]
        text = "".join(f"{number} {line}\n" for line in range(1, 701))
        result = await desk.ctx.run_shell(f"for i in $(seq 1 700); do echo {number} $i; done; (exit {number})")
        assert (result.status, result.exit_code, result.stdout) == (Status.COMPLETED, number, text), result
        ran[result.job_id or ""] = (number, text)
    pieces = [path.name for path in one.state.glob("panes/*/log.*")]
    assert len(pieces) > 1, pieces
    async with connect("local:", config=one.config) as other:
        for job_id, (code, text) in ran.items():
            shown = await other.wait(job_id, timeout=5)
            assert (shown.status, shown.exit_code, shown.stdout) == (Status.COMPLETED, code, text), job_id


async def test_a_watcher_that_does_not_know_of_a_new_piece_loses_nothing(
    open_desk: OpenDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = await open_desk(job_log_max_bytes=LIMIT)
    two = await open_desk(job_log_max_bytes=LIMIT, tmux_socket=one.config.tmux_socket)

    def pieces() -> set[str]:
        return {path.name for path in one.state.glob("panes/*/log.*")}

    while pieces() == {"log.0"}:
        await one.ctx.run_shell("seq 1 3000")
    with monkeypatch.context() as patch:
        patch.setattr("harness_backends.tmux.sources.live_panes.due", lambda pane, limit: False)
        blind = await two.ctx.run_shell("echo blind; (exit 3)")
    record = (one.state / f"jobs/{blind.job_id}.cmd").read_text()
    assert "/log.0 " in record, "the watcher had counted the new piece: the test shows nothing"
    later = await two.ctx.run_shell("echo later; (exit 4)")
    assert "/log.1 " in (one.state / f"jobs/{later.job_id}.cmd").read_text()
    assert pieces() == {"log.0", "log.1"}, "it began a piece of its own"
    async with connect("local:", config=one.config) as other:
        for result in (blind, later):
            shown = await other.wait(result.job_id or "", timeout=5)
            assert (shown.exit_code, shown.stdout, shown.notices) == (result.exit_code, result.stdout, ())


async def test_a_watcher_that_is_two_pieces_behind_does_not_go_back_to_an_older_one(open_desk: OpenDesk) -> None:
    one = await open_desk(job_log_max_bytes=LIMIT)
    two = await open_desk(job_log_max_bytes=LIMIT, tmux_socket=one.config.tmux_socket)
    while not list(one.state.glob("panes/*/log.2")):
        await one.ctx.run_shell("seq 1 3000")
    results = [await desk.ctx.run_shell(f"echo {name}") for name, desk in (("a", two), ("b", one), ("c", two))]
    async with connect("local:", config=one.config) as other:
        for result in results:
            assert (await other.wait(result.job_id or "", timeout=5)).stdout == result.stdout


@pytest.mark.parametrize("unlock", [True, False])
async def test_an_operator_who_takes_the_keyboard_with_f12_is_told_of(open_desk: OpenDesk, unlock: bool) -> None:
    desk = await open_desk()
    operator = await desk.operator()
    await desk.ctx.run_shell("mkfifo gate")

    async def meddle() -> None:
        await until(lambda: desk.processes("cat gate"))
        if unlock:
            operator.press("F12")
            await until(lambda: desk.show("#{@harness_unlocked}") == "1")
        operator.type("meddling")
        if unlock:
            await until(lambda: "meddling" in "\n".join(desk.tmux.cmd("capture-pane", "-p", "-t", "=harness:").stdout))
        await anyio.sleep(0.6)  # as long as a hand takes; nothing tells that keys were kept out
        await desk.open_gate()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(meddle)
        result = await desk.ctx.run_shell("cat gate; echo done")
    assert (result.status, result.exit_code) == (Status.COMPLETED, 0)
    assert ("meddling" in result.stdout) is unlock
    assert any("an operator typed while" in notice for notice in result.notices) is unlock, result
    after = await desk.ctx.run_shell("echo after", timeout=15)
    assert (after.status, after.exit_code, after.stdout) == (Status.COMPLETED, 0, "after\n")
