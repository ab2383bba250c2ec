"""Finding files and text in a tree of 100,000 files over SSH, beside the native programs over a master."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path

from harness import connect
from harness.toolkit import Executor, Registry, ToolCall
from harness.toolkit.assembly import ToolkitSettings, open_toolkit
from harness.toolkit.catalog import ToolSettings
from harness.toolkit.permissions.rules.settings import Mode, PermissionSettings
from harness_tools.search import tools

from .model import Check, Line, Row, at_most, median_of
from .timing import Action, program, take_turns
from .world import Size, World

__all__ = ["search_row"]

FACTOR = 1.2
GREP, GLOB = "lines by a regular expression", "files by name"
OURS, WITHOUT = "grep, with rg there", "grep, without rg there"
PATTERN = "needle[0-9]+ = "
WALKING = "the tests that honour .gitignore take find 1.2 x as long; two at a time make up for it, given two processors"
NOTES = (
    "1,000 directories with 100 files each, of 800 bytes; one file in a thousand holds the line, one in a hundred has "
    "the name. Everything is in the page cache. Both ends of the link share this machine's cores.",
    "What the native programs do not do: glob asks for the time of each file that it finds, leaves out what .gitignore "
    "names, and sorts; grep counts in every file before it shows lines, and asks the policy about each file.",
    "glob walks with two find at a time, each over every other directory of the top. On one processor, or where a "
    "single directory holds nearly all, its walk takes as long as one find: 1.2 to 1.4 x find -name in all.",
)


async def search_row(world: World, size: Size) -> Row:
    """``grep`` and ``glob`` through the whole pipeline, without the cache of results."""
    directories = size.pick(1_000, 20)
    top = Path(f"/tmp/hxb-{os.getpid()}-search")  # another account looks at it
    _grow(top, directories)
    lines: list[Line] = []
    async with AsyncExitStack() as stack:
        stack.callback(shutil.rmtree, top)
        programs = _without_rg(top)
        sides = {OURS: await _executor(world, stack), WITHOUT: await _executor(world, stack, programs)}
        control = stack.enter_context(world.master())
        rounds = size.pick(9, 2)
        lines += await take_turns(_grepping(world, control, top, sides, directories), rounds, group=GREP, warm_up=2)
        globbing = _globbing(world, control, top, sides[OURS], directories)
        lines += await take_turns(globbing, rounds, group=GLOB, warm_up=2)
    count = f"{directories * 100:,} files"
    return Row("search", f"Searching {count} over SSH", tuple(lines), tuple(_checks(lines, count)), NOTES)


def _grow(top: Path, directories: int) -> None:
    filler = b"".join(b"value%d = compute(%d)\n" % (number, number) for number in range(32))
    for number in range(directories):
        directory = top / f"part{number // 50}" / f"dir{number}"
        directory.mkdir(parents=True)
        for file in range(100):
            holds = file == 7 and number % 10 == 0
            name = f"file{file}.py" if file == 7 else f"file{file}.txt"
            (directory / name).write_bytes(filler + b"needle%d = 1\n" % number if holds else filler)


def _without_rg(top: Path) -> str:
    programs = top / ".programs"
    programs.mkdir()
    for place in ("/usr/bin", "/bin"):
        for name in os.listdir(place):
            if name != "rg" and not (programs / name).is_symlink():
                (programs / name).symlink_to(f"{place}/{name}")
    return str(programs)


async def _executor(world: World, stack: AsyncExitStack, path: str = "") -> Executor:
    settings = ToolkitSettings(tools=ToolSettings(cache=False), permissions=PermissionSettings(mode=Mode.AUTO))
    toolkit = await stack.enter_async_context(open_toolkit(settings))
    env = {"PATH": path} if path else None
    execution = await stack.enter_async_context(connect(world.target(), config=world.config(), env=env))
    opened = toolkit.executor(execution, registry=Registry(tools()))
    return await stack.enter_async_context(opened)


def _native(world: World, control: Path, top: Path, command: str) -> Action:
    text = f"cd {shlex.quote(str(top))} && {command}"
    return program(world.ssh_argv(world.sshd.port, "-S", str(control), f"{world.user}@127.0.0.1", text))


def _tool(made: Executor, name: str, expected: int, arguments: Mapping[str, str]) -> Action:
    async def act() -> None:
        outcome = await made.call(ToolCall(name, dict(arguments)))
        assert isinstance(outcome.result.data, dict), outcome.result.text
        assert outcome.result.data["count"] == expected, outcome.result.text

    return act


def _grepping(
    world: World, control: Path, top: Path, sides: Mapping[str, Executor], directories: int
) -> dict[str, Action]:
    arguments = {"pattern": PATTERN, "path": str(top)}
    ours = {name: _tool(made, "grep", directories // 10, arguments) for name, made in sides.items()}
    return {
        **ours,
        "rg -n": _native(world, control, top, f"rg -n -e {shlex.quote(PATTERN)} ."),
        "grep -rnE": _native(world, control, top, f"grep -rnE -e {shlex.quote(PATTERN)} ."),
    }


def _globbing(world: World, control: Path, top: Path, made: Executor, directories: int) -> dict[str, Action]:
    return {
        "glob": _tool(made, "glob", directories, {"pattern": "**/*.py", "path": str(top)}),
        "find -name": _native(world, control, top, "find . -name '*.py'"),
        "rg --files": _native(world, control, top, "rg --files -g '*.py'"),
    }


def _checks(lines: list[Line], count: str) -> list[Check]:
    pairs = (
        (OURS, "rg -n", GREP, ""),
        (WITHOUT, "grep -rnE", GREP, ""),
        ("glob", "find -name", GLOB, WALKING),
    )
    return [
        at_most(
            f"{ours}, {count}: at most {FACTOR} x {native}",
            median_of(lines, ours, group),
            FACTOR * median_of(lines, native, group),
            reason=why,
        )
        for ours, native, group, why in pairs
    ]
