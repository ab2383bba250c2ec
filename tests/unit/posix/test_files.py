"""Reading, writing and naming files through real shells, with GNU, busybox and bare POSIX tools."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.examples import few_examples
from tests.support.file_targets import BARE, FLAVOURS, FileTarget, Flavour, open_file_target, unprivileged_target

from harness.errors import (
    FileError,
    FileExists,
    FileNotFound,
    IsADirectory,
    NotADirectory,
    PermissionDenied,
    StaleFileError,
)
from harness_backends.posix.files.content import LARGE
from harness_backends.posix.files.file_calls import version_of

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("needs_process")]
NAMES = [
    "plain",
    "two words",
    "-rf",
    "new\nline\n",
    "tab\t",
    "*?[x]",
    "$HOME`id`",
    "'\"",
    "\\n",
    "\udcff\udc81\udc88",
    "é",
]


@pytest.fixture(params=FLAVOURS, ids=lambda flavour: flavour.name)
async def target(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[FileTarget]:
    flavour: Flavour = request.param
    with anyio.fail_after(60):
        async with open_file_target(flavour, tmp_path) as opened:
            yield opened


def leftovers(directory: Path) -> list[str]:
    return [name for name in os.listdir(directory) if name.startswith(".hx-")]


def relative(path: Path) -> str:
    return os.path.relpath(path)  # a socket's path may not be long


def real_home_of_root() -> str:
    return os.path.realpath(os.path.expanduser("~root"))


@pytest.mark.parametrize("name", NAMES)
async def test_a_file_of_any_name_comes_back_byte_for_byte(target: FileTarget, name: str) -> None:
    content = bytes(range(256)) + b"\n\n"
    written = await target.files.write(name, content)
    assert (target.home / name).read_bytes() == content
    read = await target.files.read(f"{target.home}/{name}")
    assert (read.data, read.size, read.path) == (content, len(content), str(target.home / name))
    assert read.version == written.version
    assert written.created
    assert [entry.name for entry in await target.files.list_dir("~")] == [name]
    assert (await target.files.stat(name)).size == len(content)
    await target.files.rename(name, name + "2")
    await target.files.remove(name + "2")
    assert os.listdir(target.home) == []


@pytest.mark.parametrize("size", [0, 1, 4096, 12288, 65537, 262144, 262145, 1_000_003])
async def test_content_of_any_size_keeps_its_version(target: FileTarget, size: int) -> None:
    content = os.urandom(size)
    seen: list[tuple[int, int | None]] = []
    written = await target.files.write("f", content, progress=lambda done, total: seen.append((done, total)))
    read = await target.files.read("f")
    assert read.data == content
    assert written.version == read.version
    assert (written.bytes_written, read.size) == (size, size)
    assert size == 0 or seen[-1] == (size, size)
    if size > 1:
        part = await target.files.read("f", 1, size - 1)
        assert (part.data, part.size, part.version) == (content[1:], size, read.version)


async def test_random_contents_and_names_survive(target: FileTarget) -> None:
    @few_examples()
    @given(st.binary(max_size=3000), st.binary(min_size=1, max_size=60).filter(lambda name: not {0, 0x2F} & set(name)))
    def check(content: bytes, name: bytes) -> None:
        examples.append((content, os.fsdecode(b"./" + name)))

    examples: list[tuple[bytes, str]] = []
    check()
    for number, (content, name) in enumerate(examples):
        if name in ("./.", "./.."):
            continue
        await target.files.write(f"d{number}/{name}", content)
        assert (await target.files.read(f"d{number}/{name}")).data == content
        assert [entry.name for entry in await target.files.list_dir(f"d{number}")] == [name[2:]]
        await target.files.remove(f"d{number}", recursive=True)


@pytest.mark.parametrize(
    ("offset", "limit", "expected"),
    [
        (0, None, b"0123456789"),
        (3, None, b"3456789"),
        (3, 4, b"3456"),
        (0, 0, b""),
        (10, None, b""),
        (99, 5, b""),
        (8, 9, b"89"),
    ],
)
async def test_a_part_is_read_by_offset_and_limit(
    target: FileTarget, offset: int, limit: int | None, expected: bytes
) -> None:
    (target.home / "f").write_bytes(b"0123456789")
    whole = await target.files.read("f")
    read = await target.files.read("f", offset, limit)
    assert (read.data, read.size, read.version) == (expected, 10, whole.version)


async def test_a_large_part_of_a_large_file_is_read_exactly(target: FileTarget) -> None:
    content = os.urandom(2_000_000)
    (target.home / "f").write_bytes(content)
    read = await target.files.read("f", 70_001, 1_500_000)
    assert read.data == content[70_001:1_570_001]
    assert read.size == len(content)


async def test_a_file_of_proc_is_read_although_it_says_it_is_empty(target: FileTarget) -> None:
    read = await target.files.read("/proc/cpuinfo")
    assert b"processor" in read.data
    assert read.size == len(read.data)
    assert (await target.files.read("/proc/cpuinfo", 3, 5)).data == read.data[3:8]
    assert len((await target.files.read("/proc/kallsyms")).data) > 300_000


async def test_what_cannot_be_read_is_refused_with_its_reason(target: FileTarget) -> None:
    (target.home / "dir").mkdir()
    (target.home / "file").write_bytes(b"x")
    (target.home / "loop").symlink_to("loop")
    (target.home / "dangling").symlink_to("nowhere/x")
    os.mkfifo(target.home / "fifo")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(relative(target.home / "socket"))
    cases: list[tuple[str, type[FileError], str]] = [
        ("nope", FileNotFound, "no such"), ("nope/deeper", FileNotFound, "no such"), ("dir", IsADirectory, "directory"),
        ("dir/", IsADirectory, "directory"), ("dir/.", IsADirectory, "directory"), ("file/", NotADirectory, "not a"),
        ("file/x", NotADirectory, "not a"), ("loop", FileError, "link"), ("dangling", FileNotFound, "no such"),
        ("fifo", FileError, "pipe"), ("socket", FileError, "socket"), ("/dev/zero", FileError, "device"),
        ("~no_such_user_x/f", FileNotFound, "no such user"), ("", FileNotFound, "empty"),
    ]  # fmt: skip
    for path, kind, words in cases:
        with pytest.raises(kind, match=words) as caught:
            await target.files.read(path)
        assert type(caught.value) is kind, path
        assert "local:" in str(caught.value)
    with pytest.raises(ValueError, match="NUL"):
        await target.files.read("a\0b")
    with pytest.raises(ValueError, match="negative"):
        await target.files.read("file", -1)


async def test_a_tilde_is_the_home_on_the_target(target: FileTarget) -> None:
    await target.files.write("~/x", b"1")
    assert (await target.files.stat("~")).path == str(target.home)
    assert (await target.files.read("x")).data == b"1"
    assert (await target.files.stat("~root")).path == real_home_of_root()
    await target.files.write("./~", b"2")
    assert (target.home / "~").read_bytes() == b"2"


async def test_a_write_keeps_mode_and_follows_links(target: FileTarget) -> None:
    real = target.home / "sub" / "real"
    real.parent.mkdir()
    real.write_bytes(b"old")
    real.chmod(0o751)
    (target.home / "link").symlink_to("sub/hop")
    (target.home / "sub" / "hop").symlink_to(real)
    written = await target.files.write("link", b"new")
    assert not written.created
    assert real.read_bytes() == b"new"
    assert stat.S_IMODE(real.stat().st_mode) == 0o751
    assert (target.home / "link").is_symlink()
    assert leftovers(target.home) == leftovers(real.parent) == []
    await target.files.write("link", b"newer", permissions=0o600)
    assert stat.S_IMODE(real.stat().st_mode) == 0o600


async def test_a_write_through_a_dangling_link_makes_the_file_that_it_names(target: FileTarget) -> None:
    (target.home / "link").symlink_to("made/later")
    assert (await target.files.write("link", b"x", expect=None)).created
    assert (target.home / "made" / "later").read_bytes() == b"x"


async def test_a_new_file_follows_the_umask(target: FileTarget) -> None:
    for size in (1, 100_000):
        await target.files.write(f"f{size}", b"x" * size)
        assert stat.S_IMODE((target.home / f"f{size}").stat().st_mode) == 0o666 & ~_umask()
        await target.files.write(f"p{size}", b"x" * size, permissions=0o4711)
        assert stat.S_IMODE((target.home / f"p{size}").stat().st_mode) == 0o4711


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


async def test_missing_directories_are_made_only_when_asked(target: FileTarget) -> None:
    with pytest.raises(FileNotFound):
        await target.files.write("a/b/c", b"x", parents=False)
    await target.files.write("a/b/c", b"x")
    assert (target.home / "a/b/c").read_bytes() == b"x"
    with pytest.raises(NotADirectory):
        await target.files.write("a/b/c/d/e", b"x")


@pytest.mark.parametrize("size", [3, 50_000])
async def test_what_cannot_be_replaced_is_refused(target: FileTarget, size: int) -> None:
    (target.home / "dir").mkdir()
    os.mkfifo(target.home / "fifo")
    (target.home / "loop").symlink_to("loop")
    content = b"x" * size
    for path in ("dir", "dir/", "new/"):
        with pytest.raises(IsADirectory):
            await target.files.write(path, content)
    for path, words in (("fifo", "pipe"), ("/dev/null", "device"), ("loop", "link")):
        with pytest.raises(FileError, match=words):
            await target.files.write(path, content)
    assert leftovers(target.home) == []


@pytest.mark.parametrize("size", [3, 50_000])
async def test_create_refuses_what_exists(target: FileTarget, size: int) -> None:
    content = b"x" * size
    assert (await target.files.write("f", content, mode="create")).created
    (target.home / "dangling").symlink_to("nowhere")
    for path in ("f", "dangling"):
        with pytest.raises(FileExists):
            await target.files.write(path, b"y" * size, mode="create")
    assert (target.home / "f").read_bytes() == content
    assert sorted(os.listdir(target.home)) == ["dangling", "f"]


@pytest.mark.parametrize("size", [3, 50_000])
async def test_expect_refuses_any_other_version(target: FileTarget, size: int) -> None:
    first = await target.files.write("f", b"a" * size, expect=None)
    with pytest.raises(StaleFileError):
        await target.files.write("f", b"b" * size, expect=None)
    second = await target.files.write("f", b"b" * size, expect=first.version)
    for stale in (first.version, "sha256:00", "cksum:1:2", "stat:x"):
        with pytest.raises(FileError):
            await target.files.write("f", b"c" * size, expect=stale)
    assert (target.home / "f").read_bytes() == b"b" * size
    assert second.version == (await target.files.read("f")).version
    with pytest.raises(StaleFileError):
        await target.files.write("gone", b"c" * size, expect=first.version)
    assert os.listdir(target.home) == ["f"]


@pytest.mark.parametrize("size", [3, 50_000])
async def test_append_adds_to_the_end_and_reports_the_whole_files_version(target: FileTarget, size: int) -> None:
    first = await target.files.write("log", b"a" * size, mode="append")
    assert first.created
    second = await target.files.write("log", b"b" * size, mode="append", expect=first.version)
    assert not second.created
    assert (target.home / "log").read_bytes() == b"a" * size + b"b" * size
    assert second.version == (await target.files.read("log")).version
    assert second.bytes_written == size
    with pytest.raises(StaleFileError):
        await target.files.write("log", b"c", mode="append", expect=first.version)
    assert leftovers(target.home) == []


async def test_a_version_computed_here_is_the_targets(target: FileTarget) -> None:
    written = await target.files.write("f", b"content")
    scheme = "cksum" if written.version.startswith("cksum") else "sha256"
    assert written.version == version_of(b"content", scheme)
    assert (await target.files.read("f", 1, 2)).version == written.version


async def test_stat_tells_types_and_link_targets(target: FileTarget) -> None:
    (target.home / "f").write_bytes(b"12345")
    (target.home / "f").chmod(0o4750)
    (target.home / "l").symlink_to("f")
    os.mkfifo(target.home / "p")
    found = await target.files.stat("l")
    real = (target.home / "f").stat()
    assert (found.type, found.size, found.mode, found.uid, found.gid) == ("file", 5, 0o4750, real.st_uid, real.st_gid)
    assert found.path == str(target.home / "f")
    assert abs(found.mtime - real.st_mtime) < 61
    link = await target.files.stat("l", follow=False)
    assert (link.type, link.target, link.path) == ("link", "f", str(target.home / "l"))
    assert (await target.files.stat("p")).type == "other"
    assert (await target.files.stat("/")).type == "dir"
    for follow in (True, False):
        with pytest.raises(FileNotFound):
            await target.files.stat("nope", follow=follow)


async def test_mkdir_makes_what_was_asked(target: FileTarget) -> None:
    with pytest.raises(FileNotFound):
        await target.files.mkdir("a/b")
    await target.files.mkdir("a/b", parents=True)
    await target.files.mkdir("a/b", exist_ok=True)
    with pytest.raises(FileExists):
        await target.files.mkdir("a/b")
    await target.files.mkdir("private", mode=0o700)
    assert stat.S_IMODE((target.home / "private").stat().st_mode) == 0o700
    (target.home / "file").write_bytes(b"")
    for options in ({"exist_ok": True}, {"parents": True}):
        with pytest.raises(FileExists):
            await target.files.mkdir("file", **options)
    with pytest.raises(NotADirectory):
        await target.files.mkdir("file/x/y", parents=True)


async def test_remove_takes_what_was_named_and_nothing_else(target: FileTarget) -> None:
    (target.home / "tree" / "sub").mkdir(parents=True)
    (target.home / "tree" / "sub" / "f").write_bytes(b"")
    (target.home / "empty").mkdir()
    (target.home / "link").symlink_to("tree")
    await target.files.remove("empty")
    await target.files.remove("link/", recursive=True)
    assert (target.home / "tree" / "sub" / "f").exists()
    with pytest.raises(FileError, match="not empty"):
        await target.files.remove("tree")
    await target.files.remove("tree", recursive=True)
    assert os.listdir(target.home) == []
    with pytest.raises(FileNotFound):
        await target.files.remove("tree")
    await target.files.remove("tree", missing_ok=True)
    await target.files.remove("no/such/tree", missing_ok=True)


@pytest.mark.parametrize(
    "path", ["/", "//", "~", "~/", ".", "./", "..", "x/..", "x/.", "~/../home", "/proc/self/root/"]
)
async def test_remove_refuses_the_root_the_home_and_what_is_above(target: FileTarget, path: str) -> None:
    (target.home / "x").mkdir()
    with pytest.raises(FileError):
        await target.files.remove(path, recursive=True)
    for above in (target.home, target.home.parent):
        with pytest.raises(PermissionDenied, match="refused"):
            await target.files.remove(str(above), recursive=True)
        with pytest.raises(PermissionDenied, match="refused"):
            await target.files.rename(str(above), "/tmp/elsewhere")
    assert (target.home / "x").is_dir()


async def test_rename_moves_one_name_to_another(target: FileTarget) -> None:
    for name in ("a", "b"):
        (target.home / name).write_bytes(name.encode())
    (target.home / "d").mkdir()
    (target.home / "link").symlink_to("a")
    with pytest.raises(FileExists, match="b"):
        await target.files.rename("a", "b")
    with pytest.raises(IsADirectory):
        await target.files.rename("a", "d", overwrite=True)
    with pytest.raises(FileExists):
        await target.files.rename("a", "d")
    with pytest.raises(FileNotFound, match="nope/x"):
        await target.files.rename("a", "nope/x")
    await target.files.rename("a", "b", overwrite=True)
    assert (target.home / "b").read_bytes() == b"a"
    await target.files.rename("link", "d/link")
    assert os.readlink(target.home / "d/link") == "a"
    await target.files.rename("d", "e")
    await target.files.rename("b", "e/c")
    assert (target.home / "e/c").read_bytes() == b"a"
    with pytest.raises(FileError, match="another file system"):
        await target.files.rename("e/c", "/proc/x")


async def test_what_the_disk_takes_while_it_is_sent_is_the_same_and_leaves_nothing(target: FileTarget) -> None:
    old, new = b"old" * 10, os.urandom(LARGE + 1)
    (target.home / "f").write_bytes(old)
    seen: set[bytes] = set()

    def look(_done: int, _total: int | None) -> None:
        seen.add((target.home / "f").read_bytes()[:30])

    result = await target.files.write("f", new, progress=look)
    assert (target.home / "f").read_bytes() == new
    assert result.version == (await target.files.read("f")).version
    assert seen == {old}
    (target.home / "source").write_bytes(new)
    again = await target.files.upload(str(target.home / "source"), "g")
    assert ((target.home / "g").read_bytes(), again.version) == (new, result.version)
    assert leftovers(target.home) == []


async def test_upload_and_download_keep_content_and_permissions(target: FileTarget, tmp_path: Path) -> None:
    seen: list[tuple[int, int | None]] = []
    for size in (0, 10, 700_000):
        local = tmp_path / "local"
        local.write_bytes(content := os.urandom(size))
        local.chmod(0o640)
        seen.clear()
        result = await target.files.upload(str(local), "sub/up", lambda done, total: seen.append((done, total)))
        assert (result.bytes_written, result.version) == (size, (await target.files.read("sub/up")).version)
        assert size == 0 or seen[-1] == (size, size)
        assert stat.S_IMODE((target.home / "sub/up").stat().st_mode) == 0o640
        assert await target.files.download("sub/up", str(tmp_path / "back")) == size
        assert (tmp_path / "back").read_bytes() == content
        assert stat.S_IMODE((tmp_path / "back").stat().st_mode) == 0o640
    assert await target.files.download("/proc/cpuinfo", str(tmp_path / "cpu")) > 0
    assert leftovers(tmp_path) == []


async def test_a_download_replaces_nothing_without_overwrite(target: FileTarget, tmp_path: Path) -> None:
    (target.home / "f").write_bytes(b"new")
    local, link = tmp_path / "local", tmp_path / "link"
    assert await target.files.download("f", str(local), overwrite=False) == 3
    assert local.read_bytes() == b"new"
    local.write_bytes(b"old")
    link.symlink_to("nowhere")
    for path in (local, link):
        with pytest.raises(FileExists, match="this machine"):
            await target.files.download("f", str(path), overwrite=False)
    assert (local.read_bytes(), link.exists()) == (b"old", False)
    assert leftovers(tmp_path) == []


async def test_a_file_that_appears_during_a_download_is_kept(target: FileTarget, tmp_path: Path) -> None:
    (target.home / "f").write_bytes(bytes(700_000))
    local = tmp_path / "local"
    with pytest.raises(FileExists, match="this machine"):
        await target.files.download(
            "f", str(local), lambda done, whole: local.write_bytes(b"other") and None, overwrite=False
        )
    assert local.read_bytes() == b"other"
    assert leftovers(tmp_path) == []


async def test_transfers_name_the_side_that_failed(target: FileTarget, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(FileNotFound, match="this machine"):
        await target.files.upload(str(tmp_path / "nope"), "x")
    with pytest.raises(FileError, match="not a regular file"):
        await target.files.upload(str(tmp_path / "fifo"), "x")
    with pytest.raises(FileNotFound, match="local:"):
        await target.files.download("nope", str(tmp_path / "x"))
    (target.home / "f").write_bytes(b"x")
    with pytest.raises(FileNotFound, match="this machine"):
        await target.files.download("f", str(tmp_path / "no" / "x"))
    with pytest.raises(IsADirectory, match="this machine"):
        await target.files.download("f", str(tmp_path))
    assert leftovers(tmp_path) == []


@pytest.mark.usefixtures("needs_root")
async def test_what_the_user_may_not_do_is_permission_denied() -> None:
    for flavour in (FLAVOURS[0], BARE):
        async with unprivileged_target(flavour) as target:
            closed = target.home / "closed"
            closed.mkdir()
            (closed / "f").write_bytes(b"secret")
            (closed / "g").write_bytes(b"theirs")
            (closed / "g").chmod(0o666)
            (target.home / "unreadable").write_bytes(b"x")
            (target.home / "unreadable").chmod(0)
            closed.chmod(0o755)
            for action in (
                target.files.read("unreadable"),
                target.files.write("closed/f", b"x"),
                target.files.write("closed/new", b"x" * 100_000),
                target.files.write("closed/f", b"x", mode="append"),
                target.files.write("closed/sub/new", b"x"),
                target.files.mkdir("closed/sub"),
                target.files.remove("closed/f"),
                target.files.rename("closed/f", "f"),
            ):
                with pytest.raises(PermissionDenied):
                    await action
            await target.files.write("closed/g", b"+" * 100_000, mode="append")
            assert (closed / "g").read_bytes() == b"theirs" + b"+" * 100_000
            closed.chmod(0o700)
            for action in (
                target.files.read("closed/f"),
                target.files.stat("closed/f"),
                target.files.list_dir("closed"),
            ):
                with pytest.raises(PermissionDenied):
                    await action
            assert [entry.name for entry in await target.files.walk(".")] == ["closed", "unreadable"]
