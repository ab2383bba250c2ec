"""The token of the HTTP server: from the environment, or a private file that is made when it is missing."""

from __future__ import annotations

import hmac
import os
import secrets
import stat
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from ..account import expand_home
from ..errors import ConfigError
from ..local_directories import make_directories
from ..state_home import state_home
from ..toolkit.permissions.rules import Action, Rule
from ..toolkit.permissions.store import RuleFile

__all__ = ["MINIMUM", "VARIABLE", "Token", "default_token_path", "deny_token_file", "find_token"]

VARIABLE = "HARNESS_MCP_TOKEN"
MINIMUM = 32
"""Characters of a token, at least."""
LONGEST = 4096


@dataclass(frozen=True, slots=True)
class Token:
    """A secret, and where it came from, which may be shown."""

    secret: str = field(repr=False)
    origin: str
    file: Path | None = None
    """Where it is kept, when that is not the usual place: the real path."""

    def matches(self, offered: str) -> bool:
        """Compare without telling by the time how much of it was right."""
        return hmac.compare_digest(self.secret.encode(), offered.encode("utf-8", "surrogateescape"))


def default_token_path(environ: Mapping[str, str] | None = None) -> Path:
    """Where the token is kept when nothing else is said."""
    return state_home(environ) / "mcp-token"


def find_token(file: str | None, environ: Mapping[str, str] | None = None) -> Token:
    """The token: from ``file``, else from :data:`VARIABLE`, else from the default file.

    Raises:
        ConfigError: it is too short, or others could read or change its file.
    """
    env = os.environ if environ is None else environ
    if file is None and (value := env.get(VARIABLE)):
        return Token(_checked(value, VARIABLE), VARIABLE)
    path = expand_home(file) if file is not None else default_token_path(env)
    try:
        secret = _checked(_read_or_make(path), str(path))
        return Token(secret, str(path), None if file is None else Path(os.path.realpath(path)))
    except OSError as error:
        raise ConfigError(f"{path}: {(error.strerror or str(error)).lower()}") from error


def deny_token_file(token: Token, rules: RuleFile) -> None:
    """Have every harness of this user deny the file of a token: by a rule in their file of rules. Blocks.

    Raises:
        ConfigError: the file of rules cannot be trusted or written.
    """
    if token.file is not None:
        rules.add([Rule(Action.DENY, argument=str(token.file))])


def _read_or_make(path: Path) -> str:
    try:
        return _read(path)
    except FileNotFoundError:
        make_directories(path.parent)
    with suppress(FileExistsError):  # another harness was first
        _make(path)
    return _read(path)


def _read(path: Path) -> str:
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
    with open(descriptor, encoding="utf-8", errors="surrogateescape") as file:
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode):
            raise ConfigError(f"{path} is not a regular file")
        if info.st_uid != os.geteuid():
            raise ConfigError(f"{path} belongs to another user", hint="use a file of your own")
        if info.st_mode & 0o077:
            raise ConfigError(f"{path} is open to other users", hint=f"chmod 600 {path}, and renew the token in it")
        return file.read(LONGEST).strip()


def _make(path: Path) -> None:
    """Write a new token, whole from the first moment at which its name exists."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with open(descriptor, "w", encoding="ascii") as file:
            file.write(secrets.token_urlsafe(32) + "\n")
            file.flush()
            os.fsync(descriptor)
        os.link(draft, path)
    finally:
        draft.unlink()


def _checked(secret: str, origin: str) -> str:
    if len(secret) < MINIMUM or not secret.isascii() or any(char.isspace() for char in secret):
        raise ConfigError(
            f"{origin} holds no token: {MINIMUM} characters of ASCII at least, without spaces",
            hint="remove the file, and one is made" if origin != VARIABLE else "openssl rand -hex 32 makes one",
        )
    return secret
