"""Types of sub-agents that are declared in files: ``NAME.md`` in ``agents/`` beside the user's settings.

A file holds a YAML front matter, and below it the instructions of such an agent::

    ---
    description: reads logs and reports what went wrong
    tools: read_file, grep, run_shell
    model: fast
    ---
    You read logs. Report the first error, and what came before it.

``description`` is required. Without ``tools`` the type has all that the agent has which starts one; it never has more.
``model`` is the name of one of the ``[models.NAME]``. Any other key is an error, because it may be meant to forbid
something. Those in ``.harness/agents/`` of the current directory count when that is trusted.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from ..errors import HarnessError
from ..settings_schema import suggest
from .front_matter import FrontMatter, FrontMatterError, split_front_matter
from .operator_files import FileRefusedError, OperatorDirectory, operator_directories, read_operator_file
from .spawning import AgentType

__all__ = ["AgentTypeFiles", "AgentTypeList", "agent_directories", "type_key"]

KEYS = ("name", "description", "tools", "model")
NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
MAX_FILE_BYTES = 40 << 10
MAX_FILES = 100
MAX_MODEL_CHARS = 200
NOT_TYPES = frozenset({"README.md"})


@dataclass(frozen=True, slots=True)
class AgentTypeList:
    """The types of all files, and one sentence for each that cannot be used, with its file and line."""

    types: tuple[AgentType, ...] = ()
    problems: tuple[str, ...] = ()


def agent_directories() -> tuple[OperatorDirectory, ...]:
    """The user's directory, and the project's. The first one that has a type of a name wins.

    Raises:
        ConfigError: the settings cannot be read, so that it is unknown what is trusted.
    """
    return operator_directories("agents")


def type_key(name: str) -> str:
    """The name without what does not matter in one: case, hyphens and underscores. Pure."""
    return "".join(letter for letter in name.lower() if letter.isalnum())


class AgentTypeFiles:
    """The files of this machine, read anew each time.

    Args:
        directories: returns where they are.
    """

    def __init__(self, directories: Callable[[], Sequence[OperatorDirectory]] = agent_directories) -> None:
        self._directories = directories

    def list(self) -> AgentTypeList:
        """Read all types; it blocks. What is wrong with one keeps no other from being used."""
        found: dict[str, AgentType] = {}
        problems: list[str] = []
        try:
            directories = tuple(self._directories())
        except (HarnessError, OSError, RuntimeError) as error:  # no home, or a current directory that was deleted
            return AgentTypeList(problems=(f"the types of sub-agents are unknown: {error}",))
        for path in _files(directories, problems):
            try:
                kind = _read(path)
            except FrontMatterError as error:
                where = f"{path}:{error.line}" if error.line else str(path)
                problems.append(f"{where}: {error}")
                continue
            earlier = found.setdefault(type_key(kind.name), kind)
            if earlier is not kind:
                problems.append(f"{path}:1: the type {earlier.name} is declared in {earlier.declared_at} already")
        return AgentTypeList(tuple(found[key] for key in sorted(found)), tuple(problems))


def _files(directories: Sequence[OperatorDirectory], problems: list[str]) -> Iterator[Path]:
    for root in directories:
        if not root.trusted:
            problems.append(f"{root.directory}: not read, because trusted_dirs in your settings does not cover it")
            continue
        try:
            names = sorted(
                name for name in os.listdir(root.directory) if name.endswith(".md") and name not in NOT_TYPES
            )
        except FileNotFoundError:
            continue
        except OSError as error:
            problems.append(f"{root.directory}: {error.strerror or error}")
            continue
        if len(names) > MAX_FILES:
            problems.append(f"{root.directory}: only the first {MAX_FILES} of {len(names)} types are used")
        yield from (root.directory / name for name in names[:MAX_FILES])


def _read(path: Path) -> AgentType:
    """One type.

    Raises:
        FrontMatterError: it cannot be used.
    """
    if not NAME.fullmatch(path.stem):
        raise FrontMatterError("its name is not made of small letters, digits, - and _, 64 at most")
    try:
        front = split_front_matter(read_operator_file(path, MAX_FILE_BYTES), path.name)
    except FileRefusedError as error:
        raise FrontMatterError(error.message) from error
    _check_keys(front)
    if "name" in front.values and front.text("name") != path.stem:
        raise FrontMatterError(
            f"it is called {front.text('name')!r}, and its file has another name", line=front.line_of("name")
        )
    return AgentType(
        path.stem,
        front.description(),
        _tools(front),
        front.body,
        model=_model(front),
        declared_at=f"{path}:{front.line_of('tools')}",
    )


def _check_keys(front: FrontMatter) -> None:
    for key in front.values:
        if key not in KEYS:
            hint = suggest(str(key), KEYS) or f"there are: {', '.join(KEYS)}"
            raise FrontMatterError(f"unknown key {str(key)!r}; {hint}", line=front.line_of(key))


def _tools(front: FrontMatter) -> tuple[str, ...] | None:
    """The names of its tools, as a list or with commas between them; None when it says nothing of them."""
    if "tools" not in front.values:
        return None
    value = front.values["tools"]
    listed = value.split(",") if isinstance(value, str) else value
    if not isinstance(listed, list) or not all(isinstance(name, str) for name in listed):
        raise FrontMatterError("tools is neither a list of names nor names with commas", line=front.line_of("tools"))
    names = tuple(name.strip() for name in cast("list[str]", listed) if name.strip())
    if not names:
        raise FrontMatterError("tools names none; leave it out for all tools", line=front.line_of("tools"))
    return names


def _model(front: FrontMatter) -> str:
    if "model" not in front.values:
        return ""
    name = front.text("model")
    if len(name) > MAX_MODEL_CHARS:
        raise FrontMatterError(f"model is longer than {MAX_MODEL_CHARS} characters", line=front.line_of("model"))
    return name
