"""The one place where asyncssh's exceptions become harness's."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import asyncssh

from harness.errors import (
    AuthenticationError,
    ConfigError,
    ConnectError,
    ConnectionLost,
    HarnessError,
    HostKeyError,
    TargetNotFound,
)
from harness.target import Target

__all__ = ["FOREIGN", "channel_refused", "translate", "translated"]

FOREIGN = (asyncssh.Error, OSError, ValueError, asyncssh.ChannelListenError, asyncssh.PasswordChangeRequired)
"""What calls into asyncssh raise. Its errors about keys and configuration are ValueErrors."""

_Translation = Callable[[Target, Exception, str], HarnessError]


def _permission(target: Target, error: Exception, text: str) -> HarnessError:
    return AuthenticationError(
        f"login refused: {text}", target=target, hint="check the user name, the key and the agent (ssh-add -l)"
    )


def _host_key(target: Target, error: Exception, text: str) -> HarnessError:
    return HostKeyError(f"the host's key could not be verified: {text}", target=target)


def _private_key(target: Target, error: Exception, text: str) -> HarnessError:
    return AuthenticationError(f"a private key cannot be used: {text}", target=target)


def _config(target: Target, error: Exception, text: str) -> HarnessError:
    return ConfigError(f"the ssh configuration cannot be read: {text}", target=target)


def _not_found(target: Target, error: Exception, text: str) -> HarnessError:
    return TargetNotFound(f"the host name cannot be resolved: {text}", target=target, hint="check the name")


def _password_change(target: Target, error: Exception, text: str) -> HarnessError:
    return AuthenticationError("the password has expired", target=target, hint="log in with ssh once and change it")


def _disconnected(target: Target, error: Exception, text: str) -> HarnessError:
    if "authentication failures" in text.lower():
        return _permission(target, error, text)
    return ConnectError(f"the connection failed: {text}", target=target)


def _refused(target: Target, error: Exception, text: str) -> HarnessError:
    return ConnectError(f"cannot connect: {text}", target=target, hint="is sshd running there, and the port open?")


def _other(target: Target, error: Exception, text: str) -> HarnessError:
    return ConnectError(f"cannot connect: {text}", target=target)


# The most specific class first.
_TRANSLATIONS: tuple[tuple[type[Exception], _Translation], ...] = (
    (asyncssh.PermissionDenied, _permission),
    (asyncssh.IllegalUserName, _permission),
    (asyncssh.HostKeyNotVerifiable, _host_key),
    (asyncssh.PasswordChangeRequired, _password_change),
    (asyncssh.KeyImportError, _private_key),
    (asyncssh.KeyEncryptionError, _private_key),
    (asyncssh.ConfigParseError, _config),
    (asyncssh.Error, _disconnected),
    (socket.gaierror, _not_found),
    (OSError, _refused),
    (Exception, _other),
)


def translate(error: Exception, target: Target, *, connected: bool = False) -> HarnessError:
    """Harness's error for one of asyncssh's. After the login (``connected``) it means that the link broke."""
    if isinstance(error, HarnessError):
        return error
    text = _text(error)
    if connected:
        return ConnectionLost(f"the link was lost: {text}", target=target)
    action = next(action for kind, action in _TRANSLATIONS if isinstance(error, kind))
    return action(target, error, text)


@contextmanager
def translated(target: Target, *, connected: bool = False) -> Iterator[None]:
    """Translate what is raised inside."""
    try:
        yield
    except HarnessError:
        raise
    except FOREIGN as error:
        raise translate(error, target, connected=connected) from error


def channel_refused(target: Target, open_channels: int) -> HarnessError:
    """The server would not open one more channel, or all that it allows are in use."""
    return ConnectError(
        f"the server allows no further session while {open_channels} of ours are open",
        target=target,
        hint="raise MaxSessions in its sshd_config",
    )


def _text(error: Exception) -> str:
    if isinstance(error, asyncssh.Error):
        return getattr(error, "reason", "") or type(error).__name__
    if isinstance(error, socket.gaierror) and error.strerror:
        return error.strerror
    if isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno)  # asyncio's own text names only the address
    return str(error) or type(error).__name__
