"""A target like those of BSD and macOS: no ``/proc``, no ``setsid``, and no program with the options of GNU.

It is a stand-in, a Debian with these programs replaced: ``ps`` has a ``/proc`` that nothing else sees, and ``stat``,
``find`` and ``date`` refuse what the manuals of FreeBSD do not list.
"""

from __future__ import annotations

import os
import secrets
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio
import pytest
from tests.support.program_targets import end_tmux, mount, root_directory
from tests.support.sweep import unmount_below

from harness import ExecutionContext, Status, connect
from harness.config import Config

pytestmark = pytest.mark.usefixtures("needs_root", "needs_tmux")

PS = 'exec chroot /hidden /usr/bin/ps.real "$@"'
STAT = """\
[ "$1" = -f ] || { echo "stat: illegal option" >&2; exit 1; }
format=$(printf '%s' "$2" | sed 's/%Xp/%f/g; s/%Mp%Lp/%a/g; s/%z/%s/g; s/%F\\{0,1\\}m/%Y/g; s/%Fc/%Z/g; s/%N/%n/g')
shift 2
exec stat.real -c "$format" "$@"
"""
FIND = """\
for word do case $word in -printf) echo "find: -printf: unknown primary" >&2; exit 1 ;; esac; done
exec find.real "$@"
"""
DATE = """\
case $* in *%N*) set -- "+$(date.real +%s).N" ;; esac
exec date.real "$@"
"""
GONE = ("setsid", "sha256sum", "timeout", "flock")


@pytest.fixture(scope="module")
def root() -> Iterator[str]:
    with root_directory("debian", mounts=("dev",)) as directory:
        programs = Path(directory) / "usr/bin"
        for name in GONE:
            (programs / name).unlink()
        for name, text in {"ps": PS, "stat": STAT, "find": FIND, "date": DATE}.items():
            (programs / name).rename(programs / f"{name}.real")
            (programs / name).write_text(f"#!/bin/sh\n{text}\n")
            (programs / name).chmod(0o755)
        hidden = Path(directory) / "hidden"
        hidden.mkdir()
        mount("--bind", directory, str(hidden))
        mount("-t", "proc", "proc", f"{hidden}/proc")
        try:
            yield directory
        finally:
            end_processes(directory)
            unmount_below(hidden)


def end_processes(root: str) -> None:
    """Kill what a failed test has left in the root directory."""
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if os.readlink(entry / "root") == root:
                os.kill(int(entry.name), signal.SIGKILL)


@asynccontextmanager
async def opened(root: str, *, tmux: bool) -> AsyncIterator[ExecutionContext]:
    config = Config(tmux_socket=f"hx-{secrets.token_hex(4)}")
    async with connect(f"chroot://{root}", tmux=tmux, config=config) as ctx:
        try:
            yield ctx
        finally:
            if tmux:
                end_tmux(ctx, config)


def is_alive(root: str, file: str) -> bool:
    """Return whether the process whose id is in a file runs."""
    try:
        return ") Z " not in Path(f"/proc/{Path(root, file).read_text().strip()}/stat").read_text()
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("tmux", [False, True], ids=["plain", "tmux"])
async def test_a_timeout_ends_all_processes(root: str, tmux: bool) -> None:
    """Also those that ignore signals, and not what an earlier command has left in the background."""
    async with opened(root, tmux=tmux) as ctx:
        await ctx.run_shell("sh -c 'echo $$ >/tmp/earlier; exec sleep 300' >/dev/null 2>&1 &")
        await anyio.sleep(2.1)  # ps tells ages in seconds
        result = await ctx.run_shell(
            "trap '' INT TERM; sh -c 'echo $$ >/tmp/child; exec sleep 301' & echo started; exec sleep 302"
            if not tmux
            else "sh -c 'trap \"\" INT TERM HUP; echo $$ >/tmp/child; while :; do sleep 1; done'",
            timeout=2,
            on_timeout="kill",
        )
        assert result.status is Status.TIMED_OUT, result
        assert not is_alive(root, "tmp/child")
        assert is_alive(root, "tmp/earlier")
        assert (await ctx.run_shell("echo on")).stdout == "on\n"
        await ctx.run_shell("kill $(cat /tmp/earlier)")


@pytest.mark.parametrize("tmux", [False, True], ids=["plain", "tmux"])
async def test_files_and_jobs(root: str, tmux: bool) -> None:
    data = bytes(range(256)) + b"-%d\\c" + bytes(100)
    async with opened(root, tmux=tmux) as ctx:
        await ctx.write_file("/tmp/d/f", data, parents=True)
        assert (await ctx.read_file("/tmp/d/f")).data == data
        assert [(entry.name, entry.size) for entry in await ctx.list_dir("/tmp/d")] == [("f", len(data))]
        result = await ctx.run_shell("cd /tmp/d && (exit 6)")
        job = next(job for job in await ctx.jobs() if job.job_id == result.job_id)
        assert (job.status, job.exit_code) == (Status.COMPLETED, 6)
        assert job.started is not None
        assert job.ended is not None
        await ctx.remove("/tmp/d", recursive=True)
