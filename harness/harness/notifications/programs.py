"""Notifications by programs of this machine: ``notify-send``, and the operator's own command."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence

from ..system.account import expand_home
from ..system.child_process import run_program
from .channel import Channel, NotificationError
from .notification import Notification, short_line

__all__ = ["CommandChannel", "DesktopChannel", "notify_send_argv", "program_environment"]

TIMEOUT = 10.0
"""Seconds until a program is killed."""
STDERR_KEPT = 1_024
_KEPT = (
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TERM", "TMPDIR", "TZ"),
    *("DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY", "XDG_RUNTIME_DIR", "XDG_SESSION_TYPE", "DBUS_SESSION_BUS_ADDRESS"),
)
_PREFIX = "HARNESS_NOTIFICATION_"
"""Not only ``HARNESS_``: ``HARNESS_TARGET`` would direct a harness that the program starts to the target."""


def program_environment(environ: Mapping[str, str], more: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the complete environment of a program: what it needs to reach the desktop, and no secrets. Pure."""
    kept = {name: value for name, value in environ.items() if name in _KEPT or name.startswith("LC_")}
    return kept | {name: value.replace("\0", "") for name, value in (more or {}).items()}


async def _run(argv: Sequence[str], data: bytes | None, env: Mapping[str, str]) -> None:
    """Run a program to its end.

    Raises:
        NotificationError: It cannot be started, failed, or took too long.
    """
    name = os.path.basename(argv[0])
    try:
        done = await run_program(
            argv, data=data, env=env, timeout=TIMEOUT, stdout_limit=0, stderr_limit=STDERR_KEPT, kills_group=True
        )
    except (OSError, ValueError) as error:
        why = (getattr(error, "strerror", "") or str(error)).lower()
        raise NotificationError(f"cannot start {name}: {why}") from error
    if done.code is None:
        raise NotificationError(f"{name} took longer than {TIMEOUT:g} s")
    if done.code != 0:
        said = short_line(done.stderr.decode("utf-8", "replace"))
        raise NotificationError(f"{name} failed with exit code {done.code}{f': {said}' if said else ''}")


# -- The desktop.


def notify_send_argv(notification: Notification) -> list[str]:
    """Return the command line of ``notify-send``, whose body is markup with C escapes. Pure."""
    body = notification.text + (f"\n{notification.url}" if notification.url else "")
    for char, escaped in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("\\", "\\\\")):
        body = body.replace(char, escaped)
    urgency = "critical" if notification.is_urgent else "normal"
    return ["notify-send", "--app-name=harness", f"--urgency={urgency}", "--", notification.title, body]


class DesktopChannel(Channel):
    """The notifications of the desktop, with ``notify-send``."""

    name = "desktop"

    async def send(self, notification: Notification) -> str:
        """See :class:`Channel`."""
        await _run(notify_send_argv(notification), None, program_environment(os.environ))
        return "notify-send"


# -- The operator's command.


class CommandChannel(Channel):
    """A program that gets each notification as JSON on its standard input, and facts in its environment.

    Args:
        argv: The program and its arguments, which are passed on unchanged.
    """

    name = "command"

    def __init__(self, argv: Sequence[str]) -> None:
        self._argv = [str(expand_home(argv[0])) if argv[0].startswith("~/") else argv[0], *argv[1:]]

    async def send(self, notification: Notification) -> str:
        """See :class:`Channel`."""
        about = {
            "EVENT": notification.event,
            "TITLE": notification.title,
            "TEXT": notification.text,
            "URL": notification.url,
            "TARGET": notification.items[0].target if notification.items else "",
            "SESSION": notification.items[0].session if notification.items else "",
        }
        facts = {_PREFIX + name: value for name, value in about.items()}
        data = json.dumps(notification.to_json(), ensure_ascii=False).encode("utf-8", "replace")
        await _run(self._argv, data, program_environment(os.environ, facts))
        return os.path.basename(self._argv[0])
