"""The options of one command in a pane (``cwd``, ``env``, ``stdin``, ``user``, ``tty=False``) hold for it alone."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, cast

import anyio
import pytest
from tests.support.pane_shells import PANE_SHELLS, PaneShell, open_pane_shell, shell_path

from harness import ShellResult
from harness.command import Command
from harness.errors import UnsupportedOperation
from harness_backends.posix.state_directory import JobStore
from harness_backends.tmux.jobs.wrapped_command import MAX_INLINE_BYTES, WrappedCommand, wrap_command

STORE = cast(JobStore, SimpleNamespace(path=lambda job_id, suffix: f"/a b/'q'/{job_id}.{suffix}"))
ODD = 'a\'b "c" $d `e` \\ ! * \n\ttab ä'
OPTIONS: list[dict[str, Any]] = [
    {"cwd": f"/tmp/{ODD}"},
    {"env": (("A", ODD), ("B", "")), "tty": False},
    {"stdin": b"x"},
    {"user": "nobody", "env": (("A", "1"),)},
    {"cwd": "/", "env": (("A", ODD),), "stdin": b"", "user": "nobody", "tty": False},
]


@pytest.fixture(scope="module", params=PANE_SHELLS)
async def pane(needs_tmux: None, request: pytest.FixtureRequest) -> AsyncIterator[PaneShell]:
    async with open_pane_shell(request.param) as opened:
        yield opened


async def run(pane: PaneShell, command: str, **options: Any) -> ShellResult:
    with anyio.fail_after(40):
        return await pane.ctx.run_shell(command, **options)


@pytest.mark.parametrize("command", ["true", "", "cd /tmp"])
def test_a_command_without_options_needs_no_wrapper(command: str) -> None:
    assert wrap_command(Command(command, tty=True), "7", STORE, "bash", "t") == WrappedCommand()


@pytest.mark.usefixtures("needs_process")
def test_the_wrapper_is_valid_in_its_shell() -> None:
    for options in OPTIONS:
        for shell in PANE_SHELLS:
            kind = "ash" if shell == "busybox" else shell
            body = wrap_command(Command("echo 'x'\n# end", **options), "7", STORE, kind, "t")
            argv = [shell_path(shell), *(["sh"] if shell == "busybox" else []), "-n"]
            check = subprocess.run(argv, input=(body.run or "").encode(), capture_output=True, timeout=20)
            assert (check.returncode, check.stderr) == (0, b"")
            assert body.stdin == (options.get("stdin") or None)


def test_an_empty_standard_input_is_not_brought_to_the_target() -> None:
    body = wrap_command(Command("cat", stdin=b""), "7", STORE, "bash", "t")
    assert body.stdin is None
    assert "</dev/null" in (body.run or "")


@pytest.mark.parametrize("user", ["-x", "a b", "x;id", "", "$(id)", "a\nb"])
def test_a_name_that_is_no_users_is_refused(user: str) -> None:
    if user:
        with pytest.raises(UnsupportedOperation, match="is not a valid user name"):
            wrap_command(Command("true", user=user), "7", STORE, "bash", "t")


def test_a_command_that_no_argument_can_hold_is_refused_for_another_user() -> None:
    with pytest.raises(UnsupportedOperation, match="bytes cannot run as another user"):
        wrap_command(Command("x" * (MAX_INLINE_BYTES + 1), user="nobody"), "7", STORE, "bash", "t")


def test_no_value_of_the_environment_is_in_an_argument_list() -> None:
    body = wrap_command(Command("true", user="nobody", env=(("TOKEN", "s3cret"),)), "7", STORE, "bash", "t")
    assert body.run is not None
    assert [line for line in body.run.splitlines() if "s3cret" in line] == [r"\builtin export TOKEN=s3cret"]


@pytest.mark.usefixtures("needs_tmux")
async def test_the_directory_is_the_commands_alone(pane: PaneShell) -> None:
    before = (await pane.run("pwd")).stdout
    directory = pane.home / ODD
    directory.mkdir(exist_ok=True)
    result = await run(pane, "command ls -d .; touch made; sh -c 'exit 6'", cwd=str(directory))
    assert (result.stdout, result.exit_code) == (".\n", 6)
    assert os.listdir(directory) == ["made"]
    await pane.gives("pwd", before)


@pytest.mark.usefixtures("needs_tmux")
@pytest.mark.parametrize("wait", [True, False])
async def test_a_directory_that_cannot_be_entered_is_an_error_and_nothing_runs(pane: PaneShell, wait: bool) -> None:
    ran = pane.home / "ran"
    for cwd, error in (("/no/such/place", FileNotFoundError), ("/etc/hostname", NotADirectoryError)):
        for tty in (None, False):
            with pytest.raises(error, match=f"{cwd}: .*nothing ran"):
                await run(pane, f"touch '{ran}'", cwd=cwd, wait=wait, tty=tty)
    assert not ran.exists()
    await pane.gives("echo next", "next\n")


@pytest.mark.usefixtures("needs_tmux")
async def test_a_directory_may_be_relative_or_below_the_home(pane: PaneShell) -> None:
    (pane.home / "a b").mkdir(exist_ok=True)
    home = str(pane.home)
    for cwd, place in (("~", home), ("~/a b", f"{home}/a b")):
        assert (await run(pane, "pwd", cwd=cwd)).stdout == f"{place}\n"
    await pane.run(f"cd '{home}'")
    assert (await run(pane, "pwd", cwd="a b")).stdout == f"{home}/a b\n"


@pytest.mark.usefixtures("needs_tmux")
@pytest.mark.parametrize("shell", PANE_SHELLS)
def test_a_relative_directory_is_not_looked_for_in_other_places(shell: str) -> None:
    """Neither in ``CDPATH``, nor is ``-`` the directory before."""
    for cwd in ("a", "-", "~ann", "../b"):
        body = wrap_command(Command("true", cwd=cwd), "7", STORE, "ash" if shell == "busybox" else shell, "t")
        assert body.run is not None
        (entered,) = re.findall("cd -- '?(.*?)'?(?:;|\n)", body.run.split("cd -- $hxpwd")[0])
        assert entered == f"./{cwd}"


@pytest.mark.usefixtures("needs_tmux")
async def test_the_environment_is_the_commands_alone(pane: PaneShell) -> None:
    result = await run(pane, "printenv ONE_ODD", env={"ONE_ODD": ODD})
    assert (result.stdout, result.exit_code) == (f"{ODD}\n", 0)
    await pane.gives("printenv ONE_ODD", "", 1)


@pytest.mark.usefixtures("needs_process")
@pytest.mark.parametrize("data", [b"", b"line\n", b"\x00\xff\r\nno newline", b"x" * 300_000])
async def test_standard_input_is_given_byte_for_byte(pane: PaneShell, data: bytes) -> None:
    result = await run(pane, "cat", stdin=data, tty=False)
    assert (result.stdout_bytes == data, result.exit_code) == (True, 0)


@pytest.mark.usefixtures("needs_process")
async def test_separate_streams_are_exact(pane: PaneShell) -> None:
    command = "printf 'a\\r\\nb'; printf 'c\\n' >&2; sh -c 'exit 5'"
    result = await run(pane, command, tty=False)
    assert (result.stdout_bytes, result.stderr_bytes, result.exit_code) == (b"a\r\nb", b"c\n", 5)


@pytest.mark.usefixtures("needs_tmux")
async def test_another_user_runs_the_command_with_its_own_home(pane: PaneShell) -> None:
    if os.getuid():
        return  # the change of users needs root; the text of the wrapper is checked above
    command = "id -un; echo $HOME; printenv MARK; exit 4"
    result = await run(pane, command, user="nobody", env={"MARK": "m"}, cwd="/")
    assert (result.stdout, result.exit_code) == ("nobody\n/\nm\n", 4)
    await pane.gives("id -un", (await pane.run("id -un")).stdout)
