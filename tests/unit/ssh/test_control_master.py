"""Where control sockets are, and what their names say."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import ConnectError
from harness_backends.ssh import control_master
from harness_backends.ssh.control_master import MAX_PATH, find_sockets, lock, relocate_socket, socket_path, split_name

KEY, TAG = "0123456789abcdef", "fedcba9876543210"


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A private ``XDG_RUNTIME_DIR`` with a short name."""
    directory = Path(tempfile.mkdtemp(prefix="hx", dir="/tmp"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(directory))
    yield directory
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def fallback(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A place of this test's own instead of the one that all environments share."""
    directory = Path(tempfile.mkdtemp(prefix="hxf", dir="/tmp"))
    monkeypatch.setattr(control_master, "_shared_root", lambda: directory)
    yield directory
    shutil.rmtree(directory, ignore_errors=True)


def test_a_socket_says_what_it_is(runtime: Path) -> None:
    path = Path(socket_path(KEY, TAG, "deploy@web1"))
    assert path == runtime / "harness" / f"{KEY}.{TAG}.deploy@web1"
    assert split_name(path) == (KEY, TAG, "deploy@web1")


@given(name=st.text("abc@:._-", min_size=1, max_size=80), room=st.integers(33, 89))
def test_a_name_is_cut_to_the_room_and_the_tag_never(name: str, room: int) -> None:
    cut = control_master._file_name(KEY, TAG, name, room)
    assert len(cut) <= room
    assert (split_name(Path("/x", cut)) or ())[:2] == (KEY, TAG)
    assert cut in (f"{KEY}.{TAG}.{name}", f"{KEY}.{TAG}") or cut.endswith("~")


@pytest.mark.parametrize("name", ["master-web1", KEY, f"{KEY}.web1", f"{KEY}.{TAG}.web1.lock/x", f"{KEY}.{TAG}.a b"])
def test_other_names_are_not_ours(name: str) -> None:
    assert split_name(Path(f"/x/{name}")) is None or "/" in name


def test_without_a_runtime_directory_the_shared_one_serves(
    runtime: Path, fallback: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    assert Path(socket_path(KEY, TAG, "web1")).parent == fallback / "ssh"
    runtime.chmod(0o755)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    assert Path(socket_path(KEY, TAG, "web1")).parent == fallback / "ssh"


def test_each_long_runtime_directory_has_a_short_one_of_its_own(
    runtime: Path, fallback: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = set()
    for letter in "xy":
        directory = runtime / (letter * 70)
        directory.mkdir(mode=0o700)
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(directory))
        path = socket_path(KEY, TAG, "web1")
        assert len(path) <= MAX_PATH
        places.add(Path(path).parent)
    assert len(places) == 2
    assert {place.parent for place in places} == {fallback}
    assert fallback / "ssh" not in places


def test_the_shared_directory_is_not_looked_into_from_another_environment(
    runtime: Path, fallback: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    Path(socket_path(KEY, TAG, "web1")).touch()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    assert control_master._files() == []


async def test_a_lock_makes_its_directory_again(runtime: Path) -> None:
    path = socket_path(KEY, TAG, "web1")
    shutil.rmtree(Path(path).parent)
    async with lock(path, 1.0):
        assert Path(f"{path}.lock").exists()
        shutil.rmtree(Path(path).parent)  # and is not put off when it goes meanwhile
    assert find_sockets() == []


async def test_a_runtime_directory_that_has_gone_is_a_clear_error(runtime: Path) -> None:
    path = socket_path(KEY, TAG, "web1")
    shutil.rmtree(runtime)
    with anyio.fail_after(5), pytest.raises(ConnectError, match="cannot be created: No such file"):
        async with lock(path, 1.0):
            pass


def test_after_a_logout_the_socket_is_placed_where_there_is_room(runtime: Path, fallback: Path) -> None:
    path = socket_path(KEY, TAG, "web1")
    assert relocate_socket(path) == path
    shutil.rmtree(Path(path).parent)
    assert relocate_socket(path) == path
    shutil.rmtree(runtime)
    assert relocate_socket(path) == f"{fallback}/ssh/{KEY}.{TAG}.web1"
    assert os.stat(fallback / "ssh").st_mode & 0o777 == 0o700
