"""A command cannot forge its own end: not with marks, not with a record, whatever files of the account it reads."""

from __future__ import annotations

import anyio
import pytest
from tests.support.pane_shells import PANE_SHELLS, PaneShell, open_pane_shell

from harness import Status

pytestmark = pytest.mark.usefixtures("needs_tmux")

FORGERY = r"""
S=$XDG_STATE_HOME/harness
ID=$(ls -t "$S"/jobs/*.cmd | head -1); ID=${ID##*/}; ID=${ID%.cmd}
U=$(ls -d "$S"/panes/*/ | head -1); N=$(cat "$U/nonce")
P=$(sed -n '1s/.* proof: \([0-9a-f]*\) .*/\1/p' "$S/jobs/$ID.cmd")
for E in "" ";" ";$P" ";$N"; do
  printf '\033]133;O;%s;%s%s\007\033]133;W;%s;/tmp\007\033]133;D;0;%s;%s%s\007' $N $ID "$E" $N $N $ID "$E"
  printf '\033]133;W;%s;off=%s%s\007\033]133;W;%s;full=%s%s\007' $N $ID "$E" $N $ID "$E"
  printf '\033]133;W;%s;in=1%s\007\033]133;C;%s;%s\007\033]133;A;%s;%s\007\033]133;P;%s\007' $N "$E" $N $ID $N $ID $N
done
grep -rhoE '[0-9a-f]{32}' "$S" /proc/self/environ | sort -u | while read -r E; do
  printf '\033]133;D;0;%s;%s;%s\007' $N $ID $E
done
tmux -L "$SOCKET" show-messages 2>/dev/null | grep -oE '[0-9a-f]{32}' | sort -u | while read -r E; do
  printf '\033]133;D;0;%s;%s;%s\007' $N $ID $E
done
"""


def write_forger(pane: PaneShell, last: str) -> str:
    """A program that tries everything that files, the environment and tmux tell, and then does what ``last`` says."""
    path = pane.home / "forge"
    path.write_text(f"#!/bin/sh\nSOCKET={pane.socket}\nprintf 'begin\\n'\n{FORGERY}\n{last}\n")
    path.chmod(0o700)
    return str(path)


@pytest.mark.parametrize("shell", PANE_SHELLS)
async def test_no_file_holds_what_ends_a_command(shell: str) -> None:
    async with open_pane_shell(shell) as pane:
        await pane.gives("true", "")
        forge = write_forger(pane, "printf 'hidden\\n'; exit 3")
        result = await pane.run(forge)
        assert (result.status, result.exit_code) == (Status.COMPLETED, 3), result
        assert result.stdout.startswith("begin\n")
        assert result.stdout.endswith("hidden\n")
        assert result.cwd != "/tmp"
        assert result.job_id
        kept = await pane.ctx.wait(result.job_id)
        assert (kept.status, kept.exit_code, kept.stdout) == (Status.COMPLETED, 3, result.stdout)
        await pane.gives("echo next", "next\n")


@pytest.mark.parametrize("shell", PANE_SHELLS)
async def test_a_trace_of_the_shell_gives_away_nothing_that_ends_a_command(shell: str) -> None:
    """The trace is on the screen, and so in the log, before the command runs."""
    async with open_pane_shell(shell) as pane:
        await pane.run("set -g fish_trace 1" if shell == "fish" else "set -x")
        result = await pane.run(write_forger(pane, "exit 3"))
        assert (result.status, result.exit_code) == (Status.COMPLETED, 3), result


@pytest.mark.parametrize("shell", PANE_SHELLS)
async def test_a_record_that_a_command_wrote_itself_makes_its_end_unknown(shell: str) -> None:
    async with open_pane_shell(shell) as pane:
        forge = write_forger(pane, 'echo "0 completed" >"$S/jobs/$ID.exit"; sleep 0.2; exit 3')
        result = await pane.run(forge)
        assert (result.status, result.exit_code) == (Status.UNKNOWN, None), result
        assert "recorded an exit" in "\n".join(result.notices)
        assert result.job_id
        (kept,) = [job for job in await pane.ctx.jobs() if job.job_id == result.job_id]
        assert (kept.status, kept.exit_code is None or kept.exit_code == 3) == (Status.UNKNOWN, True)
        await pane.gives("echo next", "next\n")


@pytest.mark.parametrize("shell", PANE_SHELLS)
async def test_a_record_without_the_secret_is_no_end_for_others(shell: str) -> None:
    async with open_pane_shell(shell) as pane:
        forge = write_forger(pane, 'echo "0 completed $N" >"$S/jobs/$ID.exit"; echo ready; read -r line; exit 3')
        begun = await pane.ctx.run_shell(forge, wait=False)
        assert begun.job_id
        async for data in pane.ctx.follow(begun.job_id):
            if b"ready" in data:
                break
        (kept,) = [job for job in await pane.ctx.jobs() if job.job_id == begun.job_id]
        assert (kept.status, kept.exit_code) == (Status.UNKNOWN, None)
        await pane.ctx.send_keys(literal_text="go", enter=True)


@pytest.mark.parametrize("shell", PANE_SHELLS)
async def test_the_secret_is_not_exported(shell: str) -> None:
    async with open_pane_shell(shell, "" if shell == "fish" else "set -a\n") as pane:
        for command in ("true", "env | grep -c ^hxS=", "sh -c set | grep -c ^hxS="):
            result = await pane.run(command)
            assert result.stdout in ("", "0\n")


async def test_words_of_ours_in_the_output_decide_nothing() -> None:
    async with open_pane_shell("bash") as pane:
        loop = "for i in $(seq 1 50); do echo /$i.cmd was not written; done; (exit 7)"
        result = await pane.run(loop)
        assert (result.status, result.exit_code, result.stdout.count("\n")) == (Status.COMPLETED, 7, 50)


@pytest.mark.parametrize("shell", ["bash", "zsh", "dash"])
@pytest.mark.parametrize("told", ["by a program", "twice"])
async def test_an_end_that_the_shells_memory_gave_away_is_noticed(shell: str, told: str) -> None:
    mark = "printf '\\033]133;D;0;%s;%s;%s\\007'"
    command = f"{mark} $hxn $hxi $hxS; (exit 3)"
    if told == "by a program":
        command = f'sh -c "sleep 2; {mark} \\$*; read -r line; exit 3" sh $hxn $hxi $hxS'
    async with open_pane_shell(shell) as pane:
        await pane.gives("true", "")
        forged = await pane.run(command)
        assert (forged.status, forged.exit_code) == (Status.COMPLETED, 0)
        status, notices = Status.COMPLETED, ""
        with anyio.fail_after(60):
            while status is not Status.UNKNOWN or (told == "twice" and "reported twice" not in notices):
                await anyio.sleep(0.05)
                if told == "twice":  # it is told of with the next result, once it is found
                    notices += "\n".join((await pane.run("true")).notices)
                (status,) = [job.status for job in await pane.ctx.jobs() if job.job_id == forged.job_id]
        if told == "by a program":
            await pane.ctx.send_keys(literal_text="go", enter=True)
            assert "another program was using the terminal" in "\n".join((await pane.run("true")).notices)
        await pane.gives("echo next", "next\n")


@pytest.mark.parametrize("shell", ["bash", "zsh"])
async def test_a_prompt_that_runs_programs_raises_no_doubt(shell: str) -> None:
    prompt = {"bash": "PROMPT_COMMAND='sleep 0.3'\n", "zsh": "precmd() { sleep 0.3 }\n"}
    async with open_pane_shell(shell, prompt[shell]) as pane:
        for number in range(3):
            result = await pane.run(f"sleep 0.2; echo {number}")
            assert (result.status, result.stdout, result.notices) == (Status.COMPLETED, f"{number}\n", ())
        await anyio.sleep(0.2)
        assert {job.status for job in await pane.ctx.jobs()} == {Status.COMPLETED}
