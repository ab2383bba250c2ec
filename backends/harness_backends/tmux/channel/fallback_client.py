"""Plain ``tmux`` commands through the persistent shell, for the fallback mode without control mode."""

from __future__ import annotations

import secrets
import shlex
from collections.abc import Iterable
from dataclasses import dataclass

import anyio

from harness.errors import TerminalError
from harness.transport import Transport

from ...posix.jobs.launch import background_line
from ...posix.persistent_shell import PersistentShell, ShellReply
from ..setup import Setup
from .control_protocol import Block

__all__ = ["FallbackClient", "parse_answers", "plain_script", "until_script"]

_AND = " \\; "
MAX_LINE_BYTES = 8000
"""Maximum bytes of one command line: tmux's messages to its server are limited to 16 KiB."""


@dataclass(frozen=True, slots=True)
class FallbackClient:
    """A client that runs tmux commands like :class:`.link.ControlConnection`, several in one call."""

    transport: Transport
    shell: PersistentShell
    setup: Setup

    @property
    def shells(self) -> PersistentShell:
        """The persistent shell where the panes' shells run, which is where tmux runs."""
        return self.shell

    async def request(self, *commands: tuple[str, ...], timeout: float = 20.0) -> list[Block]:
        """Run commands in order, up to the first that fails.

        Raises:
            ConnectionLost: the connection was lost; the commands may have run.
            TerminalError: tmux refused one of them.
        """
        token = f"hx-{secrets.token_hex(6)}"
        reply = await self.shell.call(plain_script(self.setup.tmux, commands, token), timeout=timeout)
        if reply.exit_code != 0:
            why = reply.stderr.decode("utf-8", "replace").strip() or f"exit code {reply.exit_code}"
            raise TerminalError(f"tmux: {why}", target=self.transport.target)
        return parse_answers(reply.stdout, token)

    ask = request

    async def beside(self, script: str, timeout: float) -> ShellReply | None:
        """Run a script in the background of the persistent shell.

        Returns:
            The reply, or None if the script did not end within ``timeout`` seconds.
        """
        ticket = await self.shell.submit(background_line(script))
        try:
            with anyio.move_on_after(timeout):
                return await ticket.reply()
            return None
        finally:
            ticket.forget()


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
