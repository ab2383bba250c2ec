"""Files in which the operator instructs agents, such as skills and types of agents: where they are and who wrote them.

They are in a directory beside the user's settings, and in ``.harness/`` of the current directory when ``trusted_dirs``
covers it: what they say is done with the operator's rights.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ..errors import HarnessError
from ..settings import is_trusted, load_settings, user_config_path

__all__ = ["FileRefusedError", "OperatorDirectory", "Origin", "operator_directories", "read_operator_file"]

Origin = Literal["user", "project"]


class FileRefusedError(HarnessError):
    """A file cannot be read, or somebody else may have written it."""


@dataclass(frozen=True, slots=True)
class OperatorDirectory:
    """A directory of such files. Nothing is read from one that is not ``trusted``."""

    directory: Path
    origin: Origin
    trusted: bool = True


def operator_directories(name: str) -> tuple[OperatorDirectory, ...]:
    """The user's directory of that name, and the project's when it exists and is no link.

    Raises:
        ConfigError: the settings cannot be read, so that it is unknown what is trusted.
    """
    user = OperatorDirectory(user_config_path().parent / name, "user")
    here = Path.cwd()
    project = here / ".harness" / name
    if not project.is_dir() or any(path.is_symlink() for path in (project, project.parent)):
        return (user,)
    return (user, OperatorDirectory(project, "project", is_trusted(here, load_settings().trusted_dirs)))


def read_operator_file(path: Path, limit: int) -> bytes:
    """Read a file that only the operator, or root, can have written.

    Args:
        limit: bytes that it may have.

    Raises:
        FileRefusedError: it cannot be read, is no regular file or a link, is too large, or others can write it.
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
        raise FileRefusedError(f"{path.name} is no regular file")
    if info.st_uid not in {os.geteuid(), 0} or info.st_mode & (stat.S_IWOTH | stat.S_IWGRP):
        raise FileRefusedError(f"{path.name} can be written by others; own it, and chmod go-w it")
    if info.st_size > limit:
        raise FileRefusedError(f"{path.name} is larger than {limit} bytes")
