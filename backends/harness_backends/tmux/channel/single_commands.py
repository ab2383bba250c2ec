"""Commands to tmux without control mode: one tmux process for each request, started by the persistent shell."""

from __future__ import annotations

import secrets
import shlex
from collections.abc import Callable, Iterable
from dataclasses import replace

from harness.errors import ConnectionLost, HarnessError, TerminalError
from harness.target import Target
from harness.transport import Transport

from ...posix.jobs.launch import run_in_background
from ...posix.persistent_shell import PersistentShell, ShellReply
from ..setup import NewPane, Setup
from .command_channel import READY_TIMEOUT, REPLY_TIMEOUT, OnAnswer, ResponseLost, prepare_session
from .control_protocol import Block

__all__ = ["SingleCommands", "control_refused", "parse_answers", "plain_script", "until_script"]

_AND = " \\; "
MAX_LINE_BYTES = 8000
"""Maximum bytes of one command line: tmux's messages to its server are limited to 16 KiB."""


class SingleCommands:
    """A channel that runs the commands of each request in one call; tmux runs where the panes' shells run."""

    def __init__(self, transport: Transport, shell: PersistentShell, setup: Setup) -> None:
        self.transport = transport
        self.shell = self.shells = shell
        self.setup = setup
        self.failed: HarnessError | None = None
        self.notifies = False

    @property
    def target(self) -> Target:
        """The target of the panes' shells."""
        return self.transport.target

    @property
    def is_up(self) -> bool:
        """True if the persistent shell is open; the next request opens it."""
        return self.shell.is_open

    @property
    def client(self) -> SingleCommands:
        """This channel, as each request starts a client of its own."""
        return self

    async def open(self, new_pane: Callable[[], NewPane]) -> bool:
        """Create the session unless it exists; return True if it was created.

        It is addressed by its current name, as each command is a new client and the id may become another session's.
        """
        session, created = await prepare_session(self.shell, self.setup, new_pane(), self.target)
        found = self.setup.found(session)
        self.setup = replace(found, session_id=f"={found.shown}")
        return created

    async def restore(self, new_pane: Callable[[], NewPane]) -> bool:
        """Create a session that has ended, or find it by its new name."""
        await self.open(new_pane)
        return True

    async def ready(self, timeout: float = READY_TIMEOUT) -> SingleCommands:
        """Return this channel, as each request waits for the connection itself."""
        return self

    async def request(
        self, *commands: tuple[str, ...], timeout: float = REPLY_TIMEOUT, on_answer: OnAnswer | None = None
    ) -> list[Block]:
        """Run tmux commands like :meth:`.CommandClient.request`."""
        try:
            blocks = await self.ask(*commands, timeout=timeout)
        except ConnectionLost as error:
            raise ResponseLost(error.message, target=error.target, hint=error.hint) from None
        if on_answer is not None:
            on_answer(blocks)
        return blocks

    async def ask(self, *commands: tuple[str, ...], timeout: float = REPLY_TIMEOUT) -> list[Block]:
        """Run idempotent commands; a lost connection is a plain :class:`ConnectionLost`, as nothing has changed."""
        token = f"hx-{secrets.token_hex(6)}"
        reply = await self.shell.call(plain_script(self.setup.tmux, commands, token), timeout=timeout)
        if reply.exit_code != 0:
            why = reply.stderr.decode("utf-8", "replace").strip() or f"exit code {reply.exit_code}"
            raise TerminalError(f"tmux: {why}", target=self.transport.target)
        return parse_answers(reply.stdout, token)

    async def beside(self, script: str, timeout: float) -> ShellReply | None:
        """Run a script in the background of the persistent shell.

        Returns:
            The reply, or None if the script did not end within ``timeout`` seconds.
        """
        return await run_in_background(self.shell, script, timeout)


def until_script(condition: str, seconds: float) -> str:
    """Return a shell script that waits for a condition, a timeout or the exit of the persistent shell. Pure."""
    return (
        f"t=0; until {condition}; do [ $t -lt {int(seconds * 20)} ] && kill -0 $$ || exit 1\n"
        "sleep 0.05 2>/dev/null || { sleep 1; t=$((t + 19)); }; t=$((t + 1)); done 2>/dev/null\n"
    )


def plain_script(tmux: str, commands: Iterable[tuple[str, ...]], token: str) -> str:
    """Return a shell script that runs tmux commands, each followed by a line that ends its answer. Pure."""
    lines: list[str] = []
    words: list[str] = []
    for command in commands:
        text = shlex.join(map(_argument, command))
        if command[0] == "set-buffer" and len(text) > MAX_LINE_BYTES // 4:  # too long for an argument
            lines += [_line(tmux, words), _load(tmux, command, token)]
            words = []
            continue
        if words and sum(map(_size, words)) + _size(text) > MAX_LINE_BYTES:
            lines.append(_line(tmux, words))
            words = []
        words.append(f"{text}{_AND}display-message -p {token}")
    lines.append(_line(tmux, words))
    return "\n".join(line for line in lines if line) + "\n"


def _line(tmux: str, words: list[str]) -> str:
    return f"{tmux} {_AND.join(words)} || exit" if words else ""


def _load(tmux: str, command: tuple[str, ...], token: str) -> str:
    *options, text = command[1:]
    load = f"load-buffer {shlex.join(options)} -{_AND}display-message -p {token}"
    return f"printf %s {shlex.quote(text)} | {tmux} {load} || exit"


def _argument(word: str) -> str:
    """Escape a semicolon at the end of an argument, which tmux would take as a command separator."""
    return f"{word[:-1]}\\;" if word.endswith(";") else word


def _size(text: str) -> int:
    return len(text.encode("utf-8", "surrogateescape"))


def parse_answers(output: bytes, token: str) -> list[Block]:
    """Return the answers, one for each command. Pure."""
    blocks: list[Block] = []
    lines: list[bytes] = []
    for line in output.split(b"\n"):
        if line == token.encode():
            blocks.append(Block(tuple(lines)))
            lines = []
        else:
            lines.append(line)
    return blocks


ATTACH_TIMEOUT = 10.0


async def control_refused(shell: PersistentShell, setup: Setup) -> bool:
    """Return whether the target's tmux refuses a control client, and not only a connection was lost for a moment."""
    attach = f"printf 'display-message -p hx-taken\\n' | {setup.tmux} -C attach-session -t {shlex.quote(setup.exact)}"
    tmux = SingleCommands(shell.transport, shell, setup)
    reply = await tmux.beside(f"{attach} 2>&1 | grep -qx hx-taken", ATTACH_TIMEOUT)
    return reply is None or reply.exit_code != 0
