"""A scripted backend in memory, for tests of programs that use harness: no process, no network, no clock.

>>> backend = MemoryBackend({"uptime": Reply("up 3 days\\n"), "false": Reply(exit_code=1)})
>>> ctx = memory_context(backend)  # an ExecutionContext like any other, without a terminal

Files are a tree in memory. ``backend.received`` holds every command that was run, in order.
"""

from __future__ import annotations

import hashlib
import posixpath
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from anyio import to_thread

from ..backend import ANY, AnyVersion, Backend, Capabilities, Files, Jobs, Progress, Reservation, WriteMode
from ..command import Command
from ..config import Config
from ..context import ExecutionContext
from ..deprecated_names import renamed_names
from ..errors import (
    FileError,
    FileExists,
    FileNotFound,
    IsADirectory,
    JobNotFound,
    NotADirectory,
    PermissionDenied,
    StaleFileError,
    UnsupportedOperation,
)
from ..patterns.wildcards import glob_names, names_match
from ..results import DirEntry, FileContent, FileStat, Job, ShellResult, Status, WriteResult
from ..target import Hop, Target
from ..terminal import Terminal
from ..transport import Process, Transport

__all__ = [
    "MemoryBackend",
    "MemoryFiles",
    "ScriptedReply",
    "memory_context",
]

if not TYPE_CHECKING:
    __getattr__ = renamed_names(__name__, Reply="ScriptedReply")


# -- A file tree in memory, with the behaviour and the errors of a target's. It has files and directories, no links.


TARGET = "memory://here"


@dataclass(slots=True)
class _Node:
    data: bytes | None
    mode: int


class MemoryFiles(Files):
    """Files that exist only here. ``/``, ``/tmp`` and the home are there at the start."""

    def __init__(self, home: str) -> None:
        self._home = home
        self._nodes: dict[str, _Node] = {}
        for path in ("/", "/tmp", posixpath.dirname(home), home):
            self._nodes[path] = _Node(None, 0o755)

    async def read(
        self, path: str, offset: int = 0, limit: int | None = None, progress: Progress | None = None
    ) -> FileContent:
        real = self._real(path)
        data = self._file(real).data or b""
        part = data[offset : None if limit is None else offset + limit]
        _report(progress, len(part))
        return FileContent(part, len(data), self._nodes[real].mode, _version(data), real)

    async def write(
        self,
        path: str,
        content: bytes,
        mode: WriteMode = "overwrite",
        expect: str | AnyVersion | None = ANY,
        parents: bool = True,
        permissions: int | None = None,
        progress: Progress | None = None,
        *,
        force: bool = False,
    ) -> WriteResult:
        real = self._real(path)
        old = self._file(real) if real in self._nodes else None
        self._check_expected(real, old, mode, expect)
        if old is not None and not old.mode & 0o222 and not force:
            raise PermissionDenied(f"{real} is read-only", target=TARGET, hint="force=True writes it")
        self._need_parent(real, parents)
        before = old.data or b"" if old is not None and mode == "append" else b""
        kept = old.mode if old is not None else 0o644
        self._nodes[real] = _Node(before + content, kept if permissions is None else permissions)
        _report(progress, len(content))
        return WriteResult(len(content), old is None, _version(before + content))

    def _check_expected(self, real: str, old: _Node | None, mode: WriteMode, expect: str | AnyVersion | None) -> None:
        if old is not None and mode == "create":
            raise FileExists(f"{real} exists", target=TARGET)
        if isinstance(expect, AnyVersion):
            return
        found = None if old is None else _version(old.data or b"")
        if found != expect:
            raise StaleFileError(f"{real} is not the expected version", target=TARGET, hint="read it again")

    async def stat(self, path: str, *, follow: bool = True) -> FileStat:
        real = self._real(path)
        node = self._node(real)
        return FileStat(real, "dir" if node.data is None else "file", len(node.data or b""), node.mode, 1000, 1000, 0.0)

    async def list_dir(self, path: str) -> list[DirEntry]:
        real = self._directory(path)
        return [entry for entry in self._below(real) if "/" not in entry.name]

    async def walk(self, path: str, *, max_entries: int = 100_000) -> list[DirEntry]:
        found = self._below(self._directory(path))
        if len(found) > max_entries:
            raise FileError(f"{path} holds {len(found)} entries, more than {max_entries}", target=TARGET)
        return found

    async def glob(self, pattern: str, *, root: str = ".", max_entries: int = 100_000) -> list[str]:
        readings = glob_names(pattern.split("/"))
        found = [entry.name for entry in await self.walk(root, max_entries=max_entries)]
        return [name for name in found if any(names_match(one, name.split("/"), visible_only=True) for one in readings)]

    async def mkdir(self, path: str, *, parents: bool = False, exist_ok: bool = False, mode: int = 0o777) -> None:
        real = self._real(path)
        node = self._nodes.get(real)
        if node is not None and (node.data is not None or not exist_ok):
            raise FileExists(f"{real} exists", target=TARGET)
        if node is None:
            self._need_parent(real, parents)
            self._nodes[real] = _Node(None, mode & 0o755)

    async def remove(self, path: str, *, recursive: bool = False, missing_ok: bool = False) -> None:
        real = self._real(path)
        if missing_ok and real not in self._nodes:
            return
        self._node(real)
        below = [name for name in self._nodes if name.startswith(f"{real.rstrip('/')}/")]
        if real in ("/", self._home) or (below and not recursive):
            raise FileError(f"{real} is not removed", target=TARGET, hint="recursive=True removes a tree")
        for name in [real, *below]:
            del self._nodes[name]

    async def rename(self, source: str, destination: str, *, overwrite: bool = False) -> None:
        old, new = self._real(source), self._real(destination)
        self._node(old)
        self._need_parent(new, parents=False)
        if new in self._nodes and not overwrite:
            raise FileExists(f"{new} exists", target=TARGET, hint="overwrite=True replaces it")
        for name in [name for name in self._nodes if name == old or name.startswith(f"{old}/")]:
            self._nodes[new + name[len(old) :]] = self._nodes.pop(name)

    async def upload(
        self, local: str, path: str, progress: Progress | None = None, *, force: bool = False
    ) -> WriteResult:
        data = await to_thread.run_sync(Path(local).read_bytes)
        return await self.write(path, data, progress=progress, force=force)

    async def download(
        self, path: str, local: str, progress: Progress | None = None, *, force: bool = False, overwrite: bool = True
    ) -> int:
        content = await self.read(path, progress=progress)
        try:
            with await to_thread.run_sync(Path(local).open, "wb" if overwrite else "xb") as file:
                return await to_thread.run_sync(file.write, content.data)
        except FileExistsError as error:
            raise FileExists(f"{local}: already exists", target="this machine") from error

    def _real(self, path: str) -> str:
        if "\0" in path:
            raise ValueError("a path cannot hold a NUL byte")
        expanded = self._home + path[1:] if path == "~" or path.startswith("~/") else path
        return posixpath.normpath(posixpath.join(self._home, expanded))

    def _node(self, real: str) -> _Node:
        if real not in self._nodes:
            self._need_parent(real, parents=False)
            raise FileNotFound(f"{real}: no such file or directory", target=TARGET)
        return self._nodes[real]

    def _file(self, real: str) -> _Node:
        node = self._node(real)
        if node.data is None:
            raise IsADirectory(f"{real} is a directory", target=TARGET)
        return node

    def _directory(self, path: str) -> str:
        real = self._real(path)
        if self._node(real).data is not None:
            raise NotADirectory(f"{real} is not a directory", target=TARGET)
        return real

    def _need_parent(self, real: str, parents: bool) -> None:
        parent = posixpath.dirname(real)
        node = self._nodes.get(parent)
        if node is None and parents:
            self._need_parent(parent, parents)
            node = self._nodes[parent] = _Node(None, 0o755)
        if node is None:
            raise FileNotFound(f"{parent}: no such directory", target=TARGET)
        if node.data is not None:
            raise NotADirectory(f"{parent} is not a directory", target=TARGET)

    def _below(self, real: str) -> list[DirEntry]:
        prefix = f"{real.rstrip('/')}/"
        names = sorted(name for name in self._nodes if name.startswith(prefix) and name != prefix)
        found = [(name[len(prefix) :], self._nodes[name]) for name in names]
        return [DirEntry(name, "dir" if node.data is None else "file", len(node.data or b"")) for name, node in found]


def _version(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _report(progress: Progress | None, size: int) -> None:
    if progress is not None:
        progress(size, size)


HOME = "/home/user"


@dataclass(frozen=True, slots=True)
class ScriptedReply:
    """The result of a scripted command; ``exit_code`` is used if the status has an exit code."""

    stdout: str | bytes = b""
    stderr: str | bytes = b""
    exit_code: int = 0
    status: Status = Status.COMPLETED


Script = Mapping[str, ScriptedReply] | Callable[[Command], ScriptedReply]
NOT_SCRIPTED = ScriptedReply(stderr="sh: not in the script of this test\n", exit_code=127)


class MemoryBackend(Backend):
    """A target that does what its script says. Commands that are not in it end with code 127.

    Args:
        script: replies by command text, or a function that gives the reply to a command.
    """

    def __init__(self, script: Script | None = None) -> None:
        self.target = Target((Hop("memory", "here"),))
        self.transport = _NoTransport(self.target)
        self.capabilities = Capabilities(user="user", uid=1000, home=HOME, shell="/bin/sh", system="memory")
        self.files = MemoryFiles(HOME)
        self.received: list[Command] = []
        self.jobs = _MemoryJobs(self.target, self._reply)
        self._script = script or {}

    def _reply(self, command: Command) -> ScriptedReply:
        self.received.append(command)
        if callable(self._script):
            return self._script(command)
        return self._script.get(command.command, NOT_SCRIPTED)

    def open_terminal(self, session: str, *, create: bool = True) -> AbstractAsyncContextManager[Terminal]:
        raise UnsupportedOperation("a backend in memory has no terminal", target=self.target, hint="use tmux=False")


def memory_context(backend: MemoryBackend) -> ExecutionContext:
    """Return a context on the backend; it need not be closed."""
    return ExecutionContext(backend, None, Config())


class _MemoryJobs(Jobs):
    """Jobs that end at once. One that was not waited for is reported as running by ``run``, and has ended after it."""

    def __init__(self, target: Target, reply: Callable[[Command], ScriptedReply]) -> None:
        self._target = target
        self._reply = reply
        self._results: dict[str, ShellResult] = {}
        self._helpers: set[str] = set()
        self._keys: dict[str, str] = {}

    async def reserve(self, key: str, withdraw: str | None = None) -> Reservation:
        if key in self._keys:
            return Reservation(self._keys[key], "started")
        return Reservation(str(len(self._results) + 1), "ours")

    async def find_key(self, key: str) -> str | None:
        return self._keys.get(key)

    async def run(self, command: Command) -> ShellResult:
        reply = self._reply(command)
        job_id = str(len(self._results) + 1)
        command.announce(job_id)
        stdout, stderr = _bytes(reply.stdout), _bytes(reply.stderr)
        ended = reply.status in (Status.COMPLETED, Status.SHELL_EXITED)
        result = ShellResult(
            command.command, reply.status, reply.exit_code if ended else None, stdout, stderr, job_id=job_id
        )
        self._results[job_id] = result
        if command.helper:
            self._helpers.add(job_id)
        if command.key is not None:
            self._keys[command.key] = job_id
        if not command.wait:
            return replace(result, status=Status.RUNNING, exit_code=None, stdout_bytes=b"", stderr_bytes=b"")
        if command.on_output is not None and stdout:
            command.on_output(stdout)
        return _cut(result, command.max_output)

    async def list(self) -> list[Job]:
        return [self._job(job_id) for job_id in self._results]

    async def get(self, job_id: str) -> Job:
        return self._job(job_id)

    async def wait(self, job_id: str, timeout: float, max_output: int) -> ShellResult:
        return _cut(self._find(job_id), max_output)

    async def follow(self, job_id: str, offset: int = 0) -> AsyncIterator[bytes]:
        result = self._find(job_id)
        rest = (result.stdout_bytes + result.stderr_bytes)[offset:]
        if rest:
            yield rest

    async def kill(self, job_id: str, signal: str = "TERM", grace: float = 2.0) -> Job:
        result = self._find(job_id)
        if result.status is Status.RUNNING:
            self._results[job_id] = replace(result, status=Status.INTERRUPTED)
        return self._job(job_id)

    async def clean(self) -> int:
        return 0

    def _job(self, job_id: str) -> Job:
        found = self._find(job_id)
        return Job(job_id, found.command, found.status, found.exit_code, helper=job_id in self._helpers)

    def _find(self, job_id: str) -> ShellResult:
        if job_id not in self._results:
            raise JobNotFound(f"no job {job_id!r}", target=self._target)
        return self._results[job_id]


class _NoTransport(Transport):
    """There are no processes in memory."""

    def __init__(self, target: Target) -> None:
        self.target = target

    async def open_process(self, argv: Sequence[str]) -> Process:
        raise UnsupportedOperation("a backend in memory starts no processes", target=self.target)

    def interactive_argv(self, argv: Sequence[str]) -> list[str]:
        return list(argv)

    def describe(self) -> str:
        return "memory"


def _bytes(output: str | bytes) -> bytes:
    return output.encode("utf-8", "surrogateescape") if isinstance(output, str) else output


def _cut(result: ShellResult, max_output: int) -> ShellResult:
    """Head and tail of the output, as a target returns them."""
    data = result.stdout_bytes
    if len(data) <= max_output:
        return result
    head, tail = max_output - max_output // 2, max_output // 2
    kept = data[:head] + (data[-tail:] if tail else b"")
    omitted = len(data) - len(kept)
    return replace(result, stdout_bytes=kept, truncated=omitted, stdout_gap=(head, omitted))
