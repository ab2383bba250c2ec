"""A real ``sudo`` that waits for a password in a real pane, over a real sshd."""

from __future__ import annotations

import logging
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest
from anyio import run_process
from tests.support.permits import says
from tests.support.sshd import MakeUser, SshServer
from tests.support.sudo import PASSWORD, Answers, SudoHost, leaks, sudo_rule, watched_processes
from tests.support.toolbox import toolbox

from harness.login import LoginQuestion, use_prompter
from harness.results import Status
from harness.toolkit import ToolCall
from harness.toolkit.permissions.policy import RulePolicy
from harness.toolkit.permissions.questions import ApprovalScope
from harness.toolkit.permissions.rules.settings import Mode, PermissionSettings
from harness.toolkit.redaction.redactor import PatternRedactor
from harness_tools.background import tools as background_tools
from harness_tools.core import tools as core_tools

pytestmark = pytest.mark.usefixtures("needs_tmux")
NESTED = "sh -c 'echo before; sudo sh -c \"id -un; exit 7\"'"
COMMENT = "-u nobody sh -c '# a comment\nid'"
"""The command after the comment must be seen in what is approved, and in what rules are matched with."""
OTHER_SUDO = "ln -s $(command -v sudo) ~/other; set -m; (sleep 0.7; sleep 20 & exec ~/other -n id) &"
FAKE_PROMPT = "stty -echo; printf '[sudo] password for me: '; read -r line; stty echo; echo \"got $line\""


@pytest.fixture
def host(sshd: SshServer, make_user: MakeUser) -> Iterator[SudoHost]:
    user = make_user(shell="/bin/bash", password=PASSWORD)
    with sudo_rule(user, "ALL=(ALL) ALL"):
        yield SudoHost(sshd, user)


def in_tmux(host: SudoHost, *words: str) -> str:
    """What tmux tells the account, as which any program there could ask it."""
    argv = ["runuser", "-u", host.user.name, "--", "tmux", "-L", "harness", *words]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout


async def test_the_operator_types_the_password_once_and_confirms_each_further_sudo(
    host: SudoHost, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    answers = Answers(["wrong", PASSWORD, "y", "n"])
    with watched_processes(PASSWORD) as watch:
        async with host.connect(answers, tmux=True) as ctx:
            done = await ctx.run_shell(NESTED, timeout=30)
            assert (done.exit_code, done.notices) == (7, ())
            assert (await ctx.run_shell("sudo -n true")).exit_code == 1, "the password serves other commands"
            assert done.stdout == f"before\n[sudo] password for {host.user.name}: \nroot\n"
            again = await ctx.run_shell(NESTED, timeout=30, on_timeout="kill")
            assert (again.exit_code, again.notices) == (7, ())
            denied = await ctx.run_shell("sudo -u nobody id -un", timeout=30)
            assert (denied.status, denied.exit_code) == (Status.RUNNING, None)
            assert "; the operator did not approve it; type it there (harness attach)" in denied.notices[0]
            screen = await ctx.capture_pane(start="-")
            assert in_tmux(host, "list-buffers") == ""
            await ctx.kill(denied.job_id or "")
    question = answers.asked[0]
    assert question.text.startswith(f"password of {host.user.name} for sudo on {host.target}, to type it into `sudo sh")
    assert "in pane main, as root): " in question.text
    assert [(one.secret, one.attempt) for one in answers.asked] == [(True, 1), (True, 2), (False, 1), (False, 1)]
    known = f"type the known password for sudo on {host.target} into `sudo -u nobody id -un` (process "
    assert answers.asked[-1].text.startswith(known)
    assert watch.rounds > 5
    assert watch.seen == set()
    for text in (screen, caplog.text, str(done)):
        assert PASSWORD not in text
    assert "try again" not in screen, "the wrong password reached the pane"
    assert leaks(host) == []


async def test_the_password_is_for_one_sudo_and_not_for_the_next_one(host: SudoHost) -> None:
    answers = Answers([PASSWORD, "n"])
    async with host.connect(answers, tmux=True) as ctx:
        done = await ctx.run_shell("sudo true; sudo -n id -un; sudo id -un", timeout=20)
        await ctx.kill(done.job_id or "")
    assert done.status is Status.RUNNING
    assert "root" not in done.stdout
    assert len(answers.asked) == 2


async def test_without_an_approver_the_result_says_what_waits(host: SudoHost) -> None:
    async with host.connect(None, tmux=True) as ctx:
        done = await ctx.run_shell(NESTED, timeout=30)
        assert done.status is Status.RUNNING
        assert done.duration < 10
        assert "sudo waits for a password: `sudo sh -c 'id -un; exit 7'`" in done.notices[0]
        assert "in pane main, as root); nobody can approve that harness types it; type it there" in done.notices[0]
        await ctx.kill(done.job_id or "")
        ended = await ctx.run_shell(NESTED, timeout=3, on_timeout="kill")
        assert ended.status is Status.TIMED_OUT
        assert "nobody can approve" in ended.notices[0]
        with use_prompter(Answers([None])):  # a second question would be an error
            asked = await ctx.run_shell(NESTED, timeout=8, on_timeout="kill")
        assert asked.status is Status.TIMED_OUT
        assert ["password, and none was given; type" in notice for notice in asked.notices] == [True]


@pytest.mark.parametrize(
    "program",
    [
        pytest.param(FAKE_PROMPT, id="a prompt that looks like sudo's"),
        pytest.param("cp /bin/bash ~/sudo; ~/sudo ~/phish", id="a program of the user called sudo"),
        pytest.param("sudo -u nobody sh ~/phish", id="below a sudo"),
        pytest.param("(setsid sh -c 'cat <$0 >~/got' $(tty) &); sleep 0.5; sudo id", id="a second reader"),
        pytest.param(f"{OTHER_SUDO} sudo id", id="a sudo that would share the ticket"),
        pytest.param("stty -echo; mkfifo ~/input; sudo -S id <>~/input", id="a sudo that reads from another program"),
    ],
)
async def test_a_program_that_imitates_sudo_gets_nothing(host: SudoHost, program: str) -> None:
    (host.user.home / "phish").write_text(f"{FAKE_PROMPT}\n")
    host.user.home.chmod(0o755)
    answers = Answers([PASSWORD, PASSWORD])
    shares = f"{host.user.name} ALL=(nobody) NOPASSWD: /bin/sh, /usr/bin/sh\nDefaults:{host.user.name} !use_pty"
    with sudo_rule(host.user, f"ALL=(ALL) ALL\n{shares}"):
        async with host.connect(answers, tmux=True) as ctx:
            done = await ctx.run_shell(program, timeout=6)
            screen = await ctx.capture_pane()
            await ctx.kill(done.job_id or "")
    assert done.status is Status.RUNNING
    assert "[sudo] password for" in screen
    assert answers.asked == []
    assert PASSWORD not in screen
    assert leaks(host) == []


@dataclass
class EndsSudo(Answers):
    """A prompter during whose answer the ``sudo`` ends."""

    user: str = ""

    async def answer(self, question: LoginQuestion) -> str | None:
        answer = await super().answer(question)
        await run_process(["runuser", "-u", self.user, "--", "pkill", "-KILL", "-x", "-f", "sudo -u root id"])
        return answer


async def test_a_program_that_reads_after_the_sudo_that_was_approved_gets_nothing(host: SudoHost) -> None:
    answers = EndsSudo([PASSWORD, PASSWORD], user=host.user.name)
    async with host.connect(answers, tmux=True) as ctx:
        done = await ctx.run_shell(f"sh -c 'sudo -u root id'; {FAKE_PROMPT}", timeout=20)
        assert done.status is Status.RUNNING
        assert len(answers.asked) == 1
        await ctx.send_keys("Enter")
        assert "got \n" in (await ctx.wait(done.job_id or "", timeout=10)).stdout.replace("\r", "")


async def test_an_agent_s_command_asks_for_each_password_by_the_approver(host: SudoHost) -> None:
    approver, answers = says(ApprovalScope.ONCE), Answers(["wrong", PASSWORD])
    async with host.connect(answers, tmux=True) as ctx:
        box = toolbox([*core_tools(), *background_tools()], execution=ctx)
        policy = RulePolicy(PermissionSettings(mode=Mode.AUTO), approver=approver)
        services = replace(box.executor.services, policy=policy, redactor=PatternRedactor())
        executor = replace(box.executor, services=services)
        with use_prompter(None):
            unasked = await executor.call(ToolCall("run_shell", {"command": NESTED}))
        assert "; there is no password for it; type it there" in unasked.result.text
        assert approver.questions == []
        await ctx.kill((await ctx.jobs())[-1].job_id)
        first = await executor.call(ToolCall("run_shell", {"command": NESTED}))
        assert "sudo refused the password; type it there" in first.result.text
        job = str((await ctx.jobs())[-1].job_id)
        read = ToolCall("bash_output", {"bash_id": job, "wait": 10})
        reads = [(await executor.call(read)).result.text for _ in range(3)]  # what is there, the answer, the result
        assert "root" in "".join(reads)
        approver.answer = says(ApprovalScope.DENY_ONCE, reason="not today").answer
        denied = await executor.call(ToolCall("run_shell", {"command": f"sudo {COMMENT}"}))
        assert "it was denied (not today)" in denied.result.text
        assert "`sudo -u nobody sh -c '# a comment\\nid'` (process " in denied.result.text
        assert [job.exit_code for job in await ctx.jobs()][1:] == [7, None]
        await ctx.kill((await ctx.jobs())[-1].job_id)
    shown = ["sudo sh -c 'id -un; exit 7'"] * 2 + [f"sudo {COMMENT}"]
    assert [question.what for question in approver.questions] == shown
    assert "waits for your sudo password in pane main, to run as root" in approver.questions[0].reason
    assert {*approver.questions[0].scopes} == {ApprovalScope.ONCE, ApprovalScope.DENY_ONCE}
    assert len(answers.asked) == 2
    assert PASSWORD not in str([first, reads, denied, approver.questions, box.ledger.begun, box.ledger.ended])
