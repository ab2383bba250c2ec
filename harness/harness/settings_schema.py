"""The schema of settings files: names, types, units and ranges, validated with one line per error.

The keys are the fields of :class:`harness.config.Config`, so a new field there is a new key here. Values are checked
without pydantic: loading its core would cost every command with a settings file or a variable 45 ms.
"""

from __future__ import annotations

import dataclasses
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

from .command import parse_duration
from .config import Config
from .errors import ConfigError

__all__ = [
    "DURATIONS",
    "ENGINE_KEYS",
    "GENERAL_KEYS",
    "PATTERNS",
    "RANGES",
    "SIZES",
    "TARGET_KEYS",
    "TIMES",
    "UNITS",
    "allowed",
    "check_name",
    "parse_size",
    "parse_variable",
    "suggest",
    "validate",
    "with_unit",
]


# -- Ranges, patterns and units of settings, and their descriptions for messages.


DAY = 86400.0
FOREVER = 366 * DAY

TIMES: Mapping[str, tuple[float, float]] = {
    "connect_timeout": (0.1, 3600.0),
    "login_timeout": (0.1, DAY),
    "prompt_timeout": (0.1, DAY),
    "control_persist": (0.0, FOREVER),
    "jobs_max_age": (1.0, 100 * FOREVER),
    "recordings_max_age": (1.0, 100 * FOREVER),
    "sudo_password_max_age": (0.0, DAY),
    "timeout": (0.1, FOREVER),
}
"""Seconds."""
DURATIONS = frozenset({*TIMES, "tools.cache_max_age"})
SIZES = frozenset(
    {"job_log_max_bytes", "jobs_max_bytes", "record_max_bytes", "recordings_max_bytes", "tools.cache_max_bytes"}
)
RANGES: Mapping[str, tuple[int, int]] = {
    "width": (20, 10_000),
    "height": (5, 10_000),
    "history_limit": (0, 10_000_000),
    "max_sessions": (1, 1_000),
    "max_panes": (1, 1_000),
    "keepalive_interval": (1, 3_600),
    "keepalive_count": (1, 1_000),
    "max_channels": (0, 1_000),
    "job_log_max_bytes": (1 << 10, 1 << 50),
    "jobs_max_bytes": (1 << 10, 1 << 50),
    "record_max_bytes": (1 << 10, 1 << 50),
    "recordings_max_bytes": (1 << 10, 1 << 50),
}
_NAME = r"[A-Za-z0-9][A-Za-z0-9_-]{0,47}"
PATTERNS: Mapping[str, tuple[str, str]] = {
    "session": (_NAME, "a session name: up to 48 letters, digits, '-' and '_', no first '-'"),
    "pane": (
        rf"{_NAME}|%\d+|[^\s:.%=@$-][^\x00-\x1f:.]{{0,99}}:\d+(\.\d+)?",
        "a pane's name (up to 48 letters, digits, '-' and '_'), its tmux id, such as %3, or SESSION:WINDOW.PANE",
    ),
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
"""The unit of each setting that is a quantity."""
_TIME_UNITS = ((DAY, "d"), (3600.0, "h"), (60.0, "m"), (1.0, "s"))
_SIZE_UNITS = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def allowed(name: str, kind: object) -> str:
    """Return a description of the valid values of a setting of the type ``kind``, for the end of a message."""
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
    return "a list of strings" if get_origin(kind) is tuple else "text without NUL bytes"


def _time(seconds: float) -> str:
    factor, unit = next((unit for unit in _TIME_UNITS if seconds >= unit[0]), (1.0, "s"))
    return f"{seconds / factor:g}{unit}"


def with_unit(name: str, value: float) -> str:
    """Return the value of a setting of :data:`UNITS` with its unit, as written in settings."""
    if name in DURATIONS:
        factor, unit = next((unit for unit in _TIME_UNITS if value and value % unit[0] == 0), (1.0, "s"))
        return f"{value / factor:.12g}{unit}"
    if name in SIZES:
        size, unit = next((unit for unit in _SIZE_UNITS if value % unit[0] == 0), (1, " bytes"))
        return f"{value / size:.12g}{unit}"
    return f"{value:.12g} {UNITS[name]}"


ENGINE_KEYS = tuple(field.name for field in dataclasses.fields(Config) if field.name != "exec_targets")
"""Settings that the engine reads, as keys of files; ``exec_targets`` is what the tables of targets say."""
GENERAL_KEYS = ("target", "tmux", "pane", "timeout", "trusted_dirs")
"""Settings that choose the target and the mode of the command line."""
TARGET_KEYS = ("url", "ssh", "container", "engine", "exec", "exec_terminal", "tmux", "pane", "timeout")
"""Keys of ``[targets.NAME]`` in addition to engine settings."""

TARGET_NAME = r"[A-Za-z0-9_][A-Za-z0-9_.-]*"

_SIZE = re.compile(r"(?P<number>\d+)\s*(?P<unit>[kmgt]?)(?:i?b)?", re.IGNORECASE)
_SHIFT = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}
_TRUE = frozenset({"1", "true", "yes", "on"})
_FALSE = frozenset({"0", "false", "no", "off"})


def parse_size(text: str | int) -> int:
    """Return bytes from a number or from ``"64k"``, ``"256MiB"``, ``"2G"`` (powers of 1024).

    Raises:
        ValueError: The text is not a size.
    """
    match = _SIZE.fullmatch(str(text).strip())
    if match is None:
        raise ValueError(f"{text!r} is not a size: write bytes, or 64k, 256MiB, 2G")
    return int(match["number"]) << _SHIFT[match["unit"].lower()]


def suggest(word: str, known: tuple[str, ...]) -> str:
    """Return ``did you mean 'session'?``, or an empty string if no known word is close."""
    from difflib import get_close_matches

    close = get_close_matches(word, known, n=1)
    return f"did you mean {close[0]!r}?" if close else ""


def validate(values: Mapping[str, object], origin: str) -> Mapping[str, Any]:
    """Validate one source of settings and return it with its units converted.

    Raises:
        ConfigError: A key is unknown or a value is invalid; the message names the origin and the key.
    """
    validation = _Validation()
    valid = validation.table(values, _top_types(), ())
    if validation.mistakes:
        raise _explain(validation.mistakes, origin)
    return valid


def check_name(setting: str, name: str, origin: str) -> None:
    """Refuse an invalid value of a setting with a pattern, such as ``session`` or ``pane``.

    Raises:
        ConfigError: The value is invalid.
    """
    pattern, meaning = PATTERNS[setting]
    if re.fullmatch(pattern, name) is None:
        raise ConfigError(f"{origin}: {name!r} is not {meaning}")


def parse_variable(name: str, text: str) -> object:
    """Parse a setting's text from the environment; the result is not validated yet.

    Raises:
        ValueError: The text does not fit the setting's type; the message describes valid values.
    """
    if name == "tmux":
        return _boolean(text) if text.lower() in _TRUE | _FALSE else text
    if name in DURATIONS | SIZES:
        return text
    hint = _hints().get(name, str)
    try:
        return _READERS.get(hint, str)(text)
    except ValueError:
        words = "words, quoted as in a shell" if hint in _LISTS else allowed(name, hint)
        given = "this" if name == "env" else repr(text)
        raise ValueError(f"{given} is not {'NAME=VALUE ' if name == 'env' else ''}{words}") from None


def _boolean(text: str) -> bool:
    if text.lower() in _TRUE | _FALSE:
        return text.lower() in _TRUE
    raise ValueError(text)


def _variables(text: str) -> dict[str, str]:
    pairs = [word.partition("=") for word in shlex.split(text)]
    if any(not separator for _, separator, _ in pairs):
        raise ValueError(text)
    return {name: value for name, _, value in pairs}


_READERS: Mapping[object, Callable[[str], object]] = {
    bool: _boolean,
    int: int,
    float: float,
    tuple[str, ...]: shlex.split,
    tuple[tuple[str, str], ...]: _variables,
}


_LISTS = (tuple[str, ...], tuple[tuple[str, str], ...])


@cache
def _hints() -> dict[str, object]:
    return {**get_type_hints(Config), "trusted_dirs": tuple[str, ...], "timeout": float}


# -- types of the settings, and the validation of values

_GENERAL_TYPES: Mapping[str, object] = {
    "engine": Literal["docker", "podman"],
    "timeout": float,
    "tmux": bool | str,
    **dict.fromkeys(("exec", "exec_terminal", "trusted_dirs"), tuple[str, ...]),
}
_Path = tuple[str, ...]


@cache
def _top_types() -> Mapping[str, object]:
    hints = _hints()
    engine = {name: hints[name] for name in ENGINE_KEYS}
    return {**engine, **{name: _GENERAL_TYPES.get(name, str) for name in GENERAL_KEYS}, "targets": dict}


@cache
def _target_types() -> Mapping[str, object]:
    top = {name: kind for name, kind in _top_types().items() if name in ENGINE_KEYS}
    return {**top, **{name: _GENERAL_TYPES.get(name, str) for name in TARGET_KEYS}}


class _Mistake(NamedTuple):
    path: _Path
    value: object
    kind: Literal["value", "key", "unknown"] = "value"
    """Whether the value is invalid, the key, or the key is no setting."""


class _OutOfRangeError(ValueError):
    def __init__(self, number: float) -> None:
        super().__init__(number)
        self.number = number
        """The number, with its unit converted."""


class _Validation:
    """The validation of one source of settings; it goes through all values and collects the mistakes."""

    def __init__(self) -> None:
        self.mistakes: list[_Mistake] = []

    def table(self, values: Mapping[str, object], types: Mapping[str, object], path: _Path) -> dict[str, object]:
        """Return the settings of a table with their units converted."""
        valid = {
            name: self._value(name, kind, values[name], (*path, name)) for name, kind in types.items() if name in values
        }
        self.mistakes += (_Mistake((*path, name), values[name], "unknown") for name in values if name not in types)
        return valid

    def _value(self, name: str, kind: object, value: object, path: _Path) -> object:
        try:
            if kind is dict:
                return self._mapping(value, TARGET_NAME, path, self._target)
            if kind == tuple[tuple[str, str], ...]:
                variable = r"[A-Za-z_][A-Za-z0-9_]*"
                return self._mapping(value, variable, path, lambda text, inner: self._value(name, str, text, inner))
            if kind == tuple[str, ...]:
                items = _of_type(list, value)
                return [self._value(name, str, item, (*path, str(number))) for number, item in enumerate(items)]
            return _scalar(name, kind, value)
        except _OutOfRangeError as error:
            self.mistakes.append(_Mistake(path, error.number))
        except ValueError:
            self.mistakes.append(_Mistake(path, value))
        return None

    def _mapping(
        self, value: object, pattern: str, path: _Path, read: Callable[[object, _Path], object]
    ) -> dict[str, object]:
        valid = {}
        for key, item in _of_type(dict, value).items():
            if re.fullmatch(pattern, key) is None:
                self.mistakes.append(_Mistake((*path, key), key, "key"))
            valid[key] = read(item, (*path, key))
        return valid

    def _target(self, value: object, path: _Path) -> object:
        if isinstance(value, dict):
            return self.table(value, _target_types(), path)
        self.mistakes.append(_Mistake(path, value))
        return None


def _of_type(kind: type, value: object) -> Any:
    if type(value) is not kind:  # a bool is no number here
        raise ValueError(value)
    return value


def _scalar(name: str, kind: object, value: object) -> object:
    """Return a single value with its unit converted.

    Raises:
        ValueError: It is invalid.
    """
    if kind is bool or (name == "tmux" and isinstance(value, bool)):
        return _of_type(bool, value)
    if kind is int:
        size = parse_size(value) if name in SIZES and isinstance(value, str) else value
        return _in_range(_of_type(int, size), RANGES.get(name, (0, 1 << 62)))
    if kind is float:
        number = parse_duration(value) if isinstance(value, str) else value
        number = number if type(number) is int else _of_type(float, number)
        return float(_in_range(number, TIMES[name]))
    if get_origin(kind) is Literal:
        if value not in get_args(kind):
            raise ValueError(value)
        return value
    return _text("session" if name == "tmux" else name, _of_type(str, value))


def _in_range(number: float, limits: tuple[float, float]) -> float:
    if not limits[0] <= number <= limits[1]:
        raise _OutOfRangeError(number)
    return number


def _text(name: str, text: str) -> str:
    if re.fullmatch(PATTERNS[name][0] if name in PATTERNS else r"[^\0]*", text, re.DOTALL) is None:
        raise ValueError(text)
    return text


# -- errors


def _explain(mistakes: Sequence[_Mistake], origin: str) -> ConfigError:
    texts = [_explanation(mistake) for mistake in sorted(mistakes, key=lambda mistake: mistake.kind != "unknown")]
    rest = f" (and {len(texts) - 1} more)" if len(texts) > 1 else ""
    what, hint = texts[0]
    return ConfigError(f"{origin}: {what}{rest}", hint=hint)


def _explanation(mistake: _Mistake) -> tuple[str, str]:
    """Return what is wrong, and the hint."""
    path = mistake.path
    key = ".".join(path)
    if mistake.kind == "unknown":
        inside = len(path) == 3 and path[0] == "targets"
        known = (*ENGINE_KEYS, *TARGET_KEYS) if inside else (*ENGINE_KEYS, *GENERAL_KEYS, "targets")
        return f"unknown key {key!r}", suggest(path[-1], known) or "'harness config show' lists every key"
    if mistake.kind == "key":
        return f"{key!r} is not a usable name", "use letters, digits, '_', '-' and '.'"
    name = next((part for part in reversed(path) if part in _KNOWN), key)
    given = "this" if "env" in path else _given(mistake.value)
    return f"{key}: {given} is not {_meaning(name)}", ""


def _given(value: object) -> str:
    if isinstance(value, bool | float):
        return f"{value:g}" if isinstance(value, float) else str(value).lower()
    return repr(value) if isinstance(value, str | int) else "this"


_KNOWN = frozenset({*ENGINE_KEYS, *GENERAL_KEYS, *TARGET_KEYS})


def _meaning(name: str) -> str:
    if name == "engine":
        return "'docker' or 'podman'"
    return allowed(name, _hints().get(name, _GENERAL_TYPES.get(name, str))) if name in _KNOWN else "a table of settings"
