"""Stores long outputs, and the tool that reads them in pages."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import re
import secrets
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from anyio import to_thread
from pydantic import Field

from ...errors import FileNotFound, PermissionDenied
from ...system.private_files import make_directories, state_home
from ..contract import Arguments, OutputLimit, Tool, ToolContext, Traits
from ..interfaces import OutputStoreBase
from ..values import ToolResult

__all__ = [
    "OutputQuota",
    "OutputStore",
    "Page",
    "ReadOutput",
    "outputs_directory",
]


# -- Complete outputs, stored on this machine for reading them in pages: private files with a quota.
#
# Several processes may share one directory. The stored texts are already redacted.


log = logging.getLogger(__name__)

SCHEME = "output:"
_HANDLE = re.compile(rf"{SCHEME}([0-9a-f]{{24}})")
_OURS = re.compile(r"\.?[0-9a-f]{24}\.(?:txt|new)")
_LOCK = ".lock"
ENCODING = ("utf-8", "surrogatepass")
"""Restores every text exactly, including single surrogates from bytes that were not text."""
PAGE = 15_000
UNFINISHED = 3_600.0
"""Seconds after which an unfinished file must be from a process that has exited."""


@dataclass(frozen=True, slots=True)
class OutputQuota:
    """Limits of the stored outputs: total bytes, bytes of one, number, and age in seconds."""

    total: int = 256 << 20
    one: int = 32 << 20
    count: int = 5_000
    age: float = 7 * 86_400.0


@dataclass(frozen=True, slots=True)
class Page:
    """A part of an output. ``next`` is the offset of the next part; None at the end. All in characters."""

    text: str
    offset: int
    total: int
    next: int | None


def outputs_directory(environ: Mapping[str, str] | None = None) -> Path:
    """Return ``$XDG_STATE_HOME/harness/outputs``, or ``~/.local/state/harness/outputs``."""
    return state_home(environ) / "outputs"


class OutputStore(OutputStoreBase):
    """Outputs as files with mode 0600 in a directory with mode 0700.

    Args:
        directory: the default is :func:`outputs_directory`.
        quota: limits of the stored outputs.
        clock: returns the Unix time.
    """

    def __init__(
        self,
        directory: Path | None = None,
        quota: OutputQuota | None = None,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._directory = directory or outputs_directory()
        self._quota = quota or OutputQuota()
        self._clock = clock

    async def keep(self, call_id: str, text: str) -> str:
        """Store a text and return its handle.

        Returns:
            An empty handle if that failed, such as on a full disk: the result must not fail for lack of a copy.
        """
        return await to_thread.run_sync(self._keep, call_id, text)

    async def page(self, handle: str, offset: int = 0, limit: int = PAGE) -> Page:
        """Return a part of a stored output.

        Args:
            handle: from :meth:`keep`.
            offset: characters from the start; a negative one counts from the end.
            limit: maximum number of characters.

        Raises:
            FileNotFound: there is no such output, or it was deleted.
            PermissionDenied: the file or directory is not private to the user.
        """
        return await to_thread.run_sync(partial(self._page, handle, offset, limit))

    # -- In a worker thread.

    def _keep(self, call_id: str, text: str) -> str:
        data = text.encode(*ENCODING)
        name = secrets.token_hex(12)
        try:
            if len(data) > self._quota.one:
                raise OSError(errno.EFBIG, f"more than {self._quota.one} bytes")
            with self._opened(make=True) as place:
                with _locked(place):
                    _make_room(place, self._quota, len(data), self._clock())
                _write(place, name, data)
        except OSError as error:
            log.warning(
                "the complete output of call %s was not stored in %s: %s", call_id, self._directory, error.strerror
            )
            return ""
        return f"{SCHEME}{name}"

    def _page(self, handle: str, offset: int, limit: int) -> Page:
        match = _HANDLE.fullmatch(handle)
        text = self._read(match[1]) if match else None
        if text is None:
            days = f"{self._quota.age / 86_400:g} days"
            raise FileNotFound(
                f"output {handle[:80]!r} is not stored here", hint=f"outputs are stored for at most {days}"
            )
        start = max(0, len(text) + offset if offset < 0 else offset)
        piece = text[start : start + max(0, limit)]
        end = start + len(piece)
        return Page(piece, start, len(text), end if end < len(text) else None)

    def _read(self, name: str) -> str | None:
        try:
            with self._opened(make=False) as place:
                file = os.open(f"{name}.txt", os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, dir_fd=place)
                with os.fdopen(file, "rb") as opened:
                    _check(os.fstat(opened.fileno()), stat.S_ISREG)
                    return opened.read().decode(*ENCODING)
        except (FileNotFoundError, UnicodeDecodeError):
            return None
        except OSError as error:
            raise PermissionDenied(f"the output cannot be read: {error.strerror}", target=self._directory) from error

    @contextmanager
    def _opened(self, *, make: bool) -> Iterator[int]:
        """Open the directory, which must be private to the user.

        Raises:
            OSError: it is not.
        """
        if make:
            make_directories(self._directory)
        place = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            _check(os.fstat(place), stat.S_ISDIR)
            yield place
        finally:
            os.close(place)


def _check(info: os.stat_result, kind: Callable[[int], bool]) -> None:
    if not kind(info.st_mode):
        raise OSError(errno.EACCES, "it has the wrong file type")
    if info.st_uid != os.geteuid():
        raise OSError(errno.EACCES, "it belongs to another user")
    if info.st_mode & 0o077:
        raise OSError(errno.EACCES, "it is accessible to other users")


def _write(place: int, name: str, data: bytes) -> None:
    """Write a complete file under its name, or nothing."""
    fresh = f".{name}.new"
    file = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=place)
    try:
        with os.fdopen(file, "wb") as opened:
            opened.write(data)
        os.rename(fresh, f"{name}.txt", src_dir_fd=place, dst_dir_fd=place)
    except BaseException:
        os.unlink(fresh, dir_fd=place)
        raise


@contextmanager
def _locked(place: int) -> Iterator[None]:
    """Let only one process at a time delete old outputs; closing the file releases the lock."""
    file = os.open(_LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=place)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
    finally:
        os.close(file)


@dataclass(frozen=True, slots=True)
class _StoredOutput:
    changed: float
    name: str
    size: int

    @property
    def whole(self) -> bool:
        return not self.name.startswith(".")


def _make_room(place: int, quota: OutputQuota, size: int, now: float) -> None:
    for kept in _surplus(_all(place), quota, size, now):
        try:
            os.unlink(kept.name, dir_fd=place)
        except FileNotFoundError:
            continue


def _all(place: int) -> list[_StoredOutput]:
    found = []
    for name in os.listdir(place):
        if _OURS.fullmatch(name):
            try:
                info = os.stat(name, dir_fd=place, follow_symlinks=False)
            except FileNotFoundError:
                continue
            found.append(_StoredOutput(info.st_mtime, name, info.st_size))
    return found


def _surplus(kept: list[_StoredOutput], quota: OutputQuota, size: int, now: float) -> list[_StoredOutput]:
    """Return what to delete before storing ``size`` more bytes: outputs that are too old, then the oldest. Pure."""
    limits = {True: quota.age, False: UNFINISHED}
    gone = [one for one in kept if now - one.changed > limits[one.whole]]
    staying = sorted((one for one in kept if one not in gone and one.whole), key=lambda one: (one.changed, one.name))
    total = sum(one.size for one in staying) + size
    count = len(staying) + 1
    for one in staying:
        if total <= quota.total and count <= quota.count:
            break
        gone.append(one)
        total -= one.size
        count -= 1
    return gone


# -- The tool with which a model reads the rest of a truncated result.


SHOWN = 15_000
MAX_PAGE_CHARS = 60_000


class _Arguments(Arguments):
    handle: str = Field(description="the handle in the truncated result: output:...")
    offset: int = Field(0, description="character to start at; a negative one counts from the end")
    limit: int = Field(SHOWN, ge=1, le=MAX_PAGE_CHARS, description="maximum number of characters")


class ReadOutput(Tool[_Arguments]):
    """``read_output``. It reads stored outputs on this machine, never on the target."""

    def __init__(self, store: OutputStore) -> None:
        text = "Read the rest of a truncated result. The result gives its handle where it was cut."
        traits = Traits(parallelizable=True, packs=("core",), limit=OutputLimit(MAX_PAGE_CHARS + 1_000, 0))
        super().__init__("read_output", text, _Arguments, traits)
        self._store = store

    async def run(self, args: _Arguments, ctx: ToolContext) -> ToolResult:
        page = await self._store.page(args.handle, args.offset, args.limit)
        end = page.offset + len(page.text)
        rest = "" if page.next is None else f"; continue with offset={page.next}"
        note = f"[characters {page.offset} to {end} of {page.total}{rest}]"
        return ToolResult.of(
            f"{page.text}\n{note}" if page.text else note, data={"next": page.next, "total": page.total}
        )
