"""Names on the target, for completion: jobs, tmux sessions, panes, and the containers of running engines.

Only this machine, and hosts to which harness is connected already, are asked. Nothing is started there but a shell that
reads: no login, no tmux server, no container engine.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Literal, Protocol, cast

import anyio

from ..discovery import find_backend
from ..errors import HarnessError
from ..settings import CommandLineChoices, Settings, load_settings
from ..target import Target
from ..terminal import CURRENT_TMUX

__all__ = ["Kind", "names_on_target"]

Kind = Literal["jobs", "sessions", "panes", "operator_panes", "containers"]
TIMEOUT = 1.0
MAX_OUTPUT = 1 << 18

# $1: the kind of names, $2: the tmux socket, $3: the tmux session. Without a server, tmux's lists fail and start none.
# An engine's socket may start the engine on the first connection, so its process is looked for. The list of podman is
# only asked for when one of its containers runs: the program has no service of its own.
_SCRIPT = r"""
running() {
  for file in /proc/[0-9]*/comm; do
    { read -r name <"$file"; } 2>/dev/null && [ "$name" = "$1" ] && return 0
  done
  return 1
}
list() {
  case $1 in
    jobs)
      uid=$(id -u)
      for root in "${XDG_STATE_HOME:+$XDG_STATE_HOME/harness}" "$HOME/.local/state/harness" \
        "/tmp/harness-$uid" "/var/tmp/harness-$uid" "/dev/shm/harness-$uid"; do
        [ -d "${root:-/nowhere}/jobs" ] || continue
        ls -t -- "$root/jobs" | sed -n 's/^\([0-9][0-9]*\)\.cmd$/\1/p' | head -n 500
        return
      done ;;
    sessions) tmux -L "$2" list-sessions -F '#{?@harness,#{session_name},}' ;;
    panes) tmux -L "$2" list-panes -s -t "=$3:" -F '#{?#{==:#{@harness_pane_id},#{pane_id}},#{@harness_pane},}' ;;
    operator_panes) [ -z "$TMUX" ] || tmux list-panes -a -F '#{pane_id}' ;;
    containers)
      if running dockerd; then
        for socket in /var/run/docker.sock "${XDG_RUNTIME_DIR:-/nowhere}/docker.sock"; do
          [ ! -S "$socket" ] || docker -H "unix://$socket" ps --format '{{.Names}}'
        done
      fi
      if running conmon; then podman ps --format '{{.Names}}'; fi ;;
  esac
}
list "$@" </dev/null 2>/dev/null
"""


class ConnectedHosts(Protocol):
    """The function of a backend's module that runs a program where harness is connected already."""

    async def run_if_connected(self, target: Target, argv: Sequence[str]) -> bytes:
        """Return the output of a program on a target; empty if harness is not connected to it."""


def names_on_target(kind: Kind, choices: CommandLineChoices) -> list[str]:
    """Return names on the target of a command line; empty if they cannot be had without a login.

    Args:
        kind: What is named.
        choices: The command line so far; for containers, a container in it is ignored.
    """
    try:
        settings = load_settings(choices)
    except HarnessError:
        return []
    target = settings.target
    if kind == "panes" and settings.tmux == CURRENT_TMUX:
        kind = "operator_panes"
    if kind == "containers" and len(target.hops) > 1:
        target = Target(target.hops[:-1])
    if len(target.hops) != 1 or (kind != "containers" and settings.config.tmux_host == "local" != target.last.scheme):
        return []
    argv = ["sh", "-c", _SCRIPT, "sh", kind, settings.config.tmux_socket, _session(settings)]
    output = _run_here(argv) if target.last.scheme == "local" else _run_there(target, argv)
    return list(dict.fromkeys(line for line in output.decode("utf-8", "replace").splitlines() if line))


def _session(settings: Settings) -> str:
    return settings.tmux if isinstance(settings.tmux, str) else settings.config.session


def _run_here(argv: Sequence[str]) -> bytes:
    unblocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # a process that starts cannot be killed yet
    try:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            env=_environment(),
        )
    except BaseException:
        signal.pthread_sigmask(signal.SIG_SETMASK, unblocked)
        raise
    with process:
        try:
            signal.pthread_sigmask(signal.SIG_SETMASK, unblocked)
            return process.communicate(timeout=TIMEOUT)[0][:MAX_OUTPUT]
        except subprocess.TimeoutExpired:
            return b""
        finally:
            if process.returncode is None:  # after a timeout, and after Ctrl-C
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)


def _environment() -> Mapping[str, str]:
    """Return this process's environment without what would lead an engine's program to another machine."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("DOCKER_", "CONTAINER_"))}


def _run_there(target: Target, argv: Sequence[str]) -> bytes:
    module = sys.modules.get(find_backend(target.last.scheme).__module__)
    if not hasattr(module, "run_if_connected"):
        return b""
    hosts = cast(ConnectedHosts, module)

    async def run() -> bytes:
        with anyio.move_on_after(TIMEOUT):
            return await hosts.run_if_connected(target, argv)
        return b""

    with suppress(HarnessError):
        return anyio.run(run)
    return b""
