"""What is known of a server between two runs: its tools, so that it holds nobody up, and which were accepted."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from ..local_directories import make_directories
from ..state_home import state_home
from .client_config import ServerConfig
from .client_definitions import ToolDefinition, definition_from

__all__ = ["DefinitionStore", "Known", "changed_tools", "state_directory"]

VERSION = 1
LIMIT = 64 << 20
LOCK_LIMIT = 5.0
LOCK_PAUSE = 0.02


@dataclass(frozen=True, slots=True)
class Known:
    """The tools as they were last listed, and the digest under which each one was first seen or accepted.

    ``damaged``: there was a record that cannot be read, so that nothing counts as accepted.
    """

    definitions: tuple[ToolDefinition, ...] = ()
    accepted: Mapping[str, str] = field(default_factory=dict)
    seen: bool = False
    damaged: bool = False

    def accepting(self, definitions: Iterable[ToolDefinition]) -> Known:
        """With these as they are now accepted."""
        digests = {definition.name: definition.digest for definition in definitions}
        return replace(self, accepted={**self.accepted, **digests}, seen=True, damaged=False)


def changed_tools(known: Known, definitions: Iterable[ToolDefinition]) -> frozenset[str]:
    """The tools that are others than those that were accepted. Pure.

    What a server lists when it is first seen is accepted; what it adds later is as new as what it changes.
    """
    if not known.seen and not known.damaged:
        return frozenset()
    return frozenset(item.name for item in definitions if known.accepted.get(item.name) != item.digest)


def state_directory(environ: Mapping[str, str]) -> Path:
    """Where records are: ``$XDG_STATE_HOME/harness/mcp``, or below ``~/.local/state``."""
    return state_home(environ) / "mcp"


@dataclass(frozen=True, slots=True)
class DefinitionStore:
    """Private files, one for each server and the way in which it is reached. Reads and writes files: for a thread."""

    directory: Path

    def load(self, config: ServerConfig) -> Known:
        """What is known; nothing when there is no record."""
        try:
            with self._path(config).open("rb") as file:
                return _parse(json.loads(file.read(LIMIT)))
        except FileNotFoundError:
            return Known()
        except (OSError, ValueError, RecursionError):
            return Known(damaged=True)

    def update(self, config: ServerConfig, change: Callable[[Known], Known]) -> Known:
        """Change what is known, with no other harness in between; returns it as it is then.

        Raises:
            OSError: it could not be kept.
        """
        make_directories(self.directory)
        with open(self.directory / ".lock", "wb", opener=_private) as lock:
            _lock(lock.fileno())
            before = self.load(config)
            after = change(before)
            if after != before or before.damaged:
                self.save(config, after)
            return after

    def save(self, config: ServerConfig, known: Known) -> None:
        """Keep it, all or nothing.

        Raises:
            OSError: it could not be kept.
        """
        document = {
            "version": VERSION,
            "server": config.name,
            "tools": [dict(definition.as_json()) for definition in known.definitions],
            "accepted": dict(known.accepted),
        }
        make_directories(self.directory)
        descriptor, name = tempfile.mkstemp(dir=self.directory)  # 0600 from the start
        try:
            with os.fdopen(descriptor, "w") as file:
                json.dump(document, file)
                file.flush()
                os.fsync(file.fileno())
            os.rename(name, self._path(config))
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(name)
            raise

    def _path(self, config: ServerConfig) -> Path:
        return self.directory / f"{config.name}-{config.identity[:16]}.json"


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _lock(descriptor: int) -> None:
    """Wait for the others, but not for one that is stopped."""
    for _ in range(int(LOCK_LIMIT / LOCK_PAUSE)):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            time.sleep(LOCK_PAUSE)
    raise TimeoutError(f"another harness holds its lock for {LOCK_LIMIT:g} s")


def _parse(document: object) -> Known:
    if not isinstance(document, dict) or document.get("version") != VERSION:
        raise ValueError("another form of the record")
    tools, accepted = document.get("tools"), document.get("accepted")
    if not isinstance(tools, list) or not isinstance(accepted, dict):
        raise ValueError("no record")
    if not all(isinstance(digest, str) for digest in accepted.values()):
        raise ValueError("no record")
    return Known(tuple(definition_from(tool) for tool in tools), accepted, seen=True)
