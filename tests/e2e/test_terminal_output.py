"""Exact output and exact codes, whatever was printed and whatever was done to the shell before."""

from __future__ import annotations

import hashlib
import random

import pytest
from tests.support.desk import Desk, OpenDesk, desk, everywhere, open_desk

from harness import Status

__all__ = ["desk", "open_desk"]

BIG = 1 << 30

EXACT = {
    "NUL and all bytes": (
        r"i=0; while [ $i -lt 256 ]; do printf \\$(printf %03o $i); i=$((i+1)); done",
        bytes(range(256)),
    ),
    "progress": (r"printf '10%%\r20%%\r30%%\n'", b"10%\r20%\r30%\n"),
    "colour": (r"printf '\033[1;31mred\033[0m\n'", b"\x1b[1;31mred\x1b[0m\n"),
    "wide": ("echo '漢字 é 👩‍👩‍👧 ﷽'", "漢字 é 👩‍👩‍👧 ﷽\n".encode()),
    "blanks": (r"printf '\n\n  a\t b  \n\n'", b"\n\n  a\t b  \n\n"),
    "a lone return": (r"printf 'a\r'", b"a\r"),
    "imitated mark": (r"printf '\033]133;D;0;deadbeef;1\007x\n'", b"\x1b]133;D;0;deadbeef;1\x07x\n"),
}


@pytest.mark.parametrize(("command", "data"), EXACT.values(), ids=EXACT.keys())
async def test_bytes_are_exact(desk: Desk, command: str, data: bytes) -> None:
    result = await desk.ctx.run_shell(f"stty -opost\n{command}\nstty opost")
    assert result.stdout_bytes == data
    result = await desk.ctx.run_shell(f"{command}; (exit 42)")
    assert (result.exit_code, result.stdout_bytes.replace(b"\r\n", b"\n")) == (42, data.replace(b"\r\n", b"\n"))


@everywhere
async def test_a_million_lines(desk: Desk) -> None:
    result = await desk.ctx.run_shell("seq 1 1000000", max_output=BIG, timeout=60)
    expected = "".join(f"{n}\n" for n in range(1, 1_000_001)).encode()
    assert hashlib.sha256(result.stdout_bytes).digest() == hashlib.sha256(expected).digest()
    assert result.truncated == 0


async def test_one_line_of_ten_megabytes(desk: Desk) -> None:
    result = await desk.ctx.run_shell("head -c 10000000 /dev/zero | tr '\\0' x", max_output=BIG, timeout=60)
    assert (len(result.stdout_bytes), result.stdout_bytes.strip(b"x")) == (10_000_000, b"")


async def test_random_bytes(desk: Desk) -> None:
    """The same ones each time: some that the terminal answers, or that it would have to map, stand in them or not."""
    data = random.Random(5).randbytes(200_000)
    await desk.ctx.write_file(str(desk.home / "r"), data)
    result = await desk.ctx.run_shell("stty -echo; cat r; stty echo")
    assert result.stdout_bytes == data


LEFT_BEHIND = [
    "clear",
    "reset",
    "tput smcup",
    "tput civis; printf '\\033(0'",
    "stty raw -echo",
    "stty -echo",
    "exec 2>errors",
    "exec 2>/dev/null",
    "exec 2>&-",
    "set -u",
    "set -x",
    "set -f",
    "set -v",
    "set -o noclobber",
    "set -o posix",
    "trap 'echo trapped >/dev/null' DEBUG",
    "PS4='+ $(date) '; set -x",
    "PROMPT_COMMAND=",
    "unset PROMPT_COMMAND",
    "unset PS1",
    "PS1='> '",
    "PS1='$(false)$ '",
    "alias .=false",
    "alias eval=false",
    "alias read=false",
    "unalias -a",
    "enable -n printf",
    "printf() { return 9; }",
    "ulimit -f 0",
    "PATH=",
    "PATH=/nowhere",
    "mkdir gone; cd gone; rmdir ../gone",
    "LANG=C; LC_ALL=C; export LANG LC_ALL",
    "IFS=0123456789",
    "set -o vi",
    "shopt -s extglob nullglob",
    "set -a",
    "set -m",
    "set +m",
    "trap 'true' ERR EXIT",
    "set -- a b c",
    "unset HOME",
    "export POSIXLY_CORRECT=1",
    "bind 'set editing-mode vi'",
    "true &",
    "(sleep 0.1; echo late >/dev/null) &",
    "false | true; set -o pipefail",
    "TMOUT=900",
    "umask 777",
    "printf '\\033[?1000h'",
    "stty -icrnl",
    "stty rows 3 cols 9",
]


@pytest.mark.parametrize("command", LEFT_BEHIND)
async def test_the_command_after_it_is_right(desk: Desk, command: str) -> None:
    await desk.ctx.run_shell(command, timeout=10)
    for number in (7, 0):
        result = await desk.ctx.run_shell(f"echo a; echo b; /bin/sh -c 'exit {number}'", timeout=10)
        assert (result.status, result.exit_code) == (Status.COMPLETED, number), result
        assert result.stdout.startswith("a\nb\n") or command.startswith(("set -", "PS4")), result


HINDRANCES = ["alias hxa=false", "command() { return 9; }", "read() { return 9; }", 'bind \'"h": "zzz"\'']


@pytest.mark.parametrize("command", HINDRANCES)
async def test_what_cannot_start_is_said_not_to_have_started_and_never_runs(desk: Desk, command: str) -> None:
    await desk.ctx.run_shell(command, timeout=5)
    result = await desk.ctx.run_shell("echo ran >>ran; echo out; (exit 7)", timeout=15)
    if result.status is Status.RUNNING and result.job_id:  # on a slow machine it takes longer to find that out
        result = await desk.ctx.wait(result.job_id, timeout=60)
    said = "\n".join(result.notices)
    if result.status is Status.COMPLETED:
        assert (result.exit_code, result.stdout) == (7, "out\n")
    else:
        assert result.status is Status.UNKNOWN
        assert "did not start" in said or "may have run" in said
    await desk.ctx.send_keys(literal_text="\\builtin exit", enter=True)
    after = await desk.ctx.run_shell("cat ran 2>/dev/null; echo fresh", timeout=15)
    assert after.stdout in ("ran\nfresh\n", "fresh\n")
    if "did not start" in said:
        assert after.stdout == "fresh\n"


async def test_what_cannot_start_is_said_so_when_its_shell_was_busy_at_first(desk: Desk) -> None:
    await desk.ctx.run_shell('command_not_found_handle() { sleep 6; }; bind \'"h": "zzz"\'', timeout=5)
    result = await desk.ctx.run_shell("echo ran", timeout=40)
    assert result.status is Status.UNKNOWN, result
    assert any("did not start" in notice for notice in result.notices), result


async def test_output_sent_elsewhere_for_good_leaves_the_codes(desk: Desk) -> None:
    await desk.ctx.run_shell("exec >out", timeout=10)
    result = await desk.ctx.run_shell("echo hidden; (exit 3)", timeout=10)
    assert (result.status, result.exit_code) == (Status.COMPLETED, 3), result
    await desk.ctx.run_shell("exec >/dev/tty")
    assert (await desk.ctx.run_shell("echo shown")).stdout == "shown\n"


SHELLS = ["/bin/bash", "/usr/bin/zsh", "/bin/dash", "/usr/bin/fish"]


@pytest.mark.usefixtures("needs_root")
@pytest.mark.parametrize("shell", SHELLS)
async def test_another_user_runs_one_command(open_desk: OpenDesk, shell: str) -> None:
    desk = await open_desk(shell=shell)
    assert (await desk.ctx.run_shell("id -un", user="nobody")).stdout == "nobody\n"
    assert (await desk.ctx.run_shell("id -un")).stdout == "root\n"


@pytest.mark.parametrize("shell", SHELLS)
async def test_options_hold_for_one_command(open_desk: OpenDesk, shell: str) -> None:
    desk = await open_desk(shell=shell)
    run = desk.ctx.run_shell
    before = (await run("pwd")).stdout
    assert (await run("pwd", cwd="/usr")).stdout == "/usr\n"
    assert (await run('echo "$A"', env={"A": "x 'y'\n$z"})).stdout == "x 'y'\n$z\n"
    data = bytes(range(256)) * 4096
    digest = hashlib.sha256(data).hexdigest()
    assert (await run("sha256sum", stdin=data)).stdout == f"{digest}  -\n"
    split = await run("echo out; echo err >&2; sh -c 'exit 4'", tty=False)
    assert (split.exit_code, split.stdout, split.stderr) == (4, "out\n", "err\n")
    with pytest.raises(FileNotFoundError, match="/no/such/place"):
        await run("echo never", cwd="/no/such/place")
    after = await run('pwd; echo "<$A>"')
    assert after.stdout == f"{before}<>\n"


async def test_separate_streams_of_five_megabytes(desk: Desk) -> None:
    command = "head -c 5000000 /dev/zero; head -c 5000000 /dev/zero | tr '\\0' e >&2"
    result = await desk.ctx.run_shell(command, tty=False, max_output=BIG)
    assert result.stdout_bytes == bytes(5_000_000)
    assert result.stderr_bytes == b"e" * 5_000_000
