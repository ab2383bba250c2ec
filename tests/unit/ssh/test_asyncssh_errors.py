"""No exception of asyncssh leaves the engine: each of its classes is mapped, and the mapping is pinned."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import socket

import asyncssh
import pytest

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
from harness_backends.ssh.asyncssh_process import FOREIGN, signal_status, translate, translated

WEB1 = Target.parse("ssh://web1")

# Exceptions of asyncssh's servers, of file transfers, and of its own parsers, which it catches itself.
NOT_OURS = {"BreakReceived", "SignalReceived", "SoftEOFReceived", "TerminalSizeChanged"}


def exception_classes() -> set[type[Exception]]:
    """Every exception class that any module of asyncssh defines."""
    found = set()
    for module in pkgutil.iter_modules(asyncssh.__path__):
        try:
            loaded = importlib.import_module(f"asyncssh.{module.name}")
        except ImportError:
            continue  # a module for another platform, or for a library that is not installed
        for value in vars(loaded).values():
            if inspect.isclass(value) and issubclass(value, Exception) and value.__module__.startswith("asyncssh"):
                found.add(value)
    return found


CLASSES = [pytest.param(kind, id=kind.__name__) for kind in sorted(exception_classes(), key=lambda kind: kind.__name__)]


def an_instance(kind: type[Exception]) -> Exception:
    error = kind.__new__(kind)
    error.args = ("because",)
    for name in ("reason", "lang", "filename", "strerror"):
        if hasattr(kind, "__dict__") and not isinstance(error, OSError):
            setattr(error, name, "because")
    return error


@pytest.mark.parametrize("kind", CLASSES)
def test_every_exception_of_asyncssh_is_caught_and_becomes_one_of_ours(kind: type[Exception]) -> None:
    if kind.__name__ in NOT_OURS:
        return
    with pytest.raises(HarnessError) as caught, translated(WEB1):
        raise an_instance(kind)
    assert isinstance(caught.value, ConnectError | ConfigError)
    assert "ssh://web1" in str(caught.value)


@pytest.mark.parametrize("kind", CLASSES)
def test_after_the_login_it_means_that_the_link_broke(kind: type[Exception]) -> None:
    assert type(translate(an_instance(kind), WEB1, connected=True)) is ConnectionLost


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (asyncssh.PermissionDenied("no"), AuthenticationError),
        (asyncssh.HostKeyNotVerifiable("no"), HostKeyError),
        (asyncssh.KeyImportError("no"), AuthenticationError),
        (asyncssh.ConfigParseError("no"), ConfigError),
        (asyncssh.DisconnectError(2, "Too many authentication failures"), AuthenticationError),
        (asyncssh.ConnectionLost("no"), ConnectError),
        (asyncssh.ChannelOpenError(1, "no"), ConnectError),
        (asyncssh.PasswordChangeRequired("no"), AuthenticationError),
        (socket.gaierror(-2, "Name or service not known"), TargetNotFound),
        (ConnectionRefusedError(111, "Connection refused"), ConnectError),
        (TimeoutError(), ConnectError),
    ],
)
def test_errors_say_what_went_wrong(error: Exception, kind: type[HarnessError]) -> None:
    assert isinstance(error, FOREIGN)
    assert type(translate(error, WEB1)) is kind


def test_our_own_errors_pass_unchanged() -> None:
    error = HostKeyError("changed", target=WEB1)
    with pytest.raises(HostKeyError) as caught, translated(WEB1):
        raise error
    assert caught.value is error


@pytest.mark.parametrize(("name", "status"), [("KILL", 137), ("TERM", 143), ("SEGV@openssh.com", 139), ("?", 128)])
def test_death_by_a_signal_is_128_plus_its_number(name: str, status: int) -> None:
    assert signal_status(name) == status
