"""Asking the target: one command beside the terminal, its output with a bound, and what went wrong."""

from __future__ import annotations

import posixpath

from harness.errors import ToolError
from harness.results import ShellResult, Status
from harness.toolkit import ToolContext

__all__ = ["ANSWER", "SECONDS", "absolute", "ask", "can_search", "unreadable_answer"]

ANSWER = 32 << 20
"""Bytes of one answer, more than any script sends."""
SECONDS = 60.0
"""How long a search may take on the target."""


async def absolute(ctx: ToolContext, path: str) -> str:
    """The path that a call means, absolute: relative ones start from the call's directory, else from the home.

    Raises:
        FileError: it is in the home of a user who is not there.
    """
    home = ctx.execution.capabilities.home or "/"
    if path == "~" or path.startswith("~/"):
        return home + path[1:]
    if path.startswith("~"):
        return (await ctx.execution.stat(path)).path
    start = ctx.cwd or home
    start = home + start[1:] if start == "~" or start.startswith("~/") else start
    return posixpath.join(home, start, path)


def can_search(ctx: ToolContext, *programs: str) -> bool:
    """Whether the target has these programs."""
    return all(ctx.execution.capabilities.has(program) for program in programs)


async def ask(ctx: ToolContext, script: str, stdin: bytes | None = None) -> bytes:
    """Run a script in a fresh ``sh`` beside the terminal; what it printed.

    Raises:
        ToolError: it took too long, or did not come to its end.
    """
    done = await ctx.execution.run_beside(script, timeout=SECONDS, max_output=ANSWER, stdin=stdin)
    if done.status is not Status.COMPLETED or done.truncated:
        raise _failed(done)
    return done.stdout_bytes


def unreadable_answer(ctx: ToolContext) -> ToolError:
    """The error for an answer that the usual programs would not write."""
    return ToolError(
        f"{ctx.execution.identity}: the answer to the search cannot be read",
        hint="look at which programs find and stat are in the PATH of the target's shell",
    )


def _failed(done: ShellResult) -> ToolError:
    if done.status is Status.TIMED_OUT:
        hint = "search a smaller directory, or with a narrower pattern"
        return ToolError(f"the search took longer than {SECONDS:.0f} s and was ended", hint=hint)
    if done.truncated:
        return ToolError("the search found more than can be carried", hint="search a smaller directory")
    return ToolError(f"the search did not come to its end ({done.status})")
