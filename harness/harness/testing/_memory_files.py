"""A file tree in memory, with the behaviour and the errors of a target's. It has files and directories, no links."""

from __future__ import annotations

import hashlib
import posixpath
import re
from dataclasses import dataclass
from pathlib import Path

from anyio import to_thread

from ..backend import ANY, Any_, Files, Progress, WriteMode
from ..errors import (
    FileError,
    FileExists,
    FileNotFound,
    IsADirectory,
    NotADirectory,
    PermissionDenied,
    StaleFileError,
)
from ..results import DirEntry, FileContent, FileStat, WriteResult

__all__ = ["MemoryFiles"]

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
        expect: str | Any_ | None = ANY,
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

    def _check_expected(self, real: str, old: _Node | None, mode: WriteMode, expect: str | Any_ | None) -> None:
        if old is not None and mode == "create":
            raise FileExists(f"{real} exists", target=TARGET)
        if isinstance(expect, Any_):
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
        matches = re.compile(_translate(pattern)).fullmatch
        entries = await self.walk(root, max_entries=max_entries)
        return [entry.name for entry in entries if matches(entry.name)]

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

    async def download(self, path: str, local: str, progress: Progress | None = None, *, force: bool = False) -> int:
        content = await self.read(path, progress=progress)
        return await to_thread.run_sync(Path(local).write_bytes, content.data)

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


_TOKEN = re.compile(r"\*\*/|\*\*|\*|\?|\[!?\]?[^\]]*\]|.", re.DOTALL)
_SPECIAL = {"**/": r"(?:(?!\.)[^/]+/)*", "**": r"(?:(?!\.)[^/]+/)*(?!\.)[^/]+", "*": "[^/]*", "?": "[^/]"}


def _translate(pattern: str) -> str:
    """A pattern as a regular expression: ``**`` is any directories; hidden names only where the pattern says so."""
    expression, at_start = "", True
    for token in _TOKEN.findall(pattern):
        if at_start and token[0] in "*?[" and not token.startswith("**"):
            expression += r"(?!\.)"
        expression += _SPECIAL.get(token) or _translate_class(token)
        at_start = token.endswith("/")
    return expression


def _translate_class(token: str) -> str:
    if len(token) == 1:
        return re.escape(token)
    inside = token[1:-1].replace("\\", "\\\\")
    return f"[^/{inside[1:]}]" if inside.startswith("!") else f"[{inside}]"
