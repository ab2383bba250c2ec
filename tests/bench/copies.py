"""``harness cp`` beside scp and rsync: one large file, and many small ones, each program with a login of its own."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from .model import Check, Line, Row, at_most, median_of
from .timing import Action, run_program, take_turns
from .world import Size, World

__all__ = ["copies_row"]

CP, SCP, RSYNC = "harness cp -r", "scp -O -r", "rsync -r"
MAX_SMALL_MILLISECONDS = 3000.0
NOTE = (
    "harness cp compares a SHA-256 of each file on the target, waits until the data is on the disk there, and renames; "
    "scp does none of this, and rsync does not wait for the disk. Both ends share this machine's cores."
)


async def copies_row(world: World, size: Size) -> Row:
    """A tree with one file of 100 MB, and one with 1,000 files of 4 KB, to the server and back."""
    count, megabytes = size.pick(1000, 40), size.pick(100, 4)
    trees = {f"1 file of {megabytes} MB": (1, megabytes * 1_000_000), f"{count:,} files of 4 KB": (count, 4096)}
    lines: list[Line] = []
    remote = Path(f"/tmp/hxb-{os.getpid()}-copies")
    remote.mkdir()
    remote.chmod(0o777)
    try:
        for what, (files, length) in trees.items():
            here = world.directory / f"tree{files}"
            here.mkdir()
            for number in range(files):
                (here / f"f{number}").write_bytes(os.urandom(length))
            lines += await _measure(world, size, what, here, remote)
    finally:
        shutil.rmtree(remote)
    return Row("copies", "Copies over SSH", tuple(lines), tuple(_checks(lines, count)), (NOTE,))


def _checks(lines: list[Line], count: int) -> list[Check]:
    groups = [group for group in dict.fromkeys(line.group for line in lines) if "4 KB" in group]
    return [
        at_most(f"{CP}, {group}", median_of(lines, CP, group), MAX_SMALL_MILLISECONDS * max(count, 500) / 1000)
        for group in groups
    ]


async def _measure(world: World, size: Size, what: str, here: Path, remote: Path) -> list[Line]:
    lines = []
    for direction in ("to the server", "from the server"):
        to_server = direction.startswith("to")
        back = world.directory / f"back-{here.name}"
        copies = _commands(world, here, remote / here.name, back, to_server=to_server)
        removed = remote / here.name if to_server else back
        sides = {name: _copy(argv, here, removed) for name, argv in copies.items()}
        lines += await take_turns(sides, size.pick(3, 1), group=f"{what}, {direction}", warm_up=0)
        if not to_server:
            shutil.rmtree(remote / here.name)
    return lines


def _copy(argv: list[str], tree: Path, copy: Path) -> Action:
    async def act() -> None:
        if copy.exists():
            shutil.rmtree(copy)
        run_program(argv)
        assert len(os.listdir(copy)) == len(os.listdir(tree))

    return act


def _commands(world: World, tree: Path, remote: Path, back: Path, *, to_server: bool) -> Mapping[str, list[str]]:
    """Return the command lines that create a copy of the tree."""
    place, port = f"{world.user}@127.0.0.1", str(world.sshd.port)
    login = ["-F", str(world.sshd.ssh_config), "-i", str(world.sshd.identity)]
    login += [word for option in world.sshd.client_options for word in ("-o", option)]
    far = f"{place}:{remote}"
    words = [str(tree), far] if to_server else [far, str(back)]
    harness_far = f"ssh://{place}:{port}:{remote}"
    harness_words = [str(tree), harness_far] if to_server else [harness_far, str(back)]
    harness = [sys.executable, "-c", "from harness.cli.start import main; main()", *login, "cp", "-r"]
    ends = [f"{words[0]}/", words[1]]  # rsync copies the content
    return {
        CP: [*harness, *harness_words],
        SCP: ["scp", "-q", "-O", "-r", *login, "-P", port, *words],
        RSYNC: ["rsync", "-r", "-e", shlex.join(["ssh", *login, "-p", port]), *ends],
    }
