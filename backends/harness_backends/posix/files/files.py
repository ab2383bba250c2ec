"""Files on the target over any transport, with POSIX tools only.

Small operations take one round trip of the persistent shell; large contents go through a separate process, or through
the persistent shell in pieces where the target allows no second channel. Guarantees about atomicity:

* ``write`` (overwrite, create) stages a hidden file next to the real one and renames it: a reader sees the old content
  or the new. ``append`` writes at the end of the file itself (``O_APPEND``): a full disk may leave a part of it.
* ``expect`` is compared under a lock that every harness process takes, so that one of two writers that expect the same
  version wins. Other programs do not know the lock.
* A replaced file keeps its permissions, and its owner where the target's user may set it, and where ``cp`` is GNU's its
  access control list, label and extended attributes; other hard links to the old file keep the old content.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from harness.backend import (
    ANY,
    AnyVersion,
    Capabilities,
    Files,
    Progress,
    ReceivedFile,
    ReceiveRequest,
    SmallFile,
    SourceFile,
    WriteMode,
)
from harness.results import DirEntry, FileContent, FileStat, WriteResult
from harness.system.background_tasks import open_task_group
from harness.transport import Transport

from ..persistent_shell import PersistentShell
from .content import FileWriter, WriteRequest, read_file
from .copying import Downloads, FileReceiver, file_version, masked_mode, open_source_file, set_attributes
from .file_calls import FileCalls, check_path, fields_of, file_error, parse_stat
from .search import Search, glob_paths, list_entries, search
from .shell_library import Refusal, call
from .small_files import SmallFiles
from .transfer import collect
from .upload_source import open_source

__all__ = ["PosixFiles"]

SMALL_TREE = 500
"""A tree with fewer entries is removed by the persistent shell, a larger one by a separate process."""


class PosixFiles(Files):
    """See :class:`harness.backend.Files`. Every method raises the matching :class:`harness.errors.FileError`.

    ``aclose`` ends the shell that downloads use on this machine.
    """

    def __init__(
        self,
        shell: PersistentShell,
        transport: Transport,
        capabilities: Capabilities,
        local: Callable[[], Transport],
    ) -> None:
        self._transport = transport
        self._calls = FileCalls(shell, transport, capabilities.home)
        self._writer = FileWriter(self._calls)
        self._receiver = FileReceiver(self._calls, self._writer)
        self._small = SmallFiles(self._calls, self._writer)
        self._downloads = Downloads(shell, local)
        self.aclose = self._downloads.aclose

    async def read(
        self, path: str, offset: int = 0, limit: int | None = None, progress: Progress | None = None
    ) -> FileContent:
        """Read a file, or ``limit`` bytes from byte ``offset``. Pipes and devices are rejected.

        The version of a file beyond 64 MiB that was not read whole is its stamp (``stat:``), which every change to the
        file changes; otherwise it is the hash of the whole content.
        """
        return await read_file(self._calls, path, offset, limit, progress)

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
        """Write a file, atomically as described in :mod:`.files`; the result has the version of the whole file."""
        if mode not in ("overwrite", "create", "append"):
            raise ValueError(f"mode {mode!r}: use overwrite, create or append")
        request = WriteRequest(path, len(content), mode, expect, parents, permissions, force)
        return await self._writer.write(request, content, progress)

    async def stat(self, path: str, *, follow: bool = True) -> FileStat:
        """Return a file's metadata; its ``path`` contains no links (except the last part with ``follow=False``)."""
        reply = await self._calls.run(path, call("hxf_status", path, int(follow)))
        with self._calls.understanding(path, reply.stdout):
            (_, line, real, link), _ = fields_of(reply.stdout, 4)
            stat = parse_stat(line)
        target = link if stat.type == "link" else None
        return FileStat(real, stat.type, stat.size, stat.mode, stat.uid, stat.gid, stat.mtime, target)

    async def list_dir(self, path: str) -> list[DirEntry]:
        """Return the entries of a directory, sorted; a link is listed as a link."""
        return await list_entries(self._calls, path)

    async def walk(self, path: str, *, max_entries: int = 100_000) -> list[DirEntry]:
        """Return all entries below a directory; a directory that cannot be entered is listed without its content.

        Raises:
            FileError: there are more than ``max_entries``; nothing is returned then.
        """
        return await search(self._calls, Search(path, "search"), max_entries)

    async def glob(self, pattern: str, *, root: str = ".", max_entries: int = 100_000) -> list[str]:
        """Return matching paths, relative to ``root`` if the pattern is relative; see :mod:`.search` for the rules.

        Raises:
            FileError: more than ``max_entries`` match; nothing is returned then.
            ValueError: the pattern is empty, or has ``..`` after a wildcard.
        """
        return await glob_paths(self._calls, pattern, root, max_entries)

    async def mkdir(self, path: str, *, parents: bool = False, exist_ok: bool = False, mode: int = 0o777) -> None:
        """Create a directory; the default mode follows the target's umask, another one is set exactly."""
        exact = "" if mode == 0o777 else f"{mode:04o}"
        await self._calls.run(path, call("hxf_mkdir", path, int(parents), int(exist_ok), exact))

    async def remove(self, path: str, *, recursive: bool = False, missing_ok: bool = False) -> None:
        """Remove a file, a link (never what it points to), an empty directory, or with ``recursive`` a tree.

        Raises:
            PermissionDenied: also for the root directory, the home directory and its parents.
        """
        self._refuse_nameless(path)
        reply = await self._calls.attempt(call("hxf_remove", path, int(recursive), SMALL_TREE))
        if reply.exit_code == Refusal.BIG:
            script = call("hxf_remove", path, int(recursive), 0)
            process = await self._calls.open_script(script)
            reply = await collect(process) if process is not None else await self._calls.attempt(script)
        if not (missing_ok and reply.exit_code == Refusal.MISSING):
            self._calls.checked(path, reply)

    async def rename(self, source: str, destination: str, *, overwrite: bool = False) -> None:
        """Rename within one file system; never into an existing directory. Links themselves are renamed."""
        self._refuse_nameless(source)
        self._refuse_nameless(destination)
        reply = await self._calls.attempt(call("hxf_rename", source, destination, int(overwrite)))
        self._calls.checked(destination if reply.stdout else source, reply)

    async def upload(
        self, local: str, path: str, progress: Progress | None = None, *, force: bool = False
    ) -> WriteResult:
        """Copy a file of this machine to the target with its permissions; as large as it was when it was opened."""
        async with open_source(local) as source:
            request = ReceiveRequest(path, permissions=source.mode, force=force, parents=True, resume=False)
            received = await self.receive(source, request, progress)
        return WriteResult(received.size, received.created, received.version)

    async def download(
        self, path: str, local: str, progress: Progress | None = None, *, force: bool = False, overwrite: bool = True
    ) -> int:
        """Copy a file of the target to this machine with its permissions; as large as it was when it was opened."""
        async with open_task_group() as tasks:
            tasks.start_soon(self._downloads.prepare)
            source = await open_source_file(self._calls, path, own_channel=True, may_grow=True)
        return await self._downloads.receive(source, local, progress, force=force, overwrite=overwrite)

    async def open_source(self, path: str, *, own_channel: bool = True) -> SourceFile:
        """Open a file to be copied to another target; without ``own_channel``, the persistent shell reads it."""
        return await open_source_file(self._calls, path, own_channel=own_channel)

    async def receive(
        self, source: SourceFile, request: ReceiveRequest, progress: Progress | None = None
    ) -> ReceivedFile:
        """Write a file with the content of another target's, as :mod:`.copying` describes."""
        check_path(request.path, self._transport.target)
        return await self._receiver.receive(source, request, progress)

    async def read_small(self, paths: Sequence[str], max_bytes: int) -> list[SmallFile | None]:
        """Read small files with one process."""
        return await self._small.read(paths, max_bytes)

    async def receive_small(self, files: Sequence[SmallFile], requests: Sequence[ReceiveRequest]) -> list[bool]:
        """Write small files with one process, as :mod:`.small_files` describes."""
        return await self._small.receive(files, requests)

    async def versions(self, paths: Sequence[str], scheme: str = "") -> list[str]:
        """Return the hashes of small files, computed by one process."""
        return await self._small.versions(paths, scheme)

    async def version(self, path: str, length: int | None = None, scheme: str = "") -> str | None:
        """Return the hash of a file, or of its first bytes; None if the target has no program for the scheme."""
        return await file_version(self._calls, path, length, scheme or await self._calls.scheme())

    async def set_attributes(self, path: str, *, mode: int | None = None, mtime: float | None = None) -> None:
        """Set the mode, exactly, and the time of the last change of a file or a directory."""
        await set_attributes(self._calls, path, "" if mode is None else f"{mode:04o}", mtime)

    async def limit_mode(self, path: str, mode: int) -> None:
        """Set mode bits less those of the umask."""
        await set_attributes(self._calls, path, masked_mode(mode), None)

    def _refuse_nameless(self, path: str) -> None:
        check_path(path, self._transport.target)
        if path.rstrip("/").rpartition("/")[2] in ("", ".", "..", "~"):
            raise file_error(path, Refusal.PROTECTED, b"", self._transport.target)
