"""A ``sudo`` that waits for a password in a pane: recognition by the target's processes, and typing the password.

No text decides, as any program can print sudo's prompt. The kernel's account of the processes does: the pane's
foreground process group contains exactly one program named ``sudo`` that runs as root for the login's user, which only
a setuid root file can; it sleeps, has no child, and so runs no command yet; the terminal does not echo; no other
process of this user reads the terminal.

The tmux server on the target repeats this check directly before it pastes the password, in one step. The password goes
from this process's channel to the standard input of a tmux client, as tmux may keep the text of its commands in a log.
"""

from __future__ import annotations

import re
import secrets
import shlex
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

import anyio

from harness.errors import UnsupportedOperation

from ...posix.persistent_shell import PersistentShell
from ..channel.command_channel import CommandChannel
from .keyboard import as_one, unlock
from .pane_state import Pane

__all__ = ["SudoPrompt", "find_sudo_prompt", "parse_sudo_prompt", "reads_stdin", "sudo_user", "type_password"]

TYPE_TIMEOUT = 20.0
MAX_ARGUMENTS_CHARS = 2000
"""Maximum characters of the arguments that an operator is asked to review."""
_PROCESS = re.compile(r"[0-9]{1,10}:[0-9]{1,20}")
_TYPED, _NOT_TYPED = "typed", "changed"

# $1 terminal, $2 the pane's first process. With $3, the id and start time of a process: succeeds if that one waits.
# Fields of /proc/PID/stat after the name: 1 state, 2 parent, 3 group, 4 session, 5 terminal, 6 foreground, 20 start.
# The name of a program may contain a line feed. Another sudo, by whatever name, that waits in this session until this
# one has its ticket would share it; it runs a command already if that belongs to another user.
# What takes long comes first, and what changes with an exec or a fork is read again at the end. Of a process of root, a
# user can read neither its program nor the system call in which it waits.
_SCRIPT = r"""
hx_setuid() {
real= rights=
while read -r key first second rest; do
  [ "$key" != Uid: ] || { real=$first rights=$second; break; }
done <"/proc/$1/status"
[ "$rights" = 0 ] && [ "$real" != 0 ]
}
hx_children() {
printf '%s\n' "$stats" | sed -n "s/^\([0-9]*\) (.*) [^XZ] $1 .*/\1/p"
}
hx_sudo() {
PATH=/usr/bin:/bin:/usr/sbin:/sbin:$PATH
tty=$1 shell=$2 only=${3-} why=
uid=$(id -u)
[ "$uid" != 0 ] && read -r line <"/proc/$shell/stat" || return 1
set -- ${line##*) }
session=$4 device=$5 group=$6
stats=$(cat /proc/[0-9]*/stat)
found= count=0
for pid in $(grep -l '^Uid:[[:blank:]]*[1-9][0-9]*[[:blank:]]*0[[:blank:]]' /proc/[0-9]*/status | sed 's/[^0-9]//g'); do
  line=$(cat "/proc/$pid/stat") && hx_setuid "$pid" || continue
  owner=$real runs=
  set -- ${line##*) }
  [ "$4 $5 $6" = "$session $device $group" ] || continue
  for child in $(hx_children "$pid"); do
    for child in "$child" $(hx_children "$child"); do  # with use_pty, a sudo is between
      hx_setuid "$child"
      [ "${real:-$uid}" = "$uid" ] || runs=1
    done
  done
  [ -z "$runs" ] || continue
  count=$((count + 1))
  case $3:$line in "$group:$pid (sudo) "*) ;; *) continue ;; esac
  [ "$owner" = "$uid" ] || why='another user started it'
  found=$pid
done
[ "$count" -lt 2 ] || why='another program with the rights of root waits there'
[ -n "$found" ] || return 1
for pid in $(ls -l /proc/[0-9]*/fd | sed -n "
  \|^/proc/|{s/[^0-9]//g;h;}
  \| -> $tty\$|{g;p;}
  \| -> /dev/tty\$|{g;s/\$/@/p;}" | sort -u); do
  [ "${pid%@}" != "$found" ] && line=$(cat "/proc/${pid%@}/stat") || continue
  set -- ${line##*) }
  case $pid in *@) [ "$5" = "$device" ] || continue ;; esac
  where=
  read -r where <"/proc/${pid%@}/wchan"
  case $where in *tty_read* | wait_woken) why="process ${pid%@} reads the terminal too" ;; esac
done
modes=" $(stty -a <"$tty" | tr '\n;' '  ') "
case $modes in *' -echo '*) ;; *) return 1 ;; esac
case $modes in *' -icanon '*) why='it reads single keys (pwfeedback)' ;; esac
hx_setuid "$found" || return 1
child=
read -r child <"/proc/$found/task/$found/children"
[ -z "$child" ] && read -r line <"/proc/$found/stat" || return 1
case $line in "$found (sudo) S "*) ;; *) return 1 ;; esac
set -- ${line##*) }
start=${20}
[ "$3 $4 $5 $6" = "$group $session $device $group" ] || return 1
if [ -n "$only" ]; then
  [ "$only" = "$found:$start" ] && [ -z "$why" ]
  return
fi
printf 'process=%s:%s\nwhy=%s\naccount=%s\n' "$found" "$start" "$why" "$(id -un)"
case $modes in *' kill = ^U '*) echo clear=1 ;; esac
for path in /usr/bin/sudo /usr/local/bin/sudo /bin/sudo /run/wrappers/bin/sudo; do
  [ -u "$path" ] && set -- $(ls -lnL "$path") && [ "$3" = 0 ] && echo "program=$path" && break
done
echo argv=
head -c 5000 "/proc/$found/cmdline"
} 2>/dev/null
"""
# $1 pane, $2 check, $3 and $4 tmux commands if it succeeds or fails, $5 process, $6 start time, $7 sudo, $8 buffer.
# It continues if harness is killed. The sudo that waits has opened the file of tickets: when that is removed before, no
# other sudo finds the ticket that it leaves, whatever starts next. One that waits for the same file fails the check.
# Versions that open the file again leave a ticket when they have started their command or ended.
_TYPE = r"""
trap '' PIPE
"$7" -K </dev/null
answer=$(TMUX if-shell -t "$1" "$2" "$3" "$4")
echo "$answer"
[ "$answer" = typed ] || { TMUX delete-buffer -b "$8"; exit; } 2>/dev/null
pid=$5 start=$6 sudo=$7 tries=0
while [ $tries -lt 100 ] && read -r line <"/proc/$pid/stat"; do
  child=
  read -r child <"/proc/$pid/task/$pid/children"
  set -- ${line##*) }
  case ${20}:$child:$line in "$start::$pid (sudo) "*) ;; *) break ;; esac
  tries=$((tries + 1))
  sleep 0.1 || sleep 1
done 2>/dev/null
exec "$sudo" -K
"""
_WITH_VALUE = frozenset("CDghpRrTtUu")
"""The short options of ``sudo`` that take a value."""
_LONG_WITH_VALUE = (
    *("chdir", "chroot", "close-from", "command-timeout", "group", "host"),
    *("other-user", "prompt", "role", "type", "user"),
)
_VARIABLE = re.compile(r"[A-Za-z_]\w*=")


@dataclass(frozen=True, slots=True)
class SudoPrompt:
    """A ``sudo`` that waits for a password in the foreground of a pane."""

    process: str
    """Its process id and start time, ``PID:START``."""
    account: str
    """The user who started it."""
    argv: tuple[str, ...]
    program: str = ""
    """The path of the target's ``sudo``, if it is a setuid file of root in a system directory."""
    obstacle: str = ""
    """Why nothing may be typed."""
    clears: bool = False
    """True if C-u erases what is typed so far."""


def parse_sudo_prompt(text: str) -> SudoPrompt | None:
    """Parse the output of the script; None if no ``sudo`` waits. Pure."""
    head, found, words = text.partition("\nargv=\n")
    fields = dict(line.partition("=")[::2] for line in head.splitlines())
    if not found or not _PROCESS.fullmatch(fields.get("process", "")):
        return None
    argv = tuple(words[:MAX_ARGUMENTS_CHARS].removesuffix("\0").split("\0"))
    unfit = "its arguments are too long to be shown" if len(words) > MAX_ARGUMENTS_CHARS else ""
    unfit = unfit or ("it reads the password from its standard input" if reads_stdin(argv) else "")
    return SudoPrompt(
        process=fields["process"],
        account=fields.get("account", ""),
        argv=argv,
        program=fields.get("program", ""),
        obstacle="".join(filter(str.isprintable, fields.get("why", ""))) or unfit,
        clears="clear" in fields,
    )


def sudo_user(argv: tuple[str, ...]) -> str:
    """Return the user as whom a ``sudo`` with these arguments runs its command. Pure."""
    return next((value for option, value in reversed([*_options(argv)]) if option in ("u", "user")), "root")


def reads_stdin(argv: tuple[str, ...]) -> bool:
    """Return whether a ``sudo`` with these arguments reads the password from its standard input. Pure."""
    return any(option == "S" or (len(option) > 1 and "stdin".startswith(option)) for option, _ in _options(argv))


def _options(argv: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Yield the options of ``sudo`` without hyphens, each with its value, which is empty for one that takes none."""
    words = iter(argv[1:])
    for word in words:
        if word == "--" or not (word.startswith("-") or _VARIABLE.match(word)):
            return
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            option = next((known for known in _LONG_WITH_VALUE if known.startswith(name)), "")  # may be abbreviated
            yield option or name, value if equals or not option else next(words, "")
        elif word.startswith("-"):
            for number, letter in enumerate(word[1:], 2):
                if letter in _WITH_VALUE:
                    yield letter, word[number:] or next(words, "")
                    break
                yield letter, ""


async def find_sudo_prompt(shell: PersistentShell, tty: str, pid: int) -> SudoPrompt | None:
    """Return the ``sudo`` that waits for a password in the foreground of a pane; None if there is none.

    Args:
        shell: the persistent shell where the pane's shell runs.
        tty: the pane's terminal.
        pid: its first process.
    """
    reply = await shell.call(f"{_SCRIPT}\nhx_sudo {shlex.quote(tty)} {pid}\n", timeout=10)
    return parse_sudo_prompt(reply.text)


async def type_password(
    link: CommandChannel, pane: Pane, tty: str, pid: int, prompt: SudoPrompt, password: str
) -> bool:
    """Type a password if the same ``sudo`` still waits for it; return whether it was typed.

    The tickets of the account are removed, so that the password serves this ``sudo`` only.

    Raises:
        UnsupportedOperation: it contains a character that a terminal does not pass on.
        ConnectError, ConnectionLost: there is no connection.
    """
    if any(ord(one) < 32 or ord(one) == 127 for one in password):
        raise UnsupportedOperation("the password contains a control character", target=link.target)
    buffer = f"hx{secrets.token_hex(8)}"
    typed = f"{chr(21) if prompt.clears else ''}{password}\n".encode("utf-8", "surrogateescape")
    check = f"{_SCRIPT}\nhx_sudo {shlex.quote(tty)} {pid} {prompt.process}\n".replace("#", "##")
    words = (pane.pane_id, check, await _paste(link, pane, buffer), as_one(("display-message", "-p", _NOT_TYPED)))
    argv = ["sh", "-c", _TYPE.replace("TMUX", link.setup.tmux), "sh", *words]
    argv += [*prompt.process.split(":"), prompt.program, buffer]
    answer = b""
    with anyio.CancelScope(shield=True), anyio.move_on_after(TYPE_TIMEOUT):  # the ticket must be removed
        async with await link.transport.open_process(argv) as client:
            with suppress(BrokenPipeError):  # it has ended, and reports nothing
                await client.send(typed)
            await client.send_eof()
            while data := await client.receive():
                answer += data
    return answer.decode("utf-8", "replace").strip() == _TYPED


async def _paste(link: CommandChannel, pane: Pane, buffer: str) -> str:
    """Return the tmux commands that type what the client reads from its standard input, without echo in a command."""
    locked = await link.ask(("display-message", "-p", "-t", pane.pane_id, "#{pane_input_off}"))
    lock = [("select-pane", "-t", pane.pane_id, "-d")] if locked[-1].text == "1" else []
    return as_one(
        ("load-buffer", "-b", buffer, "-"),
        unlock(pane.pane_id),
        ("paste-buffer", "-d", *link.setup.version.paste_flags, "-b", buffer, "-t", pane.pane_id),
        *lock,
        ("display-message", "-p", _TYPED),
    )
