"""The process on the target that passes a password from harness to ``sudo``, in no argv, file, environment or pane.

``sudo -A`` runs a program that prints the password. That program is written to a private directory (0700) below the
state directory, and reads the password from a FIFO there. This process owns the directory; its standard input is the
only way of the password to the target. The program asks for it first, so harness sends one only if ``sudo`` wants it.

The directory exists while the process runs, which is until its standard input ends, as it does when harness is killed.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

import anyio

from harness.errors import ConnectionLost, HarnessError, UnsupportedOperation
from harness.system.background_tasks import open_background_tasks
from harness.transport import Process, Transport

__all__ = ["ONLY_PASSWORD", "PROMPT", "AskpassEvent", "AskpassProcess", "open_askpass", "sudo_argv"]

log = logging.getLogger(__name__)

START_TIMEOUT = 20.0
CLOSE_TIMEOUT = 2.0
LIFETIME = 1800
"""Seconds after which the process ends by itself, when the connection was cut and the target has not noticed."""
MAX_LINE_BYTES = 16 << 10
MAX_MESSAGE_BYTES = 4 << 10
PROMPT = "password of "
"""The prompt that ``sudo`` is given, before the account; a prompt of PAM that is not about a password differs."""

RUNS_COMMANDS = ("--", "sh", "-c", ":")
"""Check that commands can run as the user."""
ONLY_PASSWORD = ("-v",)
"""Check the password only, whatever ``sudo`` allows; with ``-k`` this leaves no ticket."""

# The program that sudo runs. FIFOs that a process opens for reading and writing never block; then the writing end is
# closed, so that the end of the owner is the end of the input, and no sudo waits for a password that cannot arrive.
# Before it comes a line with the PATH of the owner: sudo passes on the environment of a pane, where programs may have
# changed PATH and exported functions.
_PROGRAM = r"""
export PATH
set +x
unset -f echo head printf tr
exec 2>/dev/null
d=${0%/*}
exec 3<>"$d/answer" 4<"$d/answer" 5<>"$d/asked" || exit 1
exec 3>&-
echo "$PPID" >"$d/sudo"
printf 'asked %s' "$1" | tr '\n\r' '  ' | head -c 1000 >&5
echo >&5
exec head -n 1 <&4
"""

# $1 state directory, $2 sh, $3 sudo, $4 user, $5 prompt, $6 lifetime, then the arguments of the check. What is older
# than the lifetime was left by a process that was killed; other hosts may share the directory. The password is only
# copied by cat: no variable and no builtin of a traced shell holds it. If the sudo of the check still asks at the end,
# it is killed before it sees that there is no answer, which PAM may count as a wrong password.
_SCRIPT = (
    r"""
set +x
umask 077
root=$1 sh=$2 sudo=$3 user=$4 prompt=$5 lifetime=$6
shift 6
find "$root/run" -name 'sudo.*' -prune -mmin +31 -exec rm -rf {} + 2>/dev/null
d=$root/run/sudo.$(uname -n).$$
quit() {
  [ -e "$d/checked" ] || kill -KILL "$(cat "$d/sudo")"
  rm -rf "$d"
} 2>/dev/null
trap quit EXIT
trap 'exit 1' HUP INT TERM PIPE
rm -rf "$d"
mkdir "$d" && mkfifo "$d/asked" "$d/answer" || exit 1
{ echo "#!$sh"; printf '%s\n' "$PATH" | sed "s/'/'\\\\''/g; 1s/^/PATH='/; \$s/\$/'/"; cat <<'END_OF_PROGRAM'"""
    + _PROGRAM
    + r"""END_OF_PROGRAM
} >"$d/askpass" && chmod 700 "$d/askpass" || exit 1
[ -x "$d/askpass" ] || { echo "programs may not run in $root (noexec)" >&2; exit 1; }
exec 7<>"$d/asked" 8<>"$d/answer"
cat <"$d/asked" 7>&- 8>&- &
reader=$!
echo "ready $d/askpass"
SUDO_ASKPASS=$d/askpass
export SUDO_ASKPASS
(
  said=$("$sudo" -A -k -p "$prompt%p" -u "$user" "$@" 2>&1 >/dev/null)
  status=$?
  : >"$d/checked"
  echo "checked $status $(printf '%s\n' "$said" | grep -v 'error initializing audit plugin' | tail -n 1 | head -c 1000)"
) </dev/null 7>&- 8>&- &
check=$!
if timeout 5 true 2>/dev/null; then timeout "$lifetime" cat >&8; else cat >&8; fi
kill "$reader" "$check" 2>/dev/null
exit 0
"""
)


def sudo_argv(sudo: str, user: str) -> tuple[str, ...]:
    """Return the arguments before a command that runs by ``sudo`` with a password.

    ``-k`` ignores tickets and leaves none, so that nothing else on the target can use the operator's password.
    """
    return (sudo, "-A", "-k", "-p", f"{PROMPT}%p", "-u", user, "--")


@dataclass(frozen=True, slots=True)
class AskpassEvent:
    """What the process reports: a prompt of ``sudo``, or the exit status of the check and the last line it printed."""

    prompt: str = ""
    checked: int | None = None
    reason: str = ""


class AskpassProcess:
    """The process, from :func:`open_askpass`; it first checks whether commands can run as the user."""

    def __init__(self, process: Process, transport: Transport) -> None:
        self._process = process
        self._target = str(transport.target)
        self._buffer = b""
        self._said = b""
        self._closed = False
        self.path = ""
        """The program for ``SUDO_ASKPASS``."""

    async def started(self) -> None:
        """Wait until the program exists.

        Raises:
            UnsupportedOperation: It cannot be created.
            ConnectionLost: The connection was lost.
        """
        with anyio.move_on_after(START_TIMEOUT):
            word, path = await self._line()
            if word == "ready":
                self.path = path
                return
        raise self._unusable()

    async def next_event(self) -> AskpassEvent:
        """Wait for the next prompt, or the result of the check.

        Raises:
            UnsupportedOperation: The process has ended.
            ConnectionLost: The connection was lost.
        """
        while True:
            word, rest = await self._line()
            if word == "asked":
                return AskpassEvent(prompt=rest)
            status, _, reason = rest.partition(" ")
            if word == "checked" and status.isdecimal():
                return AskpassEvent(checked=int(status), reason=reason)

    async def answer(self, password: str) -> None:
        """Send the answer to the last prompt."""
        with suppress(BrokenPipeError):  # the next event reports the end
            await self._process.send(password.encode("utf-8", "surrogateescape") + b"\n")

    async def collect_messages(self) -> None:
        """Read what the process prints when it cannot work."""
        while data := await self._process.receive_stderr():
            self._said = (self._said + data)[-MAX_MESSAGE_BYTES:]

    async def close(self) -> None:
        """Remove the program and end the process; calling it again does nothing."""
        if self._closed:
            return
        self._closed = True
        with anyio.CancelScope(shield=True):
            with anyio.move_on_after(CLOSE_TIMEOUT), suppress(HarnessError):
                await self._process.send_eof()
                await self._process.wait()
            await self._process.aclose()

    async def _line(self) -> tuple[str, str]:
        while b"\n" not in self._buffer:
            data = await self._process.receive()
            if not data or len(self._buffer) > MAX_LINE_BYTES:
                raise await self._ended()
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        word, _, rest = line.decode("utf-8", "replace").partition(" ")
        return word, rest

    async def _ended(self) -> HarnessError:
        with anyio.move_on_after(CLOSE_TIMEOUT):
            try:
                await self._process.wait()
            except ConnectionLost:
                return ConnectionLost("the connection was lost while sudo asked for a password", target=self._target)
        return self._unusable()

    def _unusable(self) -> UnsupportedOperation:
        said = self._said.decode("utf-8", "replace")
        reason = (said.strip().splitlines() or ["the process that passes the password to sudo has ended"])[-1]
        return UnsupportedOperation(
            f"cannot pass a password to sudo: {reason}",
            target=self._target,
            hint="it needs mkfifo; set XDG_STATE_HOME on the target to a directory where programs may run",
        )


@asynccontextmanager
async def open_askpass(
    transport: Transport, root: str, sh: str, sudo: str, user: str, check: Sequence[str] = RUNS_COMMANDS
) -> AsyncIterator[AskpassProcess]:
    """Start the process, which checks at once whether ``sudo`` lets commands run as the user.

    Args:
        transport: Where ``sudo`` runs.
        root: The state directory there.
        sh: The path of its shell.
        sudo: The path of ``sudo``.
        user: The user as whom commands are to run.
        check: The arguments of ``sudo`` for the check.

    Raises:
        UnsupportedOperation: The target lacks something.
        ConnectError, ConnectionLost: No connection is available.
    """
    words = [root, sh, sudo, user, PROMPT, str(LIFETIME), *check]
    process = await transport.open_process(["sh", "-c", _SCRIPT, "sh", *words])
    async with open_background_tasks() as tasks:
        askpass = AskpassProcess(process, transport)
        try:
            tasks.start_soon(askpass.collect_messages)
            await askpass.started()
            yield askpass
        finally:
            await askpass.close()
