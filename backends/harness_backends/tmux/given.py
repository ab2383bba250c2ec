"""What a command is given beside its text: another user's name."""

from __future__ import annotations

import shlex

from harness.errors import UnsupportedOperation

from ..posix.shell import HeldShell

__all__ = ["check_user"]


async def check_user(shell: HeldShell, user: str) -> None:
    """See that commands can be run as another user.

    Raises:
        UnsupportedOperation: they cannot, or there is no such user.
    """
    name = shlex.quote(user)
    reply = await shell.call(f'id -u -- {name} >&2 || exit 2; [ "$(id -u)" = 0 ] || sudo -n -u {name} true')
    if reply.exit_code == 2:
        raise UnsupportedOperation(f"there is no user {user!r}", target=shell.transport.target)
    if reply.exit_code != 0:
        raise UnsupportedOperation(
            f"commands cannot be run as {user!r} here",
            target=shell.transport.target,
            hint="it needs root, or sudo without a password",
        )
