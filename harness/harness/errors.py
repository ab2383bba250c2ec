"""Every exception that harness raises. A failed command is a result; a failed harness is an exception.

::

    HarnessError
    ├── ConnectError                    the target could not be reached or entered
    │   ├── AuthenticationError         it was reached, and refused us
    │   ├── HostKeyError                its identity is unknown, or not the one on record
    │   ├── TargetGone                  it was entered, and has ended since, or another has its name
    │   └── TargetNotFound              no such host, container or scheme
    ├── ConnectionLost                  the link broke after it had been made
    ├── UnsupportedOperation            this target cannot do this; the hint says what would make it work
    ├── TerminalError
    │   ├── PaneBusy                    somebody else's command, or an unfinished job, holds the pane
    │   ├── PaneGone                    the pane, its session or its server no longer exists
    │   └── ShellNotReady               the pane's shell gave no sign of life in time
    ├── JobNotFound                     no job of that id on the target
    ├── OutputDropped                   part of a job's output reached the log limit before it was read
    ├── FileError                       (each subclass is also the matching builtin)
    │   ├── FileNotFound, FileExists, PermissionDenied, IsADirectory, NotADirectory, NoSpace
    │   └── StaleFileError              the file changed since the version that the caller knew
    ├── ContextClosed                   the context has been left
    ├── ConfigError
    └── ToolError

Each carries ``target`` (where) and ``hint`` (what to do); ``str()`` joins the three into one line.
"""

from __future__ import annotations

from typing import Literal

__all__ = [
    "AuthenticationError",
    "ConfigError",
    "ConnectError",
    "ConnectionLost",
    "ContextClosed",
    "FileError",
    "FileExists",
    "FileNotFound",
    "HarnessError",
    "HostKeyError",
    "IsADirectory",
    "JobNotFound",
    "NoSpace",
    "NotADirectory",
    "OutputDropped",
    "PaneBusy",
    "PaneGone",
    "PermissionDenied",
    "ShellNotReady",
    "StaleFileError",
    "TargetGone",
    "TargetNotFound",
    "TerminalError",
    "ToolError",
    "UnsupportedOperation",
]


class HarnessError(Exception):
    """Base of every error that harness raises.

    Args:
        message: what happened, in one line.
        target: where it happened, as a target URL; empty when no target is involved.
        hint: what the operator can do about it; empty when there is nothing to add.
    """

    def __init__(self, message: str, *, target: object = "", hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.target = str(target)
        self.hint = hint

    def __str__(self) -> str:
        where = f"{self.target.removesuffix(':')}: " if self.target else ""
        advice = f" ({self.hint})" if self.hint else ""
        return f"{where}{self.message}{advice}"


class ConnectError(HarnessError):
    """The target could not be reached or entered."""


class AuthenticationError(ConnectError):
    """The target was reached and refused the login."""


class HostKeyError(ConnectError):
    """The host's key is unknown, or differs from the one on record."""


class TargetGone(ConnectError):
    """The target does not run any more, or another one has its name: to wait for it is no use."""


class TargetNotFound(ConnectError):
    """No such host, container or URL scheme."""


class ConnectionLost(HarnessError):
    """The link broke after it had been made. Whatever was dispatched may have happened."""


class UnsupportedOperation(HarnessError):
    """This target cannot do this; ``hint`` names what would make it work."""


class TerminalError(HarnessError):
    """Base of the errors about tmux sessions, panes and the shells in them."""


class PaneBusy(TerminalError):
    """The pane is held by an operator's command or by an unfinished job; the message names it."""


class PaneGone(TerminalError):
    """The pane, its session or its server no longer exists."""


class ShellNotReady(TerminalError):
    """The shell in the pane gave no sign of life within the time allowed."""


class JobNotFound(HarnessError):
    """The target keeps no job of that id."""


class OutputDropped(HarnessError):
    """Part of a job's output is missing; mostly it was more than ``job_log_max_bytes`` before it was read.

    ``start`` is the first byte of the output that is missing, ``end`` the byte after the last one: where to read on.
    They are equal when nothing follows and it is not known how much is missing.
    """

    def __init__(self, message: str, *, start: int = 0, end: int = 0, target: object = "", hint: str = "") -> None:
        super().__init__(message, target=target, hint=hint)
        self.start = start
        self.end = end


class FileError(HarnessError):
    """Base of the errors about files on the target."""


class FileNotFound(FileError, FileNotFoundError):
    """No such file or directory on the target."""


class FileExists(FileError, FileExistsError):
    """The file exists and the caller asked for a new one."""


class PermissionDenied(FileError, PermissionError):
    """The target's user may not do this to this file."""


class IsADirectory(FileError, IsADirectoryError):
    """A file was expected and a directory was found."""


class NotADirectory(FileError, NotADirectoryError):
    """A directory was expected and something else was found."""


class NoSpace(FileError, OSError):
    """The target's file system is full, read-only or over quota."""


class StaleFileError(FileError):
    """The file is no longer the version that the caller expected; nothing was written."""


class ContextClosed(HarnessError):
    """A context is used that has been left, or was left while this went on."""


class ConfigError(HarnessError):
    """The configuration is wrong; the message names the file and the key."""


ToolErrorCode = Literal["invalid_args", "permission_failure", "execution_failed", "backend_lost"]


class ToolError(HarnessError):
    """A tool could not run at all. That what it ran failed is a result instead.

    ``code`` says why: ``invalid_args`` (the arguments are wrong), ``permission_failure`` (whether it may run could
    not be found out), ``backend_lost`` (the link broke: it may have happened), ``execution_failed`` (anything else).
    """

    def __init__(
        self, message: str, *, code: ToolErrorCode = "execution_failed", target: object = "", hint: str = ""
    ) -> None:
        super().__init__(message, target=target, hint=hint)
        self.code = code
