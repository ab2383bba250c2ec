"""Commands and files in containers, beside the engines' own programs and Docker's library for Python."""

from __future__ import annotations

import os
import secrets
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from importlib.metadata import PackageNotFoundError, version

from tests.support.daemons import EngineUnavailable
from tests.support.engines import Container, container, shared_engine

from harness import ExecutionContext, connect
from harness.config import Config

from .latency import LOCAL, shell_true
from .model import Check, Line, Row, at_most, median_of
from .timing import Action, program, take_turns
from .world import Size, World

__all__ = ["container_files_row", "containers_row"]

KINDS = ("docker", "podman")
MEGABYTE = 1_000_000
HALF = 0.5
WITHIN = 1.0


async def containers_row(world: World, size: Size) -> Row:
    """``run_shell("true")`` in a container of each engine, with and without tmux there."""
    lines: list[Line] = []
    for kind in KINDS:
        try:
            with a_container(kind) as one:
                lines += await _commands(world, size, one)
        except EngineUnavailable as error:
            lines.append(Line(f"{kind}: run_shell", (), group=kind, note=f"not measured: {error}"))
    checks = [check for kind in KINDS if any(line.group == kind and line.values for line in lines)
              for check in _checks(lines, kind)]  # fmt: skip
    return Row("containers", "A command in a container", tuple(lines), tuple(checks))


ENGINE = "what goes to and from tmux in a container passes the engine, once in each direction"


def _checks(lines: list[Line], kind: str) -> Iterator[Check]:
    theirs = median_of(lines, f"{kind} exec NAME true", kind)
    ours = median_of(lines, "run_shell", kind)
    yield at_most(f"{kind}: at most half of `{kind} exec NAME true`", ours, HALF * theirs)
    in_tmux, local = median_of(lines, "run_shell, tmux in it", kind), median_of(lines, f"{LOCAL}, local tmux", kind)
    yield at_most(f"{kind}, tmux in it: within 1 ms of local tmux", in_tmux, local + WITHIN, reason=ENGINE)


async def _commands(world: World, size: Size, one: Container) -> list[Line]:
    kind, rounds = one.engine.kind, size.pick(100, 5)
    async with opened(world, one) as plain, opened(world, one, tmux=True) as paned, world.local() as local:
        sides: dict[str, Action] = {
            "run_shell": shell_true(plain),
            "run_shell, tmux in it": shell_true(paned),
            f"{LOCAL}, local tmux": shell_true(local),
            f"{kind} exec NAME true": program([kind, "exec", one.name, "true"]),
        }
        lines = await take_turns(sides, rounds, group=kind, warm_up=5)
    return [*lines, await _library(one, size)]


async def _library(one: Container, size: Size) -> Line:
    """Docker's library for Python, which also talks to Podman's service."""
    what = "docker-py exec_run"
    try:
        import docker

        what = f"docker-py {version('docker')} exec_run"
    except (ImportError, PackageNotFoundError):
        return Line(what, (), group=one.engine.kind, note="not installed")
    client = docker.DockerClient(base_url=f"unix://{one.engine.socket}")
    try:
        found = client.containers.get(one.id)

        async def act() -> None:
            assert found.exec_run("true").exit_code == 0

        return (await take_turns({what: act}, size.pick(60, 3), group=one.engine.kind))[0]
    finally:
        client.close()


async def container_files_row(world: World, size: Size) -> Row:
    """100 MB into a container and out of it, beside the engine's ``cp``."""
    count = size.pick(100, 4)
    here, copy = world.directory / "container-payload", world.directory / "container-copy"
    data = os.urandom(count * MEGABYTE)
    here.write_bytes(data)
    lines: list[Line] = []
    for kind in KINDS:
        with suppress(EngineUnavailable), a_container(kind) as one:
            async with opened(world, one) as ctx:
                await ctx.upload(str(here), "/payload")

                async def read(ctx: ExecutionContext = ctx) -> None:
                    assert (await ctx.read_file("/payload")).data == data

                async def write(ctx: ExecutionContext = ctx) -> None:
                    assert (await ctx.write_file("/written", data)).bytes_written == len(data)

                down: dict[str, Action] = {
                    "read_file": read,
                    f"{kind} cp": program([kind, "cp", f"{one.name}:/payload", str(copy)]),
                }
                up: dict[str, Action] = {
                    "write_file": write,
                    f"{kind} cp": program([kind, "cp", str(here), f"{one.name}:/copied"]),
                }
                lines += await take_turns(down, size.pick(4, 1), group=f"from {kind}", warm_up=1)
                lines += await take_turns(up, size.pick(4, 1), group=f"to {kind}", warm_up=1)
    return Row("container-files", f"{count} MB and a container", tuple(lines))


# -- the place


@contextmanager
def a_container(kind: str) -> Iterator[Container]:
    """A container with tmux, of an engine of the bench's own; the environment leads to it."""
    with shared_engine(kind, f"bench-{secrets.token_hex(3)}") as engine, container(engine, "debian") as one:
        before = dict(os.environ)
        os.environ.update(engine.environ())
        try:
            yield one
        finally:
            os.environ.clear()
            os.environ.update(before)


@asynccontextmanager
async def opened(world: World, one: Container, *, tmux: bool = False) -> AsyncIterator[ExecutionContext]:
    """A context in it."""
    async with connect(one.target, tmux=tmux, config=Config(tmux_socket=world.new_socket())) as ctx:
        yield ctx
