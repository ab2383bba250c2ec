"""Throw-away containers: made for one run, removed at its end whatever that is, found again after a crash."""

from __future__ import annotations

import json
import secrets
import signal
import subprocess
from pathlib import Path

import anyio
import pytest
from tests.support.contained import WAYS, MakeWay, Way, make_way
from tests.support.engines import Engine, container
from tests.support.program import Program, program

from harness.config import Config
from harness.errors import ConfigError, ConnectError
from harness_backends.container.owner_processes import running_processes, this_machine, this_process
from harness_backends.container.temporary_container import (
    LABEL,
    Mount,
    OwnerProcess,
    orphaned,
    parse_maker,
    parse_mount,
)

__all__ = ["make_way", "program"]


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest, make_way: MakeWay) -> Way:
    return make_way(request.param)


def left(engine: Engine) -> list[str]:
    """The names of throw-away containers."""
    return engine.cli("ps", "-a", "--filter", f"label={LABEL}", "--format", "{{.Names}}").split()


def settings(way: Way, image: str = "busybox", **more: object) -> Config:
    return Config(image=way.engine.image(image), image_network="none", **more)  # type: ignore[arg-type]  # by name


async def test_it_is_there_during_the_run_and_gone_after_it(way: Way) -> None:
    name = f"hx-{secrets.token_hex(4)}"
    config = settings(way, image_mounts=("/etc:/host-etc:ro", "type=tmpfs,dst=/scratch"))
    async with way.connect(f"{way.engine.kind}://{name}", config=config) as ctx:
        assert name in left(way.engine)
        assert (await ctx.run_shell("ls /host-etc/passwd && touch /scratch/x && ! touch /host-etc/x 2>/dev/null")).ok
        inspected = json.loads(way.engine.cli("inspect", name))[0]
        assert not inspected["HostConfig"]["Privileged"]
        assert inspected["HostConfig"]["NetworkMode"] == "none"
        assert any("no-new-privileges" in option for option in inspected["HostConfig"]["SecurityOpt"])
    assert name not in left(way.engine)


async def test_it_is_removed_when_the_caller_is_cancelled_or_fails(way: Way) -> None:
    name = f"hx-{secrets.token_hex(4)}"
    with anyio.fail_after(60), pytest.raises(RuntimeError, match="on purpose"):
        async with way.connect(f"{way.engine.kind}://{name}", config=settings(way)):
            raise RuntimeError("on purpose")
    assert name not in left(way.engine)
    with anyio.move_on_after(60) as scope:
        async with way.connect(f"{way.engine.kind}://{name}", config=settings(way)):
            scope.cancel()
            await anyio.sleep_forever()
    assert name not in left(way.engine)


async def test_an_image_without_a_shell_is_told_and_nothing_is_left(way: Way) -> None:
    name = f"hx-{secrets.token_hex(4)}"
    with pytest.raises(ConnectError, match="has no shell"):
        async with way.connect(f"{way.engine.kind}://{name}", config=settings(way, "no-shell")):
            pass
    assert name not in left(way.engine)


async def test_a_name_that_is_taken_is_told_and_its_container_stays(way: Way) -> None:
    with container(way.engine) as one:
        with pytest.raises(ConnectError, match="in use"):
            async with way.connect(one, config=settings(way)):
                pass
        assert one.run("echo", "here") == "here"


async def test_a_name_that_is_taken_by_one_of_our_own_is_told_too(way: Way) -> None:
    target = f"{way.engine.kind}://hx-{secrets.token_hex(4)}"
    async with way.connect(target, config=settings(way)) as ctx:
        with pytest.raises(ConnectError, match="in use"):
            async with way.connect(target, config=settings(way)):
                pass
        assert (await ctx.run_shell("echo on")).stdout == "on\n"


async def test_an_image_that_cannot_be_had_is_told(way: Way) -> None:
    config = Config(image="localhost:1/nobody/nothing", image_network="none")
    with (
        anyio.fail_after(60),
        pytest.raises(ConnectError, match="could not create a container from image localhost:1/nobody"),
    ):
        async with way.connect(f"{way.engine.kind}://hx-{secrets.token_hex(4)}", config=config):
            pass


def options(way: Way, name: str) -> list[str]:
    return [
        "--container",
        name,
        "--engine",
        way.engine.kind,
        "--image",
        way.engine.image("busybox"),
        "--network",
        "none",
    ]


def with_way(program: Program, way: Way) -> Program:
    """The program, led to the engine as this process is."""
    program.environ |= way.engine.environ(api=not way.name.endswith("program"))
    return program


def test_the_command_line_runs_in_one_and_passes_the_exit_code(way: Way, program: Program) -> None:
    name = f"hx-{secrets.token_hex(4)}"
    done = with_way(program, way).run(*options(way, name), "run", "--", "echo $0; exit 5")
    assert (done.returncode, done.stdout) == (5, b"sh\n"), done.stderr
    assert name not in left(way.engine)


def test_the_command_line_needs_no_name_for_it(make_way: MakeWay, program: Program) -> None:
    way = make_way("docker")
    image = way.engine.image("busybox")
    done = with_way(program, way).run("--image", image, "--network", "none", "--json", "run", "--", "hostname")
    assert json.loads(done.stdout)["exit_code"] == 0, done.stderr


@pytest.mark.usefixtures("needs_tmux")
@pytest.mark.parametrize("more", [(), ("--tmux",)])
def test_a_command_that_is_out_of_time_is_ended_as_its_container_is(
    way: Way, program: Program, more: tuple[str, ...]
) -> None:
    name = f"hx-{secrets.token_hex(4)}"
    words = [*options(way, name), *more, "--json", "run"]
    program.environ["HARNESS_TMUX_SOCKET"] = socket = f"hx-{secrets.token_hex(4)}"
    try:
        done = with_way(program, way).run(*words, "--", "sleep 300", HARNESS_TIMEOUT="1s")
        assert (done.returncode, json.loads(done.stdout)["status"]) == (124, "timed_out"), done
        assert name not in left(way.engine)
    finally:
        subprocess.run(["tmux", "-L", socket, "kill-server"], check=False, capture_output=True, timeout=20)


@pytest.mark.parametrize("words", [("--no-wait",), ("--on-timeout", "keep")])
def test_what_would_outlive_it_is_refused(make_way: MakeWay, program: Program, words: tuple[str, ...]) -> None:
    way = make_way("docker")
    done = with_way(program, way).run(*options(way, "hx-none"), "run", *words, "--", "sleep 300")
    assert done.returncode not in (0, 1)
    assert b"it is removed on exit" in done.stderr
    assert "hx-none" not in left(way.engine)


async def test_what_the_engine_refuses_is_not_blamed_on_the_image(way: Way, tmp_path: Path) -> None:
    for more in ({"image_mounts": (f"{tmp_path}/none:/none",)}, {"image_mounts": ("/etc:/etc", "/tmp:/etc")}):
        with pytest.raises(ConnectError, match=r"none|[Dd]uplicate") as caught:
            async with way.connect(f"{way.engine.kind}://hx-{secrets.token_hex(4)}", config=settings(way, **more)):
                pass
        assert "--mount" in str(caught.value.hint)
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_signal_removes_it_and_after_a_crash_doctor_does(way: Way, program: Program, number: signal.Signals) -> None:
    name = f"hx-{secrets.token_hex(4)}"
    started = with_way(program, way).start(*options(way, name), "run", "--", "echo up; sleep 1000")
    with started:
        assert started.stdout is not None
        assert started.stdout.read(3) == b"up\n"
        assert name in left(way.engine)
        started.send_signal(number)
        started.wait(30)
    if number == signal.SIGKILL:
        assert name in left(way.engine)
        done = program.run("--json", "doctor", "--clean")
        assert b" removed at " in done.stdout, done.stdout
    assert name not in left(way.engine)


def test_doctor_tells_of_engines_and_containers(way: Way, program: Program) -> None:
    with container(way.engine, "debian", options=("--user", "1000")) as one:
        done = with_way(program, way).run("--target", one.target, "doctor")
        assert b"the engine does --user" in done.stdout
        assert way.engine.kind.encode() in done.stdout
        assert one.id[:12].encode() in done.stdout
        one.do("stop")
        done = program.run("--target", one.target, "doctor")
        assert done.returncode != 0
        assert f"{way.engine.kind} start {one.name}".encode() in done.stdout


@pytest.mark.parametrize(
    ("text", "mount"),
    [
        ("/a:/b", Mount("bind", "/a", "/b")),
        ("/a:/b:ro", Mount("bind", "/a", "/b", True)),
        ("type=bind,src=/a,dst=/b,readonly", Mount("bind", "/a", "/b", True)),
        ("type=volume,source=v,target=/b", Mount("volume", "v", "/b")),
        ("type=tmpfs,destination=/b", Mount("tmpfs", "", "/b")),
    ],
)
def test_mounts_are_written_as_people_write_them(text: str, mount: Mount) -> None:
    assert parse_mount(text) == mount


@pytest.mark.parametrize("text", ["", "/a", "a:/b", "/a:b", "/a:/b:x", "type=npipe,dst=/b", "type=bind,dst=/b", "x=y"])
def test_what_is_no_mount_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="is not a valid mount"):
        parse_mount(text)


def test_only_a_maker_that_is_proved_gone_loses_its_containers(tmp_path: Path) -> None:
    me, (machine, boot) = this_process(), this_machine()
    assert parse_maker(f"{me} 01234567") == me
    assert parse_maker("something else") is None
    assert not orphaned(me, machine, boot, running_processes())
    assert orphaned(me, machine, "later", {})
    assert orphaned(OwnerProcess(machine, boot, me.pid, "1"), machine, boot, running_processes())
    assert not orphaned(OwnerProcess("elsewhere", "x", 1, "1"), machine, boot, {})
