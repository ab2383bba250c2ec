"""What a target offers, as one script reports it."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import anyio
import pytest
from tests.support.job_targets import SHELLS, open_job_target

from harness_backends.posix.probe import parse_probe

TIME = 20.0


@pytest.mark.usefixtures("needs_process")
@pytest.mark.parametrize("shell", SHELLS)
async def test_the_probe_tells_the_account_and_the_tools(tmp_path: Path, shell: str) -> None:
    with anyio.fail_after(TIME):
        async with open_job_target(shell, tmp_path) as target:
            found = target.capabilities
    account = pwd.getpwuid(os.getuid())
    assert (found.user, found.uid, found.shell) == (account.pw_name, os.getuid(), account.pw_shell)
    assert (found.home, found.hostname) == (str(tmp_path / "home"), os.uname().nodename)
    assert found.system == f"{os.uname().sysname} {os.uname().release} {os.uname().machine}"
    assert found.state_dir == str(tmp_path / "home" / "state" / "harness")
    assert found.has("cat")
    assert found.has("tmux") == (shell != "busybox")
    assert found.has("env --default-signal") == (shell != "busybox")
    assert (found.tmux_version != "") == found.has("tmux")


def test_answers_of_other_scripts_are_skipped_and_missing_ones_have_defaults() -> None:
    probe = parse_probe("state=/x\nclaimed=1\ntool=cat /bin/cat\n", "/x", now=5.0)
    assert probe.capabilities.tools == (("cat", "/bin/cat"),)
    assert (probe.capabilities.uid, probe.capabilities.home, probe.capabilities.shell) == (-1, "/", "/bin/sh")
    assert probe.clock_offset == 0.0


@pytest.mark.parametrize(
    ("clock", "offset"),
    [("1000.250000000", 0.25), ("1000.%N", 0.0), ("999", 0.0), ("1060.%N", 60.5), ("", 0.0), ("junk", 0.0)],
)
def test_the_clocks_difference_is_as_exact_as_the_target_tells(clock: str, offset: float) -> None:
    assert parse_probe(f"clock={clock}\n", "", now=1000.0).clock_offset == pytest.approx(offset)


def test_the_login_shell_is_the_accounts_and_not_the_environments() -> None:
    text = "env_shell=/bin/other\npasswd=deploy:x:1000:1000:,,,:/home/deploy:/usr/bin/fish\nuser=deploy\n"
    capabilities = parse_probe(text, "").capabilities
    assert (capabilities.shell, capabilities.home) == ("/usr/bin/fish", "/home/deploy")
