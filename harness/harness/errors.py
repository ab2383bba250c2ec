"""The exceptions of harness: a failed command is a result, a failure of harness itself is an exception.

::

    HarnessError
    ├── ConnectError                    the target could not be reached or entered
    │   ├── AuthenticationError         the target refused the login
    │   ├── HostKeyError                the host key is unknown, or differs from the known one
    │   ├── TargetGone                  the target was closed or deleted since, or another one has its name
    │   └── TargetNotFound              no such host, container or scheme
    ├── ConnectionLost                  the connection broke after it was made
    ├── ForwardError                    an address of a forward cannot be listened on, or connected to
    ├── UnsupportedOperation            the target does not support this; the hint is the remedy
    ├── TerminalError
    │   ├── PaneBusy                    an operator's command, or an unfinished job, holds the pane
    │   ├── PaneGone                    the pane, its session or its server no longer exists
    │   └── ShellNotReady               the pane's shell did not respond in time
    ├── JobNotFound                     no job with that ID on the target
    ├── KeyInUse                        the key belongs to the job of another command; nothing ran
    ├── OutputDropped                   part of a job's output reached the log limit before it was read
    ├── FileError                       (its subclasses are also the matching builtins)
    │   ├── FileNotFound, FileExists, PermissionDenied, IsADirectory, NotADirectory, NoSpace
    │   └── StaleFileError              the file changed since the version that the caller expects
    ├── ContextClosed                   the context has been left
    ├── ConfigError
    └── ToolError

Each carries ``target`` (where) and ``hint`` (the remedy); ``str()`` joins them with the message into one line.
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
    "ForwardError",
    "HarnessError",
    "HostKeyError",
    "IsADirectory",
    "JobNotFound",
    "KeyInUse",
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
    """Base of all errors that harness raises.

    Args:
        message: What failed, in one line.
        target: Where it failed, as a target URL; empty if no target is involved.
        hint: The remedy; may be empty.
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
    """The target refused the login."""


class HostKeyError(ConnectError):
    """The host key is unknown, or differs from the known one."""


class TargetGone(ConnectError):
    """The target was closed or deleted, or another one has its name, so that waiting for it is useless."""


class TargetNotFound(ConnectError):
    """No such host, container or URL scheme."""


class ConnectionLost(HarnessError):
    """The connection broke after it was made; dispatched operations may have happened."""


class ForwardError(HarnessError):
    """An address of a forward cannot be listened on, or cannot be connected to."""


class UnsupportedOperation(HarnessError):
    """The target does not support this; ``hint`` is the remedy."""


class TerminalError(HarnessError):
    """Base of the errors about tmux sessions, panes and the shells in them."""


class PaneBusy(TerminalError):
    """The pane is held by an operator's command or by an unfinished job; the message names it."""


class PaneGone(TerminalError):
    """The pane, its session or its server no longer exists."""


class ShellNotReady(TerminalError):
    """The shell in the pane did not respond in time."""


class JobNotFound(HarnessError):
    """The target has no job with that ID."""


class KeyInUse(HarnessError):
    """The key of a command belongs to the job of another command."""


class OutputDropped(HarnessError):
    """Part of a job's output was dropped, mostly because it exceeded ``job_log_max_bytes`` before it was read.

    ``start`` is the first missing byte of the output, ``end`` the byte after the last one, where to resume reading.
    They are equal if nothing follows and the size of the missing part is unknown.
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
    """The file does not have the version that the caller expects; nothing was written."""


class ContextClosed(HarnessError):
    """The context has been left, or was left during this operation."""


class ConfigError(HarnessError):
    """The configuration is invalid; the message names the file and the key."""


ToolErrorCode = Literal["invalid_args", "permission_failure", "execution_failed", "backend_lost"]


class ToolError(HarnessError):
    """A tool could not run; a failure of the command that it ran is a result instead.

    ``code`` is the reason: ``invalid_args`` (invalid arguments), ``permission_failure`` (the policy could not decide),
    ``backend_lost`` (the connection broke, so that it may have happened), ``execution_failed`` (anything else).
    """

    def __init__(
        self, message: str, *, code: ToolErrorCode = "execution_failed", target: object = "", hint: str = ""
    ) -> None:
        super().__init__(message, target=target, hint=hint)
        self.code = code
