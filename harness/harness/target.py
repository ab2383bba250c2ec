"""Targets: where commands run, written as URLs composed with ``+``, or given by a program of the settings."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import quote, unquote_to_bytes

from .errors import ConfigError, TargetNotFound

__all__ = [
    "ARGV",
    "COMMAND",
    "EXEC_SCHEME",
    "FLEET_SCHEME",
    "PATH_SCHEMES",
    "ExecTarget",
    "Hop",
    "Target",
    "mask_password",
]

FLEET_SCHEME = "fleet"
"""The scheme of a session on many hosts; no backend has it."""

PATH_SCHEMES = frozenset({"chroot", "gcloud", "incus", "k8s", "lxc"})
"""Schemes whose host is all of the URL's rest, such as ``k8s://namespace/pod``: no user, no port."""

_HOP = re.compile(
    r"(?P<scheme>[a-z][a-z0-9]*):(?://)?"
    r"(?:(?P<user>[^@/+\s]+)@)?"
    r"(?P<host>\[[^\]\s]+\]|[^:/@+\s]*)"
    r"(?::(?P<port>\d{1,5}))?/?"
)
_PATH_HOP = re.compile(rf"(?P<scheme>{'|'.join(sorted(PATH_SCHEMES))})://(?P<host>[^+\s\[\]]+)")
_PASSWORD = re.compile(r"(?P<before>^|//|[+,!&])(?P<user>[^:@/+,\s]*):(?!//)[^,\s]*@")
"""A user with a password, as some programs take it in a URL."""


def mask_password(text: str) -> str:
    """Return a text about targets without what looks like a password: ``ssh://root:***@h01``."""
    return _PASSWORD.sub(r"\g<before>\g<user>:***@", text)


@dataclass(frozen=True, slots=True)
class Hop:
    """One step of a target: ``ssh://user@host:port``, ``docker://name``, ``local:``."""

    scheme: str
    host: str = ""
    user: str | None = None
    port: int | None = None

    def __str__(self) -> str:
        if self.scheme == "local":
            return "local:"
        if self.scheme in PATH_SCHEMES:
            return f"{self.scheme}://{self.host}"
        user = f"{self.user}@" if self.user else ""
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = f":{self.port}" if self.port else ""
        return f"{self.scheme}://{user}{host}{port}"


@dataclass(frozen=True, slots=True)
class Target:
    """A chain of hops; each runs on the one before it. ``ssh://web1+docker://app`` is a container on web1."""

    hops: tuple[Hop, ...]

    @classmethod
    def parse(cls, text: str | Target) -> Target:
        """Read a target URL.

        Raises:
            TargetNotFound: the text is not a target URL.
        """
        if isinstance(text, Target):
            return text
        return cls(tuple(_parse_hop(part, text) for part in text.split("+")))

    @property
    def last(self) -> Hop:
        """The hop in which commands run; its scheme chooses the backend."""
        return self.hops[-1]

    @property
    def base(self) -> Target | None:
        """The target that the last hop runs on, or None when it runs here."""
        return Target(self.hops[:-1]) if len(self.hops) > 1 else None

    def __str__(self) -> str:
        return "+".join(str(hop) for hop in self.hops)


def _normalize_path(scheme: str, path: str) -> str:
    """Return the only spelling of a URL's path, so that no other one escapes a rule or names another target."""
    if scheme == "chroot":
        decoded = unquote_to_bytes(path)
        names = [name for name in decoded.split(b"/") if name not in (b"", b".")]
        return "/" * decoded.startswith(b"/") + "/".join(quote(name, safe="@:") for name in names)
    parts = [quote(unquote_to_bytes(part), safe="@:") for part in path.split("/")]
    if scheme == "k8s" and len(parts) == 3 and not parts[2]:
        parts.pop()  # namespace/pod/ names no container
    return "/".join(parts)


def _parse_hop(part: str, whole: str) -> Hop:
    if (path := _PATH_HOP.fullmatch(part)) and not path["host"].startswith("-"):
        return Hop(path["scheme"], _normalize_path(path["scheme"], path["host"]))
    match = _HOP.fullmatch(part)
    shown = mask_password(whole)
    if part.startswith("ssh:") and (":" in (match["user"] or "") if match else shown != whole):
        raise TargetNotFound(
            f"{shown!r} holds a password, and other users of this machine can read it in the list of processes",
            hint="leave it out: use a key or an agent, or type it when the login asks",
        )
    if match is None:
        raise TargetNotFound(
            f"{shown!r} is not a target",
            hint="write local:, ssh://user@host:port, docker://name, k8s://namespace/pod, joined with +",
        )
    host = match["host"].strip("[]")
    port = int(match["port"]) if match["port"] else None
    if match["scheme"] != "local" and (not host or host.startswith("-")):
        raise TargetNotFound(f"{shown!r} names no host", hint="for example ssh://deploy@web1")
    if port is not None and not 0 < port < 65536:
        raise TargetNotFound(f"{shown!r}: port {port} is out of range", hint="use 1 to 65535")
    if (match["user"] or "").startswith("-"):
        raise TargetNotFound(f"{shown!r}: a user name may not start with '-'")
    return Hop(match["scheme"], host, match["user"], port)


# -- Targets that a program of the settings gives


EXEC_SCHEME = "exec"
ARGV = "{argv}"
"""A word that is replaced by the arguments, one word each."""
COMMAND = "{command}"
"""A part of a word that is replaced by the arguments as one text, which any POSIX or C shell reads."""


@dataclass(frozen=True, slots=True)
class ExecTarget:
    """A program that starts commands somewhere: ``[targets.NAME] exec``.

    Args:
        argv: Its words; one is :data:`ARGV`, or holds :data:`COMMAND`.
        terminal_argv: The words that an operator's terminal needs instead; empty if they are the same.

    Raises:
        ConfigError: The command has no place in the words, or more than one.
    """

    argv: tuple[str, ...]
    terminal_argv: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name, words in (("exec", self.argv), ("exec_terminal", self.terminal_argv or self.argv)):
            _check(name, words)


def _check(name: str, words: tuple[str, ...]) -> None:
    if not words or not words[0] or ARGV in words[0] or COMMAND in words[0]:
        raise ConfigError(f"{name} names no program", hint='for example ["lxc", "exec", "stage", "--", "{argv}"]')
    if any(ARGV in word and word != ARGV for word in words):
        raise ConfigError(f"{name}: {ARGV} is a word of its own", hint=f"inside a word, write {COMMAND}")
    if words.count(ARGV) + sum(word.count(COMMAND) for word in words) != 1:
        raise ConfigError(
            f"{name} needs {ARGV} or {COMMAND} once, where the command is put",
            hint=f"{ARGV} for programs that take arguments, {COMMAND} for those that pass a text to a shell",
        )
