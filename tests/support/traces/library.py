"""The kept traces: chosen by the sequences of events, without what differs from one recording to the next.

What was recorded is first replayed as it is: a trace that today's classes do not reproduce is refused. Then names of
directories, nonces, secrets, process ids and the machine's name are replaced by others of the same length, and what
comes out of the classes after each event is written anew.
"""

from __future__ import annotations

import json
import lzma
import os
import re
import socket
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from .replay import replayed

__all__ = [
    "FILE",
    "chosen",
    "kept_traces",
    "machine_names",
    "normalised",
    "recorded_traces",
    "same",
    "shape",
    "write_traces",
]

ROOT = Path(__file__).parents[3]
FILE = ROOT / "tests/data/pane_traces.jsonl.xz"
SHOWN = 512
"""Bytes that are kept of the beginning and of the end of a long output."""
TELLING_OF_THE_MACHINE = re.compile(
    r"\bpytest\b|TERM_PROGRAM|XDG_RUNTIME_DIR|\bPATH=|SSL_CERT|%CPU|Mem:|Linux version|builder@"
)
"""In a list of processes, or of the environment: such a trace is not kept."""
FILLED = re.compile(rf"([^\x1b]{{{SHOWN}}})([^\x1b]+)([^\x1b]{{{SHOWN}}})", re.DOTALL)

Event = list[Any]
Trace = dict[str, Any]


def recorded_traces(folder: Path) -> Iterator[Trace]:
    """What a run of tests has recorded."""
    for path in sorted(folder.glob("*.jsonl")):
        with path.open() as lines:
            yield from map(json.loads, lines)


def kept_traces() -> list[Trace]:
    """The traces of the repository."""
    with lzma.open(FILE, "rt") as lines:
        return [json.loads(line) for line in lines]


def write_traces(traces: Iterable[Trace]) -> int:
    """Keep these traces; returns the size of the file."""
    text = "".join(json.dumps(trace, separators=(",", ":")) + "\n" for trace in traces)
    FILE.write_bytes(lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME))
    return FILE.stat().st_size


def same(events: list[Event]) -> bool:
    """Whether today's classes do what was recorded."""
    return bool(json.loads(json.dumps(replayed(events))) == events)


# -- what is the same in each recording


class _Names:
    """Replaces what is random, or of this machine, by names of the same length, in the order in which they come."""

    def __init__(self, machine: Sequence[str]) -> None:
        self._given: dict[tuple[str, str], str] = {}
        own = "|".join(map(re.escape, machine)) or "(?!)"
        self._pattern = re.compile(
            rf"(?P<own>(?:(?<![\w/])|(?<=\[[A-Z])|(?<=\dm))(?:{own})(?![\w-]))|(?P<temporary>/tmp/[\w.-]+)"
            r"|(?P<random>\b[0-9a-f]{12,64}\b)|(?P<tag>\b(?:hx|op|pane)-[0-9a-f]{8}\b)"
            r"|(?P<told>\b(?:pid=|tty=|(?<=/)dev/pts/\d+\t))(?P<number>\d+)|(?P<process>\b\d+)(?=:/dev/)|(?P<terminal>/dev/pts/\d+)"
        )

    def __call__(self, text: str) -> str:
        """The text, as long as before."""
        return self._pattern.sub(self._one, text)

    def process(self, number: int) -> int:
        """A process id with as many digits."""
        return int(self._numbered("process", str(number)))

    def _one(self, match: re.Match[str]) -> str:
        kind, text = str(match.lastgroup), match[0]
        match kind:
            case "own":
                return ("/" if text.startswith("/") else "").ljust(len(text), "h")
            case "temporary":
                return "/tmp/" + self._lettered("t", text[5:])
            case "number":
                return match["told"] + self._numbered("process", match["number"])
            case "process":
                return self._numbered("process", text)
            case "terminal":
                return "/dev/pts/".ljust(len(text), "0")
        return self._lettered("n", text)

    def _lettered(self, letter: str, text: str) -> str:
        return self._name(letter, text, lambda count: f"{letter}{count:0{len(text) - 1}}"[: len(text)])

    def _numbered(self, kind: str, text: str) -> str:
        if len(text) < 2:
            return text
        return self._name(kind, text, lambda count: str((10 ** (len(text) - 1) + count) % 10 ** len(text)))

    def _name(self, kind: str, text: str, make: Callable[[int], str]) -> str:
        if (kind, text) not in self._given:
            count = sum(known == kind and len(other) == len(text) for known, other in self._given)
            self._given[kind, text] = make(count + 1)
        return self._given[kind, text]


def _values(value: Any, clean: _Names, key: str = "") -> Any:
    """Every text in an argument."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        return {name: _values(item, clean, name) for name, item in value.items()}
    if isinstance(value, list) and key.endswith("shells"):
        return [
            [clean(nonce), kind, files, clean.process(pid), clean(image)] for nonce, kind, files, pid, image in value
        ]
    if isinstance(value, list):
        return [_values(item, clean) for item in value]
    return clean.process(value) if key == "group" else value


STREAMS = ("feed", "scan", "job.feed", "note.log")


def _stream(events: list[Event], clean: _Names) -> None:
    """The bytes of a stream come in pieces, and a name may be cut between two of them."""
    pieces = [event[1][-1] for event in events]
    whole = clean("".join(pieces))
    whole = FILLED.sub(lambda found: found[1] + "x" * len(found[2]) + found[3], whole)
    position = 0
    for event, piece in zip(events, pieces, strict=True):
        event[1] = [*event[1][:-1], whole[position : position + len(piece)]]
        position += len(piece)


def machine_names() -> list[str]:
    """What tells where it was recorded."""
    return [str(ROOT), os.path.realpath(sys.prefix), socket.gethostname()]


def normalised(events: list[Event], machine: Sequence[str] = ()) -> list[Event]:
    """The same events with other names, also for those of the machine, and what today's classes make of them."""
    clean = _Names(machine)
    changed: list[Event] = []
    for name, arguments, *_ in events:
        changed.append([name, arguments if name in STREAMS else _values(arguments, clean)])
    for stream in STREAMS:
        keys = {event[1][0] if stream == "job.feed" else "" for event in changed if event[0] == stream}
        for key in sorted(keys):
            _stream([event for event in changed if event[0] == stream and (not key or event[1][0] == key)], clean)
    result: list[Event] = json.loads(json.dumps(replayed(changed)))
    return result


# -- which are kept

TELLING = ("phase", "status", "ending", "kind", "gone", "paused")


def _token(event: Event) -> tuple[Any, ...]:
    """What an event is like: not which job, which bytes, how many."""
    name, arguments, changed = event
    keys = {key.rpartition(".")[2]: value for key, value in changed.items()}
    told = tuple(f"{key}={keys[key]}" for key in TELLING if key in keys)
    writer = arguments[0] if name == "set" else ""
    return (name, writer, *sorted(keys), *told)


def shape(trace: Trace) -> tuple[Any, ...]:
    """What traces have in common that are worth being kept once."""
    found: list[tuple[Any, ...]] = []
    for event in trace["events"]:
        token = _token(event)
        if not event[0].startswith("note.") and (not found or found[-1] != token):
            found.append(token)
    return tuple(found)


def is_of_its_own(trace: Trace) -> bool:
    """Whether nothing of the machine shows that the trace needs not."""
    return TELLING_OF_THE_MACHINE.search(json.dumps(trace["events"])) is None


def chosen(traces: Iterable[Trace], length: int = 3) -> list[Trace]:
    """The short traces first, and of the others those in which a sequence of so many events is new to their shell."""
    seen: set[tuple[Any, ...]] = set()
    kept: list[Trace] = []
    for trace in sorted(
        filter(is_of_its_own, traces), key=lambda trace: (len(trace["events"]), json.dumps(trace["events"]))
    ):
        tokens = shape(trace)
        parts = {(trace["shell"], *tokens[index : index + length]) for index in range(len(tokens))}
        if not parts <= seen:
            seen |= parts
            kept.append(trace)
    return sorted(kept, key=lambda trace: (trace["shell"], trace["test"], json.dumps(trace["events"])))
