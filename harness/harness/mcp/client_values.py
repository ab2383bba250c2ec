"""Values of a server's settings that are found when they are needed.

``${NAME}`` and ``${NAME:-default}`` are variables of harness, ``${file:PATH}`` is a private file's text. So no secret
has to stand in the settings, and none is kept longer than it is used.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ..account import expand_home
from ..errors import ConfigError

__all__ = ["Template", "read_private"]

PLACE = re.compile(r"\$\{(?P<body>[^{}]*)\}")
VARIABLE = re.compile(r"(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?P<default>:-.*)?", re.DOTALL)
FILE = "file:"
FILE_LIMIT = 64 << 10
HARMLESS = frozenset({"HOME", "USER", "PWD", "TMPDIR"})
"""What may be written into a command line, which every user of this machine can read."""


@dataclass(frozen=True, slots=True)
class Template:
    """A text with places to fill in. Its ``repr`` does not show it: it may hold a secret."""

    text: str

    def __repr__(self) -> str:
        return "Template(...)"

    @property
    def public(self) -> bool:
        """Whether it may stand in a command line."""
        bodies = [place["body"].partition(":-")[0] for place in PLACE.finditer(self.text)]
        return all(body in HARMLESS for body in bodies)

    def resolve(self, environ: Mapping[str, str], where: str) -> str:
        """The text with every place filled in.

        Args:
            where: what the value is for, for the message.

        Raises:
            ConfigError: a variable is not set, or a file cannot be read or is open to others.
        """
        return PLACE.sub(lambda place: _value(place["body"], environ, where), self.text)


def _value(body: str, environ: Mapping[str, str], where: str) -> str:
    if body.startswith(FILE):
        return read_private(expand_home(body.removeprefix(FILE)), where)
    match = VARIABLE.fullmatch(body)
    if match is None:
        raise ConfigError(f"{where}: ${{{body}}} is no place to fill in", hint="write ${NAME} or ${file:PATH}")
    found = environ.get(match["name"]) or (match["default"] or "").removeprefix(":-")
    if not found and match["default"] is None:
        raise ConfigError(f"{where}: the variable {match['name']} is not set", hint=f"export {match['name']}=...")
    return found


def read_private(path: Path, where: str) -> str:
    """The text of a file that holds a secret, without the newline at its end.

    Raises:
        ConfigError: it cannot be read, belongs to somebody else, or others may read or write it.
    """
    try:
        with open(path, "rb", opener=_open_at_once) as file:
            _check_private(path, os.fstat(file.fileno()), where)
            text = file.read(FILE_LIMIT).decode()
    except OSError as error:
        raise ConfigError(f"{where}: {path}: {(error.strerror or str(error)).lower()}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{where}: {path} is not UTF-8 text") from error
    return text.rstrip("\r\n")


def _open_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)  # a pipe of that name must not hang the start


def _check_private(path: Path, info: os.stat_result, where: str) -> None:
    if not stat.S_ISREG(info.st_mode):
        raise ConfigError(f"{where}: {path} is not a regular file")
    if info.st_uid not in {os.geteuid(), 0}:
        raise ConfigError(f"{where}: {path} belongs to another user")
    if info.st_mode & 0o077:
        raise ConfigError(f"{where}: others may read {path}", hint=f"chmod 600 {path}")
