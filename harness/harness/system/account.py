"""The account of this process; in a container it often has no entry in the user database."""

from __future__ import annotations

import getpass
import grp
import os
import pwd
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from ..errors import ConfigError

__all__ = [
    "account_name",
    "expand_home",
    "has_other_members",
    "home_directory",
    "login_shell",
    "owner_name",
]


def account_name() -> str:
    """Return the login name, or the number of a user id that has none."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def owner_name() -> str:
    """Return the owner that this process's records name: ``user@host:pid``."""
    return f"{account_name()}@{os.uname().nodename}:{os.getpid()}"


def home_directory(environ: Mapping[str, str] | None = None) -> Path:
    """Return the home directory: ``$HOME``, or the one in the user database.

    Raises:
        ConfigError: Both are missing.
    """
    env = os.environ if environ is None else environ
    try:
        return Path(env.get("HOME") or pwd.getpwuid(os.getuid()).pw_dir)
    except KeyError:
        raise ConfigError(
            f"the home directory is unknown: HOME is not set, and user ID {os.getuid()} is not in the user database",
            hint="set HOME, or XDG_CONFIG_HOME and XDG_STATE_HOME",
        ) from None


def login_shell() -> str:
    """Return the login shell in the user database; empty without one."""
    try:
        return pwd.getpwuid(os.getuid()).pw_shell
    except KeyError:
        return ""


def expand_home(path: str | os.PathLike[str]) -> Path:
    """Return the path with ``~`` and ``~USER`` replaced, or unchanged if that home directory is unknown."""
    return Path(os.path.expanduser(path))


@cache
def has_other_members(group_id: int, user_id: int) -> bool:
    """Return whether another user than root is in a group, also if it is only that user's primary group.

    Users whom a directory service does not list, as with the defaults of SSSD, are not seen.
    """
    try:
        members = set(grp.getgrgid(group_id).gr_mem)
    except KeyError:
        members = set()
    users = pwd.getpwall()
    allowed = {user.pw_name for user in users if user.pw_uid in {user_id, 0}}
    return bool(members - allowed) or any(user.pw_gid == group_id and user.pw_name not in allowed for user in users)
