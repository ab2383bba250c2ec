"""Parsing sources in a separate process, because a source can be designed to exhaust time or memory.

The process aborts each file that takes too long. If it exits without an answer for a file, that file failed, and the
others go to another process.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Generic, Literal, TypeVar

import anyio

from .model import FileImports, FileOutline, facts_from, outlined_from

__all__ = ["EXTRA", "Parsed", "Source", "facts_in", "outline_in"]

SCRIPT = "harness_tools.dev.languages.worker"
MEMORY = 2 << 30
"""Maximum bytes of address space of the process."""
PROCESSES = 6
"""Maximum processes: if so many files ended theirs, the rest is not parsed."""
WAIT = 4.0
"""Factor from CPU time to wall-clock time on a busy machine."""
EXTRA = "harness-ops[parsers]"

Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class Source:
    """One file's bytes as UTF-8, and its language."""

    language: str
    data: bytes


@dataclass(frozen=True, slots=True)
class Parsed(Generic[Found]):
    """The result, or why it is missing: no grammar (``missing``), too ``hard``, or not reached (``late``)."""

    found: Found | None = None
    problem: Literal["", "missing", "hard", "late"] = ""


async def outline_in(source: Source, seconds: float) -> Parsed[FileOutline]:
    """Return the declarations of a source; ``seconds`` are CPU time."""
    return (await _parsed("outline", [source], seconds, outlined_from))[0]


async def facts_in(sources: Sequence[Source], seconds: float) -> list[Parsed[FileImports]]:
    """Return the imports of sources, in order; ``seconds`` are CPU time for each."""
    return await _parsed("facts", sources, seconds, facts_from)


async def _parsed(
    task: str, sources: Sequence[Source], seconds: float, decode: Callable[[dict[str, Any]], Found]
) -> list[Parsed[Found]]:
    answered: list[Parsed[Found]] = []
    for _ in range(PROCESSES):
        waiting = sources[len(answered) :]
        if not waiting:
            break
        lines = await _run(task, waiting, seconds)
        answered += [_answer(line, decode) for line in lines]
        if len(lines) < len(waiting):
            answered.append(Parsed(problem="hard"))
    return answered + [Parsed(problem="late")] * (len(sources) - len(answered))


def _answer(line: bytes, decode: Callable[[dict[str, Any]], Found]) -> Parsed[Found]:
    answer = json.loads(line)
    if "found" in answer:
        return Parsed(decode(answer["found"]))
    return Parsed(problem="missing" if "missing" in answer else "hard")


async def _run(task: str, sources: Sequence[Source], seconds: float) -> list[bytes]:
    """Return the lines that the process printed before it exited, one for each of the first sources."""
    spec = find_spec(SCRIPT)
    assert spec is not None
    assert spec.origin is not None
    command = [sys.executable, "-P", spec.origin, task, str(seconds), str(MEMORY)]  # by its path, to load nothing else
    sizes = [[source.language, len(source.data)] for source in sources]
    sent = b"".join([json.dumps(sizes).encode(), b"\n", *(source.data for source in sources)])
    written = b""
    with anyio.move_on_after(60 + WAIT * seconds * len(sources)):
        try:
            written = (await anyio.run_process(command, input=sent, check=False)).stdout
        except* anyio.BrokenResourceError:
            pass  # it exited before it read everything
    return written.split(b"\n")[:-1][: len(sources)]
