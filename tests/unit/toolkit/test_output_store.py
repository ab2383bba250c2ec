"""Whole outputs are kept privately, come back exactly, and make room for one another."""

from __future__ import annotations

import errno
import logging
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import FileNotFound, PermissionDenied
from harness.toolkit.session.output_store import OutputQuota, OutputStore, outputs_directory

PLACE = "state/harness/outputs"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / PLACE


def files(place: Path) -> list[Path]:
    return sorted(path for path in place.iterdir() if path.suffix == ".txt")


def age(path: Path, seconds: float) -> None:
    changed = path.stat().st_mtime - seconds
    os.utime(path, (changed, changed))


async def test_a_text_comes_back_page_by_page(place: Path) -> None:
    store = OutputStore(place)
    text = "".join(f"line {number} €\U0001f600\udcff\n" for number in range(1_000))
    handle = await store.keep("c1", text)
    found, offset = "", 0
    while True:
        page = await store.page(handle, offset, 777)
        assert (page.offset, page.total) == (offset, len(text))
        found += page.text
        if page.next is None:
            break
        offset = page.next
    assert found == text
    assert (await store.page(handle, -5)).text == text[-5:]
    assert (await store.page(handle, 10**9)).text == ""
    assert (await OutputStore(place).page(handle, 0, 4)).text == "line"


@given(st.text(alphabet=st.characters(), max_size=50), st.integers(-60, 60), st.integers(-1, 60))
def test_any_text_comes_back_as_it_was(text: str, offset: int, limit: int) -> None:
    async def there_and_back(place: Path) -> None:
        store = OutputStore(place)
        handle = await store.keep("c1", text)
        assert (await store.page(handle)).text == text
        page = await store.page(handle, offset, limit)
        assert page.text == text[page.offset :][: max(0, limit)]
        assert page.next is None or page.next == page.offset + len(page.text)

    import tempfile

    with tempfile.TemporaryDirectory() as directory:
        anyio.run(there_and_back, Path(directory) / "outputs")


async def test_everything_is_private(place: Path) -> None:
    before = os.umask(0)
    try:
        await OutputStore(place).keep("c1", "text")
    finally:
        os.umask(before)
    assert place.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in place.iterdir()} == {0o600}


@pytest.mark.parametrize(
    "handle",
    [
        *("", "output:", "output:../../etc/passwd", "output:/etc/passwd", "/etc/passwd", "output:" + "0" * 24),
        *(
            "output:" + "0" * 24 + "/x",
            "output:" + "0" * 24 + "\n",
            "file:" + "0" * 24,
            "output:" + "A" * 24,
            "x" * 999,
        ),
    ],
)
async def test_a_handle_that_was_never_given_is_no_file(place: Path, handle: str) -> None:
    store = OutputStore(place)
    await store.keep("c1", "text")
    with pytest.raises(FileNotFound, match="is not stored here"):
        await store.page(handle)


async def test_a_link_in_the_place_of_an_output_is_not_followed(place: Path, tmp_path: Path) -> None:
    store = OutputStore(place)
    handle = await store.keep("c1", "text")
    secret = tmp_path / "secret"
    secret.write_text("private")
    (kept,) = files(place)
    kept.unlink()
    kept.symlink_to(secret)
    with pytest.raises(PermissionDenied):
        await store.page(handle)


async def test_a_pipe_in_the_place_of_an_output_is_refused_at_once(place: Path) -> None:
    store = OutputStore(place)
    handle = await store.keep("c1", "text")
    (kept,) = files(place)
    kept.unlink()
    os.mkfifo(kept, 0o600)
    with anyio.fail_after(5), pytest.raises(PermissionDenied, match="wrong file type"):
        await store.page(handle)


async def test_a_directory_that_others_may_enter_is_not_used(place: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = OutputStore(place)
    handle = await store.keep("c1", "text")
    place.chmod(0o755)
    with pytest.raises(PermissionDenied, match="it is accessible to other users"):
        await store.page(handle)
    assert await store.keep("c2", "text") == ""
    assert "it is accessible to other users" in caplog.text


@pytest.mark.usefixtures("needs_root")
async def test_what_belongs_to_another_user_is_not_used(place: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = OutputStore(place)
    handle = await store.keep("c1", "text")
    (kept,) = files(place)
    os.chown(kept, 12345, -1)
    with pytest.raises(PermissionDenied, match="belongs to another user"):
        await store.page(handle)
    os.chown(place, 12345, -1)
    assert await store.keep("c2", "text") == ""
    assert "belongs to another user" in caplog.text
    assert files(place) == [kept]


async def test_the_oldest_make_room(place: Path) -> None:
    store = OutputStore(place, OutputQuota(total=100, one=60, count=10))
    handles = []
    for number in range(3):
        handles.append(await store.keep(f"c{number}", str(number) * 40))
        for path in files(place):
            age(path, 10)
    with pytest.raises(FileNotFound):
        await store.page(handles[0])
    assert [(await store.page(handle)).text[0] for handle in handles[1:]] == ["1", "2"]


async def test_there_are_never_more_than_the_quota_says(place: Path) -> None:
    store = OutputStore(place, OutputQuota(count=3))
    for _ in range(6):
        await store.keep("c", "text")
    assert len(files(place)) == 3


async def test_what_is_too_old_goes_and_what_is_not_ours_stays(place: Path) -> None:
    store = OutputStore(place, OutputQuota(age=60))
    handle = await store.keep("c1", "text")
    (place / f".{'0' * 24}.new").write_text("of a process that was killed")
    (place / "notes.txt").write_text("mine")
    for path in place.iterdir():
        age(path, 4_000)
    await store.keep("c2", "text")
    with pytest.raises(FileNotFound, match=r"stored here \(outputs are stored for at most 0.000694444 days\)"):
        await store.page(handle)
    assert {path.name for path in place.iterdir() if len(path.name) < 20} == {"notes.txt", ".lock"}
    assert len(list(place.iterdir())) == 3


async def test_one_that_is_too_long_is_not_kept_and_takes_no_room(
    place: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = OutputStore(place, OutputQuota(one=10))
    assert await store.keep("c1", "x" * 11) == ""
    assert "the complete output of call c1 was not stored" in caplog.text


@pytest.mark.usefixtures("needs_root")
async def test_a_full_disk_leaves_a_warning_and_no_rest(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k,mode=700", "tmpfs", str(disk)], check=True)
    try:
        store = OutputStore(disk / "outputs")
        kept = await store.keep("c1", "x" * 1_000)
        assert await store.keep("c2", "x" * 1_000_000) == ""
        assert os.strerror(errno.ENOSPC) in caplog.text
        assert [record.levelno for record in caplog.records if record.name.startswith("harness")] == [logging.WARNING]
        assert (await store.page(kept)).total == 1_000
        assert len(list((disk / "outputs").iterdir())) == 2
    finally:
        subprocess.run(["umount", str(disk)], check=True)


async def test_a_file_where_the_directory_should_be_is_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "outputs").write_text("a file")
    assert await OutputStore(tmp_path / "outputs").keep("c1", "text") == ""
    assert "was not stored" in caplog.text


WRITER = """
import sys, anyio
from pathlib import Path
from harness.toolkit.session.output_store import OutputQuota, OutputStore

async def main():
    store = OutputStore(Path(sys.argv[1]), OutputQuota(count=20))
    for number in range(60):
        text = f"{sys.argv[2]} {number} " * 50
        handle = await store.keep("c", text)
        assert handle
        try:
            assert (await store.page(handle)).text == text
        except FileNotFoundError:
            pass  # the other one needed the room

anyio.run(main)
"""


@pytest.mark.usefixtures("needs_process")
async def test_several_processes_share_one_directory(place: Path) -> None:
    commands = [[sys.executable, "-W", "error", "-c", WRITER, str(place), name] for name in "abc"]
    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            for command in commands:
                tasks.start_soon(partial(anyio.run_process, command, stderr=None))
    assert 17 <= len(files(place)) <= 23
    assert not [path for path in place.iterdir() if path.suffix == ".new"]


def test_the_directory_follows_the_environment() -> None:
    assert outputs_directory({"XDG_STATE_HOME": "/s"}) == Path("/s/harness/outputs")
    assert outputs_directory({"XDG_STATE_HOME": "s", "HOME": "/h"}) == Path("/h/.local/state/harness/outputs")
