"""Known host keys, matched as OpenSSH matches them, and the errors for keys that are refused."""

from __future__ import annotations

import base64
import binascii
import hmac
import os
import re
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from harness.errors import HostKeyError
from harness.system.private_files import make_directories

__all__ = [
    "DEFAULT_PORT",
    "KnownKey",
    "add_known_key",
    "changed_key",
    "find_known_keys",
    "host_name",
    "is_readable_at_once",
    "revoked_key",
    "unknown_key",
]

DEFAULT_PORT = 22
SALT_SIZE = 20
_MARKERS = frozenset({"", "@cert-authority", "@revoked"})
_UNLISTED = frozenset("*?!|")
"""Characters of lines whose hosts are not listed by name."""
_BINARY = re.compile(r"[A-Za-z0-9+/]+={0,2}")


@dataclass(frozen=True, slots=True)
class KnownKey:
    """A line of a known_hosts file; ``key`` is ``TYPE BASE64``."""

    marker: str
    """``@cert-authority``, ``@revoked``, or empty."""
    hosts: str
    key: str
    place: str
    """The file and the line."""


def host_name(host: str, port: int) -> str:
    """Return a host as known_hosts files name it."""
    return host if port == DEFAULT_PORT else f"[{host}]:{port}"


def find_known_keys(name: str, paths: Sequence[str]) -> list[KnownKey]:
    """Return the lines for a host, also the revoked keys and the authorities.

    Args:
        name: The host as :func:`host_name` returns it, or its ``HostKeyAlias``.
        paths: The files; those that cannot be read, and those that are not regular files, have no lines.
    """
    return [line for path in paths for line in _lines(path, name)]


def is_readable_at_once(path: str) -> bool:
    """Return whether reading a file cannot block: a named pipe could, and ``/dev/null`` cannot."""
    return path == os.devnull or not os.path.exists(path) or os.path.isfile(path)


def _lines(path: str, name: str) -> tuple[KnownKey, ...]:
    try:
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode):
            return ()
        return _find(name, path, status.st_ino, status.st_size, status.st_mtime_ns)
    except OSError:
        return ()


@lru_cache(maxsize=4096)
def _find(name: str, path: str, *version: int) -> tuple[KnownKey, ...]:
    """Find the lines for a host once for all its logins, as long as the file does not change."""
    by_name, others = _read(path, *version)
    found = {**{number: line for number, line in others.items() if _matches(name, line.hosts)}, **by_name.get(name, {})}
    return tuple(found[number] for number in sorted(found))


@lru_cache(maxsize=16)
def _read(path: str, *_version: int) -> tuple[dict[str, dict[int, KnownKey]], dict[int, KnownKey]]:
    """Read a file once for all hosts, as long as it does not change.

    Returns:
        For each name the lines that list it without patterns, and all lines with patterns or hashes; by number.
    """
    text = Path(path).read_text(encoding="utf-8", errors="surrogateescape")
    by_name: dict[str, dict[int, KnownKey]] = {}
    others: dict[int, KnownKey] = {}
    for number, line in enumerate(_parse(path, text)):
        if _UNLISTED & {*line.hosts}:
            others[number] = line
        else:
            for name in line.hosts.lower().split(","):
                by_name.setdefault(name, {})[number] = line
    return by_name, others


def _parse(path: str, text: str) -> Iterator[KnownKey]:
    for number, line in enumerate(text.split("\n"), start=1):
        words = re.split(r"[ \t]+", line.strip(" \t\r"))
        marker = words.pop(0) if words and words[0].startswith("@") else ""
        if len(words) < 3 or words[0].startswith("#") or marker not in _MARKERS:
            continue  # ssh ignores such lines, too
        hosts, kind, binary = words[:3]
        if _BINARY.fullmatch(binary) and not kind.isdigit():  # a number begins a key of version 1 of the protocol
            yield KnownKey(marker, hosts, f"{kind} {binary}", f"{path}:{number}")


def _matches(name: str, hosts: str) -> bool:
    if hosts.startswith("|"):
        return _matches_hash(name, hosts)
    found = False
    for pattern in hosts.lower().split(","):
        if _pattern(pattern.removeprefix("!")).fullmatch(name):
            if pattern.startswith("!"):
                return False
            found = True
    return found


@lru_cache(maxsize=4096)
def _pattern(pattern: str) -> re.Pattern[str]:
    parts = {"*": ".*", "?": "."}
    return re.compile("".join(parts.get(character) or re.escape(character) for character in pattern), re.DOTALL)


def _matches_hash(name: str, hosts: str) -> bool:
    try:
        _, kind, salt, wanted = hosts.split("|")
        digest = hmac.digest(base64.b64decode(salt), name.encode(), "sha1")
        return kind == "1" and hmac.compare_digest(digest, base64.b64decode(wanted))
    except (ValueError, binascii.Error):
        return False


def add_known_key(path: str, name: str, key: str, *, hashed: bool) -> None:
    """Add a key to a known_hosts file as ssh does.

    Args:
        path: The file; it is created if necessary.
        name: The host as the file names it.
        key: The key as ``TYPE BASE64``.
        hashed: Whether to record a hash in place of the name (``HashKnownHosts``).

    Raises:
        OSError: The file cannot be written.
    """
    make_directories(Path(path).parent)
    line = f"{_hash(name) if hashed else name} {key}\n".encode()
    with open(os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600), "r+b") as file:
        before = file.read()
        file.write(line if not before or before.endswith(b"\n") else b"\n" + line)


def _hash(name: str) -> str:
    salt = os.urandom(SALT_SIZE)
    digest = hmac.digest(salt, name.encode(), "sha1")
    return f"|1|{base64.b64encode(salt).decode()}|{base64.b64encode(digest).decode()}"


def changed_key(presented: str, place: str, target: object) -> HostKeyError:
    """Return the error for a key other than the recorded one.

    Args:
        presented: The key's algorithm and fingerprint.
        place: Where the other key is recorded; empty if that is not known.
        target: The host.
    """
    known = f"; the recorded key is in {place}" if place else ""
    return HostKeyError(
        f"the host key does NOT match the recorded one: {presented}{known}",
        target=target,
        hint="possible man-in-the-middle attack; verify the key with the host's administrator before running "
        "ssh-keygen -R HOST",
    )


def unknown_key(presented: str, target: object) -> HostKeyError:
    """Return the error for a key of a host without a recorded one.

    Args:
        presented: The key's algorithm and fingerprint.
        target: The host.
    """
    return HostKeyError(
        f"the host key is unknown: {presented}",
        target=target,
        hint="compare the fingerprint with the host's own, then connect once with ssh to record it",
    )


def revoked_key(presented: str, target: object) -> HostKeyError:
    """Return the error for a key that is marked as ``@revoked``.

    Args:
        presented: The key's algorithm and fingerprint.
        target: The host.
    """
    return HostKeyError(
        f"the host key is revoked: {presented}",
        target=target,
        hint="its private key may be known to others; do not connect before the host's administrator has replaced it",
    )
