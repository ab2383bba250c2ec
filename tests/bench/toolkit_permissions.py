"""What a decision costs, without the target: with ten rules, and with ten thousand."""

from __future__ import annotations

from functools import partial

from tests.support.permits import desk

from harness.toolkit.permissions.rules.rule import Action, Match, Rule

from .model import Line, Row, at_most
from .timing import take_turns
from .world import Size, World

__all__ = ["toolkit_permissions_row"]

FEW, MANY = 10, 10_000
CALLS = {
    "a path that is read": ("read_file", "/srv/app/readme"),
    "a command of three programs": ("run_shell", "df -h / | sort | head -3"),
    "a command that nothing allows": ("run_shell", "make install"),
}


def rules_of(count: int) -> tuple[Rule, ...]:
    """Half of them patterns, on fifty targets."""
    ways = (Match.LITERAL, Match.GLOB)
    return tuple(
        Rule(Action.ALLOW, f"ssh://host{number % 50}:22", "run_shell", f"program{number} --flag *", ways[number % 2])
        for number in range(count)
    )


async def toolkit_permissions_row(world: World, size: Size) -> Row:
    """Decisions of the policy on a target in memory."""
    desks = {count: desk(rules=rules_of(count)) for count in (FEW, MANY)}
    lines: list[Line] = []
    checks = []
    for what, call in CALLS.items():
        sides = {f"{count:,} rules": partial(made.decide, *call) for count, made in desks.items()}
        taken = await take_turns(sides, size.pick(2_000, 50), group=what)
        lines += taken
        ratio = taken[1].median / taken[0].median
        checks.append(at_most(f"{what}: {MANY:,} rules take at most twice what {FEW} take", ratio, 2, "times"))
    slowest = max(line.median for line in lines)
    checks.append(at_most("a decision without the target: at most 1 ms", slowest, 1))
    notes = ("The target is in memory: on a real one each path that is named costs a question to it, all at once.",)
    return Row("toolkit-permissions", "Decisions of the policy", tuple(lines), tuple(checks), notes)
