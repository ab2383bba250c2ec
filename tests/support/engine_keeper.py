"""Keeps one engine for all test processes of a run, and ends it when the last of them has gone, however it went.

    python -m tests.support.engine_keeper KIND DIRECTORY

Each test process holds a shared lock on the file ``DIRECTORY.users``. The keeper writes ``ready`` (or why not) on its
output, then waits for the exclusive lock: it gets it when nobody uses the engine any more, crashed ones included.
``DIRECTORY.keeper`` is locked as long as the keeper lives.
"""

from __future__ import annotations

import fcntl
import os
import signal
import sys
from pathlib import Path

from tests.support.daemons import Daemon, EngineUnavailable, recipe
from tests.support.sweep import adopt_orphans


def main(kind: str, directory: Path) -> None:
    adopt_orphans()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    daemon = Daemon(recipe(kind, directory))
    users = Path(f"{directory}.users")
    with Path(f"{directory}.keeper").open("w") as life, users.open("a") as lock:
        fcntl.flock(life, fcntl.LOCK_EX)
        try:
            say(started(daemon))
            fcntl.flock(lock, fcntl.LOCK_EX)
        finally:
            daemon.stop()
            users.unlink(missing_ok=True)  # while they are locked: who waits for them sees that they are gone
            Path(life.name).unlink(missing_ok=True)


def started(daemon: Daemon) -> str:
    try:
        daemon.start()
    except EngineUnavailable as error:
        return str(error)
    return "ready"


def say(answer: str) -> None:
    """Tell the starter, and let its pipe go."""
    print(answer, flush=True)  # noqa: T201  # how it talks
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
