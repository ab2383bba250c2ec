"""How long the program takes to start, and to run one command where a connection is held."""

from __future__ import annotations

import os
import shutil
import sys

from .model import Row, at_most, median_of
from .timing import program, run_program, take_turns
from .world import Size, World

__all__ = ["startup_row"]

HELP = "harness --help"
RUN = "harness run --ssh host -- true, live master"
RUN_TMUX = "harness run --ssh host --tmux -- true, live master"
PYTHON = "python -c pass"
MASTER = "ssh -S MASTER host true"


async def startup_row(world: World, size: Size) -> Row:
    """The command line, from exec to exit."""
    path = shutil.which("harness", path=os.path.dirname(sys.executable)) or "harness"
    options = [word for option in world.sshd.client_options for word in ("-o", option)]
    config = ["-F", str(world.sshd.ssh_config), "-i", str(world.sshd.identity), *options]
    over_ssh = [path, "--ssh", f"{world.user}@127.0.0.1:{world.sshd.port}", *config]
    os.environ["HARNESS_TMUX_SOCKET"] = world.new_socket()
    with world.master() as control:
        by_master = world.ssh_argv(world.sshd.port, "-S", str(control), f"{world.user}@127.0.0.1", "true")
        argv = {
            HELP: [path, "--help"],
            PYTHON: [sys.executable, "-c", "pass"],
            RUN: [*over_ssh, "run", "--", "true"],
            RUN_TMUX: [*over_ssh, "--tmux", "run", "--", "true"],
            MASTER: by_master,
        }
        for words in argv.values():
            run_program(words)
        sides = {name: program(words) for name, words in argv.items()}
        lines = await take_turns(sides, size.pick(25, 3), warm_up=2)
    del os.environ["HARNESS_TMUX_SOCKET"]
    run_program([*over_ssh, "disconnect"])
    checks = (
        at_most("harness --help: at most 150 ms", median_of(lines, HELP), 150),
        at_most("harness run on a live master: at most 200 ms", median_of(lines, RUN), 200),
    )
    notes = (f"{PYTHON} is the least that any Python program takes here.",)
    return Row("startup", "Start-up", tuple(lines), checks, notes)
