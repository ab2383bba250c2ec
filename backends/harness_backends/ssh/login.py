"""Runs an ``ssh`` that logs in and goes to the background, and lets somebody answer its questions.

ssh asks at its controlling terminal, so it gets one of its own, driven by pexpect; what it logs goes to a file without
a name, which serves for telling why a login failed. Answers are written to that terminal and kept nowhere.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import tempfile
import termios
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import IO, Literal

import anyio
import anyio.to_thread
from anyio.abc import Process as AnyioProcess

from harness.errors import AuthenticationError, ConnectError, HarnessError, HostKeyError
from harness.login import LoginQuestion, Prompter, current_prompter
from harness.target import Target

from .diagnosis import diagnose

__all__ = ["classify", "log_in"]

STEP = 0.25
LOG_LIMIT = 256 * 1024

# The shell becomes the leader of a session that has this terminal. With job control, ssh is a group of its own, so that
# the end of the session does not take a ProxyCommand with it that the connection needs for as long as it lives.
_ON_TERMINAL = 'exec 0<>"$0" && set -m && "$@"; exit $?'

_PROMPT = re.compile(rb"[:?] ?\Z")
_ALL = re.compile(rb".+", re.S)
_OTP = re.compile(r"\b(code|otp|token|factor|passcode|one-time|verification|duo|totp|2fa|challenge|response)\b", re.I)
_CONTROL = re.compile(rb"[\x00-\x1f\x7f]")


async def log_in(argv: Callable[[bool], list[str]], target: Target, timeout: float) -> None:
    """Run ``argv(questions)`` until it has logged in.

    Args:
        argv: gives the ssh command, told whether questions can be answered.
        target: for messages and for who answers.
        timeout: seconds for the whole login, answers included.

    Raises:
        AuthenticationError, HostKeyError, TargetNotFound, ConnectError, ConfigError: see :mod:`harness.errors`.
    """
    prompter = current_prompter()
    with tempfile.TemporaryFile() as log:
        try:
            with anyio.fail_after(timeout):
                if prompter is None:
                    status = await _run_silent(argv(_has_askpass()), log)
                else:
                    status = await _run_on_terminal(argv(True), log, _Dialogue(prompter, target))
        except TimeoutError:
            raise ConnectError(
                f"the login did not end within {timeout:g} s",
                target=target,
                hint="raise login_timeout if it needs more",
            ) from None
        except FileNotFoundError as error:
            raise ConnectError(
                f"{error.filename} was not found", target=target, hint="install the OpenSSH client"
            ) from error
        if status != 0:
            raise _refusal(_text(log), target, asked=prompter is not None)


def _refusal(log: str, target: Target, *, asked: bool) -> HarnessError:
    error = diagnose(log, target)
    if isinstance(error, AuthenticationError) and not asked:
        error.hint += "; there was no terminal to ask for a password or passphrase"
    return error


def _has_askpass() -> bool:
    """True when the user has arranged for a program that answers ssh."""
    return bool(os.environ.get("SSH_ASKPASS")) and os.environ.get("SSH_ASKPASS_REQUIRE") in ("force", "prefer")


def _text(log: IO[bytes]) -> str:
    return os.pread(log.fileno(), LOG_LIMIT, 0).decode("utf-8", "replace")


@asynccontextmanager
async def _started(argv: list[str], log: IO[bytes], environ: dict[str, str] | None) -> AsyncIterator[AnyioProcess]:
    """A process in a session of its own, without input or output, ended if this is left before it has."""
    process = await anyio.open_process(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=log,
        env=environ,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            with anyio.CancelScope(shield=True), suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
                await process.wait()


async def _run_silent(argv: list[str], log: IO[bytes]) -> int:
    async with _started(argv, log, None) as process:
        return await process.wait()


async def _run_on_terminal(argv: list[str], log: IO[bytes], dialogue: _Dialogue) -> int:
    environ = {**os.environ, "SSH_ASKPASS_REQUIRE": "never"}
    with _Terminal() as terminal:
        async with _started(["sh", "-c", _ON_TERMINAL, terminal.name, *argv], log, environ) as process:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_hang_up_after, process, terminal)
                error = await _converse(terminal, dialogue, log)
                if error is not None:
                    tasks.cancel_scope.cancel()
            if error is not None:  # raised here, so that it does not come out in an exception group
                raise error
            return await process.wait()


async def _converse(terminal: _Terminal, dialogue: _Dialogue, log: IO[bytes]) -> Exception | None:
    """Pass questions and answers on until ssh has ended; returns why that was given up."""
    while (prompt := await terminal.next_prompt()) is not None:
        try:
            answer = await dialogue.answer(prompt, secret=terminal.hides_input())
        except Exception as error:  # the prompter's own: it belongs to the caller
            return error
        if answer is None:
            return dialogue.declined(prompt, _text(log))
        terminal.type(answer)
    return None


async def _hang_up_after(process: AnyioProcess, terminal: _Terminal) -> None:
    await process.wait()
    terminal.hang_up()


class _Terminal:
    """The terminal of an ssh, seen from the side of the keyboard."""

    def __init__(self) -> None:
        from pexpect.fdpexpect import fdspawn

        self._keyboard, self._line = os.openpty()
        self.name = os.ttyname(self._line)
        self._line_open = True
        self._echoed = False
        self._spawn = fdspawn(self._keyboard, timeout=STEP)

    def __enter__(self) -> _Terminal:
        return self

    def __exit__(self, *exception: object) -> None:
        self.hang_up()
        os.close(self._keyboard)

    def hang_up(self) -> None:
        """Close our end of the line, so that reading ends when nobody else has it."""
        if self._line_open:
            self._line_open = False
            os.close(self._line)

    def hides_input(self) -> bool:
        """True when what is typed is not shown."""
        return not termios.tcgetattr(self._line)[3] & termios.ECHO

    async def next_prompt(self) -> str | None:
        """The next question; None when ssh has ended."""
        while self._line_open:
            text = await anyio.to_thread.run_sync(self._expect)
            if text and self._line_open:
                question = text.decode("utf-8", "replace").replace("\r\n", "\n")
                return (question.partition("\n")[2] if self._echoed else question).lstrip("\n")
        return None

    def _expect(self) -> bytes:
        """What was written since the last answer, if it is a question: it does not end a line, and nothing follows."""
        from pexpect import EOF, TIMEOUT

        if self._spawn.expect([_PROMPT, TIMEOUT, EOF], timeout=STEP) == 1:
            pending = _bytes(self._spawn.before)
            if not pending or pending.endswith(b"\n") or self._spawn.expect([_ALL, TIMEOUT], timeout=0) == 1:
                return b""
        return _bytes(self._spawn.before) + _bytes(self._spawn.after)

    def type(self, answer: str) -> None:
        """Type a line. Control characters are quoted, so that the terminal takes them as they are."""
        self._echoed = not self.hides_input()
        raw = answer.encode("utf-8", "surrogateescape")
        os.write(self._keyboard, _CONTROL.sub(lambda found: b"\x16" + found[0], raw) + b"\n")


def _bytes(part: object) -> bytes:
    """What pexpect matched; it holds a class instead of bytes where nothing was."""
    return part if isinstance(part, bytes) else b""


class _Dialogue:
    """Who answers, and what was asked so far."""

    def __init__(self, prompter: Prompter, target: Target) -> None:
        self._prompter = prompter
        self._target = target
        self._asked: Counter[str] = Counter()

    async def answer(self, text: str, *, secret: bool) -> str | None:
        self._asked[text] += 1
        kind = classify(text, secret=secret)
        return await self._prompter.answer(LoginQuestion(kind, text, secret, str(self._target), self._asked[text]))

    def declined(self, text: str, log: str) -> ConnectError:
        """The error for a question without an answer."""
        if classify(text, secret=False) == "hostkey":
            error = diagnose(f"{log}\nHost key verification failed.", self._target)
            assert isinstance(error, HostKeyError)
            return error
        last = text.strip().splitlines()[-1] if text.strip() else "a question"
        return AuthenticationError(f"nobody answered {last!r}", target=self._target)


def classify(text: str, *, secret: bool) -> Literal["password", "passphrase", "otp", "hostkey", "other"]:
    """What a question of ssh asks for."""
    if "(yes/no" in text or "type 'yes'" in text:
        return "hostkey"
    if "passphrase for" in text or "PIN for" in text:
        return "passphrase"
    last = text.strip().rpartition("\n")[2]
    if _OTP.search(last):
        return "otp"
    return "password" if secret and "password" in last.lower() else "other"
