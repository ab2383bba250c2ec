"""Worker process: reads sources from standard input, prints a line of JSON for each.

Usage: ``worker.py TASK SECONDS MEMORY``: the task is ``outline`` or ``facts``, the seconds are CPU time for each file,
the memory is in bytes for all. The first line of the input is a list of ``[language, size]``; the contents follow.

It is run by its path in a separate process, because a source may be designed to exhaust time and memory. It aborts
files that take too long; if the parser does not poll, a signal ends the process. So the first missing line is that of
the file that caused it.
"""

from __future__ import annotations

import importlib
import json
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any

__all__ = ["answers", "main"]

MAX_OUTPUT_BYTES = 64 << 20
"""Maximum characters of all lines; later sources are not parsed."""
GRACE = 2.0
"""Factor on the CPU time after which a signal ends the process."""


def answers(task: str, sources: Iterable[tuple[str, bytes]], limit: Callable[[], Callable[[], bool]]) -> Iterator[str]:
    """Yield the line of each source; ``limit`` starts the time of one and returns a check for its end."""
    package = __package__ or "languages"
    analysis = importlib.import_module(f"{package}.analysis")
    grammar = importlib.import_module(f"{package}.grammar")
    table = importlib.import_module(f"{package}.table")
    model = importlib.import_module(f"{package}.model")
    work = analysis.outline_of if task == "outline" else analysis.facts_of
    said = 0
    for name, data in sources:
        answer: dict[str, Any]
        try:
            if said > MAX_OUTPUT_BYTES:
                raise MemoryError
            answer = {"found": model.to_json(work(data, table.language_named(name), limit()))}
        except grammar.GrammarMissing:
            answer = {"missing": name}
        except (grammar.Stopped, RecursionError, MemoryError):
            answer = {"stopped": name}
        line = json.dumps(answer)
        said += len(line)
        yield line


def _limit(seconds: float) -> Callable[[], bool]:
    signal.setitimer(signal.ITIMER_PROF, seconds * GRACE + 0.5)
    end = time.process_time() + seconds
    return lambda: time.process_time() > end


def _sources() -> Iterator[tuple[str, bytes]]:
    for name, size in json.loads(sys.stdin.buffer.readline()):
        yield name, sys.stdin.buffer.read(size)


def main() -> int:
    """Answer all sources, and return the exit code."""
    task, seconds, memory = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    with suppress(ValueError, OSError):  # some systems lack this limit; the CPU limit remains
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.path.insert(0, __file__.rpartition("/languages/")[0])
    sources = list(_sources())  # all first: the parent must not write into a closed pipe
    for line in answers(task, sources, lambda: _limit(seconds)):
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
