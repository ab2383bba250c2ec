"""``ExecutionContext``: the interface of agents, tools, the command line and Python programs to any target."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any, Generic, Literal, NoReturn, TypeVar, get_args

import anyio

from .backend import ANY, AnyVersion, Backend, Capabilities, Files, Progress, WriteMode
from .command import (
    DEFAULT_MAX_OUTPUT,
    DEFAULT_TIMEOUT,
    DEFAULT_WATCH_BYTES,
    Capture,
    Command,
    Keys,
    OnTimeout,
    check_text,
    check_type,
    parse_duration,
)
from .config import Config
from .deprecated_names import renamed_method
from .discovery import open_target
from .errors import ContextClosed, UnsupportedOperation
from .keyed_commands import check_key, run_once
from .results import (
    DirEntry,
    FileContent,
    FileStat,
    Job,
    JobOutput,
    PaneInfo,
    SessionInfo,
    ShellResult,
    WriteResult,
)
from .target import Target
from .terminal import CURRENT_TMUX, Listener, Operators, Terminal, check_own_tmux_of

if TYPE_CHECKING:
    from .pane_events import PaneEvent, PaneWatches

__all__ = ["ExecutionContext", "backend_of", "connect"]

Wait = bool | float | str
Item = TypeVar("Item")
CLOSE_TIMEOUT = 15.0
"""Seconds for pending operations to end when a context is left."""
DEFAULT_READ = 64 << 10
"""Maximum bytes of each stream that :meth:`ExecutionContext.read_job` returns by default."""


class _Use:
    """The backend and terminal shared by the contexts of one :func:`connect`, and their pending operations."""

    def __init__(self, backend: Backend, terminal: Terminal | None) -> None:
        self.backend = backend
        self.terminal = terminal
        self._closed = False
        self._scopes: set[anyio.CancelScope] | None = None  # while operations are pending: fleets have many idle hosts
        self._left: anyio.Event | None = None  # made when it is waited for

    def check(self) -> None:
        if self._closed:
            raise ContextClosed("this context has been left", target=self.backend.target, hint="connect again")

    @contextmanager
    def during(self) -> Iterator[None]:
        """Cancel the operation inside when the context is left."""
        self.check()
        with anyio.CancelScope() as scope:
            scopes = self._scopes = self._scopes or set()
            scopes.add(scope)
            try:
                yield
            finally:
                scopes.discard(scope)
                self._scopes = scopes or None
                if self._left is not None:
                    self._left.set()
        if scope.cancelled_caught:
            raise ContextClosed("this context was left during the operation", target=self.backend.target)

    async def close(self) -> None:
        self._closed = True
        with anyio.CancelScope(shield=True), anyio.move_on_after(CLOSE_TIMEOUT):
            while self._scopes:
                for scope in self._scopes:
                    scope.cancel()
                self._left = anyio.Event()
                await self._left.wait()


class _UntilLeft(AsyncIterator[Item], Generic[Item]):
    """Iterator over the output of a job or the events of a pane, until the context is left."""

    def __init__(self, use: _Use, items: AsyncIterator[Item]) -> None:
        self._use = use
        self._items = items

    async def __anext__(self) -> Item:
        with self._use.during():
            return await anext(self._items)

    async def aclose(self) -> None:
        """Stop following."""
        close = getattr(self._items, "aclose", None)
        if close is not None:
            await close()


class ExecutionContext:
    """Run commands, move files, watch panes and follow jobs on one target.

    Obtained from :func:`connect` and usable until that context is left. Safe to use from several tasks at once.
    """

    def __init__(self, backend: Backend, terminal: Terminal | None, config: Config, pane: str | None = None) -> None:
        self._use = _Use(backend, terminal)
        self._config = config
        self._pane = pane
        self._in_background = pane  # the pane of commands without waiting

    @property
    def _backend(self) -> Backend:
        self._use.check()
        return self._use.backend

    @property
    def _terminal(self) -> Terminal | None:
        self._use.check()
        return self._use.terminal

    @property
    def _command_terminal(self) -> Terminal | None:
        """The terminal in which commands run; None if they run without one, also beside the operator's own panes."""
        terminal = self._terminal
        return terminal if terminal is not None and terminal.runs_commands else None

    # -- commands

    async def run_shell(
        self,
        command: str,
        *,
        wait: Wait = True,
        timeout: float = DEFAULT_TIMEOUT,
        on_timeout: OnTimeout | None = None,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        stdin: bytes | str | Path | None = None,
        user: str | None = None,
        pane: str | None = None,
        tty: bool | None = None,
        on_output: Callable[[bytes], None] | None = None,
        on_stderr: Callable[[bytes], None] | None = None,
        max_output: int = DEFAULT_MAX_OUTPUT,
        receive_early: bool = False,
        key: str | None = None,
    ) -> ShellResult:
        """Run a command and return its result; a failed command is a result, not an exception.

        With a terminal it runs in the pane's persistent shell (``cd``, ``export`` and functions persist); without one,
        and with ``tty=False``, in a new ``sh``.

        Args:
            command: Any text that the shell understands: several lines, here-documents, quotes.
            wait: True; False to return once it is dispatched; or the maximum wait, in seconds or as ``"30s"``.
            timeout: Seconds until ``on_timeout`` applies, if ``wait`` is True.
            on_timeout: ``"keep"`` leaves it running (status ``running``), ``"kill"`` kills it (``timed_out``). The
                default is keep with a terminal, kill without.
            cwd: Directory for this command only.
            env: Extra environment for this command only.
            stdin: Its standard input; by default the terminal's keyboard, or nothing without a terminal. A ``Path`` is
                a regular file on this machine, which is sent in pieces.
            user: Run it as this user: as root, or by ``sudo``, whose password :func:`.login.use_prompter` or
                ``sudo_password_command`` answers.
            pane: A managed pane's name or tmux ID, instead of the default one.
            tty: False runs it in a new ``sh`` with separate, byte-exact streams even in a terminal context. It starts
                in the pane's directory, with the variables that the pane's shell exports, and the pane shows it.
            on_output: Called with each chunk of output as it arrives; it gets every byte, regardless of ``max_output``.
            on_stderr: Called with standard error instead, if that is a separate stream.
            max_output: Beyond this many bytes only head and tail are returned; the job keeps the complete output.
            receive_early: Receive output while the command runs, up to ``max_output`` bytes, so that a result holds it
                if the connection is lost. ``on_output`` does so, too. It needs a second channel.
            key: Run the command once: a further call with this key on this target, from any process, waits for the
                first one's job and returns its result. Such a call never kills the job. The target remembers keys as
                long as jobs (``jobs_max_age``).

        Raises:
            ConnectionLost: The connection was lost before the command was dispatched.
            PaneBusy: The pane is held by an operator's command or an unfinished job.
            UnsupportedOperation: The target does not support one of the options.
            FileError: ``stdin`` is a file that cannot be read.
            KeyInUse: The key was used for another command.
            ValueError: An argument is out of range.
        """
        terminal = self._command_terminal
        waiting, seconds, policy = _timing(wait, timeout, on_timeout, has_terminal=terminal is not None)
        request = Command(
            command=_command(command),
            wait=waiting,
            timeout=seconds,
            on_timeout=policy,
            cwd=check_text(cwd or "", "cwd") or (self._config.cwd if terminal is None else None),
            env=_env(self._config.env if terminal is None else (), env),
            stdin=_input(stdin),
            user=user and check_text(user, "user"),
            pane=(pane and check_text(pane, "pane")) or (self._pane if waiting else self._in_background),
            tty=tty,
            on_output=on_output,
            on_stderr=on_stderr,
            max_output=max(0, max_output),
            receive_early=receive_early,
            key=None if key is None else check_key(key),
        )
        if terminal is None and (request.tty or pane):
            self._refuse_in_pane("a pane" if pane else "a command with a terminal (tty=True)")
        with self._use.during():
            run = self._backend.jobs.run if terminal is None else terminal.run
            return await (run(request) if key is None else run_once(self, self._backend.jobs, run, request))

    async def run_helper(
        self,
        command: str,
        *,
        timeout: float = DEFAULT_TIMEOUT,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        stdin: bytes | str | Path | None = None,
        user: str | None = None,
        max_output: int = DEFAULT_MAX_OUTPUT,
    ) -> ShellResult:
        """Run a helper command in a new ``sh`` outside the panes, even with a terminal.

        For commands that tools run for themselves, such as a search: the job is marked as a helper. Its streams are
        separate; it is killed after ``timeout`` seconds. The arguments are those of :meth:`run_shell`.
        """
        request = Command(
            command=_command(command),
            timeout=parse_duration(timeout),
            on_timeout="kill",
            cwd=check_text(cwd or "", "cwd") or self._config.cwd,
            env=_env(self._config.env, env),
            stdin=_input(stdin),
            user=user and check_text(user, "user"),
            max_output=max(0, max_output),
            helper=True,
        )
        with self._use.during():
            return await self._backend.jobs.run(request)

    # -- jobs

    async def jobs(self) -> list[Job]:
        """Return all jobs recorded on the target, oldest first, including those of other harness processes."""
        return await self._backend.jobs.list()

    async def job(self, job_id: str) -> Job:
        """Return one job; raises :class:`JobNotFound`."""
        return await self._backend.jobs.get(job_id)

    async def job_with_key(self, key: str) -> Job | None:
        """Return the job that :meth:`run_shell` started with this key, in any process, or None."""
        job_id = await self._backend.jobs.find_key(check_key(key))
        return None if job_id is None else await self.job(job_id)

    async def wait(
        self, job_id: str, *, timeout: float = DEFAULT_TIMEOUT, max_output: int = DEFAULT_MAX_OUTPUT
    ) -> ShellResult:
        """Wait for a job, even of another harness process, and return its result; ``running`` on a timeout."""
        with self._use.during():
            if self._terminal is not None:
                result = await self._terminal.wait(job_id, timeout, max_output)
                if result is not None:
                    return result
            return await self._backend.jobs.wait(job_id, timeout, max_output)

    async def read_job(
        self, job_id: str, *, stdout: int = 0, stderr: int = 0, limit: int = DEFAULT_READ, wait: float = 0.0
    ) -> JobOutput:
        """Return a job's output so far, even of another harness process; resume from the ``end`` of each part.

        Args:
            job_id: The job.
            stdout: The byte of its standard output to start at. A job in a terminal has only this stream.
            stderr: The byte of its standard error to start at.
            limit: Maximum bytes of each stream.
            wait: Maximum seconds to wait for output or the job's end.

        Raises:
            JobNotFound: unknown job.
            UnsupportedOperation: Its output is stored where it cannot be read from here.
        """
        if min(stdout, stderr, limit) < 0:
            raise ValueError("bytes are counted from 0")
        with self._use.during():
            if self._terminal is not None:
                held = await self._terminal.held(job_id, stdout, wait)
                if held is not None:
                    return JobOutput.of_whole(held, stdout, limit)
            return await self._backend.jobs.read(job_id, stdout, stderr, limit, wait)

    def follow(self, job_id: str, *, offset: int = 0) -> AsyncIterator[bytes]:
        """Iterate over the output of a job from byte ``offset``, live, until it ends.

        Raises:
            OutputDropped: The next bytes were dropped (``job_log_max_bytes``); its ``end`` is the offset to resume at.
        """
        live = self._terminal.follow(job_id, offset) if self._terminal is not None else None
        return _UntilLeft(self._use, live if live is not None else self._backend.jobs.follow(job_id, offset))

    async def kill(self, job_id: str, *, signal: str = "TERM", grace: float = 2.0) -> Job:
        """Signal a job's process group, and send KILL to remaining processes after ``grace`` seconds.

        In a pane, the default TERM is sent after a C-c, which spares the pane's shell; any other signal is sent first.
        """
        with self._use.during():
            if self._terminal is not None and await self._terminal.kill(job_id, signal, grace):
                return await self._backend.jobs.get(job_id)
            return await self._backend.jobs.kill(job_id, signal, grace)

    # -- the terminal

    async def capture_pane(
        self,
        *,
        pane: str | None = None,
        target: str | None = None,
        job_id: str | None = None,
        start: int | Literal["-"] | None = None,
        end: int | Literal["-"] | None = None,
        join_wrapped_lines: bool = True,
        preserve_trailing_spaces: bool = False,
        include_escape_sequences: bool = False,
        escape_non_printable: bool = False,
        include_alternate_screen: bool = False,
        delay: float = 0.0,
    ) -> str:
        """Return the text of a pane's screen, now or after ``delay`` seconds; with ``job_id``, that job's output.

        ``start`` and ``end`` are line numbers as in ``tmux capture-pane -S -E`` (0 is the first visible line, negative
        numbers are in the scrollback); ``"-"`` is the start of the scrollback, or the end of the screen.
        """
        request = Capture(
            pane=pane or (self._pane if target is None else None),
            target=target,
            job_id=job_id,
            start=start,
            end=end,
            join_wrapped_lines=join_wrapped_lines,
            preserve_trailing_spaces=preserve_trailing_spaces,
            include_escape_sequences=include_escape_sequences,
            escape_non_printable=escape_non_printable,
            include_alternate_screen=include_alternate_screen,
            delay=delay,
        )
        return await self._need_terminal("capture_pane").capture(request)

    async def send_keys(
        self,
        keys: Sequence[str] | str = (),
        *,
        literal_text: str | bytes | None = None,
        enter: bool = False,
        pane: str | None = None,
        target: str | None = None,
        delay: float = 0.0,
    ) -> None:
        """Type into a pane: ``literal_text``, then ``keys`` (tmux names such as ``"C-c"``, ``"Up"``), then Enter."""
        names = (keys,) if isinstance(keys, str) else tuple(keys)
        for name in names:
            check_type(name, "each of keys", str)
        check_type(literal_text, "literal_text", str, bytes, NoneType)
        if isinstance(literal_text, str):
            check_text(literal_text, "literal_text")
        request = Keys(names, literal_text, enter, pane or (self._pane if target is None else None), target, delay)
        await self._need_terminal("send_keys").send_keys(request)

    @asynccontextmanager
    async def watch_pane(
        self, pane: str | None = None, *, max_bytes: int = DEFAULT_WATCH_BYTES
    ) -> AsyncIterator[AsyncIterator[PaneEvent]]:
        """Watch a pane live: a :class:`.Screen` first, then each byte that programs write, and the jobs.

        The bytes are not redacted: :class:`.RedactedPaneEvents` of the toolkit does that. Any number of watchers cost
        one stream. A slow watcher delays nothing: what it has not taken is dropped beyond ``max_bytes``, and it gets a
        new :class:`.Screen` next, as after a lost connection::

            async with ctx.watch_pane("main") as events:
                async for event in events: ...

        Args:
            pane: A managed pane's name or tmux ID; None for the default one.
            max_bytes: Maximum bytes that wait for this watcher.

        Raises:
            PaneGone: The pane does not exist.
            UnsupportedOperation: The context has no terminal, or one without control mode.
        """
        async with self._need_terminal("watch_pane").watch_pane(pane or self._pane, max_bytes) as events:
            yield _UntilLeft(self._use, events)

    def watch_panes(self, *, max_bytes: int = DEFAULT_WATCH_BYTES) -> AbstractAsyncContextManager[PaneWatches]:
        """Watch all managed panes live, also those that are created later, as :meth:`watch_pane` does with one.

        Raises:
            UnsupportedOperation: The context has no terminal, or one without control mode.
        """
        return self._need_terminal("watch_panes").watch_panes(max_bytes)

    async def list_panes(self) -> list[PaneInfo]:
        """Return the managed panes of the session."""
        return await self._need_terminal("list_panes").list_panes()

    async def create_pane(self, name: str, *, cwd: str | None = None) -> PaneInfo:
        """Create a managed pane with a new shell."""
        return await self._need_terminal("create_pane").create_pane(name, cwd)

    async def kill_pane(self, name: str, *, force: bool = False) -> None:
        """Kill a managed pane; the default pane is protected unless ``force`` is given."""
        await self._need_terminal("kill_pane").kill_pane(name, force=force)

    async def lend_pane(self, pane: str, *, duration: float | None = None) -> PaneInfo:
        """Let harness type into a pane of the operator's own tmux (``connect(tmux="current")``).

        Only a program that the operator runs at a terminal of that tmux can do this. The lend ends with the pane's
        first process or the tmux server, by :meth:`end_lend`, or after ``duration`` seconds.

        Raises:
            TerminalError: No operator is seen to run this program, or the pane cannot be lent.
            PaneGone: The pane does not exist.
        """
        return await self._need_terminal("lend_pane").lend_pane(pane, duration)

    async def end_lend(self, pane: str) -> PaneInfo:
        """End the lend of a pane."""
        return await self._need_terminal("end_lend").end_lend(pane)

    async def list_sessions(self) -> list[SessionInfo]:
        """Return the managed sessions on the target's tmux server."""
        return await self._need_terminal("list_sessions").list_sessions()

    async def create_session(self, name: str) -> SessionInfo:
        """Create a managed session."""
        return await self._need_terminal("create_session").create_session(name)

    async def kill_session(self, name: str) -> None:
        """Kill a managed session; the one in use is protected."""
        await self._need_terminal("kill_session").kill_session(name)

    @property
    def attach_command(self) -> list[str]:
        """The command that an operator runs on this machine to watch and take over."""
        return self._need_terminal("attach").attach_command()

    def operators(self, listener: Listener) -> AbstractAsyncContextManager[Operators]:
        """Watch the operators at the session: see :meth:`Terminal.operators`, also for its exceptions."""
        return self._need_terminal("operators").operators(listener)

    @property
    def attach_command_read_only(self) -> list[str]:
        """As :attr:`attach_command`, for watching only."""
        return self._need_terminal("attach").attach_command(read_only=True)

    def supervised_attach_command(self, *, read_only: bool = False) -> list[str]:
        """Return the command of a client for a program that reconnects: see :class:`.Terminal`, also for exceptions."""
        return self._need_terminal("attach").supervised_attach_command(read_only=read_only)

    @property
    def session_identity(self) -> str:
        """What identifies the tmux session: a later one of the same name has another value; empty if unknown."""
        return self._need_terminal("session_identity").session_identity

    def libtmux(self, pane: str | None = None) -> AbstractAsyncContextManager[Any]:
        """Open the session, or a pane, with libtmux, for programs that script tmux.

        libtmux blocks while tmux works, so call its methods in a worker thread. Its objects work until the context
        manager is left::

            async with ctx.libtmux() as session:
                window = await anyio.to_thread.run_sync(lambda: session.new_window("logs"))

        On this machine libtmux runs ``tmux`` itself; for other targets it runs a program that passes each command
        through this context. What libtmux types into a managed pane is an operator's input: use :meth:`run_shell` for
        commands whose output and exit code matter.

        Args:
            pane: A managed pane's name; None for the session.

        Returns:
            An async context manager that gives a ``libtmux.Session``, or a ``libtmux.Pane``.

        Raises:
            PaneGone: The pane does not exist.
            TerminalError: The session is closed.
            UnsupportedOperation: The context has no terminal, or libtmux is not installed.
        """
        return self._need_terminal("libtmux").libtmux(pane)

    # -- files

    async def read_file(
        self, path: str, *, offset: int = 0, limit: int | None = None, progress: Progress | None = None
    ) -> FileContent:
        """Read a file, or ``limit`` bytes of it from byte ``offset``; byte-exact."""
        check_type(path, "path", str)
        return await self._backend.files.read(path, offset, limit, progress)

    async def write_file(
        self,
        path: str,
        content: str | bytes,
        *,
        mode: WriteMode = "overwrite",
        expect: str | AnyVersion | None = ANY,
        parents: bool = True,
        permissions: int | None = None,
        force: bool = False,
        progress: Progress | None = None,
    ) -> WriteResult:
        """Write a file atomically: readers see the old or the new content, and a failure keeps the old.

        Args:
            path: The file; symlinks are followed.
            content: The content; text is written as UTF-8.
            mode: ``overwrite``; ``create``, which fails if the file exists; ``append``.
            expect: The expected ``version``, or None if the file must not exist.
            parents: Create missing directories.
            permissions: Mode bits; the default keeps those of the old file, or follows the umask.
            force: Write even a file that its owner made read-only; its permissions are kept.
            progress: Called with bytes sent and total bytes.

        Raises:
            StaleFileError: The file does not have the expected version; nothing was overwritten.
            PermissionDenied: Also if the file is read-only and ``force`` is not given; it is unchanged.
        """
        check_type(path, "path", str)
        check_type(content, "content", str, bytes)
        data = content.encode("utf-8", "surrogateescape") if isinstance(content, str) else content
        return await self._backend.files.write(path, data, mode, expect, parents, permissions, progress, force=force)

    @property
    def files(self) -> Files:
        """All file operations, most of which are also methods of this context."""
        return self._backend.files

    async def stat(self, path: str, *, follow: bool = True) -> FileStat:
        """Return one file's metadata."""
        check_type(path, "path", str)
        return await self._backend.files.stat(path, follow=follow)

    async def list_dir(self, path: str) -> list[DirEntry]:
        """Return the names in a directory, sorted."""
        check_type(path, "path", str)
        return await self._backend.files.list_dir(path)

    async def walk(self, path: str, *, max_entries: int = 100_000) -> list[DirEntry]:
        """Return everything below a directory as relative paths, sorted."""
        check_type(path, "path", str)
        return await self._backend.files.walk(path, max_entries=max_entries)

    async def glob(self, pattern: str, *, root: str = ".", max_entries: int = 100_000) -> list[str]:
        """Return paths below ``root`` that match ``pattern``, sorted."""
        return await self._backend.files.glob(pattern, root=root, max_entries=max_entries)

    async def mkdir(self, path: str, *, parents: bool = False, exist_ok: bool = False, mode: int = 0o777) -> None:
        """Create a directory."""
        check_type(path, "path", str)
        await self._backend.files.mkdir(path, parents=parents, exist_ok=exist_ok, mode=mode)

    async def remove(self, path: str, *, recursive: bool = False, missing_ok: bool = False) -> None:
        """Remove a file, a link, an empty directory, or with ``recursive`` a tree."""
        check_type(path, "path", str)
        await self._backend.files.remove(path, recursive=recursive, missing_ok=missing_ok)

    async def rename(self, source: str, destination: str, *, overwrite: bool = False) -> None:
        """Rename within one file system."""
        await self._backend.files.rename(source, destination, overwrite=overwrite)

    async def upload(
        self, local: str, path: str, *, force: bool = False, progress: Progress | None = None
    ) -> WriteResult:
        """Copy a file from this machine to the target, atomically; a read-only file needs ``force``."""
        return await self._backend.files.upload(local, path, progress, force=force)

    async def download(
        self,
        path: str,
        local: str,
        *,
        force: bool = False,
        overwrite: bool = True,
        progress: Progress | None = None,
    ) -> int:
        """Copy a file from the target to this machine, atomically; a read-only file needs ``force``.

        Args:
            path: The file on the target.
            local: The file on this machine.
            force: Replace even a read-only file.
            overwrite: Replace a file that exists.
            progress: Called with bytes received and total bytes, None if they are unknown.

        Raises:
            FileExists: ``local`` exists, and ``overwrite`` is False.

        Returns:
            Its size in bytes.
        """
        return await self._backend.files.download(path, local, progress, force=force, overwrite=overwrite)

    # -- about

    @property
    def target(self) -> Target:
        """The target of this context."""
        return self._use.backend.target

    @property
    def identity(self) -> str:
        """The target with the identity behind its name: another container of the same name has another identity."""
        known = self._use.backend.transport.identity
        return f"{self.target}#{known}" if known else str(self.target)

    @property
    def pane(self) -> str | None:
        """The pane for calls without ``pane``; None is the session's default one."""
        return self._pane

    def in_pane(self, pane: str) -> ExecutionContext:
        """Return a context with another default pane; commands without waiting still run in the background."""
        context = ExecutionContext(self._backend, self._terminal, self._config, pane)
        context._use = self._use
        context._in_background = None
        return context

    @property
    def has_terminal(self) -> bool:
        """True when commands run in a tmux pane."""
        return self._use.terminal is not None and self._use.terminal.runs_commands

    @property
    def has_panes(self) -> bool:
        """True when there are panes to capture and to type into, even if commands do not run in them."""
        return self._use.terminal is not None

    @property
    def capabilities(self) -> Capabilities:
        """The capabilities of the target."""
        return self._use.backend.capabilities

    def interactive_command(self, argv: Sequence[str]) -> list[str]:
        """Return the command that an operator runs on this machine to run a program on the target, with a terminal.

        It starts nothing. To watch commands in tmux, see :attr:`attach_command`.

        Args:
            argv: The program and its arguments.
        """
        return self._backend.transport.interactive_argv(argv)

    def describe(self) -> str:
        """Return one line for logs and errors."""
        terminal = self._use.terminal.describe() if self._use.terminal is not None else "no terminal"
        return f"{self.target} {terminal}" + (f", {state}" if (state := self._use.backend.transport.state) else "")

    def __repr__(self) -> str:
        return f"<ExecutionContext {self.describe()}>"

    def _need_terminal(self, operation: str) -> Terminal:
        if self._terminal is None:
            raise self._needs_terminal(operation)
        return self._terminal

    def _refuse_in_pane(self, what: str) -> NoReturn:
        if self._terminal is None:
            raise self._needs_terminal(what)
        raise UnsupportedOperation(
            "no command runs in a pane of your own tmux: its outcome could not be proved",
            target=self.target,
            hint="leave the pane out, or type it: harness keys, send_keys",
        )

    def _needs_terminal(self, operation: str) -> UnsupportedOperation:
        return UnsupportedOperation(
            f"{operation} needs a terminal", target=self.target, hint="connect with tmux=True, or --tmux"
        )

    run_beside = renamed_method("run_beside", "run_helper")


def backend_of(context: ExecutionContext) -> Backend:
    """Return the open backend of a context, for checks of the target itself."""
    return context._backend


@asynccontextmanager
async def connect(
    target: str | Target = "local:",
    *,
    tmux: bool | str = False,
    pane: str | None = None,
    cwd: str | None = None,
    env: Mapping[str, str] | None = None,
    config: Config | None = None,
    create: bool = True,
) -> AsyncIterator[ExecutionContext]:
    """Connect to a target.

    Args:
        target: A URL: ``local:``, ``ssh://user@host:port``, joined with ``+``.
        tmux: True for the configured tmux session, a string for the session of that name, False to run without tmux;
            ``"current"`` runs commands without tmux, and captures and types into panes of the tmux of this process.
        pane: The managed pane to use instead of the default one; created if it does not exist.
        cwd: The directory of commands; in a terminal, of new shells.
        env: Extra environment of commands; in a terminal, of new shells.
        config: The settings; the defaults if None. Files are not read: see :func:`harness.load_config`.
        create: Create a missing session and pane; False makes that an error.

    Raises:
        ConnectError: The target could not be reached or entered.
        PaneGone: The session or the pane is missing, and ``create`` is False.
        TerminalError: The limit of sessions or panes is reached.
        UnsupportedOperation: ``tmux`` was requested and is unavailable.
    """
    settings = config or Config()
    variables = _env(settings.env, env)
    if cwd or variables != settings.env:  # else all hosts of a fleet share the settings
        settings = replace(settings, cwd=cwd or settings.cwd, env=variables)
    place = Target.parse(target)
    if tmux == CURRENT_TMUX:
        check_own_tmux_of(place)
    opened = open_target(place, settings)
    async with opened as backend, _open_terminal(backend, settings, tmux, create=create) as terminal:
        if terminal is not None and pane is not None:
            await terminal.ensure_pane(pane, create=create)
        context = ExecutionContext(backend, terminal, settings, pane if terminal is not None else None)
        try:
            yield context
        finally:
            await context._use.close()


def _open_terminal(
    backend: Backend, settings: Config, tmux: bool | str, *, create: bool
) -> AbstractAsyncContextManager[Terminal | None]:
    """Return the terminal to open, with None in its place if there is to be none."""
    if tmux is False:
        return _NO_TERMINAL
    return backend.open_terminal(tmux if isinstance(tmux, str) else settings.session, create=create)


_NO_TERMINAL: nullcontext[None] = nullcontext()


def _timing(
    wait: Wait, timeout: float, on_timeout: OnTimeout | None, *, has_terminal: bool
) -> tuple[bool, float, OnTimeout]:
    policy: OnTimeout = on_timeout or ("keep" if has_terminal else "kill")
    if policy not in get_args(OnTimeout):
        raise ValueError(f"on_timeout must be {' or '.join(map(repr, get_args(OnTimeout)))}, not {policy!r}")
    if isinstance(wait, bool):
        return wait, _seconds(timeout), policy
    return True, _seconds(wait), policy


def _seconds(value: float | str) -> float:
    seconds = parse_duration(value)
    if seconds <= 0:
        raise ValueError(f"a timeout must be positive, not {value!r}")
    return seconds


def _command(text: str) -> str:
    check_type(text, "command", str, hint="write a program and its arguments as shlex.join([...])")
    return check_text(text, "command")


def _input(stdin: bytes | str | Path | None) -> bytes | Path | None:
    check_type(stdin, "stdin", bytes, str, Path, NoneType)
    return stdin.encode("utf-8", "surrogateescape") if isinstance(stdin, str) else stdin


def _env(base: tuple[tuple[str, str], ...], extra: Mapping[str, str] | None) -> tuple[tuple[str, str], ...]:
    check_type(extra, "env", Mapping, NoneType)
    merged = dict(base) | dict(extra or {})
    for name, value in merged.items():
        check_type(name, "each name in env", str)
        if not name.isidentifier() or not name.isascii():
            raise ValueError(f"{name!r} is not the name of an environment variable")
        check_text(value, f"env[{name!r}]")
    return tuple(merged.items())
