"""The settings of many hosts from two runs of ``ssh -G``, where the ssh configuration proves what it would print. Pure.

The proof needs a configuration that tells hosts apart by ``Host`` patterns only. Two hosts have the same settings if
all sections that apply to one of them alone set nothing but ``HostName``, ``Port`` and ``User``. Whatever is not
understood here for certain is not a proof: then each host is asked about.
"""

from __future__ import annotations

import glob
import os
import pwd
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path

from harness.config import Config
from harness.target import Hop

from .options import SshSettings

__all__ = ["Configuration", "NotProvableError", "SharedSettings", "files_read", "read_configuration"]

MAX_BYTES = 1 << 20
"""Bytes of all configuration files together."""
MAX_DEPTH = 8
"""Files that include each other."""
SYSTEM_CONFIG = "/etc/ssh/ssh_config"

_PER_HOST = ("hostname", "port", "user")
_UNRESOLVED: Mapping[str, str] = {"canonicalizehostname": "no", "canonicalizepermittedcnames": "none"}
"""The values with which ``ssh -G`` looks no name up: it follows permitted aliases even without canonicalization."""
_LINE = re.compile(r"([A-Za-z0-9]+)(?:[ \t]*=[ \t]*|[ \t]+)(\S.*)")
_PATTERN = re.compile(r"!?[A-Za-z0-9.*?_-]+")
_NAME = re.compile(r"[a-z][a-z0-9._-]*")
_OCTET = r"(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_ADDRESS = re.compile(rf"{_OCTET}(?:\.{_OCTET}){{3}}")
_PLAIN: Mapping[str, re.Pattern[str]] = {
    "hostname": re.compile(f"(?:{_NAME.pattern}|{_ADDRESS.pattern})"),
    "port": re.compile(r"[1-9][0-9]{0,4}"),
    "user": re.compile(r"[A-Za-z_][A-Za-z0-9._-]*"),
}
"""Values that ssh prints as they are written."""
_READING = re.compile(r"^debug1: Reading configuration data (.+?)\r?$", re.MULTILINE)


class NotProvableError(Exception):
    """The configuration may tell hosts apart in a way that is not understood here."""


@dataclass(frozen=True, eq=False)
class _Section:
    """Settings that apply to hosts which match all of the conditions, each the patterns of one ``Host`` line."""

    conditions: tuple[tuple[str, ...], ...]
    settings: dict[str, str] = field(default_factory=dict)
    """The first value of each setting; names in lower case."""

    @property
    def names(self) -> tuple[str, ...]:
        """The only hosts that it applies to; empty if they are not listed."""
        patterns = self.conditions[-1] if self.conditions else ()
        return () if any(set("!*?") & set(pattern) for pattern in patterns) else patterns

    def applies_to(self, host: str) -> bool:
        """Return whether the section applies to a host."""
        return all(_matches(host, patterns) for patterns in self.conditions)


@dataclass(frozen=True, eq=False)
class Configuration:
    """The sections of the configuration files in their order, and the files as they were read."""

    sections: tuple[_Section, ...]
    files: tuple[str, ...]
    identities: tuple[tuple[int, ...], ...]
    """What changes when a file is written, for each file."""
    searches: Mapping[str, tuple[str, ...]]
    """The files that were found for each pattern."""

    @cached_property
    def _named(self) -> dict[str, list[int]]:
        """The numbers of the sections for certain names only, by name; those of all other sections have no name."""
        found: dict[str, list[int]] = {"": []}
        for number, section in enumerate(self.sections):
            for name in section.names or ("",):
                found.setdefault(name, []).append(number)
        return found

    def sections_of(self, host: str) -> list[_Section]:
        """Return the sections that apply to a host."""
        numbers = sorted({*self._named[""], *self._named.get(host, ())})
        return [section for section in map(self.sections.__getitem__, numbers) if section.applies_to(host)]

    def is_current(self) -> bool:
        """Return whether no file has been written since it was read, and no other one exists."""
        return self.identities == tuple(map(_identity, self.files)) and all(
            _find(pattern) == found for pattern, found in self.searches.items()
        )


@dataclass(frozen=True)
class SharedSettings:
    """What ``ssh -G`` printed for one host, as the model of others that differ in their destination only."""

    configuration: Configuration
    hop: Hop
    settings: SshSettings
    defaults: SshSettings
    """OpenSSH's settings without any configuration."""

    def of(self, hop: Hop) -> SshSettings:
        """Return what ``ssh -G`` would print for a host with the same options, user and port on the command line.

        Raises:
            NotProvableError: The host may have other settings.
        """
        if not _PLAIN["hostname"].fullmatch(hop.host):
            raise NotProvableError(hop.host)
        its, own = self.configuration.sections_of(self.hop.host), self.configuration.sections_of(hop.host)
        for name in {name for section in {*its} ^ {*own} for name in section.settings}:
            if name not in _PER_HOST:
                raise NotProvableError(name)
        values = {**self.settings.values, **self._destination(hop, its, own)}
        if "host" in self.settings.values:
            values["host"] = (hop.host,)
        return SshSettings(values)

    def _destination(self, hop: Hop, its: Sequence[_Section], own: Sequence[_Section]) -> dict[str, tuple[str, ...]]:
        """Return the values of the settings that may differ, as far as they are known."""
        given = {"user": hop.user, "port": hop.port}
        values: dict[str, tuple[str, ...]] = {}
        for name in _PER_HOST:
            if given.get(name):
                continue  # on the command line, for both
            old, new = _first(its, name), _first(own, name)
            if name == "hostname":
                old, new = old or self.hop.host, new or hop.host
            if (old or self.defaults.get(name)) != self.settings.get(name):
                raise NotProvableError(name)
            if new is not None and not _PLAIN[name].fullmatch(new):
                raise NotProvableError(f"{name} {new}")
            values[name] = (new,) if new else self.defaults.all(name)
        return values


def _first(sections: Sequence[_Section], name: str) -> str | None:
    return next((section.settings[name] for section in sections if name in section.settings), None)


def _matches(host: str, patterns: Sequence[str]) -> bool:
    found = False
    for pattern in patterns:
        if pattern == host or _glob(pattern.removeprefix("!")).fullmatch(host):
            if pattern.startswith("!"):
                return False
            found = True
    return found


@lru_cache(maxsize=1000)
def _glob(pattern: str) -> re.Pattern[str]:
    return re.compile("".join({"*": ".*", "?": "."}.get(letter, re.escape(letter)) for letter in pattern))


def files_read(said: str) -> tuple[str, ...]:
    """Return the configuration files in the order in which ``ssh -v`` reports that it read them."""
    return tuple(_READING.findall(said))


def read_configuration(config: Config) -> Configuration:
    """Read the configuration files that ssh reads with these settings.

    Raises:
        NotProvableError: They tell hosts apart by more than patterns, or ``config`` has options that matter here.
        OSError: A file cannot be read.
    """
    for option in config.ssh_options:
        name, _ = _parse(option)
        if name in {*_PER_HOST, "host", "include"}:
            raise NotProvableError(option)
    if _has_tokens(config.identity):
        raise NotProvableError(config.identity)
    reader = _Reader()
    if config.ssh_config:
        if config.ssh_config != "none":
            reader.read(os.path.abspath(os.path.expanduser(config.ssh_config)), (), of_user=True, depth=0)
    else:
        for path, of_user in ((f"{_home()}/.ssh/config", True), (SYSTEM_CONFIG, False)):
            for found in reader.search(glob.escape(path)):
                reader.read(found, (), of_user=of_user, depth=0)
    return Configuration(tuple(reader.sections), tuple(reader.files), tuple(reader.identities), reader.searches)


class _Reader:
    """Collects the sections of configuration files."""

    def __init__(self) -> None:
        self.sections: list[_Section] = []
        self.files: list[str] = []
        self.identities: list[tuple[int, ...]] = []
        self.searches: dict[str, tuple[str, ...]] = {}
        self._bytes = 0

    def read(self, path: str, outer: tuple[tuple[str, ...], ...], *, of_user: bool, depth: int) -> None:
        """Read a file whose sections apply within those of the file that includes it."""
        self.files.append(path)
        self.identities.append(_identity(path))
        with Path(path).open("rb") as file:
            data = file.read(MAX_BYTES + 1)
        self._bytes += len(data)
        if self._bytes > MAX_BYTES or depth > MAX_DEPTH or b"\0" in data:
            raise NotProvableError(path)
        conditions = outer
        self._begin(conditions)
        for line in data.decode("latin-1").split("\n"):
            name, value = _parse(line)
            if name == "host":
                conditions = (*outer, _patterns(value))
                self._begin(conditions)
            elif name == "include":
                for pattern in _included(value, of_user=of_user):
                    for found in self.search(pattern):
                        self.read(found, conditions, of_user=of_user, depth=depth + 1)
                self._begin(conditions)
            elif name:
                self.sections[-1].settings.setdefault(name, value)

    def search(self, pattern: str) -> tuple[str, ...]:
        """Return the files that match a pattern."""
        self.searches[pattern] = _find(pattern)
        return self.searches[pattern]

    def _begin(self, conditions: tuple[tuple[str, ...], ...]) -> None:
        self.sections.append(_Section(conditions))


def _parse(line: str) -> tuple[str, str]:
    """Return the name and the value of a line; empty for one without a setting."""
    line = line.strip(" \t\r\f")
    if not line or line.startswith("#"):
        return "", ""
    match = _LINE.fullmatch(line)
    if match is None or not line.isascii():
        raise NotProvableError(line)
    name, value = match[1].lower(), match[2]
    decides = name in {*_PER_HOST, "host", "include"}
    resolves = value.lower() != _UNRESOLVED.get(name, value.lower())
    if name == "match" or resolves or _has_tokens(value) or (decides and re.search(r"""["'\\#=]""", value)):
        raise NotProvableError(line)
    return name, value


def _has_tokens(value: str) -> bool:
    """Return whether ssh may replace a part of a value by one of the host's."""
    return "%" in value or "$" in value


def _patterns(value: str) -> tuple[str, ...]:
    patterns = tuple(value.split())
    if not all(map(_PATTERN.fullmatch, patterns)):
        raise NotProvableError(value)
    return patterns


def _included(value: str, *, of_user: bool) -> Iterator[str]:
    for word in value.split():
        if word.startswith("~/") and of_user:
            path = _home() + word[1:]
        elif word.startswith("/"):
            path = word
        elif word.startswith("~"):
            raise NotProvableError(word)
        else:
            path = f"{_home()}/.ssh/{word}" if of_user else f"{os.path.dirname(SYSTEM_CONFIG)}/{word}"
        yield path


def _find(pattern: str) -> tuple[str, ...]:
    return tuple(sorted(glob.glob(pattern)))


def _home() -> str:
    """Return the home of the account, as ssh takes it: not from the environment."""
    return pwd.getpwuid(os.getuid()).pw_dir


def _identity(path: str) -> tuple[int, ...]:
    try:
        found = os.stat(path)
    except OSError:
        return ()
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
