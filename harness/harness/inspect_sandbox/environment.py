"""The sandbox environment of inspect_ai, on one target."""

from __future__ import annotations

import errno
import logging
import os
import posixpath
import secrets
import shlex
from collections.abc import Iterator, Mapping
from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext, suppress
from typing import Any, Literal, overload

import anyio
from inspect_ai.util import (
    ExecResult,
    OutputLimitExceededError,
    SandboxConnection,
    SandboxEnvironment,
    SandboxEnvironmentConfigType,
    SandboxEnvironmentLimits,
    SandboxUnavailableError,
    SandboxUserUnsupportedError,
    concurrency,
    sandboxenv,
)
from pydantic import BaseModel

from ..context import ExecutionContext
from ..errors import (
    ConnectError,
    ConnectionLost,
    ContextClosed,
    FileError,
    FileNotFound,
    HarnessError,
    IsADirectory,
    NoSpace,
    NotADirectory,
    PaneBusy,
    PermissionDenied,
    TerminalError,
    UnsupportedOperation,
)
from ..results import ShellResult, Status
from .configuration import Destination, SandboxConfig, resolve
from .connections import acquire, release

__all__ = ["HarnessSandbox"]

LOG = logging.getLogger(__name__)
NO_TIMEOUT = 10 * 365 * 86400.0
LOOK_TIMEOUT = 30.0
"""Seconds for a helper command on the target."""
CLEANUP_TIMEOUT = 90.0
TOOLS = "inspect-sandbox-tools"
TOOLS_DIRECTORY_VARIABLE = "INSPECT_SANDBOX_TOOLS_DIR"
TOOLS_TIMEOUT = 55
"""Seconds for the end of inspect_ai's tools: their server gives its commands 30, and its program waits 45."""
INTERRUPTED = 130
CANNOT_EXECUTE = 126
PERMISSIONS_IN_CONTAINER = 0o755
"""The mode of a sample's directory in a container, where the engine starts other users' commands; private on hosts."""

_FILE_ERRORS: tuple[tuple[type[FileError], type[OSError], int], ...] = (
    (FileNotFound, FileNotFoundError, errno.ENOENT),
    (PermissionDenied, PermissionError, errno.EACCES),
    (IsADirectory, IsADirectoryError, errno.EISDIR),
    (NotADirectory, NotADirectoryError, errno.ENOTDIR),
    (NoSpace, OSError, errno.ENOSPC),
)
_LOGIN_SHELL = 'cd "$1" && exec "${SHELL:-/bin/sh}" -l'
_IS_EXECUTABLE = 'case $1 in */*) ;; *) set -- "$(command -v "$1")" ;; esac; [ -f "$1" ] && [ -x "$1" ]'
_ACCOUNT_OF_UID = (
    '{ getent passwd "$1" 2>/dev/null || cat /etc/passwd; } | '
    'while IFS=: read -r name _ uid _; do [ "$uid" != "$1" ] || { printf %s "$name"; break; }; done'
)


@sandboxenv(name="harness")
class HarnessSandbox(SandboxEnvironment):
    """A directory on a target of harness, in which the commands of one sample run.

    With tmux each sample has a pane, which shows its commands; while another command or an operator uses the pane,
    commands run outside of it.
    """

    def __init__(self, context: ExecutionContext, destination: Destination, given_directory: str | None) -> None:
        super().__init__()
        self._name = f"inspect-{secrets.token_hex(6)}"
        self._context = context
        self._destination = destination
        self._directory = given_directory or f"/tmp/{self._name}"  # noqa: S108  # created with a random name
        self._own_directory = given_directory is None
        self._pane = anyio.Lock()
        self._accounts: dict[str, str] = {}
        self._tools: tuple[str, str | None] | None = None
        """inspect_ai's own program for tools, which starts a server, and its user, after its first call."""

    # -- life

    @classmethod
    async def task_init(cls, task_name: str, config: SandboxEnvironmentConfigType | None) -> None:
        """Connect, so that a target that cannot be reached fails the task before its samples."""
        _, destination = resolve(config)
        if not destination.temporary:
            await acquire(destination)

    @classmethod
    async def task_cleanup(cls, task_name: str, config: SandboxEnvironmentConfigType | None, cleanup: bool) -> None:
        """Close the connection of :meth:`task_init`."""
        _, destination = resolve(config)
        await release(destination)

    @classmethod
    async def sample_init(
        cls, task_name: str, config: SandboxEnvironmentConfigType | None, metadata: dict[str, str]
    ) -> dict[str, SandboxEnvironment]:
        """Return the sandbox of a sample: its working directory, and with tmux its pane.

        Raises:
            HarnessError: the target could not be entered, or the directory could not be made there.
        """
        chosen, shared = resolve(config)
        destination = shared.for_sample()
        context = await acquire(destination)
        sandbox = cls(context, destination, chosen.cwd)
        try:
            await sandbox._open()
        except BaseException:
            await sandbox._close()
            raise
        return {"default": sandbox}

    async def _open(self) -> None:
        if self._own_directory:
            await self._context.mkdir(
                self._directory, mode=PERMISSIONS_IN_CONTAINER if self._destination.in_container else 0o700
            )
        if self._context.has_terminal:
            await self._context.create_pane(self._name, cwd=self._directory)
            self._context = self._context.in_pane(self._name)

    @classmethod
    async def sample_cleanup(
        cls,
        task_name: str,
        config: SandboxEnvironmentConfigType | None,
        environments: dict[str, SandboxEnvironment],
        interrupted: bool,
    ) -> None:
        """Remove what :meth:`sample_init` made: the pane, the directory, a temporary container."""
        for environment in environments.values():
            await environment.as_type(cls)._close()

    async def _close(self) -> None:
        with anyio.CancelScope(shield=True):
            try:
                with anyio.fail_after(CLEANUP_TIMEOUT):
                    await self._stop_tools()
                    if self._context.has_terminal and self._context.pane is not None:
                        with suppress(TerminalError):
                            await self._context.kill_pane(self._context.pane, force=True)
                    if self._own_directory:
                        await self._context.remove(self._directory, recursive=True, missing_ok=True)
            except (HarnessError, TimeoutError) as error:
                LOG.warning("could not remove %s of a sample: %s", self._directory, error)
            finally:
                await release(self._destination)

    @property
    def _tools_directory(self) -> str:
        """The directory of the server socket of inspect_ai's tools, one per sample."""
        return f"/tmp/{self._name}-tools"  # noqa: S108  # the name is random, and the server creates it for its own user only

    async def _stop_tools(self) -> None:
        if self._tools is not None and not self._destination.temporary:
            program, user = self._tools
            with suppress(TimeoutError, PermissionError):
                await self.exec([program, "stop-server"], cwd="/", user=user, timeout=TOOLS_TIMEOUT)
            await self.exec(["rm", "-rf", "--", self._tools_directory], cwd="/", user=user)

    @classmethod
    def config_deserialize(cls, config: dict[str, Any]) -> BaseModel:
        """Return the configuration that is stored in a log."""
        return SandboxConfig(**config)

    def default_polling_interval(self) -> float:
        """Return how often inspect_ai's services look into the sandbox, in seconds."""
        return 0.2

    # -- commands

    async def exec(
        self,
        cmd: list[str],
        input: str | bytes | None = None,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        user: str | None = None,
        timeout: int | None = None,
        timeout_retry: bool = True,
        concurrency: bool = True,
    ) -> ExecResult[str]:
        """Run a program and return its result; what fails is a result, not an exception.

        Args:
            cmd: the program and its arguments; no shell reads them.
            input: its standard input, which is empty otherwise.
            cwd: where it runs; relative to the sample's directory, which is the default.
            env: extra environment, also for finding the program.
            user: a user's name or number on the target; needs root, password-less sudo or a container's engine.
            timeout: seconds after which it is ended, with all its child processes.
            timeout_retry: ignored: a command that may have run is not run again.
            concurrency: for a target on this machine, count it among inspect_ai's subprocesses.

        Raises:
            TimeoutError: it was ended at its timeout; ``truncated_output`` holds what it wrote.
            PermissionError: the program may not be executed.
            OutputLimitExceededError: a stream was longer than inspect_ai's limit; the command has ended.
            SandboxUserUnsupportedError: commands cannot run as that user here.
            SandboxUnavailableError: the command could not be started, as the target could not be reached.
            HarnessError: how it ended is not known, mostly as the connection was lost while it ran.
        """
        directory = posixpath.join(self._directory, cwd) if cwd else self._directory
        if posixpath.basename(cmd[0]) == TOOLS:
            self._tools = cmd[0], user
            env = {**(env or {}), TOOLS_DIRECTORY_VARIABLE: self._tools_directory}
        async with self._throttle(limited=concurrency):
            with _sandbox_errors(user):
                account = await self._account(user)
                result = await self._run(
                    f"exec {shlex.join(cmd)}",
                    timeout=NO_TIMEOUT if timeout is None else timeout,
                    cwd=directory,
                    env=env,
                    user=account,
                    stdin=b"" if input is None else input,
                    max_output=SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE,
                )
                if result.exit_code == CANNOT_EXECUTE and not result.stdout_bytes:
                    await self._check_executable(cmd[0], directory, env, account)
        return _exec_result(result, timeout)

    async def _run(self, command: str, **options: Any) -> ShellResult:
        """Run a command in the pane if that is free and can run it, else outside of it.

        A pane cannot run it as a user that only a container's engine can become.
        """
        if not self._context.has_terminal:
            return await self._context.run_shell(command, on_timeout="kill", **options)
        with suppress(PaneBusy, UnsupportedOperation, anyio.WouldBlock):  # nothing ran
            self._pane.acquire_nowait()
            try:
                return await self._context.run_shell(command, on_timeout="kill", tty=False, **options)
            finally:
                self._pane.release()
        return await self._context.run_helper(command, **options)

    def _throttle(self, *, limited: bool) -> AbstractAsyncContextManager[object]:
        limiter: AbstractAsyncContextManager[object] = nullcontext()
        if limited and self._destination.target.hops[0].scheme == "local":
            limiter = concurrency("subprocesses", max(os.cpu_count() or 1, 2), resizable=True)
        return limiter

    async def _account(self, user: str | None) -> str | None:
        """Return the name of a user that may be given by number."""
        if user is None or not user.isdecimal() or self._destination.in_container:
            return user
        if user not in self._accounts:
            found = await self._look(_ACCOUNT_OF_UID, user)
            if not found.stdout:
                raise UnsupportedOperation(f"no user has the number {user}", target=self._destination.target)
            self._accounts[user] = found.stdout
        return self._accounts[user]

    async def _check_executable(
        self, program: str, directory: str, env: Mapping[str, str] | None, user: str | None
    ) -> None:
        """Raise the error of a program that may not be executed; a program may also exit with that code itself.

        Raises:
            PermissionError: it may not be executed.
        """
        look = await self._look(_IS_EXECUTABLE, program, cwd=directory, env=env, user=user)
        if look.exit_code == 1:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), program)

    async def _look(self, script: str, *words: str, **options: Any) -> ShellResult:
        command = shlex.join(["sh", "-c", script, "sh", *words])
        return await self._context.run_helper(command, timeout=LOOK_TIMEOUT, **options)

    # -- files

    async def write_file(self, file: str, contents: str | bytes) -> None:
        """Write a file, atomically, making the directories that are missing.

        Args:
            file: its path; relative to the sample's directory.
            contents: text is written as UTF-8.

        Raises:
            PermissionError: the file is read-only, also for root, or its directory takes no file.
            IsADirectoryError: it is a directory.
        """
        with _file_errors(file):
            await self._context.write_file(posixpath.join(self._directory, file), contents)

    @overload
    async def read_file(self, file: str, text: Literal[True] = True) -> str: ...

    @overload
    async def read_file(self, file: str, text: Literal[False]) -> bytes: ...

    async def read_file(self, file: str, text: bool = True) -> str | bytes:
        """Return the content of a file.

        Args:
            file: its path; relative to the sample's directory.
            text: decode it as UTF-8; line ends stay as they are.

        Raises:
            FileNotFoundError: it does not exist.
            IsADirectoryError: it is a directory.
            PermissionError: it may not be read.
            UnicodeDecodeError: it is not UTF-8, and ``text`` is wanted.
            OutputLimitExceededError: it is longer than inspect_ai's limit.
        """
        limit = SandboxEnvironmentLimits.MAX_READ_FILE_SIZE
        with _file_errors(file):
            content = await self._context.read_file(posixpath.join(self._directory, file), limit=limit + 1)
        if max(content.size, len(content.data)) > limit:
            raise OutputLimitExceededError(SandboxEnvironmentLimits.MAX_READ_FILE_SIZE_STR, None)
        return content.data.decode("utf-8") if text else content.data

    # -- operators

    async def connection(self, *, user: str | None = None) -> SandboxConnection:
        """Return the command by which an operator gets a shell in the sample's directory, or into its tmux session.

        Raises:
            NotImplementedError: a user is given.
            ConnectionError: the sandbox has ended.
        """
        if user is not None:
            raise NotImplementedError("harness sandboxes are entered as the user of the target's login")
        shell = ["sh", "-c", _LOGIN_SHELL, "sh", self._directory]
        try:
            has_terminal = self._context.has_terminal
            command = self._context.attach_command if has_terminal else self._context.interactive_command(shell)
        except ContextClosed as error:
            raise ConnectionError(str(error)) from error
        target = self._destination.target
        container = target.last.host if self._destination.in_container and target.base is None else None
        return SandboxConnection(type="harness", command=shlex.join(command), container=container)


@contextmanager
def _sandbox_errors(user: str | None) -> Iterator[None]:
    """Turn the errors of a command that was not started into those of the interface."""
    try:
        yield
    except UnsupportedOperation as error:
        if user is None:
            raise
        raise SandboxUserUnsupportedError(str(error)) from error
    except (ConnectError, ConnectionLost, ContextClosed, TerminalError) as error:
        raise SandboxUnavailableError(str(error)) from error


@contextmanager
def _file_errors(file: str) -> Iterator[None]:
    """Turn an error about a file into Python's own, with the number and the name that inspect_ai shows the model."""
    try:
        yield
    except FileError as error:
        for kind, builtin, number in _FILE_ERRORS:
            if isinstance(error, kind):
                raise builtin(number, os.strerror(number), file) from error
        raise


def _exec_result(result: ShellResult, timeout: int | None) -> ExecResult[str]:
    """Return the outcome of a command as inspect_ai has it.

    Raises:
        TimeoutError: the command was ended at its timeout.
        OutputLimitExceededError: output is missing in the middle.
        HarnessError: how it ended is not known.
    """
    stdout = result.stdout_bytes.decode("utf-8", "replace")
    stderr = result.stderr_bytes.decode("utf-8", "replace")
    if result.status is Status.TIMED_OUT:
        ended = TimeoutError(f"command timed out after {timeout} seconds")
        ended.truncated_output = stdout + stderr  # type: ignore[attr-defined]  # where inspect_ai looks for it
        raise ended
    code = INTERRUPTED if result.status is Status.INTERRUPTED and result.exit_code is None else result.exit_code
    if code is None:
        reason = "; ".join(result.notices) or "the connection was lost"
        raise HarnessError(f"how the command ended is not known: {reason}")
    if result.truncated:
        raise OutputLimitExceededError(SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE_STR, stdout + stderr)
    return ExecResult(success=code == 0, returncode=code, stdout=stdout, stderr=stderr)
