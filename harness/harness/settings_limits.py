"""What each setting may be: ranges, patterns, and the words that say so to a person."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, get_args, get_origin

__all__ = ["DURATIONS", "PATTERNS", "RANGES", "SIZES", "TIMES", "UNITS", "allowed", "with_unit"]

DAY = 86400.0
FOREVER = 366 * DAY

TIMES: Mapping[str, tuple[float, float]] = {
    "connect_timeout": (0.1, 3600.0),
    "login_timeout": (0.1, DAY),
    "prompt_timeout": (0.1, DAY),
    "control_persist": (0.0, FOREVER),
    "jobs_max_age": (1.0, 100 * FOREVER),
    "timeout": (0.1, FOREVER),
}
"""Seconds."""
DURATIONS = frozenset({*TIMES, "tools.cache_max_age"})
SIZES = frozenset({"job_log_limit", "jobs_max_bytes", "tools.cache_max_bytes"})
RANGES: Mapping[str, tuple[int, int]] = {
    "width": (20, 10_000),
    "height": (5, 10_000),
    "history_limit": (0, 10_000_000),
    "max_sessions": (1, 1_000),
    "max_panes": (1, 1_000),
    "keepalive_interval": (1, 3_600),
    "keepalive_count": (1, 1_000),
    "max_channels": (0, 1_000),
    "job_log_limit": (1 << 10, 1 << 50),
    "jobs_max_bytes": (1 << 10, 1 << 50),
}
_NAME = r"[A-Za-z0-9][A-Za-z0-9_-]{0,47}"
PATTERNS: Mapping[str, tuple[str, str]] = {
    "session": (_NAME, "a session name: up to 48 letters, digits, '-' and '_', no first '-'"),
    "pane": (rf"{_NAME}|%\d+", "a pane's name (up to 48 letters, digits, '-' and '_') or its tmux id, such as %3"),
    "image_memory": (r"(\d+[kmgKMG]?[bB]?)?", "a size such as 512m or 2g"),
    "image_cpus": (r"(\d+(\.\d+)?)?", "a number of processors such as 2 or 1.5"),
    "image_network": (r"([A-Za-z0-9][A-Za-z0-9_.:-]*)?", "a network's name, none or host"),
    "tmux_socket": (r"[A-Za-z0-9_.-]+", "a socket name of letters, digits, '_', '.' and '-'"),
}

UNITS: Mapping[str, str] = {
    **dict.fromkeys(DURATIONS, "s"),
    **dict.fromkeys(SIZES, "bytes"),
    "width": "columns",
    "height": "rows",
    "history_limit": "lines",
    "keepalive_interval": "s",
    "tools.cache_max_results": "results",
}
"""The unit of each setting that is a number of something."""
_TIME_UNITS = ((DAY, "d"), (3600.0, "h"), (60.0, "m"), (1.0, "s"))
_SIZE_UNITS = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def allowed(name: str, kind: object) -> str:
    """What may be written for the setting ``name`` of the type ``kind``, for the end of a message."""
    if name in SIZES:
        return "a size from 1KiB to 1PiB: bytes, or 64k, 256MiB, 2G"
    if name in DURATIONS:
        low, high = TIMES[name]
        return f"a time from {_time(low)} to {_time(high)}: seconds, or 500ms, 30s, 10m, 1h, 1d"
    if name in RANGES:
        return f"a whole number from {RANGES[name][0]} to {RANGES[name][1]}"
    if name == "tmux":
        return f"true, false or {PATTERNS['session'][1]}"
    if name in PATTERNS:
        return PATTERNS[name][1]
    return _of_kind(name, kind)


def _of_kind(name: str, kind: object) -> str:
    if kind is bool:
        return "true or false"
    if get_origin(kind) is Literal:
        return " or ".join(repr(value) for value in get_args(kind))
    if name == "env":
        return "NAME = text"
    return "a list of texts" if get_origin(kind) is tuple else "text without NUL bytes"


def _time(seconds: float) -> str:
    factor, unit = next((unit for unit in _TIME_UNITS if seconds >= unit[0]), (1.0, "s"))
    return f"{seconds / factor:g}{unit}"


def with_unit(name: str, value: float) -> str:
    """Return the value of a setting of :data:`UNITS` with its unit; times and sizes as settings are written."""
    if name in DURATIONS:
        factor, unit = next((unit for unit in _TIME_UNITS if value and value % unit[0] == 0), (1.0, "s"))
        return f"{value / factor:.12g}{unit}"
    if name in SIZES:
        size, unit = next((unit for unit in _SIZE_UNITS if value % unit[0] == 0), (1, " bytes"))
        return f"{value / size:.12g}{unit}"
    return f"{value:.12g} {UNITS[name]}"
