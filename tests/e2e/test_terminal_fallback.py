"""A tmux that takes plain commands only: no control mode, and in some tests no ``pipe-pane`` either."""

from __future__ import annotations

import shutil
from pathlib import Path

import anyio
import pytest
from tests.support.desk import Desk, OpenDesk, open_desk, until

from harness import Job, PaneBusy, ShellResult, Status, UnsupportedOperation

__all__ = ["open_desk"]

REFUSED = "tmux's control mode cannot be had here"
RENDERED = "read from the scrollback"
WHERE = ["local", "ssh"]
LOGS = [True, False]


def plain_tmux(folder: Path, *, logs: bool) -> Path:
    """A ``tmux`` as a sudo rule or a wrapper script may leave it: some of its words are refused."""
    refused = "-C" if logs else "-C | pipe-pane"
    folder.mkdir(exist_ok=True)
    program = folder / "tmux"
    program.write_text(
        f'#!/bin/sh\nfor word in "$@"; do case $word in {refused}) echo "$word is not allowed" >&2; exit 1 ;; esac; done\n'
        f'exec {shutil.which("tmux")} "$@"\n'
    )
    program.chmod(0o755)
    return folder


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
