"""Files that a target receives from another one, with every kind of shell and tools."""

from __future__ import annotations

import os
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest
from tests.support.file_targets import FLAVOURS, FileTarget, Flavour, open_file_target

from harness.backend import ReceivedFile, ReceiveRequest, SourceFile
from harness.errors import ConnectionLost, FileError, FileNotFound
from harness.transport import Process
from harness_backends.posix.files import copying
from harness_backends.posix.files.copying import masked_mode, touch_times
from harness_backends.posix.files.file_calls import parse_stat
from harness_backends.posix.files.transfer import collect
from harness_backends.posix.persistent_shell import ShellReply

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("needs_process")]
SIZE = 5_000_000


@pytest.fixture(params=FLAVOURS, ids=lambda flavour: flavour.name)
async def target(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[FileTarget]:
    flavour: Flavour = request.param
    with anyio.fail_after(60):
        async with open_file_target(flavour, tmp_path) as opened:
            yield opened


async def receive(target: FileTarget, request: ReceiveRequest, cut_at: int = 0) -> ReceivedFile:
    """Copy the file ``source`` of the target, and lose the connection behind some bytes."""

    def progress(done: int, whole: int | None) -> None:
        if cut_at and done >= cut_at:
            raise ConnectionLost("cut")

    source = await target.files.open_source("source")
    return await target.files.receive(source, request, progress)


def hidden(target: FileTarget) -> list[str]:
    return [path.name for path in target.home.rglob(".hx-*")]


@pytest.mark.parametrize("size", [0, 1, 20_000, 900_000, SIZE])
async def test_content_mode_and_time_arrive(target: FileTarget, size: int) -> None:
    (target.home / "source").write_bytes(content := os.urandom(size))
    name = "a 'b'\n$(c) \udcff*\n"
    received = await receive(target, ReceiveRequest(name, new_permissions=0o751, mtime=1e9))
    copy = target.home / name
    assert (copy.read_bytes(), received.size, received.created) == (content, size, True)
    assert (stat.S_IMODE(copy.stat().st_mode), copy.stat().st_mtime) == (0o751 & ~umask(), 1e9)
    received = await receive(target, ReceiveRequest(name, permissions=0o604, new_permissions=0o777))
    assert (received.created, stat.S_IMODE(copy.stat().st_mode)) == (False, 0o604)
    await receive(target, ReceiveRequest(name, new_permissions=0o777))
    assert stat.S_IMODE(copy.stat().st_mode) == 0o604
    assert hidden(target) == []


def umask() -> int:
    current = os.umask(0o077)
    os.umask(current)
    return current


async def test_a_cut_file_is_continued_once_its_start_was_compared(target: FileTarget) -> None:
    (target.home / "source").write_bytes(content := os.urandom(SIZE))
    with pytest.raises(ConnectionLost):
        await receive(target, ReceiveRequest("copy", nonce="one"), cut_at=4_000_000)
    assert not (target.home / "copy").exists()
    (name,) = hidden(target)
    assert name.rpartition(".")[0].endswith(".one")
    received = await receive(target, ReceiveRequest("copy", nonce="two"))
    assert 1_000_000 < received.resumed_at <= 4_100_000
    assert (target.home / "copy").read_bytes() == content
    assert hidden(target) == []
    with pytest.raises(ConnectionLost):
        await receive(target, ReceiveRequest("other", nonce="one"), cut_at=2_000_000)
    (target.home / "source").write_bytes(changed := os.urandom(SIZE))
    received = await receive(target, ReceiveRequest("other", nonce="two"))
    assert (received.resumed_at, (target.home / "other").read_bytes()) == (0, changed)
    assert hidden(target) == []


async def test_a_partial_file_that_is_being_written_is_left_alone(target: FileTarget) -> None:
    (target.home / "source").write_bytes(content := os.urandom(SIZE))
    with pytest.raises(ConnectionLost):
        await receive(target, ReceiveRequest("copy", nonce="one"), cut_at=4_000_000)
    (name,) = hidden(target)
    written = target.home / f"{name.rpartition('.')[0]}.{os.getpid()}"  # this process is alive
    (target.home / name).rename(written)
    before = written.read_bytes()
    received = await receive(target, ReceiveRequest("copy", nonce="two"))
    assert (received.resumed_at, (target.home / "copy").read_bytes()) == (0, content)
    assert written.read_bytes() == before
    received = await receive(target, ReceiveRequest("copy", nonce="one"))  # its own, after a reconnect
    assert (received.resumed_at, hidden(target)) == (len(before), [])


async def test_a_partial_file_that_another_copy_takes_meanwhile_is_not_missed(target: FileTarget) -> None:
    (target.home / "source").write_bytes(content := os.urandom(SIZE))
    with pytest.raises(ConnectionLost):
        await receive(target, ReceiveRequest("copy", nonce="one"), cut_at=4_000_000)
    taken: list[int] = []

    def progress(done: int, whole: int | None) -> None:
        if not taken:
            taken.append(done)
            (partial,) = target.home.glob(".hx-tmp-*.two.x")
            partial.rename(partial.with_name(partial.name.replace(".two.x", ".three.x")))

    source = await target.files.open_source("source")
    received = await target.files.receive(source, ReceiveRequest("copy", nonce="two"), progress)
    assert (received.resumed_at, taken[0] > 1_000_000) == (0, True)
    assert (target.home / "copy").read_bytes() == content


async def test_a_partial_file_that_others_may_write_is_not_continued(target: FileTarget, needs_root: None) -> None:
    (target.home / "source").write_bytes(content := os.urandom(SIZE))

    def of_another_user(partial: Path) -> None:
        os.chown(partial, 12345, 12345)

    def writable(partial: Path) -> None:
        partial.chmod(0o620)

    def linked(partial: Path) -> None:
        (target.home / "linked").hardlink_to(partial)

    for number, change in enumerate((of_another_user, writable, linked)):
        with pytest.raises(ConnectionLost):
            await receive(target, ReceiveRequest("copy", nonce="one"), cut_at=4_000_000)
        (name,) = hidden(target)
        change(target.home / name)
        before = (target.home / name).read_bytes()
        received = await receive(target, ReceiveRequest("copy", nonce=f"two{number}"))
        assert (received.resumed_at, (target.home / "copy").read_bytes()) == (0, content)
        assert (target.home / "copy").stat().st_uid == 0
        assert (target.home / name).read_bytes() == before
        (target.home / name).unlink()
        (target.home / "copy").unlink()


async def test_a_file_without_size_and_end_is_an_error(
    target: FileTarget, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    received = await target.files.receive(await target.files.open_source("/proc/kallsyms"), ReceiveRequest("symbols"))
    assert received.size == (target.home / "symbols").stat().st_size > 1 << 20
    monkeypatch.setattr(copying, "MAX_UNSIZED_BYTES", 1 << 20)
    with pytest.raises(FileError, match="more than 1 MiB"):
        await target.files.open_source("/proc/kallsyms")


class Changing(SourceFile):
    """A source whose content changes while it is read."""

    def __init__(self, source: SourceFile, path: Path) -> None:
        self.path, self.size, self.mode, self.mtime, self.data = "source", source.size, 0o600, 0.0, None
        self._source, self._path = source, path

    async def copy(self, offset: int, sink) -> None:  # type: ignore[no-untyped-def]  # as its base
        await self._source.copy(offset, sink)
        with self._path.open("ab") as file:
            file.write(b"more")

    async def version(self, length: int, scheme: str) -> str | None:
        return await self._source.version(length, scheme)

    async def check_unchanged(self) -> None:
        await self._source.check_unchanged()


@pytest.mark.parametrize("size", [600_000, SIZE])
async def test_a_source_that_changes_meanwhile_is_an_error(target: FileTarget, size: int) -> None:
    (target.home / "source").write_bytes(os.urandom(size))
    source = Changing(await target.files.open_source("source"), target.home / "source")
    with pytest.raises(FileError, match="changed while it was copied"):
        await target.files.receive(source, ReceiveRequest("copy"))
    assert ((target.home / "copy").exists(), hidden(target)) == (False, [])


async def test_what_was_damaged_on_its_way_does_not_become_the_file(target: FileTarget) -> None:
    (target.home / "source").write_bytes(os.urandom(SIZE))
    (target.home / "copy").write_text("old")

    class Damaged(Changing):
        async def copy(self, offset: int, sink) -> None:  # type: ignore[no-untyped-def]  # as its base
            await sink(b"short")

    source = Damaged(await target.files.open_source("source"), target.home / "none")
    with pytest.raises(FileError):
        await target.files.receive(source, ReceiveRequest("copy"))
    assert ((target.home / "copy").read_text(), hidden(target)) == ("old", [])


async def test_an_upload_is_compared_before_it_becomes_the_file(
    target: FileTarget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "local").write_bytes(content := os.urandom(SIZE))
    (target.home / "f").write_text("old")
    feed = copying.feed

    async def damaging(process: Process, chunks: AsyncIterator[bytes]) -> ShellReply:
        return await feed(process, (chunk[:-1] + b"%" async for chunk in chunks))

    with monkeypatch.context() as patch:
        patch.setattr(copying, "feed", damaging)
        for path in ("f", "new/deep/f"):
            with pytest.raises(FileError, match="another content"):
                await target.files.upload(str(tmp_path / "local"), path)
    assert (os.listdir(target.home), (target.home / "f").read_text()) == (["f"], "old")
    result = await target.files.upload(str(tmp_path / "local"), "new/deep/f")
    assert ((target.home / "new/deep/f").read_bytes(), result.created) == (content, True)
    assert result.version == await target.files.version("new/deep/f")


async def test_an_upload_that_is_cancelled_leaves_nothing(target: FileTarget, tmp_path: Path) -> None:
    (tmp_path / "local").write_bytes(os.urandom(SIZE))
    scope = anyio.CancelScope()

    def stop(done: int, whole: int | None) -> None:
        if done >= 2_000_000:
            assert len(hidden(target)) == 1
            scope.cancel()

    with scope:
        await target.files.upload(str(tmp_path / "local"), "new/deep/f", stop)
    assert os.listdir(target.home) == []


async def test_versions_of_parts(target: FileTarget) -> None:
    (target.home / "f").write_bytes(b"0123456789")
    whole = await target.files.version("f")
    assert whole == await target.files.version("f", 10) == await target.files.version("f", 99)
    assert await target.files.version("f", 5) != whole
    assert await target.files.version("f", None, "cksum") in {"cksum:3648003736:10", None}  # busybox may lack it
    assert await target.files.version("f", None, "md5") is None


def test_a_mode_less_the_umask() -> None:
    assert masked_mode(0o777) == "=rwx"
    assert masked_mode(0o640) == "=rwx,u-x,g-wx,o-rwx"
    assert masked_mode(0) == "=rwx,u-rwx,g-rwx,o-rwx"


def test_a_time_that_no_calendar_has_is_limited() -> None:
    assert touch_times(1e9 + 0.25) == ("2001-09-09T01:46:40.250000000Z", "200109090146.40")
    assert touch_times(1e30) == touch_times(1e40)
    assert touch_times(-1e30)[0].startswith("-")
    for text in ("inf", "nan", "-inf"):
        with pytest.raises(ValueError, match="not a time"):
            parse_stat(f"8000 0644 1 0 0 {text}")


async def test_an_answer_without_end_is_not_kept(target: FileTarget) -> None:
    process = await target.transport.open_process(["sh", "-c", "head -c 5000000 /dev/zero; exit 3"])
    reply = await collect(process)
    assert (reply.exit_code, len(reply.stdout) < 1_000_000) == (3, True)


async def test_a_relative_download_starts_at_the_working_directory(
    target: FileTarget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (target.home / "f").write_bytes(b"new")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    for name in ("plain", "~", "~root", "-r", "a\nb"):
        assert await target.files.download("f", name) == 3
        assert (tmp_path / "here" / name).read_bytes() == b"new"
        with pytest.raises(FileError, match="already exists"):
            await target.files.download("f", name, overwrite=False)
    with pytest.raises(FileError, match=r"^this machine: sub/f: no such file or directory"):
        await target.files.download("f", "sub/f")
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(FileNotFound, match="this machine: relative"):
        await target.files.download("f", "relative")
    assert await target.files.download("f", str(tmp_path / "absolute")) == 3


async def test_a_download_that_is_cancelled_leaves_nothing(target: FileTarget, tmp_path: Path) -> None:
    size = 64 << 20
    (target.home / "f").touch()
    os.truncate(target.home / "f", size)
    folder = tmp_path / "folder"
    folder.mkdir()
    async with anyio.create_task_group() as tasks:

        def stop(done: int, whole: int | None) -> None:
            if done > 1 << 20:
                tasks.cancel_scope.cancel()

        tasks.start_soon(target.files.download, "f", str(folder / "copy"), stop)
    assert os.listdir(folder) == []


async def test_a_download_is_compared_before_it_becomes_the_file(
    target: FileTarget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Damage on the way to the disk of this machine."""
    (target.home / "f").write_bytes(os.urandom(3 << 20))
    feed = copying.feed

    async def damaged(process: Process, chunks: AsyncIterator[bytes]) -> ShellReply:
        async def changed() -> AsyncIterator[bytes]:
            async for chunk in chunks:
                yield bytes([chunk[0] ^ 1]) + chunk[1:]

        return await feed(process, changed())

    (tmp_path / "copy").write_bytes(b"old")
    monkeypatch.setattr(copying, "feed", damaged)
    with pytest.raises(FileError, match=r"^this machine: .*another content"):
        await target.files.download("f", str(tmp_path / "copy"))
    assert (tmp_path / "copy").read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".hx-")] == []
