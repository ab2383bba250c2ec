"""The directory of recordings: their files, what is known of each, and which are deleted."""

from __future__ import annotations

import os
import re
import secrets
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TextIO

from ..errors import HarnessError
from ..system.private_files import is_locked, make_private, state_home
from .asciicast import CastEvent, CastHeader, read_events, read_header

__all__ = [
    "ENDED",
    "JOB_ENDED",
    "JOB_STARTED",
    "RecordedJob",
    "Recording",
    "RecordingSummary",
    "delete_old",
    "end_marker",
    "find_recording",
    "list_recordings",
    "new_path",
    "read_recording",
    "recordings_directory",
    "summary_of",
    "unfinished_recordings",
]

ENDED = "recording ended"
"""The start of the last marker of a finished recording."""
JOB_STARTED = re.compile(r"job (\d+): (.*)", re.DOTALL)
JOB_ENDED = re.compile(r"job (\d+) ended: (\w+)(?:, exit code (-?\d+))?")
_SUFFIX = ".cast"
_SUMMARY = re.compile(rf"{ENDED}\b.*\((\d+(?:\.\d+)?) s, jobs: (\d+)\)", re.DOTALL)
"""The last marker that :func:`end_marker` returns."""
_MAX_HEADER_BYTES = 1 << 20
_TAIL_BYTES = 1 << 12
"""Bytes at the end of a recording in which its last marker is."""
_JOB_LINE = re.compile(r'\[[^,]*, "m", "job (\d+): ')


def end_marker(why: str, seconds: float, jobs: int) -> str:
    """Return the last marker; a list of recordings reads their length and their number of jobs from it."""
    return f"{ENDED}{': ' if why else ''}{why} ({round(seconds, 3)} s, jobs: {jobs})"


def recordings_directory() -> Path:
    """Return the directory of this user's recordings, whether it exists or not."""
    return state_home() / "recordings"


def new_path(name: str) -> Path:
    """Return the path of a new recording of a pane with this name, in the private directory, which is created.

    Raises:
        HarnessError: Other users may read the directory.
        OSError: It cannot be created.
    """
    directory = recordings_directory()
    make_private(directory, failure=lambda why, hint: HarnessError(f"recordings: {directory}: {why}", hint=hint))
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-")[:48] or "pane"
    return directory / f"{time.strftime('%Y%m%d-%H%M%S')}-{name}-{secrets.token_hex(4)}{_SUFFIX}"


@dataclass(frozen=True, slots=True)
class RecordedJob:
    """A job in a recording; times are seconds since its start, and ``ended`` is None for a job without an end."""

    job_id: str
    command: str
    started: float
    ended: float | None = None
    status: str = ""
    exit_code: int | None = None


@dataclass(frozen=True, slots=True)
class Recording:
    """A recording that was read."""

    path: Path
    header: CastHeader
    events: tuple[CastEvent, ...]

    @property
    def jobs(self) -> list[RecordedJob]:
        """The jobs, in the order of their starts."""
        found: dict[str, RecordedJob] = {}
        for event in self.events:
            if event.code != "m":
                continue
            if end := JOB_ENDED.match(event.data):
                job = found.get(end[1]) or RecordedJob(end[1], "", event.time)
                code = None if end[3] is None else int(end[3])
                found[end[1]] = RecordedJob(job.job_id, job.command, job.started, event.time, end[2], code)
            elif start := JOB_STARTED.match(event.data):
                found[start[1]] = RecordedJob(start[1], start[2], event.time)
        return list(found.values())


@dataclass(frozen=True, slots=True)
class RecordingSummary:
    """What ``recordings list`` shows; ``state`` is ``recording`` while a harness writes it."""

    id: str
    path: str
    state: Literal["recording", "finished", "unfinished"]
    target: str
    host: str
    """The host of a fleet, by its name there; empty otherwise."""
    session: str
    pane: str
    started: float
    seconds: float
    columns: int
    rows: int
    jobs: int
    bytes: int


def list_recordings() -> list[RecordingSummary]:
    """Return all recordings, oldest first; files that are not recordings are skipped."""
    found = []
    for path in _paths():
        with suppress(HarnessError, OSError):
            found.append(summary_of(path))
    return sorted(found, key=lambda item: (item.started, item.id))


def _paths() -> list[Path]:
    """Return the files of the recordings; a link could lead elsewhere, and opening a named pipe would wait for ever."""
    return [path for path in sorted(recordings_directory().glob(f"*{_SUFFIX}")) if _is_file(path)]


def _is_file(path: Path) -> bool:
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except OSError:  # deleted meanwhile
        return False


def find_recording(name: str) -> Path:
    """Return the path of a recording by its ID, the start of its ID, or a path.

    Raises:
        HarnessError: No ID starts so, or several do.
    """
    if "/" in name or Path(name).suffix:
        path = Path(name) if "/" in name or Path(name).exists() else recordings_directory() / name
        if path.is_file():
            return path
    found = [path for path in _paths() if path.stem.startswith(name)]
    exact = [path for path in found if path.stem == name]
    if len(exact or found) == 1:
        return (exact or found)[0]
    if found:
        raise HarnessError(f"{len(found)} recordings start with {name!r}", hint="give more of the ID")
    raise HarnessError(f"no recording {name!r}", hint="list them with: harness recordings list")


def read_recording(path: Path) -> Recording:
    """Read a recording.

    Raises:
        HarnessError: It is not a recording.
        OSError: It cannot be read.
    """
    with _opened(path) as file:
        header = read_header(file.readline(_MAX_HEADER_BYTES), path)
        return Recording(path, header, tuple(read_events(file, header.version)))


@contextmanager
def _opened(path: Path) -> Iterator[TextIO]:
    with path.open(encoding="utf-8", errors="replace", newline="\n") as file:
        yield file


def summary_of(path: Path) -> RecordingSummary:
    """Return what a list shows of a recording, mostly from its first and its last line.

    Raises:
        HarnessError: It is not a recording.
        OSError: It cannot be read.
    """
    header, last, size = _read_ends(path)
    ended = _SUMMARY.match(_marker_text(last))
    seconds, jobs = (float(ended[1]), int(ended[2])) if ended else _scan(path, header.version)
    known = header.harness
    return RecordingSummary(
        id=path.stem,
        path=str(path),
        state=_state(path, header, last),
        target=str(known.get("target", "")),
        host=str(known.get("host", "")),
        session=str(known.get("session", "")),
        pane=str(known.get("pane", "")),
        started=float(header.timestamp),
        seconds=round(seconds, 6),
        columns=header.columns,
        rows=header.rows,
        jobs=jobs,
        bytes=size,
    )


def _read_ends(path: Path) -> tuple[CastHeader, str, int]:
    """Return the header, the last line, if it is short, and the size."""
    with path.open("rb") as file:
        header = read_header(file.readline(_MAX_HEADER_BYTES).decode("utf-8", "replace"), path)
        size = os.fstat(file.fileno()).st_size
        file.seek(max(0, size - _TAIL_BYTES))
        return header, file.read(_TAIL_BYTES).rstrip(b"\n").rpartition(b"\n")[2].decode("utf-8", "replace"), size


def _scan(path: Path, version: int) -> tuple[float, int]:
    """Return the seconds and the number of jobs of a recording whose end does not contain them."""
    jobs: set[str] = set()
    seconds = 0.0
    with _opened(path) as file:
        file.readline(_MAX_HEADER_BYTES)
        for line in file:
            time = _seconds(line)
            seconds = seconds + time if version == 3 else max(seconds, time)
            if (start := _JOB_LINE.match(line)) is not None:
                jobs.add(start[1])
    return seconds, len(jobs)


def _seconds(line: str) -> float:
    """Return the first number of an event's line; 0 for another line."""
    try:
        return max(0.0, float(line[1 : line.find(",")])) if line.startswith("[") else 0.0
    except ValueError:
        return 0.0


def _marker_text(line: str) -> str:
    """Return the text of a marker's line; an empty text for another line."""
    return next((event.data for event in read_events([line], 2) if event.code == "m"), "")


def _state(path: Path, header: CastHeader, last: str) -> Literal["recording", "finished", "unfinished"]:
    if not header.harness or _marker_text(last).startswith(ENDED):
        return "finished"
    return "recording" if is_locked(path) else "unfinished"


def unfinished_recordings(target: str) -> list[Path]:
    """Return the recordings of a target that no harness writes any more and that have no end."""
    found = []
    for path in _paths():
        with suppress(HarnessError, OSError):
            header, last, _ = _read_ends(path)
            if header.harness.get("target") == target and _state(path, header, last) == "unfinished":
                found.append(path)
    return found


def delete_old(max_age: float, max_bytes: int) -> list[Path]:
    """Delete recordings that are too old, and the oldest beyond a total size; none that is being written.

    Returns:
        The deleted files.
    """
    now, total, deleted = time.time(), 0, []
    aged = []
    for path in _paths():
        with suppress(OSError):
            info = path.stat()
            aged.append((info.st_mtime, info.st_size, path))
    for changed, size, path in sorted(aged, reverse=True):  # the newest are kept
        total += size
        if (now - changed > max_age or total > max_bytes) and not is_locked(path):
            with suppress(OSError):
                path.unlink()
                deleted.append(path)
    return deleted
