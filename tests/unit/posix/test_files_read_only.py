"""A file that its owner made read-only is written with ``force`` alone, by root and by anybody else."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import anyio
import pytest
from tests.support.file_targets import FLAVOURS, FileTarget, Flavour, open_file_target, unprivileged_target

from harness.backend import WriteMode
from harness.errors import FileExists, PermissionDenied, StaleFileError

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("needs_process")]
CONTENTS = {"small": b"new\n", "large": b"new\n" * 40_000}
USERS = ["this user", "another user"]


@pytest.fixture(params=[(flavour, user) for flavour in FLAVOURS for user in USERS], ids=lambda p: f"{p[0].name}-{p[1]}")
async def target(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[FileTarget]:
    flavour: Flavour = request.param[0]
    async with AsyncExitStack() as stack:
        stack.enter_context(anyio.fail_after(60))
        ours = request.param[1] == USERS[0]
        yield await stack.enter_async_context(
            open_file_target(flavour, tmp_path) if ours else unprivileged_target(flavour)
        )


def read_only(target: FileTarget, mode: int = 0o444) -> Path:
    path = target.home / "f"
    path.write_bytes(b"old\n")
    path.chmod(mode)
    os.chown(path, target.home.stat().st_uid, -1)
    return path


def state(path: Path) -> tuple[bytes, int, list[str]]:
    return path.read_bytes(), path.stat().st_mode & 0o7777, sorted(os.listdir(path.parent))


@pytest.mark.parametrize("size", CONTENTS)
@pytest.mark.parametrize("mode", ["overwrite", "append"])
async def test_it_is_refused_and_stays_as_it_is(target: FileTarget, mode: WriteMode, size: str) -> None:
    before = state(path := read_only(target))
    with pytest.raises(PermissionDenied, match="is read-only") as caught:
        await target.files.write("f", CONTENTS[size], mode=mode)
    assert "force" in caught.value.hint
    assert state(path) == before


@pytest.mark.parametrize("size", CONTENTS)
@pytest.mark.parametrize("mode", ["overwrite", "append"])
@pytest.mark.parametrize("bits", [0o444, 0o555, 0o400])
async def test_force_writes_it_and_keeps_its_permissions(
    target: FileTarget, mode: WriteMode, size: str, bits: int
) -> None:
    path = read_only(target, bits)
    known = (await target.files.read("f")).version
    result = await target.files.write("f", CONTENTS[size], mode=mode, expect=known, force=True)
    assert state(path) == ((b"old\n" if mode == "append" else b"") + CONTENTS[size], bits, ["f"])
    assert (await target.files.read("f")).version == result.version
    assert not result.created


async def test_a_link_to_it_is_no_way_around(target: FileTarget) -> None:
    read_only(target)
    (target.home / "link").symlink_to("f")
    before = state(target.home / "f")
    with pytest.raises(PermissionDenied, match="is read-only"):
        await target.files.write("link", b"new\n")
    assert state(target.home / "f") == before
    await target.files.write("link", b"new\n", force=True)
    assert (target.home / "link").is_symlink()
    assert (target.home / "f").read_bytes() == b"new\n"


async def test_other_refusals_come_first(target: FileTarget) -> None:
    path = read_only(target)
    other = (await target.files.write("g", b"other\n")).version
    before = state(path)
    with pytest.raises(FileExists):
        await target.files.write("f", b"new\n", mode="create", force=True)
    with pytest.raises(StaleFileError):
        await target.files.write("f", b"new\n", expect=None, force=True)
    with pytest.raises(StaleFileError):
        await target.files.write("f", b"new\n", mode="append", expect=other, force=True)
    assert state(path) == before


async def test_upload_and_download_leave_it_too(target: FileTarget, tmp_path: Path) -> None:
    before = state(path := read_only(target))
    source = tmp_path / "source"
    source.write_bytes(b"new\n")
    source.chmod(0o444)
    with pytest.raises(PermissionDenied, match="is read-only"):
        await target.files.upload(str(source), "f")
    assert state(path) == before
    with pytest.raises(PermissionDenied, match="is read-only"):
        await target.files.download("f", str(source))
    assert source.read_bytes() == b"new\n"
    await target.files.download("f", str(source), force=True)
    assert source.read_bytes() == b"old\n"
    source.write_bytes(b"again\n") if os.getuid() == 0 else None
    await target.files.upload(str(source), "f", force=True)
    assert path.read_bytes() == source.read_bytes()


async def test_a_target_with_one_channel_refuses_it_as_well(target: FileTarget) -> None:
    before = state(path := read_only(target))
    target.transport.single = True
    with pytest.raises(PermissionDenied, match="is read-only"):
        await target.files.write("f", CONTENTS["large"], mode="append")
    assert state(path) == before
    await target.files.write("f", CONTENTS["large"], mode="append", force=True)
    assert path.read_bytes() == b"old\n" + CONTENTS["large"]


@pytest.mark.usefixtures("needs_root")
async def test_what_another_user_owns_in_a_directory_of_ours_is_not_replaced() -> None:
    async with unprivileged_target(FLAVOURS[0]) as target:
        theirs = target.home / "theirs"
        theirs.write_bytes(b"theirs\n")
        theirs.chmod(0o644)
        for mode in ("overwrite", "append"):
            with pytest.raises(PermissionDenied, match="is read-only"):
                await target.files.write("theirs", b"ours\n", mode=mode)
        assert theirs.read_bytes() == b"theirs\n"
        await target.files.write("theirs", b"ours\n", force=True)
        assert theirs.read_bytes() == b"ours\n"
