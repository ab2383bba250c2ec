"""A tmux that takes plain commands only: no control mode, and in some tests no ``pipe-pane`` either."""

from __future__ import annotations

import shutil
from pathlib import Path

import anyio
import pytest
from tests.support.desk import Desk, OpenDesk, open_desk, until
from tests.support.plain_tmux import plain_tmux

from harness import PaneBusy, Status, UnsupportedOperation
from harness.command import observe_jobs

__all__ = ["open_desk"]

REFUSED = "tmux control mode is unavailable"
RENDERED = "read from the scrollback"
WHERE = ["local", "ssh"]
LOGS = [True, False]


class OpenPlain:
    """Opens desks behind such a tmux."""

    def __init__(self, open_desk: OpenDesk, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self._open, self._folder, self._patch = open_desk, folder, patch

    async def __call__(self, where: str = "local", *, logs: bool = True, **settings: object) -> Desk:
        path = plain_tmux(self._folder / ("logs" if logs else "no-logs"), logs=logs)
        if where == "ssh":
            return await self._open("ssh", rc={".bashrc": f"PATH={path}:$PATH\n"}, **settings)
        with self._patch.context() as patch:
            patch.setenv("PATH", str(path), prepend=":")
            return await self._open("local", **settings)


@pytest.fixture
def open_plain(open_desk: OpenDesk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> OpenPlain:
    tmp_path.chmod(0o755)
    return OpenPlain(open_desk, tmp_path, monkeypatch)


@pytest.fixture
async def plain(open_plain: OpenPlain, request: pytest.FixtureRequest) -> Desk:
    where, logs = request.param
    return await open_plain(where, logs=logs)


every_kind = pytest.mark.parametrize("plain", [(where, logs) for where in WHERE for logs in LOGS], indirect=True)
without_logs = pytest.mark.parametrize("plain", [("local", False)], indirect=True)
with_logs = pytest.mark.parametrize("plain", [("local", True)], indirect=True)


@every_kind
async def test_commands_give_their_output_and_code_and_the_shell_keeps_its_state(plain: Desk) -> None:
    first = await plain.ctx.run_shell("echo one; echo two; (exit 3)")
    assert (first.status, first.exit_code, first.stdout) == (Status.COMPLETED, 3, "one\ntwo\n"), first
    assert any(REFUSED in notice for notice in first.notices), first
    await plain.ctx.run_shell("cd /var; A=kept; f() { echo in f; return 4; }")
    second = await plain.ctx.run_shell("pwd; echo $A; f")
    assert (second.exit_code, second.stdout, second.cwd) == (4, "/var\nkept\nin f\n", "/var"), second
    assert not any(REFUSED in notice for notice in second.notices)


EXACT = {
    "carriage returns": (r"printf 'a\rb\n'", b"a\rb\n"),
    "colour": (r"printf '\033[31mred\033[0m\n'", b"\x1b[31mred\x1b[0m\n"),
    "tabs and blanks": (r"printf 'a\tb  \n'", b"a\tb  \n"),
    "no newline": ("printf abc", b"abc"),
    "nothing": ("true", b""),
    "bytes": (r"printf '\377\001\n'", b"\xff\x01\n"),
    "many lines": ("seq 1 60000", "".join(f"{n}\n" for n in range(1, 60001)).encode()),
    "a forged tag": ("echo '[harness 7: 0] $ '", b"[harness 7: 0] $ \n"),
}


@with_logs
async def test_with_a_log_every_byte_is_exact(plain: Desk) -> None:
    for command, expected in EXACT.values():
        result = await plain.ctx.run_shell(command)
        assert (result.status, result.stdout_bytes) == (Status.COMPLETED, expected), (command, result)
        assert not any(RENDERED in notice for notice in result.notices)


SHOWN = {
    "lines": ("seq 1 300", "".join(f"{n}\n" for n in range(1, 301))),
    "empty": ("true", ""),
    "blank lines": ("printf '\\n\\nx\\n\\n'", "\n\nx\n\n"),
    "long line": ("printf '%0400d\\n' 1", f"{1:0400d}\n"),
    "several lines of command": ("echo a\necho b", "a\nb\n"),
    "no newline": ("printf abc", "abc"),
    "colour": (r"printf '\033[31mred\033[0m\n'", "red\n"),
    "tab": (r"printf 'a\tb\n'", "a       b\n"),
    "progress bar": (r"printf '10%%\r99%%\n'", "99%\n"),
    "wide": ("echo '日本 é'", "日本 é\n"),
    "like a tag": ("echo '[harness 99: 0] $ x'", "[harness 99: 0] $ x\n"),
    "failed": ("echo bad; sh -c 'exit 42'", "bad\n"),
    "killed": ("echo dying; sh -c 'kill -9 $$'", "dying\n"),
    "syntax error": ("echo (", None),
    "five thousand": ("seq 1 5000", "".join(f"{n}\n" for n in range(1, 5001))),
}
CODES = {"failed": 42, "killed": 137, "syntax error": 2}


@pytest.mark.parametrize("where", WHERE)
async def test_without_a_log_the_text_between_the_tags_is_given_and_said_to_be_that(
    open_plain: OpenPlain, where: str
) -> None:
    desk = await open_plain(where, logs=False)
    for name, (command, shown) in SHOWN.items():
        result = await desk.ctx.run_shell(command, timeout=20)
        assert (result.status, result.exit_code) == (Status.COMPLETED, CODES.get(name, 0)), (name, result)
        assert shown is None or result.stdout.removesuffix("Killed\n") == shown, (name, result)
        assert any(RENDERED in notice for notice in result.notices), (name, result)


@without_logs
async def test_others_find_the_shown_text_and_the_code_of_a_job(plain: Desk) -> None:
    result = await plain.ctx.run_shell("echo kept; sh -c 'exit 5'")
    assert result.job_id
    assert "kept" in (await plain.ctx.capture_pane(job_id=result.job_id))
    assert (plain.state / "jobs" / f"{result.job_id}.out").read_text() == "kept\n"
    assert (plain.state / "jobs" / f"{result.job_id}.exit").read_text().startswith("5 completed ")


@without_logs
async def test_what_the_scrollback_does_not_hold_is_said(open_plain: OpenPlain, plain: Desk) -> None:
    cleared = await plain.ctx.run_shell("echo before; clear; tmux clear-history; echo after; (exit 6)")
    assert (cleared.status, cleared.exit_code) == (Status.COMPLETED, 6), cleared
    assert cleared.stdout.endswith("after\n")
    short = await open_plain(logs=False, history_limit=100)
    long = await short.ctx.run_shell("seq 1 500; (exit 7)")
    assert (long.status, long.exit_code) == (Status.COMPLETED, 7)
    assert long.stdout.endswith("\n499\n500\n")
    assert any("miss its beginning" in notice for notice in long.notices), long
    untagged = await open_plain(logs=False, prompt_tag=False)
    blind = await untagged.ctx.run_shell("echo unseen; (exit 8)")
    assert (blind.status, blind.exit_code, blind.stdout) == (Status.COMPLETED, 8, "")
    assert any("prompt_tag = true" in notice for notice in blind.notices), blind


@every_kind
async def test_a_deadline_keeps_or_kills(plain: Desk) -> None:
    await plain.ctx.run_shell("mkfifo gate")
    kept = await plain.ctx.run_shell("echo begun; cat gate; echo ended; (exit 9)", timeout=1)
    assert (kept.status, kept.exit_code, kept.stdout) == (Status.RUNNING, None, "begun\n"), kept
    assert any("cat gate" in notice for notice in kept.notices), kept
    with pytest.raises(PaneBusy, match=f"job {kept.job_id}"):
        await plain.ctx.run_shell("echo in the way")
    await plain.open_gate()
    done = await plain.ctx.wait(kept.job_id or "", timeout=10)
    assert (done.status, done.exit_code, done.stdout) == (Status.COMPLETED, 9, "begun\nended\n"), done
    killed = await plain.ctx.run_shell("echo begun; sleep 300.25", timeout=1, on_timeout="kill")
    assert (killed.status, killed.exit_code) == (Status.TIMED_OUT, None), killed
    assert killed.stdout.startswith("begun\n")
    assert not plain.processes("sleep 300.25")
    after = await plain.ctx.run_shell("echo after")
    assert (after.status, after.stdout) == (Status.COMPLETED, "after\n"), after


@every_kind
async def test_jobs_in_the_background_are_waited_for_and_killed(plain: Desk) -> None:
    await plain.ctx.run_shell("mkfifo gate; cd /usr")
    job = await plain.ctx.run_shell("pwd; cat ~/gate; (exit 4)", wait=False)
    other = await plain.ctx.run_shell("echo mine; sleep 300.5", wait=False)
    assert (job.status, other.status) == (Status.RUNNING, Status.RUNNING)
    assert len({job.pane, other.pane, "main"}) == 3
    assert (await plain.ctx.run_shell("echo free")).stdout == "free\n"
    await plain.open_gate()
    done = await plain.ctx.wait(job.job_id or "", timeout=10)
    assert (done.status, done.exit_code, done.stdout) == (Status.COMPLETED, 4, "/usr\n"), done
    ended = await plain.ctx.kill(other.job_id or "")
    assert ended.status is Status.INTERRUPTED, ended
    assert not plain.processes("sleep 300.5")


@every_kind
async def test_cancelling_the_caller_ends_the_command(plain: Desk) -> None:
    await plain.ctx.run_shell("true")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(plain.ctx.run_shell, "sleep 300.75")
        await until(lambda: plain.processes("sleep 300.75"))
        tasks.cancel_scope.cancel()
    assert not plain.processes("sleep 300.75")
    assert (await plain.ctx.run_shell("echo after")).stdout == "after\n"


@every_kind
@pytest.mark.parametrize("tty", [None, False])
async def test_a_command_that_is_typed_when_its_caller_is_cancelled_ends(plain: Desk, tty: bool | None) -> None:
    jobs: list[str] = []
    await plain.ctx.run_shell("true")
    with anyio.CancelScope() as scope:

        def cancel_before_it_is_typed(job_id: str) -> None:
            jobs.append(job_id)
            scope.cancel()

        with observe_jobs(cancel_before_it_is_typed):
            await plain.ctx.run_shell("sleep 300.8", tty=tty)
    assert not plain.processes("sleep 300.8")
    assert (await plain.ctx.job(jobs[0])).status is Status.INTERRUPTED
    assert (await plain.ctx.run_shell("echo after")).stdout == "after\n"


@every_kind
async def test_a_question_is_reported_and_answered_with_keys(plain: Desk) -> None:
    asked = await plain.ctx.run_shell("read -r name; echo \"hello $name; '$'\"", timeout=20)
    assert asked.status is Status.RUNNING
    assert any("waiting for input" in notice for notice in asked.notices), asked
    await plain.ctx.send_keys(literal_text="you;", enter=True)
    done = await plain.ctx.wait(asked.job_id or "", timeout=10)
    assert (done.status, done.exit_code) == (Status.COMPLETED, 0)
    assert done.stdout.endswith("hello you;; '$'\n")
    await plain.ctx.send_keys(literal_text=f"echo {'w' * 3000}")
    with anyio.fail_after(10):
        while "w" * 3000 not in await plain.ctx.capture_pane(delay=0.05):
            pass


@every_kind
async def test_a_shell_that_ends_is_followed_by_a_fresh_one(plain: Desk) -> None:
    ended = await plain.ctx.run_shell("echo bye; exit 3")
    assert (ended.status, ended.exit_code) == (Status.SHELL_EXITED, 3), ended
    fresh = await plain.ctx.run_shell("echo fresh")
    assert (fresh.status, fresh.stdout) == (Status.COMPLETED, "fresh\n"), fresh
    plain.tmux.cmd("kill-window", "-t", "=harness:main")
    again = await plain.ctx.run_shell("echo again")
    assert (again.status, again.stdout) == (Status.COMPLETED, "again\n"), again
    assert any("new one" in notice for notice in again.notices), again


@every_kind
async def test_large_and_difficult_commands_go_as_one_unit(plain: Desk) -> None:
    for command, out in {
        f": '{'x' * 300_000}'; echo large": "large\n",
        "cat <<'X'\ntab\there;\nX": "tab     here;\n",
        "echo \"it's\" '%if' \\;": "it's %if ;\n",
    }.items():
        result = await plain.ctx.run_shell(command)
        assert (result.exit_code, result.stdout.expandtabs()) == (0, out), result
    options = await plain.ctx.run_shell("pwd; echo $A; cat", cwd="/var", env={"A": "b;"}, stdin="in\n")
    assert (options.exit_code, options.stdout) == (0, "/var\nb;\nin\n"), options
    with pytest.raises(FileNotFoundError, match="nothing ran"):
        await plain.ctx.run_shell("pwd", cwd="/no/such/place")
    apart = await plain.ctx.run_shell("printf out; printf err >&2; exit 3", tty=False, cwd="/")
    assert (apart.exit_code, apart.stdout, apart.stderr) == (3, "out", "err"), apart


@without_logs
async def test_what_needs_more_says_what(plain: Desk) -> None:
    await plain.ctx.run_shell("mkfifo gate")
    job = await plain.ctx.run_shell("cat gate", wait=False)
    with pytest.raises(UnsupportedOperation, match="no log") as caught:
        plain.ctx.follow(job.job_id or "")
    assert "pipe-pane" in str(caught.value.hint)
    await plain.open_gate()
    assert (await plain.ctx.wait(job.job_id or "", timeout=10)).status is Status.COMPLETED
    await plain.ctx.send_keys(literal_text="bash --norc", enter=True)
    await until(lambda: plain.show("#{pane_current_command}") == "bash" and plain.processes("bash --norc"))
    with pytest.raises(PaneBusy, match="bash --norc") as inside:
        await plain.ctx.run_shell("echo nested")
    assert "control mode" in str(inside.value.hint)
    await plain.ctx.send_keys(literal_text="exit", enter=True)
    assert (await plain.ctx.run_shell("echo outside")).stdout == "outside\n"


@pytest.mark.parametrize("shell", ["/usr/bin/zsh", "/bin/dash", "/bin/mksh", "/usr/bin/fish", "/usr/bin/busybox"])
async def test_every_shell_gives_codes_and_text(open_plain: OpenPlain, shell: str) -> None:
    shell = shutil.which(shell.rpartition("/")[2]) or shell
    for logs in LOGS:
        desk = await open_plain(logs=logs, shell=shell)
        for command, code, out in [
            ("echo one", 0, "one\n"),
            ("echo two; sh -c 'exit 7'", 7, "two\n"),
            ("true", 0, ""),
            ("cd /usr", 0, ""),
            ("pwd", 0, "/usr\n"),
        ]:
            result = await desk.ctx.run_shell(command, timeout=20)
            assert (result.status, result.exit_code, result.stdout) == (Status.COMPLETED, code, out), (logs, result)
        wrong = await desk.ctx.run_shell("echo (", timeout=20)
        assert wrong.status is Status.COMPLETED
        assert wrong.exit_code not in (0, None)
        stopped = await desk.ctx.run_shell("sleep 300", timeout=0.5, on_timeout="kill")
        assert stopped.status is Status.TIMED_OUT, stopped
        assert (await desk.ctx.run_shell("echo after")).stdout == "after\n"


async def test_two_contexts_share_a_session_without_mixing(open_plain: OpenPlain, open_desk: OpenDesk) -> None:
    one = await open_plain()
    two = await open_desk(tmux_socket=one.config.tmux_socket)
    async with anyio.create_task_group() as tasks:
        for desk, name in ((one, "one"), (two, "two")):
            tasks.start_soon(_ten, desk, name)


async def _ten(desk: Desk, name: str) -> None:
    for number in range(10):
        result = await desk.ctx.run_shell(f"echo {name} {number}; (exit {number})")
        assert (result.exit_code, result.stdout) == (number, f"{name} {number}\n"), result


async def test_it_can_be_chosen(open_desk: OpenDesk) -> None:
    desk = await open_desk(control_mode="never")
    chunks: list[bytes] = []
    result = await desk.ctx.run_shell("echo chosen", on_output=chunks.append)
    assert (result.stdout, b"".join(chunks)) == ("chosen\n", b"chosen\n")
    assert any("control_mode" in notice for notice in result.notices)
    assert not desk.tmux.cmd("list-clients").stdout


@pytest.mark.parametrize("shell", ["/bin/bash", "/usr/bin/zsh", "/bin/dash", "/usr/bin/fish", "/bin/mksh"])
async def test_a_half_typed_line_and_an_open_quote_are_put_away(open_plain: OpenPlain, shell: str) -> None:
    desk = await open_plain(logs=False, shell=shell)
    await desk.ctx.run_shell("true")
    await desk.ctx.send_keys(literal_text="echo half a li", delay=0.2)
    half = await desk.ctx.run_shell("echo whole; sh -c 'exit 5'", timeout=15)
    assert (half.status, half.exit_code, half.stdout) == (Status.COMPLETED, 5, "whole\n"), half
    await desk.ctx.send_keys(literal_text="echo 'an open", enter=True, delay=0.2)
    quote = await desk.ctx.run_shell("echo after", timeout=15)
    assert (quote.status, quote.exit_code, quote.stdout) == (Status.COMPLETED, 0, "after\n"), quote


async def test_a_command_that_the_shell_does_not_take_is_withdrawn(open_plain: OpenPlain) -> None:
    desk = await open_plain()
    await desk.ctx.run_shell("bind 'Control-m: kill-whole-line'")
    result = await desk.ctx.run_shell("touch ~/ran", timeout=20)
    assert (result.status, result.exit_code) == (Status.UNKNOWN, None), result
    assert any("did not start" in notice for notice in result.notices), result
    assert not (desk.home / "ran").exists()


async def test_a_command_is_withdrawn_when_its_busy_shell_is_at_its_prompt_again(open_plain: OpenPlain) -> None:
    desk = await open_plain()
    await desk.ctx.run_shell('command_not_found_handle() { sleep 7; }; bind \'"h": "zzz"\'')
    result = await desk.ctx.run_shell("touch ~/ran", timeout=40)
    assert (result.status, result.exit_code) == (Status.UNKNOWN, None), result
    assert any("did not start" in notice for notice in result.notices), result
    assert not (desk.home / "ran").exists()


@every_kind
async def test_a_command_whose_shell_an_operator_replaces_ends_as_unknown(plain: Desk) -> None:
    async with anyio.create_task_group() as tasks:

        async def replace() -> None:
            await until(lambda: plain.processes("sleep 300.9"))
            plain.tmux.cmd("respawn-pane", "-k", "-t", "=harness:main", "cat")

        tasks.start_soon(replace)
        with anyio.fail_after(30):
            result = await plain.ctx.run_shell("sleep 300.9", timeout=60)
    assert (result.status, result.exit_code) == (Status.UNKNOWN, None), result
    with pytest.raises(PaneBusy, match="respawn-pane"):
        await plain.ctx.run_shell("echo to another program")


@without_logs
async def test_the_output_of_another_process_s_job_is_found_in_the_scrollback(plain: Desk, open_desk: OpenDesk) -> None:
    result = await plain.ctx.run_shell("echo of another process")
    other = await open_desk(tmux_socket=plain.config.tmux_socket, control_mode="never")
    assert await other.ctx.capture_pane(job_id=result.job_id) == "of another process\n"
