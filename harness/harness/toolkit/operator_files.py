"""Files in which the operator instructs agents: their directories, their ownership, and their front matter."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from ..errors import HarnessError
from ..extras import install_extra
from ..settings import is_trusted, load_settings, user_config_path

__all__ = [
    "FileRefusedError",
    "FrontMatter",
    "FrontMatterError",
    "OperatorDirectory",
    "Origin",
    "operator_directories",
    "read_operator_file",
    "split_front_matter",
]


# -- Front matter: the YAML mapping between two lines of ``---`` at the top of a Markdown file, read with PyYAML.
#
# Anchors and aliases are refused, and so is deep nesting: with them a few lines can expand to gigabytes.


FENCE = "---"
MAX_CHARS = 16 << 10
"""Maximum characters of the front matter."""
MAX_DESCRIPTION_CHARS = 1_024
MAX_DEPTH = 16
_ODD = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Characters that YAML can escape: control characters, bidirectional controls, single surrogates."""


class FrontMatterError(HarnessError):
    """A missing or invalid front matter. ``line`` is the line of the file, or 0 if no line is at fault."""

    def __init__(self, message: str, *, line: int = 0, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.line = line


@dataclass(frozen=True, slots=True)
class FrontMatter:
    """The values of a front matter, the line of each key in the file, and the text below it."""

    values: Mapping[Any, Any]
    body: str
    lines: Mapping[Any, int] = field(default_factory=dict)
    file: str = ""

    def line_of(self, key: Any) -> int:
        """Return the line of a key in the file; 1 for a key that is missing or merged from another mapping."""
        return self.lines.get(key, 1)

    def text(self, key: str) -> str:
        """Return a value that must be a string, stripped.

        Raises:
            FrontMatterError: it is missing, empty, or not a string.
        """
        value = self.values.get(key)
        if not isinstance(value, str) or not value.strip():
            raise FrontMatterError(
                f"the front matter of {self.file} requires {key} as text; quote values of other YAML types",
                line=self.line_of(key),
            )
        return value.strip()

    def description(self) -> str:
        """Return the description as one line, for the lists that models and operators see.

        Raises:
            FrontMatterError: it is missing, too long, or contains control characters.
        """
        text, line = self.text("description"), self.line_of("description")
        if len(text) > MAX_DESCRIPTION_CHARS:
            raise FrontMatterError(f"its description is longer than {MAX_DESCRIPTION_CHARS} characters", line=line)
        shown = " ".join(text.split())
        if odd := _ODD.search(shown):
            raise FrontMatterError(f"its description contains the invalid character {odd[0]!a}", line=line)
        return shown


def split_front_matter(data: bytes, file: str) -> FrontMatter:
    """Split a file into its front matter and the text below it. Pure.

    Args:
        data: the file's content.
        file: its name, for messages.

    Raises:
        FrontMatterError: the front matter is missing or invalid, or PyYAML is not installed.
    """
    try:
        text = data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise FrontMatterError(f"{file} is not UTF-8", line=data.count(b"\n", 0, error.start) + 1) from error
    if "\0" in text:
        raise FrontMatterError(f"{file} contains a NUL", line=text.count("\n", 0, text.index("\0")) + 1)
    lines = text.split("\n")
    end = next((number for number, line in enumerate(lines) if number and line.rstrip() == FENCE), 0)
    if lines[0].rstrip() != FENCE or not end:
        raise FrontMatterError(f"{file} does not start with a front matter between two lines of ---", line=1)
    values, places = _values("\n".join(lines[1:end]), f"the front matter of {file}")
    return FrontMatter(values, "\n".join(lines[end + 1 :]).strip("\n"), places, file)


def _values(text: str, what: str) -> tuple[Mapping[Any, Any], Mapping[Any, int]]:
    """Return the mapping, and the line of each of its keys in the file."""
    if len(text) > MAX_CHARS:
        raise FrontMatterError(f"{what} is longer than {MAX_CHARS} characters", line=1)
    try:
        yaml: Any = import_module("yaml")
    except ImportError as error:
        raise FrontMatterError("a front matter requires PyYAML", hint=install_extra("skills")) from error
    try:
        _check_events(yaml, text, what)
        values = yaml.safe_load(text)
        if not isinstance(values, dict):
            raise FrontMatterError(f"{what} is not a mapping; write name: and description:", line=1)
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        return values, {key.value: _line(key.start_mark) for key, _ in node.value}
    except (yaml.YAMLError, ValueError) as error:  # an invalid date raises ValueError
        first, mark = str(error).split("\n", 1)[0], getattr(error, "problem_mark", None)
        raise FrontMatterError(f"{what} is not valid YAML: {first}", line=_line(mark) if mark else 1) from error


def _check_events(yaml: Any, text: str, what: str) -> None:
    depth = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        line = _line(event.start_mark)
        if isinstance(event, yaml.AliasEvent):
            raise FrontMatterError(f"{what} has an alias (*name), which is not allowed", line=line)
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_DEPTH:
            raise FrontMatterError(f"{what} is nested deeper than {MAX_DEPTH}", line=line)


def _line(mark: Any) -> int:
    """Return the line of the file: the YAML starts on its second line."""
    return int(mark.line) + 2


# -- Files in which the operator instructs agents, such as skills and agent types: their directories and ownership.
#
# They are in a directory next to the user's settings, and in ``.harness/`` of the current directory if
# ``trusted_dirs`` covers it: agents follow them with the operator's rights.


Origin = Literal["user", "project"]


class FileRefusedError(HarnessError):
    """A file cannot be read, or another user may have written it."""


@dataclass(frozen=True, slots=True)
class OperatorDirectory:
    """A directory of such files. Nothing is read from one that is not ``trusted``."""

    directory: Path
    origin: Origin
    trusted: bool = True


def operator_directories(name: str) -> tuple[OperatorDirectory, ...]:
    """Return the user's directory of that name, and the project's if it exists and is not a symbolic link.

    Raises:
        ConfigError: the settings cannot be read, so it is unknown which directories are trusted.
    """
    user = OperatorDirectory(user_config_path().parent / name, "user")
    here = Path.cwd()
    project = here / ".harness" / name
    if not project.is_dir() or any(path.is_symlink() for path in (project, project.parent)):
        return (user,)
    return (user, OperatorDirectory(project, "project", is_trusted(here, load_settings().trusted_dirs)))


def read_operator_file(path: Path, limit: int) -> bytes:
    """Read a file that only the operator or root can have written.

    Args:
        path: the file.
        limit: maximum size in bytes.

    Raises:
        FileRefusedError: it cannot be read, is not a regular file, is too large, or is writable by others.
    """
    try:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with open(os.open(path, flags), "rb") as file:
            _check(os.fstat(file.fileno()), path, limit)
            data = file.read(limit + 1)
    except OSError as error:
        raise FileRefusedError(f"{path.name} cannot be read: {error.strerror or error}") from error
    if len(data) > limit:
        raise FileRefusedError(f"{path.name} is larger than {limit} bytes")
    return data


def _check(info: os.stat_result, path: Path, limit: int) -> None:
    if not stat.S_ISREG(info.st_mode):
        raise FileRefusedError(f"{path.name} is not a regular file")
    if info.st_uid not in {os.geteuid(), 0} or info.st_mode & (stat.S_IWOTH | stat.S_IWGRP):
        raise FileRefusedError(f"{path.name} is writable by others; own it, and chmod go-w it")
    if info.st_size > limit:
        raise FileRefusedError(f"{path.name} is larger than {limit} bytes")
