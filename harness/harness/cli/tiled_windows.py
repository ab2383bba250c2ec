"""Commands side by side in windows of tmux on this machine, each in a pane with a title."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from ..errors import HarnessError

__all__ = ["MAX_PANES", "TiledPane", "check_attached", "client_pane", "open_tiled", "show_tiled"]

MAX_PANES = 16
"""Panes of one window."""
SESSION = "harness"
_TITLE_OPTION = "@harness_title"
"""A tmux option of a pane: programs in a pane can change its own title."""
_NO_SPACE = ("no space", "too small")
"""What tmux says when a window is too small for a further pane."""
_ATTACHED = """\
unset TMUX TMUX_PANE  # with them tmux refuses to nest
name=$1
shift
"$@" && exit
printf '\\n%s: attaching ended with exit code %s; Enter closes this pane\\n' "$name" "$?"
read -r _"""
_PLACEHOLDER = ("sh", "-c", "exec cat")
"""Runs in a pane until all have their sizes: a program that starts in a tiny pane loses its first lines."""


@dataclass(frozen=True, slots=True)
class TiledPane:
    """A command with the title of its pane."""

    title: str
    argv: Sequence[str]


def client_pane(name: str, argv: Sequence[str]) -> TiledPane:
    """Return a pane with a client of another tmux server, which shows how it ended.

    Args:
        name: The title.
        argv: The command of the client.
    """
    return TiledPane(name, ["sh", "-c", _ATTACHED, "sh", name, *argv])


def show_tiled(panes: Sequence[TiledPane], name: str) -> None:
    """Run commands in tiled panes as :func:`open_tiled`, and show them in this terminal until the operator leaves.

    Raises:
        HarnessError: tmux is missing on this machine, refuses a command, or cannot use this terminal.
    """
    with open_tiled(panes, name) as attach:
        if attach:
            check_attached(subprocess.run(attach, check=False).returncode)


def check_attached(exit_code: int) -> None:
    """Check the exit code of the command of :func:`open_tiled`.

    Raises:
        HarnessError: tmux could not use the terminal.
    """
    if exit_code:
        raise HarnessError("tmux on this machine could not attach to this terminal")


@contextmanager
def open_tiled(panes: Sequence[TiledPane], name: str) -> Iterator[Sequence[str]]:
    """Run commands in tiled panes, in windows of at most :data:`MAX_PANES`, and further windows if they are too small.

    Inside tmux, the windows are added to the current session, the first one is selected, and the context has no
    command. Elsewhere a tmux server is started for them, which ends with the context or when the operator leaves; the
    context has the command that attaches a terminal to it.

    Args:
        panes: The commands, at least one.
        name: The name of the windows.

    Raises:
        HarnessError: tmux is missing on this machine, or refuses a command.
    """
    if os.environ.get("TMUX"):
        tmux = _LocalTmux()
        windows = _open_windows(tmux, panes, name, ("new-window", "-d"))
        tmux.run("select-window", "-t", windows[0])
        yield ()
        return
    tmux = _LocalTmux(("-L", f"harness-attach-{os.getpid()}"))
    size = shutil.get_terminal_size()
    first = ("new-session", "-d", "-s", SESSION, "-x", str(size.columns), "-y", str(size.lines))
    with tmux.ended():
        windows = _open_windows(tmux, panes, name, ("new-window", "-d", "-t", f"{SESSION}:"), first)
        tmux.run("set-option", "-s", "exit-empty", "on", ";", "select-window", "-t", windows[0])
        # set when attached, as a session without a client would end at once
        yield (*tmux.argv, "attach-session", "-t", f"={SESSION}", ";", "set-option", "destroy-unattached", "on")


@dataclass(frozen=True, slots=True)
class _LocalTmux:
    """tmux on this machine: the server that this process runs in, or one of its own."""

    server: tuple[str, ...] = ()

    @property
    def argv(self) -> list[str]:
        """The words before each command."""
        return ["tmux", "-u", *self.server]

    def run(self, *words: str) -> str:
        """Run a command and return its output.

        Raises:
            HarnessError: tmux is missing or refuses it.
        """
        argv = [*self.argv, *words]
        try:
            done = subprocess.run(argv, check=False, stdin=subprocess.DEVNULL, capture_output=True)
        except FileNotFoundError as error:
            hint = "install it; harness attach --print prints the commands for other terminals"
            raise HarnessError("attaching to many hosts needs tmux on this machine", hint=hint) from error
        if done.returncode:
            text = done.stderr.decode("utf-8", "replace").strip() or f"exit code {done.returncode}"
            raise HarnessError(f"tmux on this machine: {text}")
        return done.stdout.decode("utf-8", "replace").strip()

    @contextmanager
    def ended(self) -> Iterator[None]:
        """End the server at the end."""
        try:
            yield
        finally:
            with suppress(FileNotFoundError):
                subprocess.run([*self.argv, "kill-server"], check=False, stdin=subprocess.DEVNULL, capture_output=True)


def _open_windows(
    tmux: _LocalTmux,
    panes: Sequence[TiledPane],
    name: str,
    further: Sequence[str],
    first: Sequence[str] | None = None,
) -> list[str]:
    """Open as many windows as the panes need, start the commands, and return the windows' IDs."""
    windows: list[str] = []
    places: list[str] = []
    count = 0
    for pane in panes:
        place = _add_pane(tmux, windows[-1], pane) if windows and count < MAX_PANES else None
        if place is None:
            window, place = _open_window(tmux, pane, name, further if windows or first is None else first)
            windows.append(window)
            count = 0
        places.append(place)
        count += 1
    for place, pane in zip(places, panes, strict=True):
        tmux.run("respawn-pane", "-k", "-t", place, *map(_escape_end, pane.argv))
    return windows


def _open_window(tmux: _LocalTmux, pane: TiledPane, name: str, create: Sequence[str]) -> tuple[str, str]:
    window, place = tmux.run(*create, "-n", name, "-P", "-F", "#{window_id} #{pane_id}", *_PLACEHOLDER).split()
    options = (("pane-border-status", "top"), ("pane-border-format", f" #{{{_TITLE_OPTION}}} "))
    for option, value in options:
        tmux.run("set-window-option", "-t", window, option, value)
    tmux.run("set-option", "-p", "-t", place, _TITLE_OPTION, _escape_end(pane.title))
    return window, place


def _add_pane(tmux: _LocalTmux, window: str, pane: TiledPane) -> str | None:
    """Add a pane to a window and return its ID; None if the window has no space for it."""
    arranged = ("select-layout", "-t", window, "tiled")
    titled = ("set-option", "-p", "-t", window, _TITLE_OPTION, _escape_end(pane.title))
    split = ("split-window", "-t", window, "-P", "-F", "#{pane_id}", *_PLACEHOLDER)
    try:
        return tmux.run(*split, ";", *titled, ";", *arranged)
    except HarnessError as error:
        if any(text in error.message for text in _NO_SPACE):
            return None
        raise


def _escape_end(word: str) -> str:
    """Return a word that tmux does not read as the end of a command."""
    return f"{word[:-1]}\\;" if word.endswith(";") else word
