"""The foreground program of a pane, and whether it waits for the keyboard.

It is read from ``/proc`` on Linux, from ``ps`` elsewhere, by one script in the persistent shell.
"""

from __future__ import annotations

import shlex
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from harness.errors import PaneBusy, PaneGone

from ...posix.persistent_shell import PersistentShell
from ..channel.command_channel import CommandChannel
from ..channel.control_protocol import Block
from .pane_state import Pane
from .respawn_check import RESPAWNED, first_process, is_ours

__all__ = [
    "Foreground",
    "PaneInspector",
    "inspect",
    "terminal_of",
]


SHELLS = frozenset({"bash", "zsh", "sh", "dash", "ash", "fish", "ksh", "mksh", "busybox"})
PLAIN_SHELLS = frozenset({"dash", "sh"})
NESTED_SHELL_PROGRAMS = frozenset(
    {"su", "sudo", "ssh", "docker", "podman", "kubectl", "machinectl", "doas", "runuser", "nsenter"}
)
"""Programs that start a shell and wait for it."""
SECRET_PROMPT_PROGRAMS = NESTED_SHELL_PROGRAMS | {
    "passwd",
    "login",
    "scp",
    "sftp",
    "ssh-add",
    "ssh-keygen",
    "cryptsetup",
    "chsh",
}
"""Programs that ask for secrets."""

_INSPECT = r"""
hx_front() {
tty=$1 shell=$2 group=
if read -r line <"/proc/$shell/stat"; then
  set -- ${line##*) }
  group=$6
else
  group=$(ps -o tpgid= -p "$shell" | tr -d ' ')
fi 2>/dev/null
printf 'group=%s\n' "$group"
printf 'modes='
modes=$(stty -a <"$tty" 2>/dev/null | tr '\n;' '  ')
for word in $modes; do
  case $word in -icanon | -echo | -icrnl) printf '%s ' "$word" ;; esac
done
case $modes in *'lnext = <undef>'*) echo literal ;; *) echo ;; esac
if [ -r "/proc/$group/environ" ]; then
  case $(tr '\0' ' ' <"/proc/$group/environ") in *" HX_DIR="*) echo begun=1 ;; ?*) echo begun=0 ;; esac
elif [ -r /proc/self/environ ] && [ -n "$group" ]; then
  echo begun=0
fi 2>/dev/null
{ read -r line <"/proc/$group/stat" && set -- ${line##*) } && printf 'stack=%s\n' "${26}"; } 2>/dev/null
shown= last=
for pid in $(cat /proc/[0-9]*/stat 2>/dev/null | sed -n "s/^\([0-9]*\) (.*) [^Z] [0-9]* $group .*/\1/p"); do
  last=$pid
  [ "$pid" != "$group" ] && [ -n "$shown" ] || shown=$pid
  read -r number where rest <"/proc/$pid/syscall" || continue
  case $number in 0 | 63 | 3) ;; *) continue ;; esac
  case $(readlink "/proc/$pid/fd/$((where))") in "$tty" | /dev/tty) echo reading=1; shown=$pid; break ;; esac
done 2>/dev/null
shown=${shown:-$group}
[ -n "$shown" ] || return 0
{ read -r name <"/proc/$shown/comm" || name=$(ps -o comm= -p "$shown"); } 2>/dev/null
printf 'name=%s\n' "${name##*/}"
printf 'last='; [ "$last" = "$shown" ] || tr '\0\n' '  ' <"/proc/$last/cmdline" 2>/dev/null
printf '\ncommand='; { tr '\0\n' '  ' <"/proc/$shown/cmdline" || ps -o args= -p "$shown" | tr '\n' ' '; } 2>/dev/null
return 0
}
"""
_UNKNOWN = 127


@dataclass(frozen=True, slots=True)
class Foreground:
    """The foreground of a pane; ``reading``: it waits in a read of the terminal; ``raw``: it reads single keys."""

    name: str = ""
    command: str = ""
    group: int = 0
    reading: bool = False
    raw: bool = False
    echo: bool = True
    editing: bool = False
    """True if the terminal is in the mode of a shell's line editor, unlike a program that reads one key."""
    begun: bool | None = None
    """True if it is the pane's original program, without an ``exec`` since; None if unknown."""
    stack: str = ""
    """The start address of its stack, which changes with ``exec``; 0 if unknown."""
    last: str = ""
    """The command line of the newest other process in the foreground."""

    @property
    def is_shell(self) -> bool:
        """True if it is a known shell."""
        return self.name.lstrip("-") in SHELLS

    @property
    def may_be_prompt(self) -> bool:
        """True if it may be a shell's prompt: in raw mode like line editors, or dash, which has none.

        Password prompts use canonical mode without echo, and ``read`` uses canonical mode.
        """
        if self.raw:
            return self.is_shell or self.name in NESTED_SHELL_PROGRAMS
        return self.reading and self.echo and self.name in PLAIN_SHELLS

    @property
    def wants_input(self) -> bool:
        """True if it waits for input; for a program of another user, echo off is the only sign."""
        return self.reading or self.raw or (not self.echo and self.name in SECRET_PROMPT_PROGRAMS)

    @property
    def image(self) -> str:
        """The identity of the process's program, which ``exec`` changes."""
        return f"{self.stack} {self.command}"

    def is_own(self, pid: int) -> bool:
        """Return True if it is the pane's shell with that process id, without an ``exec`` since."""
        return self.group == pid and self.begun is not False

    def describe(self) -> str:
        """Return a phrase for notices."""
        command = self.last if self.is_shell and not self.wants_input and self.last else self.command
        what = f"{command.strip()[:80] or self.name or 'a program'}"
        if not self.echo and not self.raw:
            return f"{what} is waiting for hidden input (a password?)"
        if self.wants_input:
            return f"{what} is waiting for input"
        return f"{what} is running"


def parse(text: str) -> Foreground:
    """Parse the output of the inspection. Pure."""
    fields = dict(line.partition("=")[::2] for line in text.splitlines())
    modes = fields.get("modes", "").split()
    group = fields.get("group", "")
    return Foreground(
        name=fields.get("name", ""),
        command=fields.get("command", ""),
        last=fields.get("last", ""),
        stack=fields.get("stack", ""),
        group=int(group) if group.isdecimal() else 0,
        reading=fields.get("reading") == "1",
        raw="-icanon" in modes,
        echo="-echo" not in modes,
        editing={"-icanon", "-echo"} <= set(modes) and not {"-icrnl", "literal"}.isdisjoint(modes),
        begun={"1": True, "0": False}.get(fields.get("begun", "")),
    )


async def terminal_of(pane: Pane, ask: Callable[..., Awaitable[list[Block]]], *, here: bool) -> tuple[str, int]:
    """Return the terminal of a pane's shell and the id of its first process; empty and 0 if unknown.

    Args:
        ask: a function that sends a command to tmux.
        here: True if the panes' shells run on another machine than tmux, which then does not know the process id.
    """
    if not pane.wrapper and not here:  # its own report is far back in its log
        pane.wrapper = (await ask(first_process(pane)))[-1].text
    pid, _, tty = pane.wrapper.partition(":")
    return tty, int(pid or 0)


async def inspect(shell: PersistentShell, tty: str, pid: int) -> Foreground:
    """Inspect the pane with the terminal ``tty`` and the first process ``pid``."""
    look = f"hx_front {shlex.quote(tty)} {pid}"
    reply = await shell.call(look, timeout=10)
    if reply.exit_code == _UNKNOWN:  # the function is not defined in this instance of the persistent shell
        quoted = shlex.quote(look)
        reply = await shell.request(lambda number: f"{_INSPECT}\nhx_call {number} {quoted}\n", timeout=10)
    return parse(reply.text)


@dataclass(frozen=True, slots=True)
class PaneInspector:
    """An inspector of what a pane shows and runs."""

    link: CommandChannel

    async def foreground(self, pane: Pane) -> Foreground:
        """Return the pane's foreground program."""
        terminal = await terminal_of(pane, self.link.ask, here=self.link.setup.here)
        return await inspect(self.link.shells, *terminal)

    def check_open(self, pane: Pane) -> None:
        """Check that the pane still exists, as a request may have waited for a new server with the same ids.

        Raises:
            PaneGone: it was closed.
        """
        if pane.gone:
            raise PaneGone(f"pane {pane.name!r} was closed before the command was typed", target=self.link.target)

    async def screen(self, pane: Pane) -> str:
        """Return the visible part of the pane, without empty lines at its end."""
        blocks = await self.link.ask(("capture-pane", "-p", "-J", "-t", pane.pane_id))
        return blocks[-1].text.rstrip()

    async def busy(self, pane: Pane, holder: str) -> PaneBusy:
        """Return the error about a pane that something holds."""
        if len(pane.shells) == 1:
            asked = await self.link.ask(("display-message", "-p", "-t", pane.pane_id, is_ours(pane.uid)))
            holder = holder if asked[-1].text == "1" else RESPAWNED
        front = await self.foreground(pane)
        return PaneBusy(
            f"pane {pane.name!r} is busy with {holder}: {front.describe()}",
            target=self.link.target,
            hint="answer it with harness keys, wait for it, kill it, or use another pane (--pane NAME)",
        )
