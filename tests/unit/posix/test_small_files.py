"""Many small files at once, with every kind of shell and tools: the promises for each are those of a single one."""

from __future__ import annotations

import os
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest
from tests.faults.rig import until
from tests.support.file_targets import (
    BARE,
    DASH,
    FLAVOURS,
    FileTarget,
    Flavour,
    open_file_target,
    unprivileged_target,
)

from harness.backend import ReceiveRequest, SmallFile
from harness.errors import FileError, UnsupportedOperation
from harness_backends.posix.files import small_files

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("needs_process")]
NAMES = ["-r", "a b", "new\nline", "*", "$(touch x)", "'\"\\", "\udcff\udcfe", "~", "é", ".hidden", "n" * 90, "run"]


@pytest.fixture(params=FLAVOURS, ids=lambda flavour: flavour.name)
async def target(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[FileTarget]:
    flavour: Flavour = request.param
    with anyio.fail_after(60):
        async with open_file_target(flavour, tmp_path) as opened:
            yield opened


def umask() -> int:
    current = os.umask(0o077)
    os.umask(current)
    return current


def hidden(target: FileTarget) -> list[str]:
    return [path.name for path in target.home.rglob(".hx-*")]


def files_of(*contents: bytes, mode: int = 0o644) -> list[SmallFile]:
    return [SmallFile(mode, 1e9, content) for content in contents]


def requests(*paths: str) -> list[ReceiveRequest]:
    return [ReceiveRequest(path, new_permissions=0o751) for path in paths]


async def test_odd_names_content_modes_and_times_arrive(target: FileTarget) -> None:
    for directory in ("from", "to/one dir", "to/-"):
        (target.home / directory).mkdir(parents=True)
    contents = {name: os.urandom(number * 700) for number, name in enumerate(NAMES)}
    for name, content in contents.items():
        (target.home / "from" / name).write_bytes(content)
        (target.home / "from" / name).chmod(0o640)
        os.utime(target.home / "from" / name, (1e9, 1e9 + len(content)))
    (target.home / "from/link").symlink_to("a b")
    paths = [f"from/{name}" for name in NAMES]
    found = await target.files.read_small([*paths, "from/none", "from", "from/link"], 1 << 20)
    assert found[-3:-1] == [None, None]
    read = [file for file in found[:-3] if file is not None]
    assert [(file.mode, file.data) for file in read] == [(0o640, content) for content in contents.values()]
    assert found[-1] is not None
    assert found[-1].data == contents["a b"]
    half = len(NAMES) // 2
    plain = [ReceiveRequest(f"~/to/one dir/{name}", new_permissions=0o751) for name in NAMES[:half]]
    kept = [
        ReceiveRequest(f"{target.home}/to/-/{name}", permissions=0o604, mtime=1e9 + number)
        for number, name in enumerate(NAMES[half:])
    ]
    assert await target.files.receive_small(read, plain + kept) == [True] * len(NAMES)
    for name in NAMES[:half]:
        copy = target.home / "to/one dir" / name
        assert (copy.read_bytes(), stat.S_IMODE(copy.stat().st_mode)) == (contents[name], 0o751 & ~umask())
        assert copy.stat().st_nlink == 1
    for number, name in enumerate(NAMES[half:]):
        copy = target.home / "to/-" / name
        assert (copy.read_bytes(), stat.S_IMODE(copy.stat().st_mode)) == (contents[name], 0o604)
        assert copy.stat().st_mtime == 1e9 + number
    assert hidden(target) == []


async def test_hashes_are_those_of_single_files(target: FileTarget) -> None:
    paths = ["one", "two\\", "empty"]
    for path in paths:
        (target.home / path).write_bytes(b"" if path == "empty" else path.encode() * 100)
    assert await target.files.versions(paths) == [await target.files.version(path) for path in paths]
    with pytest.raises(FileError):
        await target.files.versions([*paths, "none"])
    with pytest.raises(FileError):
        await target.files.versions(paths, "md5")


async def test_only_files_are_replaced_and_no_link_is_followed(target: FileTarget) -> None:
    for name in ("to", "other", "outside", "other/directory"):
        (target.home / name).mkdir()
    (target.home / "to/old").write_text("old")
    (target.home / "to/old").chmod(0o640)
    (target.home / "other/link").symlink_to(target.home / "outside/new")
    (target.home / "other/dir").symlink_to(target.home / "outside")
    (target.home / "outside/kept").write_text("kept")
    (target.home / "other/to kept").symlink_to(target.home / "outside/kept")
    paths = ["to/new", "to/old", "other/link", "other/dir", "outside/fine", "other/to kept", "other/directory"]
    received = await target.files.receive_small(files_of(*[b"new"] * 7), requests(*paths))
    assert received == [True, True, False, False, True, False, False]
    assert ((target.home / "to/old").read_text(), (target.home / "outside/kept").read_text()) == ("new", "kept")
    assert stat.S_IMODE((target.home / "to/old").stat().st_mode) == 0o640
    assert sorted(os.listdir(target.home / "outside")) == ["fine", "kept"]
    assert os.listdir(target.home / "other/directory") == []
    assert (target.home / "other/dir").is_symlink()
    assert hidden(target) == []


async def test_odd_names_are_replaced_and_keep_their_modes(target: FileTarget) -> None:
    (target.home / "to").mkdir()
    (target.home / "other").mkdir()
    paths = [f"{'to' if number % 2 else 'other'}/{name}" for number, name in enumerate(NAMES)]
    for number, path in enumerate(paths):
        (target.home / path).write_text("older content")
        (target.home / path).chmod(0o600 + number)
    (target.home / "to/linked").hardlink_to(target.home / paths[1])
    files = files_of(*[path.encode("utf-8", "surrogateescape") for path in paths])
    files[2] = SmallFile(0o644, 1e9, b"")
    assert await target.files.receive_small(files, requests(*paths)) == [True] * len(paths)
    for number, (path, file) in enumerate(zip(paths, files, strict=True)):
        assert (target.home / path).read_bytes() == file.data
        assert stat.S_IMODE((target.home / path).stat().st_mode) == 0o600 + number
    assert (target.home / "to/linked").read_text() == "older content"
    exact = [ReceiveRequest(path, permissions=0o604, mtime=1e9) for path in paths]
    assert await target.files.receive_small(files, exact) == [True] * len(paths)
    found = {
        (stat.S_IMODE(status.st_mode), status.st_mtime) for path in paths for status in [(target.home / path).stat()]
    }
    assert found == {(0o604, 1e9)}
    assert hidden(target) == []


async def test_what_is_read_only_is_replaced_by_force_alone(target: FileTarget) -> None:
    for name in "ab":
        (target.home / name).write_text("old")
    (target.home / "a").chmod(0o444)
    assert await target.files.receive_small(files_of(b"1", b"2"), requests("a", "b")) == [False, True]
    assert (target.home / "a").read_text() == "old"
    forced = [ReceiveRequest(name, force=True) for name in "ab"]
    assert await target.files.receive_small(files_of(b"1", b"2"), forced) == [True, True]
    assert stat.S_IMODE((target.home / "a").stat().st_mode) == 0o444


async def test_owners_and_attributes_stay(target: FileTarget, needs_root: None) -> None:
    """GNU cp keeps attributes; a file of another owner than the first one is left to the caller."""
    for name, owner in (("a", 7), ("b", 7), ("c", 8)):
        (target.home / name).write_text("old")
        os.chown(target.home / name, owner, owner)
        (target.home / name).chmod(0o6755)
    is_gnu = "applets" not in " ".join(target.transport._prefix)
    if is_gnu:
        os.setxattr(target.home / "a", "user.kept", b"value")
    assert await target.files.receive_small(files_of(b"1", b"2", b"3"), requests("a", "b", "c")) == [True, True, False]
    for name in "ab":
        status = (target.home / name).stat()
        assert (status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode)) == (7, 7, 0o6755)
    if is_gnu:
        assert os.getxattr(target.home / "a", "user.kept") == b"value"
    assert (target.home / "c").read_text() == "old"


async def test_a_batch_waits_for_the_lock_of_another_writer(target: FileTarget) -> None:
    (target.home / "old").write_text("old")
    (target.home / ".hx-lock").mkdir()
    received: list[list[bool]] = []

    async def receive() -> None:
        received.append(await target.files.receive_small(files_of(b"1", b"2"), requests("old", "new")))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(receive)
        await until((target.home / "new").exists, "the file that replaces nothing")
        assert (target.home / "old").read_text() == "old"
        (target.home / ".hx-lock").rmdir()
    assert (received, (target.home / "old").read_text(), hidden(target)) == ([[True, True]], "1", [])


async def test_a_directory_that_gives_other_attributes_is_left_to_the_caller(
    target: FileTarget, needs_root: None
) -> None:
    for name, mode in (("to", 0o755), ("group", 0o2775)):
        (target.home / name).mkdir()
        os.chown(target.home / name, -1, 7)
        (target.home / name).chmod(mode)
    files = files_of(b"1", b"2")
    assert await target.files.receive_small(files, requests("to/f", "group/f")) == [True, False]
    assert await target.files.receive_small(files, requests("group/f", "group/g")) == [True, True]
    assert (target.home / "group/g").stat().st_gid == 7


async def test_what_is_damaged_or_cannot_be_unpacked_creates_nothing(
    target: FileTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    build = small_files._Batch.build

    def damaged(batch: small_files._Batch, scheme: small_files.Scheme) -> tuple[str, bytes]:
        version, archive = build(batch, scheme)
        return version, archive.replace(b"content", b"c0ntent", 1)

    files, wanted = files_of(b"more", b"content"), requests("a", "b")
    monkeypatch.setattr(small_files._Batch, "build", damaged)
    with pytest.raises(FileError, match="incomplete"):
        await target.files.receive_small(files, wanted)
    monkeypatch.setattr(small_files._Batch, "build", lambda batch, scheme: ("sha256:x", build(batch, scheme)[1]))
    with pytest.raises(FileError, match="incomplete"):  # another script
        await target.files.receive_small(files, wanted)
    monkeypatch.setattr(small_files._Batch, "build", lambda batch, scheme: (build(batch, scheme)[0], b"no archive"))
    with pytest.raises(FileError):
        await target.files.receive_small(files, wanted)
    assert os.listdir(target.home) == []


async def test_a_cancelled_or_killed_batch_leaves_nothing(target: FileTarget, monkeypatch: pytest.MonkeyPatch) -> None:
    sent = anyio.Event()

    async def endless(content: bytes) -> AsyncIterator[bytes]:
        yield content[:2000]
        sent.set()
        await anyio.sleep_forever()

    monkeypatch.setattr(small_files, "slices", endless)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(target.files.receive_small, files_of(b"1", b"2"), requests("a", "b"))
        await sent.wait()
        tasks.cancel_scope.cancel()
    assert os.listdir(target.home) == []


async def test_more_content_than_was_found_is_not_kept(target: FileTarget) -> None:
    (target.home / "large").write_bytes(bytes(2 << 20))
    with pytest.raises(FileError, match="more content"):
        await target.files.read_small(["large"], 1 << 20)


async def test_a_target_without_tar_or_with_one_channel_refuses(tmp_path: Path) -> None:
    async with open_file_target(BARE, tmp_path) as target:
        (tmp_path / "applets/tar").unlink()
        with pytest.raises(FileError):
            await target.files.receive_small(files_of(b"1", b"2"), requests("a", "b"))
        assert os.listdir(target.home) == []
    async with open_file_target(DASH, tmp_path) as target:
        target.transport.max_channels = 1
        with pytest.raises(UnsupportedOperation):
            await target.files.read_small(["a", "b"], 100)


async def test_an_old_hidden_directory_is_removed_by_a_later_batch(target: FileTarget) -> None:
    for name, age in ((".hx-tmp-old", 3 * 86400), (".hx-tmp-new", 60)):
        (target.home / name).mkdir()
        (target.home / name / "f").touch()
        os.utime(target.home / name, (now := (target.home / name).stat().st_mtime - age, now))
    await target.files.receive_small(files_of(b"1", b"2"), requests("a", "b"))
    assert sorted(os.listdir(target.home)) == [".hx-tmp-new", "a", "b"]


@pytest.mark.usefixtures("needs_root")
async def test_an_ordinary_user_replaces_only_what_is_its_own() -> None:
    for flavour in (DASH, BARE):
        async with unprivileged_target(flavour) as target:
            for name, owner, mode in (("a", 65534, 0o640), ("b", 65534, 0o444), ("c", 1, 0o666), ("d", 65534, 0o4711)):
                (target.home / name).write_text("old")
                os.chown(target.home / name, owner, owner)
                (target.home / name).chmod(mode)
            files, paths = files_of(*[b"new"] * 5), ["a", "b", "c", "d", "e"]
            assert await target.files.receive_small(files, requests(*paths)) == [True, False, False, True, True]
            found = {name: (target.home / name).stat() for name in paths}
            assert [stat.S_IMODE(found[name].st_mode) for name in paths[:4]] == [0o640, 0o444, 0o666, 0o4711]
            assert found["c"].st_uid == 1
            forced = [ReceiveRequest(path, force=True) for path in paths[:2]]
            assert await target.files.receive_small(files[:2], forced) == [True, True]
            assert ((target.home / "b").read_text(), hidden(target)) == ("new", [])
