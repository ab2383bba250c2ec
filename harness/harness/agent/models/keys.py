"""Sources of provider keys, which are read at the moment of use and never shown.

A key is never an argument of a program, and settings files contain no keys: a profile says where its key is stored.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import anyio
import anyio.to_thread

from ...errors import ConfigError
from ...extras import install_extra
from ...system.account import expand_home
from ...system.child_process import ProgramOutput, run_program
from ...toolkit.redaction.redactor import remember
from ...wording import single_line

__all__ = [
    "CommandKey",
    "EnvironmentKey",
    "FileKey",
    "KeySource",
    "KeyringKey",
    "hide_keys",
    "known_keys",
    "read_key",
]

MAX_KEY_BYTES = 64 << 10
"""Maximum bytes of a key."""
MIN_SECRET_LENGTH = 12
"""Minimum characters of a redacted key; shorter ones, such as dummy keys of local servers, occur in normal text."""
SHORT = 4
"""Minimum characters of a printed word that is redacted in the error of the key command."""
KEYRING_TIMEOUT = 120.0
"""Maximum seconds for the system's keyring, which the operator may have to unlock."""
FILE_TIMEOUT = 30.0
"""Maximum seconds for a file, which may be on an unresponsive network file system."""
HIDDEN = "[key]"
LIKE_A_KEY = re.compile(r"(?=[^\s/]*[0-9])(?=[^\s/]*[A-Za-z])[A-Za-z0-9_+=.~-]{10,}")
"""A word that may be a key, in the error output of a failed key command."""
SAID = 200
"""Maximum characters of such error output."""

_known: set[str] = set()


@dataclass(frozen=True, slots=True)
class EnvironmentKey:
    """An environment variable."""

    name: str

    def __str__(self) -> str:
        return f"the variable {self.name}"


@dataclass(frozen=True, slots=True)
class FileKey:
    """A file that only its owner may read."""

    path: str

    def __str__(self) -> str:
        return f"the file {self.path}"


@dataclass(frozen=True, slots=True)
class CommandKey:
    """The output of a local program, which is run without a shell and without standard input."""

    argv: tuple[str, ...]
    timeout: float = 30.0
    """Seconds until it is killed."""

    def __str__(self) -> str:
        return f"the command {self.argv[0]}"


@dataclass(frozen=True, slots=True)
class KeyringKey:
    """An entry of the system's keyring."""

    service: str
    user: str

    def __str__(self) -> str:
        return f"the keyring entry {self.service} of {self.user}"


KeySource = EnvironmentKey | FileKey | CommandKey | KeyringKey


def known_keys() -> tuple[str, ...]:
    """Return all keys that this process has read, longest first, to redact texts of providers."""
    return tuple(sorted(_known, key=lambda key: (-len(key), key)))


def hide_keys(text: str) -> str:
    """Return the text with all keys that this process has read replaced."""
    for key in known_keys():
        text = text.replace(key, HIDDEN)
    return text


async def read_key(source: KeySource, environ: Mapping[str, str] | None = None) -> str:
    """Read a key, without surrounding white space.

    Args:
        source: where the key is stored.
        environ: the variables; by default ``os.environ``.

    Raises:
        ConfigError: the key is unavailable or invalid. The message does not contain it.
    """
    match source:
        case EnvironmentKey(name):
            found = (os.environ if environ is None else environ).get(name, "")
        case FileKey(path):
            found = await _from_slow_file(path)
        case CommandKey(argv, timeout):
            found = await _from_command(argv, timeout)
        case KeyringKey(service, user):
            found = await _from_keyring(service, user)
    key = _checked(found.strip(), source)
    if len(key) >= MIN_SECRET_LENGTH and not key.isalpha():
        _known.add(key)
        remember(key)
    return key


def _checked(key: str, source: KeySource) -> str:
    if not key:
        verb = "is not set" if isinstance(source, EnvironmentKey) else "contains no key"
        raise ConfigError(f"{source} {verb}", hint="set key in the profile to where the key is stored")
    if not (key.isascii() and key.isprintable()) or " " in key:
        raise ConfigError(f"{source} contains no valid key: a key is one word of ASCII characters")
    return key


# -- files


async def _from_slow_file(path: str) -> str:
    with anyio.move_on_after(FILE_TIMEOUT):
        return await anyio.to_thread.run_sync(_from_file, path, abandon_on_cancel=True)
    raise ConfigError(f"the key file {path} could not be read within {FILE_TIMEOUT:g} s")


def _from_file(path: str) -> str:
    place = expand_home(path)
    if str(place).startswith("~"):
        raise ConfigError(f"the key file {path}: its home directory is unknown")
    try:
        with open(place, "rb", opener=_open_at_once) as file:
            check_file(place, os.fstat(file.fileno()))
            return _decoded(file.read(MAX_KEY_BYTES + 1), f"the key file {place}")
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        said = getattr(error, "strerror", None) or str(error).rstrip(".")
        raise ConfigError(f"the key file {place}: {said.lower()}") from None


def _open_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)  # a named pipe must not block


def check_file(place: Path, info: os.stat_result) -> None:
    """Refuse a file that is not regular, or that other users own, read or write. Pure except for the process's user.

    Raises:
        ConfigError: the file is refused.
    """
    if not stat.S_ISREG(info.st_mode):
        raise ConfigError(f"the key file {place} is not a regular file")
    if info.st_uid not in {os.geteuid(), 0}:
        raise ConfigError(f"the key file {place} belongs to another user", hint="own the file")
    if info.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise ConfigError(f"others may read or write the key file {place}", hint=f"chmod 600 {place}")


def _decoded(raw: bytes, what: str) -> str:
    if len(raw) > MAX_KEY_BYTES:
        raise ConfigError(f"{what}: the key is larger than {MAX_KEY_BYTES >> 10} KiB")
    with suppress(UnicodeDecodeError):
        return raw.decode()
    raise ConfigError(f"{what}: not valid UTF-8")


# -- commands


async def _from_command(argv: Sequence[str], timeout: float) -> str:
    what = f"the key command {argv[0]}"
    try:
        done = await run_program(
            argv, timeout=timeout, stdout_limit=MAX_KEY_BYTES, stderr_limit=MAX_KEY_BYTES, kills_over_limit=True
        )
    except (OSError, ValueError) as error:  # ValueError: a NUL in an argument
        raise ConfigError(f"{what}: {(getattr(error, 'strerror', None) or str(error)).lower()}") from None
    if len(done.stdout) > MAX_KEY_BYTES:
        return _decoded(done.stdout, what)
    if done.code is None:
        raise ConfigError(
            f"{what} printed no key within {timeout:g} s and was killed", hint="increase key.timeout if it needs more"
        )
    if done.code:
        raise ConfigError(f"{what} failed with exit code {done.code}{_complaint(done)}")
    return _decoded(done.stdout, what)


def _complaint(done: ProgramOutput) -> str:
    """Return the last line of its error output, if there is one, without anything that may be a key."""
    lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
    printed = done.stdout.decode("utf-8", "replace").split()
    return f": {_harmless(lines[-1], printed)}" if lines else ""


def _harmless(text: str, secrets: Iterable[str] = ()) -> str:
    """Return one printable line without these secrets and anything that may be a secret."""
    from ...toolkit.redaction.redactor import PatternRedactor

    line = single_line(text)
    for secret in sorted(secrets, key=len, reverse=True):
        line = line.replace(secret, HIDDEN) if len(secret) >= SHORT else line
    return LIKE_A_KEY.sub(HIDDEN, PatternRedactor(known_keys()).text(line))[:SAID]


# -- the system's keyring


async def _from_keyring(service: str, user: str) -> str:
    with anyio.move_on_after(KEYRING_TIMEOUT):
        return await anyio.to_thread.run_sync(_ask_keyring, service, user, abandon_on_cancel=True)
    raise ConfigError(f"the keyring did not answer within {KEYRING_TIMEOUT:g} s", hint="unlock it")


def _ask_keyring(service: str, user: str) -> str:
    try:
        keyring = import_module("keyring")
    except ImportError:
        raise ConfigError("the keyring needs a library", hint=install_extra("keyring")) from None
    try:
        return str(keyring.get_password(service, user) or "")
    except Exception as error:  # every keyring has its own errors
        raise ConfigError(f"the keyring failed: {type(error).__name__}: {_harmless(str(error))}") from None
