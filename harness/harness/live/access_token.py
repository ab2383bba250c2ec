"""The token that lets a dashboard act: a private file of this user, which agents may neither read nor write.

It is never sent. A client proves that it can read the file by a code over the process's challenge and process ID: a
program that only pretends to be a harness process learns nothing from it, and cannot pass it on to a real one.
"""

from __future__ import annotations

import hmac
import os
import secrets
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from ..errors import ConfigError
from ..system.private_files import make_directories, state_home, write_new_file

__all__ = ["TOKEN_NAME", "is_proof", "new_challenge", "proof_for", "read_token", "token_path"]

TOKEN_NAME = "token"  # noqa: S105  # the name of the file
TOKEN_BYTES = 32
MAX_TOKEN_BYTES = 4096


def token_path(environ: Mapping[str, str] | None = None) -> Path:
    """Return the path of the token file."""
    return state_home(environ) / "live" / TOKEN_NAME


def read_token(*, create: bool) -> bytes | None:
    """Return the token; None if it is missing and not to be created. Blocks.

    Raises:
        ConfigError: The file is not private, or cannot be read or created.
    """
    path = token_path()
    try:
        if create and not path.exists():
            make_directories(path.parent)
            with suppress(FileExistsError):  # another process was first
                write_new_file(path, secrets.token_hex(TOKEN_BYTES).encode())
        return _read(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(f"{path}: {(error.strerror or str(error)).lower()}") from error


def _read(path: Path) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode) or info.st_uid != os.geteuid() or info.st_mode & 0o077:
            raise ConfigError(f"{path} is not a private file", hint="remove it; a new token is created")
        token = file.read(MAX_TOKEN_BYTES).strip()
    if len(token) < TOKEN_BYTES:
        raise ConfigError(f"{path} contains no token", hint="remove it; a new token is created")
    return token


def new_challenge() -> str:
    """Return a challenge that no earlier connection had."""
    return secrets.token_hex(TOKEN_BYTES)


def proof_for(token: bytes, challenge: str, pid: int, name: str) -> str:
    """Return the proof that a client has the token. Pure.

    Args:
        token: The token.
        challenge: The challenge of the connection.
        pid: The process at the other end of the connection, as the kernel reports it.
        name: Who acts.
    """
    return hmac.digest(token, f"{challenge}\0{pid}\0{name}".encode(), "sha256").hex()


def is_proof(proof: str, token: bytes, challenge: str, pid: int, name: str) -> bool:
    """Return whether a proof is valid. Pure; takes the same time for every proof."""
    return hmac.compare_digest(proof_for(token, challenge, pid, name).encode(), proof.encode("utf-8", "replace"))
