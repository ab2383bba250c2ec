"""Taking samples: sides take turns, so that whatever else the machine does falls on all of them."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence

from .model import Line

__all__ = ["WARM_UP", "Action", "program", "run_program", "take_turns", "time_once"]

Action = Callable[[], Awaitable[object]]
WARM_UP = 3


async def time_once(action: Action) -> float:
    """Milliseconds of one call."""
    began = time.perf_counter()
    await action()
    return (time.perf_counter() - began) * 1e3


async def take_turns(
    sides: Mapping[str, Action], rounds: int, *, group: str = "", warm_up: int = WARM_UP
) -> list[Line]:
    """Call each side once per round; lines of milliseconds, in the order of ``sides``."""
    values: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(warm_up + rounds):
        for name, action in sides.items():
            elapsed = await time_once(action)
            if number >= warm_up:
                values[name].append(elapsed)
    return [Line(name, tuple(taken), group=group) for name, taken in values.items()]


def run_program(argv: Sequence[str], **more: object) -> subprocess.CompletedProcess[bytes]:
    """Run a program to its end; one that fails is an error, with what it said."""
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=600, **more)  # type: ignore[call-overload]  # passed through
    if done.returncode != 0:
        raise RuntimeError(f"{argv[0]} ended with {done.returncode}: {done.stderr.decode(errors='replace')[-500:]}")
    return done  # type: ignore[no-any-return]  # the overload that fits cannot be found


def program(argv: Sequence[str]) -> Action:
    """Running a program as an action. It blocks: nothing else happens meanwhile, so the program has the machine."""

    async def act() -> None:
        run_program(argv)

    return act
