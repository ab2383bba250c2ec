"""How to run a command as another user."""

from __future__ import annotations

import re
import shlex

from harness.backend import Capabilities
from harness.errors import UnsupportedOperation

__all__ = ["account_text", "change_user", "check_script", "refusal"]

_NAME = re.compile(r"[A-Za-z_0-9][A-Za-z0-9_.@+-]*")


def change_user(user: str, capabilities: Capabilities, target: object) -> tuple[str, ...]:
    """The words that go before a command's argv. Nobody is asked for a password.

    Raises:
        UnsupportedOperation: the login is not root, and there is no sudo; or this is no user's name.
    """
    if not _NAME.fullmatch(user):
        raise UnsupportedOperation(f"{user!r} is not a user's name", target=target, hint="give a login name")
    if capabilities.uid == 0:
        return _from_root(user, capabilities, target)
    if capabilities.has("sudo"):
        return ("sudo", "-n", "-u", user, "--")
    raise UnsupportedOperation(
        f"cannot run as {user}: the login is neither root nor has sudo",
        target=target,
        hint=f"connect as root or as {user}, or install sudo and allow it without a password",
    )


def _from_root(user: str, capabilities: Capabilities, target: object) -> tuple[str, ...]:
    if capabilities.has("runuser"):
        return ("runuser", "-u", user, "--")
    if capabilities.has("sudo"):
        return ("sudo", "-n", "-u", user, "--")
    if capabilities.has("su"):
        return ("su", "-s", "/bin/sh", "-c", 'exec "$0" "$@"', "--", user)
    raise UnsupportedOperation(
        f"cannot run as {user}: no runuser, sudo or su", target=target, hint="install util-linux or sudo there"
    )


def check_script(program: tuple[str, ...]) -> str:
    """A script that tries the change of user with nothing to run: a refusal must not look like the command's end."""
    return f"{' '.join(map(shlex.quote, program))} sh -c : >/dev/null"


def refusal(user: str, said: str, target: object) -> UnsupportedOperation:
    """What to raise when the change of user was refused."""
    accounts = "root" if user == "root" else f"root or {user}"
    reason = (said.strip().splitlines() or ["it was refused"])[-1]
    return UnsupportedOperation(
        f"cannot run as {user}: {reason}",
        target=target,
        hint=f"check the name, and allow it without a password (NOPASSWD in sudoers), or connect as {accounts}",
    )


def account_text(user: str) -> str:
    """Shell text that sets the variables of a login, as far as the program before it has not."""
    return f'HOME=~{user}; [ -d "$HOME" ] || HOME=/; USER={user}; LOGNAME={user}; export HOME USER LOGNAME; '
