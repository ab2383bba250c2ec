"""Make the kept traces of what was recorded: ``python -m tests.support.traces.build FOLDER SHELL...``."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path

from .library import FILE, chosen, kept_traces, machine_names, normalised, recorded_traces, same, write_traces

__all__ = ["main"]


def main(folder: str, *shells: str) -> int:
    """Check, choose, rename and write; returns 1 when something was recorded that is not reproduced.

    Args:
        shells: those whose kept traces are replaced.
    """
    found = list(recorded_traces(Path(folder)))
    unseen = [trace for trace in found if trace.pop("unseen")]
    wrong = [trace for trace in found if not same(trace["events"])]
    for trace in unseen:
        print(f"changed without an event: {trace['shell']} {trace['test']}")
    for trace in wrong:
        print(f"not reproduced: {trace['shell']} {trace['test']}")
    kinds = {shell.replace("busybox", "ash") for shell in shells}
    others = [trace for trace in kept_traces() if trace["shell"] not in kinds] if FILE.exists() else []
    new = [trace for trace in chosen(found) if trace not in wrong]
    for trace in new:
        trace["events"] = normalised(trace["events"], machine_names())
    kept = chosen([*others, *new])
    size = write_traces(kept)
    events = sum(len(trace["events"]) for trace in kept)
    by_shell = Counter(trace["shell"] for trace in kept)
    print(f"{len(found)} recorded, {len(kept)} kept, {events} events, {size} bytes; {json.dumps(by_shell)}")
    return 1 if unseen or wrong else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
