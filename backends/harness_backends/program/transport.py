"""A transport that starts programs through another program, and proves that it passes them on exactly."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import anyio

from harness.errors import ConnectError, ConnectionLost, TargetGone
from harness.target import Target
from harness.transport import Process, Transport

from ..posix.supervised_process import (
    LOCATED_ARGV,
    REMAINS,
    TERMINAL_BETWEEN,
    GroupLeader,
    SupervisedProcess,
    finish_start,
    kill_group,
    located_order,
    new_nonce,
    wait_for_start,
)
from .templates import Template

__all__ = ["ProgramTransport"]

MAX_REASON_CHARS = 300
EXIT_TIMEOUT = 2.0
"""Seconds to wait for the program's own exit, for a message."""
CHECK_TIMEOUT = 30.0
CHECK_CODE = 73
CHECK_BYTES = bytes(range(256)) + b"\r\n\n\r~.\n\x04"
"""Every byte, line ends, and what ends an ssh session or a terminal's input."""
CHECK_ERRORS = b"standard error\n"
_FAULTS = {
    "mixed": "mixes standard error into standard output",
    "changed": "changes the bytes of standard input or output",
    "lost": "loses standard error",
}
_CHECK = f"cat; echo 'standard error' >&2; exit {CHECK_CODE}"


class ProgramTransport(Transport):
    """A transport through the program of a template, on this machine or on another target.

    :meth:`check` must be called first. After it, nothing starts in another place of the same name, such as a new pod.
    """

    def __init__(self, target: Target, template: Template, base: Transport) -> None:
        self.target = target
        self.max_channels = base.max_channels
        self.shares_sockets = template.shares_sockets
        self._template = template
        self._base = base
        self._instance = ""

    async def open_process(self, argv: Sequence[str]) -> SupervisedProcess:
        return await self._open(argv, kills=True)

    async def _open(self, argv: Sequence[str], *, kills: bool) -> SupervisedProcess:
        nonce = new_nonce()
        order = located_order(argv, nonce, self._instance, namespaces=self._template.namespaces)
        start = partial(self._start, order, nonce, kills=kills)
        return await finish_start(start, self.target, SupervisedProcess.aclose)

    async def _start(self, order: bytes, nonce: str, *, kills: bool) -> SupervisedProcess:
        raw = await self._execute(self._template.fill(LOCATED_ARGV))
        kill = self._kill if kills else _kill_nothing
        process = SupervisedProcess(raw, nonce, kill, self._verdict, located=True)
        said = await wait_for_start(process, self._template.program, self.target, order)
        if said is None:
            await self._refuse(process)
            return process
        if process.fault:
            raise self._inexact(_FAULTS[process.fault])
        if _shows_terminal(said):
            raise self._inexact("puts a terminal between, which changes bytes and loses exit codes")
        said = said if len(said) <= MAX_REASON_CHARS else f"... {said[-MAX_REASON_CHARS:]}"
        raise ConnectError(
            f"{self._template.program} started no shell: {said or 'it gave no reason'}",
            target=self.target,
            hint=self._template.hint,
        )

    async def _execute(self, words: Sequence[str]) -> Process:
        try:
            return await self._base.open_process(words)
        except ConnectError as error:
            if error.target != str(self._base.target) or isinstance(error, TargetGone):
                raise
            hint = f"install {self._template.program} on {self._base.target}"
            raise ConnectError(error.message, target=self.target, hint=error.hint or hint) from error

    async def _refuse(self, process: SupervisedProcess) -> None:
        """Raise the error for a shell in another place than the first one.

        Raises:
            TargetGone: it is.
            ConnectError: ``/proc`` there shows the processes of another namespace.
        """
        if process.report.verdict == "started":
            return
        await process.aclose()
        if process.report.verdict == "foreign":
            raise ConnectError(
                f"{self._template.program} enters a namespace of process ids, but /proc there is that of another one",
                target=self.target,
                hint="enter the namespace of mounts, too (nsenter --all), or mount /proc",
            )
        raise TargetGone(
            f"{self._template.program} enters another instance than before: the target was restarted or replaced, or"
            " each start has its own",
            target=self.target,
            hint="reconnect to use the new one; nothing ran in it",
        )

    def _inexact(self, what: str) -> ConnectError:
        return ConnectError(
            f"{self._template.program} {what}", target=self.target, hint="use an option that passes plain pipes"
        )

    async def check(self) -> None:
        """Prove that the program passes all bytes, both streams and the exit status; remember where it leads.

        Raises:
            ConnectError: it does not, or it starts no shell.
            ConnectionLost: it does not answer.
        """
        try:
            with anyio.fail_after(CHECK_TIMEOUT):
                async with await self.open_process(["sh", "-c", _CHECK]) as process:
                    self._instance = process.report.instance
                    await self._compare(process)
        except TimeoutError:
            raise self._inexact("does not pass on the end of standard input, or keeps its output open") from None

    async def _compare(self, process: Process) -> None:
        streams = {"output": b"", "error": b""}
        try:
            await process.send(CHECK_BYTES)
            await process.send_eof()
        except BrokenPipeError:
            pass  # what arrives shows it
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_collect, process.receive, "output", streams)
            tasks.start_soon(_collect, process.receive_stderr, "error", streams)
        code = await process.wait()
        if streams["output"] != CHECK_BYTES:
            raise self._inexact(_FAULTS["changed"])
        if streams["error"] != CHECK_ERRORS or code != CHECK_CODE:
            raise self._inexact("does not pass on standard error or the exit code")

    async def _verdict(self, raw: Process) -> int:
        """Raise the error for a program whose shell could not report its end: its own exit code proves nothing."""
        ended = "ended"
        with anyio.move_on_after(EXIT_TIMEOUT):
            ended = f"exited with status {await raw.wait()}"
        raise ConnectionLost(f"no exit status: {self._template.program} {ended} first", target=self.target)

    async def _kill(self, leader: GroupLeader, ladder: Sequence[tuple[str, float]], tree: bool) -> int:
        start = partial(self._open, kills=False)
        return await kill_group(start, leader, ladder, self.target, tree=tree)

    def interactive_argv(self, argv: Sequence[str]) -> list[str]:
        return self._base.interactive_argv(self._template.fill(argv, terminal=True))

    @property
    def identity(self) -> str:
        return hashlib.sha256(self._instance.encode()).hexdigest()[:16] if self._instance else ""

    def describe(self) -> str:
        base = f" over {self._base.describe()}" if self._base.target.last.scheme != "local" else ""
        return f"{self._template.program}{base}"


def _shows_terminal(said: str) -> bool:
    """Return whether a terminal shows the order that was sent, or the shell was faster and has reported it. Pure."""
    return "hx_text" in said or TERMINAL_BETWEEN in said.replace(f'"{TERMINAL_BETWEEN}"', "")  # as a word of its argv


async def _kill_nothing(leader: GroupLeader, ladder: Sequence[tuple[str, float]], tree: bool) -> int:
    """Kill no program that itself kills another one."""
    return REMAINS


async def _collect(receive: Callable[[], Awaitable[bytes]], name: str, streams: dict[str, bytes]) -> None:
    while data := await receive():
        if len(streams[name]) <= 2 * len(CHECK_BYTES):
            streams[name] += data
