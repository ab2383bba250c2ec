"""Commands as another user by a real ``sudo`` that asks for a password, over a real sshd."""

from __future__ import annotations

import io
import logging
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pexpect
import pytest
from tests.support.permits import says
from tests.support.program import Program
from tests.support.reconnecting_shell import ended
from tests.support.sshd import MakeUser, SshServer
from tests.support.sudo import (
    PASSWORD,
    Answers,
    SudoHost,
    counted_failures,
    leaks,
    sudo_rule,
    watched_processes,
)
from tests.support.toolbox import toolbox

from harness import ExecutionContext
from harness.errors import UnsupportedOperation
from harness.login import use_prompter
from harness.results import Status
from harness.toolkit import CallStatus, ToolCall
from harness.toolkit.permissions.policy import RulePolicy
from harness.toolkit.permissions.questions import ApprovalScope
from harness.toolkit.redaction.redactor import PatternRedactor
from harness_tools.core import tools as core_tools

pytestmark = pytest.mark.usefixtures("needs_tmux")
SUDO = shutil.which("sudo")


@pytest.fixture
def host(sshd: SshServer, make_user: MakeUser) -> Iterator[SudoHost]:
    user = make_user(shell="/bin/bash", password=PASSWORD)
    with sudo_rule(user, "ALL=(ALL) ALL"):
        yield SudoHost(sshd, user)


@pytest.mark.parametrize("tmux", [False, True])
async def test_the_password_is_asked_once_and_seen_nowhere(
    host: SudoHost, tmux: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    answers = Answers([PASSWORD])
    with watched_processes(PASSWORD) as watch:
        async with host.connect(answers, tmux) as ctx:
            first = await ctx.run_shell("id -un; echo out; read line; echo got $line", user="root", stdin="typed\n")
            assert (first.stdout, first.exit_code) == ("root\nout\ngot typed\n", 0)
            second = await ctx.run_shell('id -un; echo "$HOME ${SUDO_ASKPASS-unset}"; exit 3', user="nobody", tty=False)
            assert (second.stdout.splitlines()[0], second.exit_code) == ("nobody", 3)
            assert second.stdout.endswith(" unset\n")
            started = await ctx.run_shell("id -un", user="root", wait=False)
            assert (await ctx.wait(started.job_id or "", timeout=20)).stdout == "root\n"
            assert list((host.state / "run").glob("sudo.*")) == []
            again = await ctx.run_shell("sudo -n true")
            assert again.exit_code == 1, "harness leaves a ticket"
            screen = await ctx.capture_pane(start="-") if tmux else ""
    assert [(one.kind, one.secret) for one in answers.asked] == [("sudo", True)]
    question = f"password of {host.user.name} for sudo on {host.target}, to run a command as root: "
    assert answers.asked[0].text == question
    assert watch.rounds > 5
    assert watch.seen == set()
    assert PASSWORD not in screen
    assert PASSWORD not in caplog.text
    assert leaks(host) == []


async def test_programs_in_the_path_of_a_pane_do_not_get_the_password(host: SudoHost) -> None:
    stolen = host.user.home / "stolen"
    for name in ("head", "cat", "tr"):
        fake = host.user.home / "it's" / name
        fake.parent.mkdir(exist_ok=True)
        fake.write_text(f'#!/bin/sh\nexec /usr/bin/{name} "$@" | /usr/bin/tee -a {stolen}\n')
        fake.chmod(0o755)
    async with host.connect(Answers([PASSWORD]), tmux=True) as ctx:
        await ctx.run_shell('PATH="$HOME/it\'s:$PATH"; export PATH')
        assert (await ctx.run_shell("id -un", user="root")).stdout == "root\n"
        assert (await ctx.run_shell("echo used | head -n 1")).stdout == "used\n"
    assert stolen.read_text() == "used\n"


async def test_two_commands_at_once_ask_once_and_wrong_passwords_are_forgotten(host: SudoHost) -> None:
    answers = Answers(["wrong", PASSWORD])
    results = []
    async with host.connect(answers) as ctx:

        async def run() -> None:
            results.append((await ctx.run_shell("id -un", user="root")).stdout)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            tasks.start_soon(run)
    assert results == ["root\n", "root\n"]
    assert [(one.attempt, one.refusal) for one in answers.asked] == [(1, ""), (2, "wrong password, try again")]


async def test_a_password_that_is_refused_or_missing_is_an_error_and_nothing_runs(
    host: SudoHost, tmp_path: Path
) -> None:
    mark = tmp_path / "ran"
    async with host.connect(Answers(["1", "2", "3"])) as ctx:
        with pytest.raises(UnsupportedOperation, match="cannot run as root: sudo: 3 incorrect password attempts"):
            await ctx.run_shell(f"touch {mark}", user="root")
        with use_prompter(None), pytest.raises(UnsupportedOperation, match="a password is required") as caught:
            await ctx.run_shell(f"touch {mark}", user="root")
        assert "--batch" in (caught.value.hint or "")
        for prompter in (None, Answers([PASSWORD])):
            with use_prompter(prompter), pytest.raises(UnsupportedOperation, match="unknown user nosuch"):
                await ctx.run_shell("true", user="nosuch")
        with use_prompter(Answers([None])), pytest.raises(UnsupportedOperation, match="none was given"):
            await ctx.run_shell(f"touch {mark}", user="root")
        assert [job.command for job in await ctx.jobs()] == []
        assert list((host.state / "run").glob("sudo.*")) == []
    assert not mark.exists()


async def test_only_a_wrong_password_counts_as_a_failed_login(host: SudoHost, tmp_path: Path) -> None:
    secret = tmp_path / "password"
    secret.write_text("wrong")
    with counted_failures(host.user, tmp_path) as failures, sudo_rule(host.user, f"ALL=(ALL) ALL\n{failures.rule}"):

        async def counted(ctx: ExecutionContext, *answers: str | None) -> int:
            with use_prompter(Answers([*answers]) if answers else None), suppress(UnsupportedOperation):
                await ctx.run_shell("true", user="root")
            await anyio.sleep(2.5)  # PAM takes 2 s to refuse
            return failures.take()

        async with host.connect(None) as ctx:
            assert [await counted(ctx), await counted(ctx)] == [0, 0]
            assert await counted(ctx, None) == 0
            assert await counted(ctx, "wrong", None) == 1
            assert await counted(ctx, "wrong", PASSWORD) == 0
        async with host.connect(None, sudo_password_command=("cat", str(secret))) as ctx:
            assert [await counted(ctx) for _ in range(3)] == [1, 0, 0]
            secret.write_text(PASSWORD)
            assert (await ctx.run_shell("id -un", user="root")).stdout == "root\n"
            assert failures.take() == 0


async def test_a_command_of_the_settings_gives_it_and_a_wrong_one_is_sent_once(host: SudoHost, tmp_path: Path) -> None:
    calls, secret = tmp_path / "calls", tmp_path / "password"
    command = ("sh", "-c", f'echo "$@" >>{calls}; cat {secret}', "sh", "{user}", "{host}")
    secret.write_text(f"{PASSWORD}\nuser: me\n")
    async with host.connect(None, sudo_password_command=command) as ctx:
        assert (await ctx.run_shell("id -un", user="root")).stdout == "root\n"
        assert (await ctx.run_shell("id -un", user="root")).stdout == "root\n"
    assert calls.read_text() == f"{host.user.name} 127.0.0.1\n"
    secret.write_text("wrong\n")
    tries = host.user.home / "tries"
    with sudo_rule(host.user, f'ALL=(ALL) ALL\nDefaults:{host.user.name} badpass_message="try again"'):
        async with host.connect(None, sudo_password_command=command) as ctx:
            for _ in range(3):
                with pytest.raises(UnsupportedOperation, match="refused the password of sudo_password_command"):
                    await ctx.run_shell("true", user="root")
    assert not tries.exists()


async def test_without_a_password_nothing_is_asked(host: SudoHost) -> None:
    answers = Answers()
    with sudo_rule(host.user, "ALL=(ALL) NOPASSWD: ALL"):
        async with host.connect(answers) as ctx:
            assert (await ctx.run_shell("id -un", user="root")).stdout == "root\n"
    assert answers.asked == []


@pytest.mark.parametrize("tmux", [False, True])
async def test_a_command_that_has_a_password_is_killed_by_it(host: SudoHost, tmux: bool) -> None:
    sleep = f"sleep 0.1{host.server.port}"
    stubborn = f"trap '' INT TERM HUP; for second in $(seq 400); do {sleep}; done"
    async with host.connect(Answers([PASSWORD]), tmux) as ctx:
        timed_out = await ctx.run_shell(
            f"{sleep}0; sleep 71.{host.server.port}", user="root", timeout=2, on_timeout="kill"
        )
        assert timed_out.status is Status.TIMED_OUT
        started = await ctx.run_shell(stubborn, user="root", wait=False)
    async with host.connect(None, tmux) as ctx:  # a KILL would end sudo, and leave the command running
        unable = await ctx.kill(started.job_id or "")
        assert unable.status in (Status.RUNNING, Status.UNKNOWN)
        assert running(sleep) == 1
    async with host.connect(Answers([PASSWORD])) as ctx:
        assert (await ctx.kill(started.job_id or "")).status in (Status.INTERRUPTED, Status.UNKNOWN)
    assert (running(f"sleep 71.{host.server.port}"), running(sleep)) == (0, 0)


def running(command: str) -> int:
    """How many processes have this command line, apart from a gap between two of them."""
    found = 0
    for _ in range(20):
        done = subprocess.run(["pgrep", "-c", "-x", "-f", command], capture_output=True, text=True)
        found = max(found, int(done.stdout))
    return found


async def test_an_agent_asks_the_operator_who_decides_and_types_the_password(host: SudoHost, tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    secret = tmp_path / "secret"
    secret.write_text(f"it is {PASSWORD}\n")
    secret.chmod(0o600)
    approver, answers = says(ApprovalScope.ONCE), Answers([PASSWORD])
    async with host.connect(answers) as ctx:
        box = toolbox(core_tools(), execution=ctx)
        services = replace(box.executor.services, policy=RulePolicy(approver=approver), redactor=PatternRedactor())
        executor = replace(box.executor, services=services)
        done = await executor.call(ToolCall("run_shell", {"command": f"id -un; cat {secret}", "user": "root"}))
        assert "root\nit is [redacted]" in done.result.text
        approver.answer = says(ApprovalScope.DENY_ONCE).answer
        refused = await executor.call(ToolCall("run_shell", {"command": "id", "user": "root"}))
    assert "(with user='root')" in approver.questions[0].what
    assert refused.status is CallStatus.DENIED
    assert len(answers.asked) == 1
    assert PASSWORD not in str([done, refused, approver.questions, box.ledger.begun, box.ledger.ended])


async def test_a_host_that_asks_without_end_gets_a_few_answers(host: SudoHost) -> None:
    """Its ``sudo`` asks for a code, with text that a terminal would obey."""
    fake = host.user.home / "bin/sudo"
    fake.parent.mkdir()
    ask = '"$SUDO_ASKPASS" "$(printf \'code \\033[31m\\n%s:\' "$i")" >>~/got; "$SUDO_ASKPASS" "password of u$i" >>~/got'
    fake.write_text(f'#!/bin/sh\ncase " $* " in *" -n "*) exit 1 ;; esac\nfor i in 1 2 3 4; do {ask}; done\nexit 1\n')
    fake.chmod(0o755)
    (host.user.home / ".bashrc").write_text("PATH=$HOME/bin:$PATH; export PATH\n")
    answers = Answers(["one", "two", "three", "four"])
    async with host.connect(answers) as ctx:
        with pytest.raises(UnsupportedOperation, match="cannot run as root"):
            await ctx.run_shell("true", user="root")
    start = f"sudo on {host.target} asks, to run a command as root: code [31m"
    assert [one.text for one in answers.asked][::2] == [f"{start} 1: ", f"{start} 2: "]
    assert (host.user.home / "got").read_text().split() == ["one", "two", "three"]


# -- the program


@pytest.fixture
def ops(host: SudoHost, request: pytest.FixtureRequest) -> Program:
    """The program, with the host under the names web1 and web2."""
    program: Program = request.getfixturevalue("program")  # after sshd, which changes the environment
    alias = f"[127.0.0.1]:{host.server.port}"
    host.server.ssh_config.write_text(
        f"Host web1 web2\n  HostName 127.0.0.1\n  Port {host.server.port}\n  User {host.user.name}\n"
        f"  HostKeyAlias {alias}\n"
    )
    options = [word for option in host.server.client_options for word in ("-o", option)]
    program.always = ("-F", str(host.server.ssh_config), "-i", str(host.server.identity), *options)
    return program


def typed(ops: Program, *words: str) -> Any:
    """Start the program in a terminal."""
    argv: Any = [*ops.always, *words]
    environ: Any = ops.environ
    return pexpect.spawn(ops.path, argv, env=environ, cwd=str(ops.home), timeout=30, dimensions=(50, 200))


def until_clean(host: SudoHost) -> None:
    """Wait until nothing of the account's ``sudo`` is left: neither files nor processes."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        found = subprocess.run(["pgrep", "-u", "root", "-f", f"^{SUDO} -A -k -p password of"], capture_output=True)
        asking = subprocess.run(["pgrep", "-u", host.user.name, "-f", "askpass"], capture_output=True)
        if not (list((host.state / "run").glob("sudo.*")) or found.stdout or asking.stdout):
            return
        time.sleep(0.1)
    pytest.fail("something of the question is left on the target")


def test_the_program_asks_without_echo_and_cleans_up_however_it_ends(host: SudoHost, ops: Program) -> None:
    question = f"password of {host.user.name} for sudo on ssh://web1, to run a command as root: "
    run = ("--ssh", "web1", "run", "--user", "root", "--")
    child = typed(ops, "-vvv", "--tmux", "--record", *run, "id -un; sleep 2; echo end")
    child.logfile_read = io.BytesIO()
    child.expect_exact(question)
    child.send("wrong\r")
    child.expect_exact(f"wrong password, try again\r\n{question}")
    child.send(f"{PASSWORD}\r")
    child.expect("root\r\n.*end\r\n")
    assert ended(child) == 0
    shown = child.logfile_read.getvalue()
    assert (b"harness: connected: " in shown, PASSWORD.encode() in shown) == (True, False)
    written = [path for path in ops.home.rglob("*") if path.is_file()]
    assert any(path.suffix == ".cast" for path in written)
    assert [path for path in written if PASSWORD.encode() in path.read_bytes()] == []
    assert leaks(host) == []

    child = typed(ops, *run, "touch ran")
    child.expect_exact(question)
    child.sendcontrol("c")
    assert ended(child) == 130
    until_clean(host)

    child = typed(ops, *run, "touch ran")
    child.expect_exact(question)
    child.kill(signal.SIGKILL)
    child.wait()
    until_clean(host)
    assert not (host.user.home / "ran").exists()

    done = ops.run("--batch", *run, "true")
    assert done.returncode == 125
    assert b"sudo: a password is required (for a password, use a terminal without --batch" in done.stderr
    until_clean(host)


def test_the_program_asks_for_the_password_of_a_sudo_in_the_pane(host: SudoHost, ops: Program) -> None:
    run = ("--ssh", "web1", "--tmux", "--record", "run", "--", "sh -c 'sudo id -un; exit 7'")
    child = typed(ops, "-vvv", *run)
    child.logfile_read = io.BytesIO()
    child.expect(
        rf"password of {host.user.name} for sudo on ssh://web1, to type it into `sudo id -un` \(process \d+ in pane"
    )
    child.expect_exact("main, as root): ")
    child.send(f"{PASSWORD}\r")
    child.expect_exact("root\r\n")
    assert ended(child) == 7
    assert PASSWORD.encode() not in child.logfile_read.getvalue()
    written = [path for path in ops.home.rglob("*") if path.is_file()]
    assert any(path.suffix == ".cast" for path in written)
    assert [path for path in written if PASSWORD.encode() in path.read_bytes()] == []
    assert leaks(host) == []

    child = typed(ops, *run)
    child.expect_exact("main, as root): ")
    child.sendcontrol("c")
    assert ended(child) == 130
    until_clean(host)
    assert subprocess.run(["pgrep", "-x", "-f", "sudo id -un"], capture_output=True).stdout == b""

    done = ops.run("--batch", *run)
    assert done.returncode == 124
    assert b"harness: sudo waits for a password: `sudo id -un` (process " in done.stderr
    assert b"in pane main, as root); nobody can approve that harness types it; type it there" in done.stderr


def test_many_hosts_are_given_one_password(host: SudoHost, ops: Program) -> None:
    fleet = ("run", "--hosts", "web[1-2]", "--user", "root")
    done = ops.run(*fleet, "--", "id -un")
    assert done.returncode != 0
    assert b"--ask-sudo-password" in done.stderr
    child = typed(ops, *fleet, "--ask-sudo-password", "--", "id -un")
    child.expect_exact("sudo password for 2 hosts, each of which that asks for it gets it, to run as root: ")
    child.send(f"{PASSWORD}\r")
    child.expect_exact("== web[1-2] (2)\r\nroot\r\n")
    assert ended(child) == 0
    for words in (("--ask-sudo-password", "--", "true"), ("--user", "root", "--ask-sudo-password", "--", "true")):
        assert ops.run("run", "--hosts", "web1", *words).returncode == 125
    stored = [path for path in ops.home.rglob("*") if path.is_file() and PASSWORD.encode() in path.read_bytes()]
    assert (stored, leaks(host)) == ([], [])
