"""Writing over a file keeps who may do what with it, also by an access control list."""

from __future__ import annotations

import os
import stat
import struct
from pathlib import Path

import pytest
from tests.support.file_targets import BASH, DASH, MKSH, Flavour, open_file_target

from harness.errors import FileError

pytestmark = pytest.mark.usefixtures("needs_process")

ACCESS, DEFAULT = "system.posix_acl_access", "system.posix_acl_default"
OWNER, SOMEBODY, GROUP, MASK, OTHERS = 0x01, 0x02, 0x04, 0x10, 0x20
NOBODY = 65534


def entries(*allowed: tuple[int, int]) -> bytes:
    """An access control list, as the kernel takes it."""
    told = (struct.pack("<HHI", kind, bits, NOBODY if kind == SOMEBODY else 0xFFFFFFFF) for kind, bits in allowed)
    return struct.pack("<I", 2) + b"".join(told)


LIST = entries((OWNER, 6), (SOMEBODY, 6), (GROUP, 0), (MASK, 6), (OTHERS, 0))
GIVEN = entries((OWNER, 7), (SOMEBODY, 7), (GROUP, 5), (MASK, 7), (OTHERS, 5))


def mode_of(path: Path) -> int:
    return stat.S_IMODE(os.stat(path).st_mode)


@pytest.mark.parametrize("flavour", [DASH, BASH, MKSH], ids=lambda flavour: flavour.name)
@pytest.mark.parametrize("size", [10, 100_000])
async def test_a_write_keeps_the_list_of_a_file(flavour: Flavour, size: int, tmp_path: Path) -> None:
    async with open_file_target(flavour, tmp_path) as target:
        path = target.home / "with a list"
        path.write_text("old")
        os.setxattr(path, ACCESS, LIST)
        await target.files.write(str(path), b"n" * size)
        assert path.stat().st_size == size
        assert os.getxattr(path, ACCESS) == LIST
        await target.files.write(str(path), b"again", permissions=0o600)
        assert (mode_of(path), os.getxattr(path, ACCESS)[16:20]) == (0o600, LIST[16:20])


async def test_a_write_gives_nobody_what_the_directory_gives_to_new_files(tmp_path: Path) -> None:
    async with open_file_target(DASH, tmp_path) as target:
        path = target.home / "without a list"
        path.write_text("old")
        os.chmod(path, 0o640)
        os.setxattr(target.home, DEFAULT, GIVEN)
        await target.files.write(str(path), b"new")
        assert (path.read_text(), mode_of(path)) == ("new", 0o640)
        assert ACCESS not in os.listxattr(path)


async def test_a_new_file_has_the_list_that_its_directory_gives(tmp_path: Path) -> None:
    async with open_file_target(DASH, tmp_path) as target:
        os.setxattr(target.home, DEFAULT, GIVEN)
        (target.home / "another").write_text("made without harness")
        for size in (10, 100_000):
            path = target.home / f"new {size}"
            await target.files.write(str(path), b"n" * size)
            assert os.getxattr(path, ACCESS) == os.getxattr(target.home / "another", ACCESS)


@pytest.mark.parametrize("version", ["8.13", "9.1"])
async def test_a_cp_that_empties_the_new_file_changes_nothing(version: str, tmp_path: Path) -> None:
    programs = tmp_path / "old programs"
    programs.mkdir()
    says = f'printf "cp (GNU coreutils) {version}\\nCopyright (C)"'
    (programs / "cp").write_text(f'#!/bin/sh\n[ "$1" != --version ] || exec {says}\nfor last; do :; done\n: >"$last"\n')
    (programs / "cp").chmod(0o755)
    flavour = Flavour("old", ("sh", "-c", f'PATH="{programs}:$PATH"; exec sh "$@"', "sh"))
    async with open_file_target(flavour, tmp_path) as target:
        path = target.home / "with a list"
        path.write_text("old")
        os.setxattr(path, ACCESS, LIST)
        with pytest.raises(FileError):
            await target.files.write(str(path), b"new content")
        assert (path.read_text(), os.getxattr(path, ACCESS)) == ("old", LIST)
        assert [entry.name for entry in target.home.iterdir()] == ["with a list"]
