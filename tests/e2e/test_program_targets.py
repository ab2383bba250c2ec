"""Targets that a program gives: what is refused, what ends, and what happens when the target is another one."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

import anyio
import pytest
from tests.support.kubernetes import StandInCluster, stand_in_cluster
from tests.support.namespaces import namespaces
from tests.support.program import Program
from tests.support.program_targets import root_directory
from tests.support.sshd import SshServer

from harness import ConnectError, ConnectionLost, ExecutionContext, Status, Target, TargetGone, connect
from harness.config import Config
from harness.context import backend_of
from harness.target import ExecTarget
from harness.transport import Transport
from harness_backends.local import LocalTransport
from harness_backends.program import open_transport

pytestmark = pytest.mark.usefixtures("needs_process")

ENTER = ("sh", "-c", 'exec "$@"', "sh", "{argv}")


@pytest.fixture(autouse=True)
def home_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def config(*argv: str) -> Config:
    return Config(exec_targets=(("box", ExecTarget(argv)),))


async def entered(*argv: str, base: Transport | None = None) -> Transport:
    return await open_transport(Target.parse("exec://box"), config(*argv), base)


@asynccontextmanager
async def context(*argv: str) -> AsyncIterator[ExecutionContext]:
    async with connect("exec://box", config=config(*argv)) as ctx:
        yield ctx


def is_running(pid: int) -> bool:
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False


async def until_ended(pid: int) -> None:
    with anyio.fail_after(10):
        while is_running(pid):  # noqa: ASYNC110  # another process cannot set an event
            await anyio.sleep(0.02)


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (("script", "-qec", "{command}", "/dev/null"), "puts a terminal between"),
        (("sh", "-c", 'exec script -qec "$0" /dev/null </dev/null', "{command}"), "puts a terminal between"),
        (("sh", "-c", 'echo "no pod for: $0"', "{command}"), "started no shell: "),
        (("sh", "-c", "{command} 2>&1"), "mixes standard error into standard output"),
        (("sh", "-c", "{command} 2>/dev/null"), "loses standard error"),
        (("sh", "-c", "({command}) | sed -u 's/$/\r/'"), "changes the bytes"),
        (("sh", "-c", r"({command}) | sed -u 's/\x00/x/'"), "changes the bytes"),
        (("sh", "-c", r"sed -u 's/\xff/x/' | {command}"), "changes the bytes"),
        (("sh", "-c", "{command} </dev/null"), "no standard input arrives"),
        (("sh", "-c", "echo no such pod >&2; exit 1 # {command}"), "started no shell: no such pod"),
        (("sh", "-c", "echo welcome; # {command}"), "started no shell: welcome"),
        (("no-such-program", "{argv}"), "no-such-program: no such file or directory"),
    ],
)
async def test_a_program_that_is_not_exact_is_refused_when_connecting(argv: tuple[str, ...], said: str) -> None:
    with anyio.fail_after(15), pytest.raises(ConnectError) as caught:
        await entered(*argv)
    assert said in caught.value.message
    assert caught.value.hint
    assert caught.value.target == "exec://box"


async def test_words_of_a_login_shell_before_the_command_are_left_out() -> None:
    async with context("sh", "-c", "echo welcome; echo motd >&2; {command}") as ctx:
        result = await ctx.run_shell("echo out; echo err >&2")
        assert (result.stdout, result.stderr, result.exit_code) == ("out\n", "err\n", 0)


@pytest.mark.parametrize("redirection", ["", ">&2"])
async def test_many_words_before_the_command_block_nothing(redirection: str) -> None:
    transport = await entered("sh", "-c", f"head -c 1000000 /dev/zero {redirection}; {{command}}")
    async with await transport.open_process(["sh", "-c", "echo out; exit 7"]) as process:
        assert (await process.receive(), await process.wait()) == (b"out\n", 7)


async def test_what_the_program_says_of_an_exit_code_is_not_output_of_the_command() -> None:
    transport = await entered("sh", "-c", '{command}; code=$?; [ $code = 0 ] || echo "exit code $code" >&2; exit 1')
    async with await transport.open_process(["sh", "-c", "echo err >&2; exit 7"]) as process:
        said = b""
        while data := await process.receive_stderr():
            said += data
        assert (await process.wait(), said) == (7, b"err\n")


@pytest.mark.parametrize("argv", [ENTER, ("sh", "-c", "({command}); true")])
async def test_a_closed_process_ends_on_the_target_also_where_it_was_started_in_the_group_of_another(
    argv: tuple[str, ...],
) -> None:
    """``(...); true`` forks, so what it starts does not lead its group, as behind sshd."""
    transport = await entered(*argv)
    script = "trap '' TERM HUP INT; echo $$; while :; do sleep 1; done"
    async with await transport.open_process(["sh", "-c", script]) as process:
        pid = int(await process.receive())
        assert is_running(pid)
    await until_ended(pid)


async def test_a_cancelled_command_ends_on_the_target() -> None:
    async with context(*ENTER) as ctx:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ctx.run_shell, "echo $$ >$HOME/pid; exec sleep 1000")
            pid = await pid_in(Path(os.environ["HOME"], "pid"))
            tasks.cancel_scope.cancel()
        await until_ended(pid)
        result = await ctx.run_shell("exec sleep 1000", timeout=0.2)
        assert result.status is Status.TIMED_OUT


async def pid_in(path: Path) -> int:
    with anyio.fail_after(10):
        while not (path.exists() and path.read_text().endswith("\n")):  # noqa: ASYNC110  # as above
            await anyio.sleep(0.02)
    return int(path.read_text())


async def test_a_command_outlives_its_program_and_is_found_again() -> None:
    """As when ``kubectl`` is killed: what it started goes on, and the next start finds the job."""
    relay = 'echo $$ >"$HOME/program.$$"; cat | ({command}) 2> >(exec cat >&2) | cat'
    async with context("bash", "-c", relay) as ctx:
        async with anyio.create_task_group() as tasks:
            results = []

            async def run() -> None:
                results.append(await ctx.run_shell("echo $$ >$HOME/pid; sleep 3; echo done"))

            tasks.start_soon(run)
            await pid_in(Path(os.environ["HOME"], "pid"))
            for path in Path(os.environ["HOME"]).glob("program.*"):
                try:
                    os.killpg(int(path.read_text()), signal.SIGKILL)
                except ProcessLookupError:
                    continue
        job_id = results[0].job_id
        assert job_id is not None
        assert results[0].status is Status.UNKNOWN
        found = await ctx.wait(job_id, timeout=10)
        assert (found.status, found.stdout) == (Status.COMPLETED, "done\n")


@pytest.mark.usefixtures("needs_root")
async def test_nothing_runs_in_another_instance_of_the_same_name(tmp_path: Path) -> None:
    chosen = tmp_path / "chosen"
    enter = ("sh", "-c", f'exec nsenter --target="$(cat {chosen})" --all -- "$@"', "sh", "{argv}")
    with namespaces() as one, namespaces() as other:
        chosen.write_text(str(one))
        async with context(*enter) as ctx:
            before = ctx.identity
            assert (await ctx.run_shell("echo one")).stdout == "one\n"
            chosen.write_text(str(other))
            with pytest.raises(TargetGone, match="another instance"):
                await backend_of(ctx).transport.open_process(["touch", str(tmp_path / "ran")])
            assert (await ctx.run_shell("echo still")).stdout == "still\n"
        assert not (tmp_path / "ran").exists()
        async with context(*enter) as ctx:
            assert ctx.identity != before


@pytest.mark.usefixtures("needs_root")
async def test_a_program_that_enters_new_namespaces_each_time_is_refused() -> None:
    with pytest.raises(TargetGone, match="each start has its own"):
        async with context("unshare", "--pid", "--fork", "--mount-proc", "--", "{argv}"):
            pass


@pytest.mark.usefixtures("needs_root")
async def test_a_program_that_leaves_proc_to_other_processes_is_refused() -> None:
    """Their process ids mean other processes: a kill would end the wrong ones."""
    with namespaces() as pid, pytest.raises(ConnectError, match="/proc there is that of another one"):
        await entered("nsenter", f"--target={pid}", "--pid", "--", "{argv}")


@pytest.mark.usefixtures("needs_root")
async def test_a_root_directory_without_proc_works() -> None:
    with root_directory("busybox", mounts=("dev",)) as directory:
        async with connect(f"chroot://{directory}") as ctx:
            assert ctx.identity.startswith(f"chroot://{directory}#")
            result = await ctx.run_shell("echo out; exit 4")
            assert (result.stdout, result.exit_code) == ("out\n", 4)
            result = await ctx.run_shell("sleep 1000", timeout=0.2)
            assert result.status is Status.TIMED_OUT


@pytest.mark.usefixtures("needs_root")
@pytest.mark.parametrize("mounts", [("proc", "dev"), ("dev",)])
async def test_nothing_runs_in_another_root_directory_of_the_same_name(tmp_path: Path, mounts: tuple[str, ...]) -> None:
    chosen = tmp_path / "chosen"
    with root_directory("busybox", mounts=mounts) as one, root_directory("busybox", mounts=mounts) as other:
        chosen.symlink_to(one)
        async with connect(f"chroot://{chosen}") as ctx:
            before = ctx.identity
            chosen.unlink()
            chosen.symlink_to(other)
            with pytest.raises(TargetGone, match="another instance"):
                await backend_of(ctx).transport.open_process(["touch", "/ran"])
        assert not Path(one, "ran").exists()
        assert not Path(other, "ran").exists()
        async with connect(f"chroot://{chosen}") as ctx:
            assert ctx.identity != before


@pytest.mark.usefixtures("needs_root")
async def test_nothing_runs_in_a_later_process_of_the_same_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both share this machine's namespace of process ids; only their networks differ."""
    real, chosen = shutil.which("nsenter"), tmp_path / "chosen"
    stand_in = tmp_path / "bin/nsenter"
    stand_in.parent.mkdir()
    stand_in.write_text(f'#!/bin/sh\nshift\nexec {real} --target="$(cat {chosen})" "$@"\n')
    stand_in.chmod(0o755)
    monkeypatch.setenv("PATH", f"{stand_in.parent}:{os.environ['PATH']}")
    with process_in_a_network() as one, process_in_a_network() as other:
        chosen.write_text(str(one))
        async with connect(f"nsenter://{one}") as ctx:
            assert (await ctx.run_shell("echo one")).stdout == "one\n"
            chosen.write_text(str(other))
            with pytest.raises(TargetGone, match="another instance"):
                await backend_of(ctx).transport.open_process(["touch", str(tmp_path / "ran")])
    assert not (tmp_path / "ran").exists()


@contextmanager
def process_in_a_network() -> Iterator[int]:
    words = ("unshare", "--net", "sh", "-c", "echo ready; exec sleep 1000")
    with subprocess.Popen(words, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            yield process.pid
        finally:
            process.kill()


@pytest.mark.usefixtures("needs_root")
@pytest.mark.parametrize("enter", ["setsid -w chroot", "chroot"])
async def test_a_killed_process_ends_where_processes_cannot_be_listed(enter: str) -> None:
    """What the program starts is in a group or session of its own: its end alone ends nothing."""
    with root_directory("busybox", mounts=("dev",)) as directory:
        transport = await entered("sh", "-c", f'{enter} {directory} "$@"; true', "sh", "{argv}")
        script = "trap '' TERM HUP INT; echo up; while :; do sleep 100; done"
        async with await transport.open_process(["sh", "-c", script]) as process:
            assert await process.receive() == b"up\n"
            assert is_occupied(directory)
            assert await process.end((("TERM", 0.2), ("KILL", 2.0)), tree=False) == 0
            with anyio.fail_after(5):  # what has sent the signals there ends a moment later
                while is_occupied(directory):  # noqa: ASYNC110  # of other processes' ends there is no event
                    await anyio.sleep(0.01)


def is_occupied(directory: str) -> bool:
    """Return whether a process has this root directory."""
    found = []
    for path in Path("/proc").glob("[0-9]*/root"):
        with suppress(OSError):
            found.append(os.readlink(path))
    return directory in found


async def test_a_lost_program_is_no_exit_code() -> None:
    transport = await entered(*ENTER)
    async with await transport.open_process(["sh", "-c", "kill -9 $PPID; sleep 1"]) as process:
        with pytest.raises(ConnectionLost, match="no exit status"):
            await process.wait()


def test_many_hosts_and_a_program_in_the_settings(program: Program) -> None:
    settings = program.home / "config/harness/config.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text(
        '[targets.one]\nexec = ["env", "WHO=one", "{argv}"]\n[targets.two]\nexec = ["sh", "-c", "WHO=two {command}"]\n'
    )
    done = program.run("run", "--hosts", "one,two", "--json", "--", "echo $WHO; exit 3")
    assert done.returncode == 1, done.stderr
    hosts = {entry["host"]: entry for line in done.stdout.splitlines() if "host" in (entry := json.loads(line))}
    assert {name: (entry["stdout"], entry["exit_code"]) for name, entry in hosts.items()} == {
        "one": ("one\n", 3),
        "two": ("two\n", 3),
    }
    done = program.run("--target", "one", "run", "--", "echo $WHO; exit 3")
    assert (done.returncode, done.stdout) == (3, b"one\n")
    done = program.run("--target", "one", "doctor")
    assert b"exec://one as" in done.stdout
    done = program.run("--target", "exec://three", "run", "--", "true")
    assert done.returncode == 125
    assert b"[targets.three]" in done.stderr


def test_an_interrupt_ends_the_command_on_the_target(program: Program) -> None:
    settings = program.home / "config/harness/config.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text('[targets.one]\nexec = ["sh", "-c", "({command}); true"]\n')
    process = program.start("--target", "one", "run", "--", "echo $$; exec sleep 1000")
    assert process.stdout is not None
    pid = int(process.stdout.readline())
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=20) == 130
    anyio.run(until_ended, pid)
    process.communicate()


async def test_a_program_behind_another_target_starts_there() -> None:
    transport = await entered("env", "WHO=there", "{argv}", base=LocalTransport(Target.parse("local:")))
    words = transport.interactive_argv(["sh", "-c", "echo $WHO"])
    assert subprocess.run(words, capture_output=True, text=True).stdout == "there\n"


async def test_a_program_behind_ssh_is_the_same(sshd: SshServer) -> None:
    chosen = sshd.config(exec_targets=(("box", ExecTarget(("env", "WHO=box", "{argv}"))),))
    async with connect(f"ssh://{sshd.user}@127.0.0.1:{sshd.port}+exec://box", config=chosen) as ctx:
        result = await ctx.run_shell("echo $WHO; echo err >&2; exit 3")
        assert (result.stdout, result.stderr, result.exit_code) == ("box\n", "err\n", 3)
        async with await backend_of(ctx).transport.open_process(
            ["sh", "-c", "trap '' TERM HUP INT; echo $$; while :; do sleep 1; done"]
        ) as process:
            pid = int(await process.receive())
        await until_ended(pid)
        with pytest.raises(ConnectError, match=r"started no shell: .*no-such"):
            await open_transport(
                Target.parse("exec://other"),
                Config(exec_targets=(("other", ExecTarget(("no-such-program", "{argv}"))),)),
                backend_of(ctx).transport,
            )


# -- Kubernetes: the real kubectl, and a stand-in for the cluster.


@pytest.fixture
def cluster(
    needs_root: None, needs_kubectl: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[StandInCluster]:
    with stand_in_cluster(tmp_path) as found:
        monkeypatch.setenv("KUBECONFIG", found.kubeconfig)
        found.start_pod("shop", "cart-0")
        yield found


async def test_a_pod_that_was_replaced_is_told_from_the_one_before(cluster: StandInCluster) -> None:
    async with connect("k8s://shop/cart-0") as ctx:
        before = ctx.identity
        result = await ctx.run_shell("echo out; echo err >&2; exit 3")
        assert (result.stdout, result.stderr, result.exit_code) == ("out\n", "err\n", 3)
        cluster.start_pod("shop", "cart-0")
        result = await ctx.run_shell("true")
        assert result.status is Status.UNKNOWN
        with pytest.raises(TargetGone, match="restarted or replaced"):
            await ctx.run_shell('touch "$HOME/ran"')
        assert not Path(os.environ["HOME"], "ran").exists()
    async with connect("k8s://shop/cart-0") as ctx:
        assert ctx.identity != before
        assert (await ctx.run_shell("echo new")).stdout == "new\n"


LIVES_ON = "echo $$ >$HOME/pid; until [ -e $HOME/go ]; do sleep 0.1; done; echo done; exit 5"


async def test_a_job_outlives_a_cut_connection_of_kubectl(cluster: StandInCluster) -> None:
    async with connect("k8s://shop/cart-0") as ctx:
        results = []

        async def run() -> None:
            results.append(await ctx.run_shell(LIVES_ON))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            await pid_in(Path(os.environ["HOME"], "pid"))
            cluster.cut()
        assert results[0].status is Status.UNKNOWN
        Path(os.environ["HOME"], "go").touch()
        assert results[0].job_id is not None
        found = await ctx.wait(results[0].job_id, timeout=20)
        assert (found.status, found.stdout, found.exit_code) == (Status.COMPLETED, "done\n", 5)


async def test_a_command_that_is_killed_ends_in_the_pod(cluster: StandInCluster) -> None:
    async with connect("k8s://shop/cart-0") as ctx:
        result = await ctx.run_shell("sleep 1000", timeout=0.5)
        assert result.status is Status.TIMED_OUT
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ctx.run_shell, "echo $$ >$HOME/pid; exec sleep 1001")
            await pid_in(Path(os.environ["HOME"], "pid"))
            tasks.cancel_scope.cancel()
        left = await ctx.run_shell("cat /proc/[0-9]*/cmdline | tr '\\0' ' '")
        assert "sleep 100" not in left.stdout.replace("cat /proc", "").replace("sleep 1000000", "")


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("k8s://shop/none", 'pods "none" not found'),
        ("k8s://here/shop/none/", 'pods "none" not found'),
        ("k8s://dead/shop/cart-0/", "was refused"),
        ("k8s://nowhere/shop/cart-0/", 'context "nowhere" does not exist'),
        ("k8s://shop/cart-0/sidecar", "container sidecar is not valid"),
    ],
)
async def test_what_kubectl_says_is_the_reason(cluster: StandInCluster, url: str, said: str) -> None:
    with pytest.raises(ConnectError) as caught:
        async with connect(url):
            pass
    assert said in caught.value.message
    assert len(caught.value.message) < 400
    assert "get pod" in caught.value.hint
