"""What ``harness forward`` prints while it runs: the forwards, and one line with their state."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import click

from ....target import Target, mask_password
from ...output import print_json, readable

if TYPE_CHECKING:
    from ....forwards.forwarder import ForwardStatus
    from ....forwards.specification import ForwardSpec

__all__ = ["Display", "status_document", "status_line"]


class Display:
    """The output of forwards in the foreground: on a terminal a line that changes, else a line for each change."""

    def __init__(self, as_json: bool) -> None:
        self._as_json = as_json
        self._is_terminal = not as_json and sys.stdout.isatty()
        self._name = ""
        self._target: Target | None = None
        self._status: Callable[[], ForwardStatus] | None = None
        self._printed = ""
        self._specs: tuple[ForwardSpec, ...] = ()

    @property
    def has_started(self) -> bool:
        """Whether all forwards have worked."""
        return self._status is not None

    def questions(self) -> AbstractContextManager[None]:
        """Let logins inside ask the operator as usual."""
        return nullcontext()

    def start(self, name: str, target: Target, status: Callable[[], ForwardStatus]) -> None:
        """Print the forwards, which work now."""
        self._name, self._target, self._status = name, target, status
        self.update()

    def update(self) -> None:
        """Print the state, if it has changed."""
        if self._status is None or self._target is None:
            return
        status = self._status()
        if self._as_json:
            document = status_document(self._name, self._target, status)
            stable = {key: value for key, value in document.items() if key not in ("connections", "note")}
            if str(stable) != self._printed:
                self._printed = str(stable)
                print_json(document)
            return
        if status.specs != self._specs:
            self.end()
            for spec in status.specs:
                click.echo(readable(str(spec)))
            self._specs = status.specs
        line = status_line(self._name, self._target, status, with_connections=self._is_terminal)
        if line != self._printed:
            self._printed = line
            self._print(line)

    def _print(self, line: str) -> None:
        if self._is_terminal:
            width = shutil.get_terminal_size().columns - 1
            click.echo(f"\r\x1b[K{line[:width]}", nl=False)
            sys.stdout.flush()
        else:
            click.echo(line)

    def end(self) -> None:
        """Leave the line."""
        if self._is_terminal and self._printed:
            click.echo()


def status_line(name: str, target: Target, status: ForwardStatus, *, with_connections: bool) -> str:
    """Return the state in one line."""
    state = "connected to" if status.connected else f"reconnecting since {_clock(status.since)} to"
    parts = [f"{name}: {state} {mask_password(str(target))}"]
    if with_connections:
        parts.append(f"{status.connections} open")
    if status.note:
        parts.append(status.note)
    return readable("; ".join(parts))


def _clock(seconds: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(seconds))


def status_document(name: str, target: Target, status: ForwardStatus) -> dict[str, Any]:
    """Return the state as a JSON object."""
    from ....live.sessions.forward_session import forwards_document

    return {
        "name": name,
        "target": mask_password(str(target)),
        "state": "connected" if status.connected else "reconnecting",
        "since": status.since,
        "forwards": forwards_document(status),
        "connections": status.connections,
        "note": status.note,
    }
