"""Writing over a file keeps its extended attributes and its security label, or changes nothing and says so."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.support.file_targets import (
    BASH,
    BUSYBOX,
    DASH,
    MKSH,
    FileTarget,
    Flavour,
    open_file_target,
    unprivileged_target,
)

from harness.errors import FileError, NoSpace, PermissionDenied

pytestmark = pytest.mark.usefixtures("needs_process")

LABEL = {"security.selinux": b"system_u:object_r:shadow_t:s0\0", "security.SMACK64": b"shadow"}
CAPABILITY = {"security.capability": bytes.fromhex("0100000200040000000000000000000000000000")}
OWN = {"user.origin": b"https://example.org/", "user.checked": b"\0\xff"}


def give(path: Path, attributes: dict[str, bytes]) -> None:
    for name, value in attributes.items():
        os.setxattr(path, name, value)


def attributes_of(path: Path) -> dict[str, bytes]:
    return {name: os.getxattr(path, name) for name in os.listxattr(path)}


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def refusing(words: str) -> str:
    """A ``cp`` that takes over everything but extended attributes, and says this about them."""
    return f'case $* in *xattr*) echo "cp: {words}" >&2; exit 1 ;; esac; exec "$real_cp" "$@"'


@asynccontextmanager
async def target_with(cp: str, directory: Path) -> AsyncIterator[FileTarget]:
    """A target whose ``cp`` is this script; ``real_cp`` in it is the one of the system."""
    programs = directory / "programs"
    programs.mkdir()
    (programs / "cp").write_text(f"#!/bin/sh\nreal_cp={shutil.which('cp')}\n{cp}\n")
    (programs / "cp").chmod(0o755)
    flavour = Flavour("another cp", ("sh", "-c", f'PATH="{programs}:$PATH"; exec sh "$@"', "sh"))
    async with open_file_target(flavour, directory) as target:
        yield target


@pytest.mark.parametrize("flavour", [DASH, BASH, MKSH], ids=lambda flavour: flavour.name)
@pytest.mark.parametrize("size", [0, 10, 100_000])
async def test_a_write_keeps_the_attributes_of_a_file(flavour: Flavour, size: int, tmp_path: Path) -> None:
    given = OWN | (LABEL | CAPABILITY if os.getuid() == 0 else {})
    async with open_file_target(flavour, tmp_path) as target:
        path = target.home / "with attributes"
        path.write_text("old")
        path.chmod(0o4751)
        give(path, given)
        await target.files.write(str(path), b"n" * size)
        assert (path.stat().st_size, mode_of(path), attributes_of(path)) == (size, 0o4751, given)
        await target.files.write(str(path), b"again", permissions=0o400)
        assert (path.read_text(), mode_of(path), attributes_of(path)) == ("again", 0o400, given)


async def test_a_user_keeps_them_as_well_but_for_what_only_root_may_set(tmp_path: Path) -> None:
    async with unprivileged_target(DASH) as target:
        path = target.home / "mine"
        path.write_text("old")
        path.chmod(0o640)
        os.chown(path, *((65534, 65534) if os.getuid() == 0 else (-1, -1)))
        give(path, OWN | (CAPABILITY if os.getuid() == 0 else {}))
        await target.files.write(str(path), b"new", permissions=0o444)
        assert (path.read_text(), mode_of(path), attributes_of(path)) == ("new", 0o444, OWN)


async def test_a_file_that_may_be_written_and_not_read_is_written(tmp_path: Path) -> None:
    async with unprivileged_target(DASH) as target:
        path = target.home / "letter box"
        path.write_text("old")
        path.chmod(0o200)
        os.chown(path, *((65534, 65534) if os.getuid() == 0 else (-1, -1)))
        await target.files.write(str(path), b"new")
        assert mode_of(path) == 0o200


def labelling(words: str) -> str:
    """As :func:`refusing`, where SELinux has given a label of its own to the new file."""
    label = "system_u:object_r:etc_t:s0"
    return f'for last; do :; done; case $* in *xattr*) chcon {label} "$last"; esac; {refusing(words)}'


CANNOT = "setting attribute 'security.selinux' for 'x': Permission denied"
NOWHERE = "setting attributes for 'x': Operation not supported"


@pytest.mark.parametrize("words", [CANNOT, NOWHERE])
async def test_a_label_that_may_not_be_set_stops_the_write(words: str, tmp_path: Path) -> None:
    async with target_with(labelling(words), tmp_path) as target:
        path = target.home / "shadow"
        path.write_text("old")
        give(path, {"security.selinux": LABEL["security.selinux"]})
        with pytest.raises(FileError, match="security label system_u:object_r:shadow_t:s0 cannot be kept"):
            await target.files.write(str(path), b"new")
        assert (path.read_text(), [entry.name for entry in target.home.iterdir()]) == ("old", ["shadow"])


async def test_a_label_of_other_times_stops_no_write_where_new_files_get_none(tmp_path: Path) -> None:
    async with target_with(refusing(CANNOT), tmp_path) as target:
        path = target.home / "shadow"
        path.write_text("old")
        path.chmod(0o640)
        give(path, {"security.selinux": LABEL["security.selinux"]})
        await target.files.write(str(path), b"new")
        assert (path.read_text(), mode_of(path)) == ("new", 0o640)


@pytest.mark.parametrize(
    "told", ["setting attributes for 'x': Operation not supported", "is built without xattr support"]
)
async def test_where_nothing_can_be_set_and_the_labels_are_the_same_files_are_written(
    told: str, tmp_path: Path
) -> None:
    async with target_with(refusing(told), tmp_path) as target:
        path = target.home / "in a container"
        path.write_text("old")
        path.chmod(0o640)
        await target.files.write(str(path), b"new")
        assert (path.read_text(), mode_of(path)) == ("new", 0o640)


async def test_an_attribute_that_does_not_fit_on_the_disk_stops_the_write(tmp_path: Path) -> None:
    words = "setting attribute 'user.origin' for 'x': No space left on device"
    async with target_with(refusing(words), tmp_path) as target:
        path = target.home / "with attributes"
        path.write_text("old")
        with pytest.raises(NoSpace):
            await target.files.write(str(path), b"new")
        assert (path.read_text(), [entry.name for entry in target.home.iterdir()]) == ("old", ["with attributes"])


@pytest.mark.parametrize("version", ["8.4", "8.13", "7.6", "8.19-dirty"])
async def test_an_old_cp_is_not_used_and_the_label_kept_all_the_same(version: str, tmp_path: Path) -> None:
    told = f"cp (GNU coreutils) {version}\\nCopyright (C)"
    old = f'[ "$1" = --version ] && {{ printf "{told}"; exit; }}; for last; do :; done; : >"$last"'
    async with target_with(old, tmp_path) as target:
        path = target.home / "file"
        path.write_text("old")
        path.chmod(0o640)
        await target.files.write(str(path), b"new")
        assert (path.read_text(), mode_of(path)) == ("new", 0o640)
        give(path, {"security.selinux": LABEL["security.selinux"]})
        try:
            await target.files.write(str(path), b"newer")
        except FileError:  # chcon works where SELinux does
            assert path.read_text() == "new"
        assert attributes_of(path) == {"security.selinux": LABEL["security.selinux"]}


async def test_busybox_writes_a_file_with_attributes(tmp_path: Path) -> None:
    async with open_file_target(BUSYBOX, tmp_path) as target:
        path = target.home / "with attributes"
        path.write_text("old")
        path.chmod(0o640)
        give(path, OWN)
        await target.files.write(str(path), b"new")
        assert (path.read_text(), mode_of(path)) == ("new", 0o640)


@pytest.mark.parametrize("flag", ["i", "a"])
async def test_what_an_immutable_file_refuses_is_told_as_that(flag: str, tmp_path: Path) -> None:
    async with open_file_target(DASH, tmp_path) as target:
        path = target.home / "fixed"
        path.write_text("old")
        fixed = subprocess.run(["chattr", f"+{flag}", str(path)], check=False, capture_output=True).returncode == 0
        try:
            if fixed:
                with pytest.raises(PermissionDenied, match="lsattr"):
                    await target.files.write(str(path), b"new")
                assert (path.read_text(), [entry.name for entry in target.home.iterdir()]) == ("old", ["fixed"])
        finally:
            subprocess.run(["chattr", f"-{flag}", str(path)], check=False, capture_output=True)
