"""Writing what a replacement makes of files: each atomically and by itself, several of them on their way at once."""

from __future__ import annotations

from dataclasses import dataclass, field

import anyio

from harness.errors import ConnectError, ConnectionLost, FileError, StaleFileError, ToolError
from harness.toolkit import ToolContext

from ..matching import apply_changes
from ..texts import readable_name
from .repforplan import Plan, Problem, Target, problem_of

__all__ = ["Written", "named", "write_all"]

AT_ONCE = 8
"""Files that are on their way: the target writes one after the other, and need not wait for the link in between."""
NAMED = 20
"""Files that a message names."""


@dataclass(frozen=True, slots=True)
class Written:
    """The files that were changed, and those that were not, in the order of the plan."""

    targets: list[Target] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)


async def write_all(ctx: ToolContext, plan: Plan) -> Written:
    """Write each file that is still what the plan says.

    Raises:
        ToolError: the link was lost; the message names the files that were changed, and that may have been.
    """
    writer = _Writer(ctx)
    limiter = anyio.CapacityLimiter(AT_ONCE)

    async def one(number: int, target: Target) -> None:
        async with limiter:
            await writer.write(number, target)

    async with anyio.create_task_group() as tasks:
        for number, target in enumerate(plan.targets):
            tasks.start_soon(one, number, target)
    done = [target for number, target in enumerate(plan.targets) if number in writer.done]
    if writer.lost is not None:
        raise _broken(writer, plan, done)
    return Written(done, [*plan.problems, *(writer.problems[number] for number in sorted(writer.problems))])


class _Writer:
    """Writes files, and keeps what became of each by its number in the plan."""

    def __init__(self, ctx: ToolContext) -> None:
        self._ctx = ctx
        self.done: set[int] = set()
        self.unknown: set[int] = set()
        self.problems: dict[int, Problem] = {}
        self.lost: ConnectionLost | ConnectError | None = None

    async def write(self, number: int, target: Target) -> None:
        """Write one, unless the link was lost: then nothing more is begun."""
        if self.lost is not None:
            return
        content, reads = target.content, self._ctx.reads
        made = apply_changes(content.data, target.found.changes)
        try:
            result = await self._ctx.execution.write_file(content.path, made, expect=content.version, parents=False)
        except StaleFileError:
            problem = f"{readable_name(content.path)} was changed meanwhile, and was left as it is"
            self.problems[number] = Problem(content.path, "stale", problem)
        except FileError as error:
            self.problems[number] = problem_of(content.path, error)
        except ConnectionLost as error:
            self.lost = error
            self.unknown.add(number)
        except ConnectError as error:
            self.lost = error
        else:
            reads.saw(content.path, result.version, whole=reads.seen(content.path, whole=True) == content.version)
            self.done.add(number)


def _broken(writer: _Writer, plan: Plan, done: list[Target]) -> ToolError:
    """What is known of the files after the link was lost."""
    assert writer.lost is not None
    unknown = [plan.targets[number].content.path for number in sorted(writer.unknown)]
    left = len(plan.targets) - len(done) - len(unknown)
    parts = [
        f"changed: {named([target.content.path for target in done]) or 'none'}",
        f"may have been changed, so look before you repeat it: {named(unknown) or 'none'}",
        f"not changed: {left} more",
    ]
    message = f"{writer.lost.message}; {'; '.join(parts)}"
    return ToolError(message, code="backend_lost", target=writer.lost.target, hint=writer.lost.hint)


def named(paths: list[str]) -> str:
    """Paths for a message, not too many of them."""
    more = len(paths) - NAMED
    return ", ".join(map(readable_name, paths[:NAMED])) + (f" and {more} more" if more > 0 else "")
