"""The user's rule file: decisions with the scope *always*, and rules from ``harness permissions add``.

It is private (0600), replaced as a whole, and locked during a change, so that no process loses a rule of another. A
file that cannot be trusted is never treated as empty and never overwritten.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from ....errors import ConfigError
from ....settings import user_config_path
from ....system.account import has_other_members
from ....system.private_files import hold_lock, make_directories, replace_file
from .rule import Action, Match, Rule

__all__ = ["LoadedRules", "RuleFile", "rule_file_path"]

VERSION = 1
LOCK_LIMIT = 5.0
"""Seconds to wait for another process that is changing the file."""
SIZE_LIMIT = 64 << 20
HINT = "check the file, and repair or remove it"
NEWER = "use that version of harness, or move the file"


def rule_file_path() -> Path:
    """Return the path of the rule file, next to the user's settings."""
    return user_config_path().parent / "permissions.json"


@dataclass(frozen=True, slots=True)
class LoadedRules:
    """The rules of the file; ``failure``: why it cannot be trusted, so its rules are unknown."""

    rules: tuple[Rule, ...] = ()
    failure: str = ""
    hint: str = HINT


class _NewerVersion(ValueError):
    """The file was written by a newer version of harness."""


class _RuleEntry(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, defer_build=True)

    action: str
    target: str
    tool: str
    argument: str | None = None
    match: str = Match.LITERAL.value
    cwd: str | None = None
    hosts: str | None = None

    def rule(self, origin: str) -> Rule:
        action, match = Action(self.action), Match(self.match)
        return Rule(action, self.target, self.tool, self.argument, match, self.cwd, origin, self.hosts)


class _Document(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, defer_build=True)

    version: int
    rules: list[_RuleEntry]


class RuleFile:
    """The rule file. Its methods block: call them in a worker thread."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._seen: tuple[object, ...] | None = None
        self._stored = LoadedRules()

    def load(self) -> LoadedRules:
        """Return the current rules; the file is read again only if it changed. Never raises."""
        stamp = self._stamp()
        if self._seen is None or stamp != self._seen:
            self._stored = self._read()
            self._seen = stamp
        return self._stored

    def add(self, rules: Sequence[Rule]) -> None:
        """Append rules that are not in the file yet.

        Raises:
            ConfigError: the file cannot be trusted, locked or written; it is unchanged.
        """
        self._change(lambda known: [*known, *(rule for rule in rules if rule.rule_id not in _ids(known))])

    def remove(self, rule_id: str) -> Rule | None:
        """Remove a rule.

        Returns:
            The rule; None if there is no rule with that id.

        Raises:
            ConfigError: as for :meth:`add`.
        """
        removed: list[Rule] = []

        def without(known: Sequence[Rule]) -> list[Rule]:
            removed.extend(rule for rule in known if rule.rule_id == rule_id)
            return [rule for rule in known if rule.rule_id != rule_id]

        self._change(without)
        return removed[0] if removed else None

    def _stamp(self) -> tuple[object, ...]:
        try:
            info = os.lstat(self.path)
        except FileNotFoundError:
            return ()
        except OSError as error:
            return (error.errno,)
        return (info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns, info.st_mode, info.st_uid)

    def _read(self) -> LoadedRules:
        try:
            return LoadedRules(_parsed(self._bytes(), str(self.path)))
        except FileNotFoundError:
            return LoadedRules()
        except OSError as error:
            is_link = error.errno == errno.ELOOP and self.path.is_symlink()
            what = "is a symbolic link" if is_link else (error.strerror or str(error)).lower()
            return LoadedRules(failure=f"{self.path}: {what}")
        except ValueError as error:
            return LoadedRules(failure=f"{self.path} {error}", hint=NEWER if isinstance(error, _NewerVersion) else HINT)

    def _bytes(self) -> bytes:
        _check_directory(self.path.parent)
        descriptor = os.open(self.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:
            _check(os.fstat(file.fileno()))
            return file.read(SIZE_LIMIT)

    def _change(self, change: Callable[[Sequence[Rule]], list[Rule]]) -> None:
        try:
            make_directories(self.path.parent)
            with hold_lock(self.path.with_suffix(".lock"), LOCK_LIMIT):
                stored = self._read()
                if stored.failure:
                    raise ConfigError(stored.failure, hint=stored.hint)
                self._write(change(stored.rules))
        except TimeoutError:
            raise ConfigError(f"{self.path} is locked by another process", hint="try again") from None
        except OSError as error:
            raise ConfigError(f"{self.path} could not be written: {(error.strerror or str(error)).lower()}") from error

    def _write(self, rules: Sequence[Rule]) -> None:
        document = {"version": VERSION, "rules": [_entry(rule) for rule in rules]}
        data = json.dumps(document, indent=1).encode("ascii")  # escapes keep a lone surrogate of a path
        replace_file(self.path, data)


def _ids(rules: Sequence[Rule]) -> set[str]:
    return {rule.rule_id for rule in rules}


def _entry(rule: Rule) -> dict[str, str | None]:
    entry = {
        "action": rule.action.value,
        "target": rule.target,
        "tool": rule.tool,
        "argument": rule.argument,
        "match": rule.match.value,
        "cwd": rule.cwd,
    }
    return entry if rule.hosts is None else {**entry, "hosts": rule.hosts}  # older versions read files without it


def _parsed(data: bytes, origin: str) -> tuple[Rule, ...]:
    try:
        found = json.loads(data)
        _check_version(found)
        document = _Document.model_validate(found)
        if document.version != VERSION:
            raise ValueError(f"version {document.version}")
        return tuple(entry.rule(origin) for entry in document.rules)
    except _NewerVersion:
        raise
    except (ValidationError, ValueError, RecursionError) as error:
        what = "has an invalid entry" if isinstance(error, ValidationError) else f"is not a valid rule file: {error}"
        raise ValueError(what) from error


def _check_version(found: object) -> None:
    version = found.get("version") if isinstance(found, dict) else None
    if type(version) is int and version > VERSION:
        raise _NewerVersion(f"was written by a newer version of harness (format {version})")


def _check(info: os.stat_result) -> None:
    if not stat.S_ISREG(info.st_mode):
        raise ValueError("is not a regular file")
    if info.st_uid != os.geteuid():
        raise ValueError("belongs to another user")
    if info.st_mode & 0o077:
        raise ValueError(f"is accessible to other users (mode {stat.S_IMODE(info.st_mode):04o}; run chmod 600 on it)")
    if info.st_size >= SIZE_LIMIT:
        raise ValueError("is too large")


def _check_directory(directory: Path) -> None:
    info = os.stat(directory)
    if info.st_uid not in (os.geteuid(), 0):
        raise ValueError("is in a directory of another user")
    if (info.st_mode & stat.S_IWOTH or _others_write_by_group(info)) and not info.st_mode & stat.S_ISVTX:
        raise ValueError("is in a directory that other users can write to")


def _others_write_by_group(info: os.stat_result) -> bool:
    """Return whether another user may write by the group; root's is that of each user in some containers."""
    if not info.st_mode & stat.S_IWGRP or info.st_gid == 0:
        return False
    return info.st_gid != os.getegid() or has_other_members(info.st_gid, os.geteuid())
