"""Looking on the target for files below directories of which a command would take everything."""

from __future__ import annotations

import posixpath
import shlex
from collections.abc import Mapping, Sequence

from ...context import ExecutionContext
from ...errors import HarnessError
from ...results import ShellResult, Status

__all__ = ["NAME", "BelowSearch"]

NAME = ".aiexclude"
SECONDS = 10.0
"""How long one look may take; what is not known then is asked about."""
ANSWER = 256 << 10
"""Bytes of what was found, at most."""
PATTERNS = 200
"""Patterns that are looked for, at most."""


class BelowSearch:
    """``find`` on the target, beside the terminal.

    Args:
        privileged: somebody else's eyes will go through: what ``find`` may not look into is not known.
    """

    def __init__(self, execution: ExecutionContext, *, privileged: bool) -> None:
        self._execution = execution
        self._privileged = privileged

    async def holders(self, tops: Sequence[str]) -> list[str] | str:
        """The directories with a file that excludes others, or why they are not known."""
        found = await self._find(tops, f"-name {NAME}")
        return found if isinstance(found, str) else [posixpath.dirname(path) for path in found]

    async def named(self, tops: Sequence[str], told: Mapping[str, Sequence[str]]) -> list[str] | str:
        """What a pattern may mean, and more, or why it is not known."""
        wanted = dict.fromkeys(
            test for directory, lines in told.items() for line in lines if (test := _test(directory, line))
        )
        if len(wanted) > PATTERNS:
            return f"its {NAME} files have more patterns than can be looked for"
        return await self._find(tops, f"\\( {' -o '.join(wanted)} \\)") if wanted else []

    async def _find(self, tops: Sequence[str], test: str) -> list[str] | str:
        look = f"LC_ALL=C find {' '.join(map(shlex.quote, tops))} {test} -print"
        script = f'{{ {look}; echo "end $?"; }} | head -c {ANSWER}'
        try:
            done = await self._execution.run_beside(script, timeout=SECONDS, max_output=ANSWER)
        except HarnessError as error:
            return f"whether an {NAME} keeps something back below could not be found out: {error.message}"
        *found, end = done.stdout.splitlines() or [""]
        return self._unknown(done, found, end) or found

    def _unknown(self, done: ShellResult, found: Sequence[str], end: str) -> str:
        if done.status is Status.TIMED_OUT:
            return f"whether an {NAME} keeps something back below was not found out in {SECONDS:g} seconds"
        looked = done.status is Status.COMPLETED and end in ({"end 0"} if self._privileged else {"end 0", "end 1"})
        odd = any(not line.startswith("/") for line in found)
        if not looked or done.truncated or odd:
            return f"whether an {NAME} keeps something back below could not be found out"
        return ""


def _test(directory: str, line: str) -> str:
    """A test of ``find`` for a pattern; it may mean more than the pattern, never less. Pure."""
    if line.startswith("!"):
        return ""  # it takes back what others say
    plain = line.replace("\\", "").rstrip("/")
    if "/" not in plain:
        return f"-name {shlex.quote(plain)}" if plain.strip("*") else "-name '*'"
    path = posixpath.join(_literal(directory), plain.lstrip("/").replace("**", "*"))
    return f"-path {shlex.quote(path)}"


def _literal(directory: str) -> str:
    return "".join(f"\\{mark}" if mark in "*?[\\" else mark for mark in directory)
