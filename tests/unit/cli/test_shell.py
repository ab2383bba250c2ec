"""``harness shell``: what an end of the client proves, and when and how it reconnects."""

from __future__ import annotations

import os
import pty
import select
import signal
import termios
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pytest

from harness.cli.shell.local_terminal import LocalTerminal
from harness.cli.shell.reconnecting import ClientEnd, client_end, may_retry, pause_before
from harness.errors import (
    AuthenticationError,
    ConfigError,
    ConnectError,
    ConnectionLost,
    HarnessError,
    HostKeyError,
    PaneGone,
    TargetGone,
    TargetNotFound,
    UnsupportedOperation,
)
from harness.terminal import CLIENT_STATUS


def test_only_the_raised_status_of_a_client_proves_its_end() -> None:
    assert client_end(CLIENT_STATUS) is ClientEnd.WANTED
    proofs = [code for code in range(-64, 256) if client_end(code) is ClientEnd.WANTED]
    assert proofs == [CLIENT_STATUS]


@pytest.mark.parametrize("code", [0, 1, 125, 126, 127, 255, -signal.SIGKILL, CLIENT_STATUS + 128 + signal.SIGKILL])
def test_the_status_of_ssh_or_a_container_engine_proves_nothing(code: int) -> None:
    assert client_end(code) is ClientEnd.UNKNOWN


@pytest.mark.parametrize("status", [1, 126, 127])
def test_an_error_of_tmux_is_a_failure(status: int) -> None:
    assert client_end(CLIENT_STATUS + status) is ClientEnd.FAILED


@pytest.mark.parametrize(
    ("error", "retries"),
    [
        (ConnectError("refused", target="ssh://web1"), True),
        (ConnectionLost("lost", target="ssh://web1"), True),
        (TargetNotFound("name", target="ssh://web1"), True),
        (TargetNotFound("no container", target="ssh://web1+docker://app"), False),
        (TargetNotFound("no container", target=""), False),
        (AuthenticationError("refused", target="ssh://web1"), False),
        (HostKeyError("changed", target="ssh://web1"), False),
        (TargetGone("removed", target="docker://app"), False),
        (PaneGone("ended", target="ssh://web1"), False),
        (UnsupportedOperation("no tmux", target="ssh://web1"), False),
        (ConfigError("wrong"), False),
    ],
)
def test_it_tries_again_only_where_that_may_help(error: HarnessError, retries: bool) -> None:
    assert may_retry(error) is retries


def test_the_first_attempt_comes_at_once_and_pauses_are_bounded() -> None:
    pauses = [pause_before(attempt) for attempt in range(50)]
    assert pauses[0] == 0
    assert pauses == sorted(pauses)
    assert max(pauses) == 15


@dataclass
class Pty:
    """A terminal: the end of its operator, and the end of programs."""

    operator: int
    program: int

    def opened(self) -> LocalTerminal:
        return LocalTerminal("web1", self.program, self.program)

    def type(self, text: str) -> None:
        os.write(self.operator, text.encode())
        assert self.has_input()

    def has_input(self) -> bool:
        return bool(select.select([self.program], [], [], 0.1)[0])

    @property
    def modes(self) -> list[Any]:
        return termios.tcgetattr(self.program)

    def output(self) -> str:
        data = b""
        while select.select([self.operator], [], [], 0.1)[0]:
            data += os.read(self.operator, 65536)
        return data.decode()


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> Iterator[Pty]:
    found = Pty(*pty.openpty())
    monkeypatch.setenv("TERM", "xterm")
    termios.tcsetwinsize(found.program, (24, 40))
    yield found
    for descriptor in (found.operator, found.program):
        with suppress(OSError):
            os.close(descriptor)


def test_keys_are_dropped_between_clients_and_modes_are_restored(screen: Pty) -> None:
    before, terminal = screen.modes, screen.opened()
    with terminal.open():
        terminal.take_over()
        assert not screen.modes[3] & termios.ECHO
        assert screen.modes[3] & termios.ISIG
        screen.type("rm -rf x\n")
        terminal.give_back()
        assert not screen.has_input()
        assert screen.modes == before
        screen.type("ls\n")
        terminal.take_over()
        screen.type("rm -rf y\n")
    assert not screen.has_input()
    assert screen.modes == before


def test_keys_typed_after_a_wanted_end_are_for_the_shell(screen: Pty) -> None:
    with screen.opened().open():
        screen.type("ls\n")
    assert screen.has_input()


def test_the_line_fits_the_terminal_and_escapes_what_a_server_says(screen: Pty) -> None:
    terminal = screen.opened()
    with terminal.open():
        terminal.show(f"lost; \x1b]0;owned\x07{'x' * 100}")
    line = screen.output().removeprefix("\r\x1b[K")
    assert line.isprintable()
    assert len(line) == 39


def test_without_cursor_movement_there_are_lines_and_no_countdown(screen: Pty, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    terminal = screen.opened()
    with terminal.open():
        terminal.take_over()
        terminal.show("trying again in 2 s")
        terminal.show("trying again in 1 s", is_update=True)
        terminal.show("reconnecting")
    shown = screen.output()
    assert "\x1b" not in shown
    assert shown.split() == ["web1:", "trying", "again", "in", "2", "s", "web1:", "reconnecting"]


def test_a_terminal_that_was_closed_is_no_error(screen: Pty) -> None:
    terminal = screen.opened()
    with terminal.open():
        os.close(screen.operator)
        terminal.take_over()
        terminal.show("lost")
        terminal.give_back()
