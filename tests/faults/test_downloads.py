"""A download is killed: it leaves nothing. Old hidden files are removed by a later one, and nothing else is."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import anyio
from tests.faults.rig import until

from harness import connect

DAY = 86400
DOWNLOAD = """
import anyio, sys
from harness import connect
async def main(source, target):
    async with connect("local:") as ctx:
        await ctx.download(source, target)
anyio.run(main, *sys.argv[1:])
"""


async def test_a_killed_download_leaves_nothing(tmp_path: Path, needs_process: None) -> None:
    source, folder = tmp_path / "source", tmp_path / "folder"
    folder.mkdir()
    source.touch()
    os.truncate(source, 1 << 40)
    (folder / "target").write_text("old")
    child = await anyio.open_process([sys.executable, "-c", DOWNLOAD, source, folder / "target"])
    try:
        await until(lambda: len(list(folder.iterdir())) == 2, "the hidden file")
    finally:
        child.kill()
        await child.aclose()
    await until(lambda: [path.name for path in folder.iterdir()] == ["target"], "the end of what the child started")
    assert (folder / "target").read_text() == "old"


async def test_a_download_removes_old_hidden_files(tmp_path: Path, needs_process: None) -> None:
    source, folder = tmp_path / "source", tmp_path / "folder"
    folder.mkdir()
    source.write_text("content")
    names = (".hx-tmp-old", ".hx-tmp-new", "theirs")
    for name in names:
        (folder / name).touch()
    for name in (names[0], names[2]):
        os.utime(folder / name, (time.time() - 2 * DAY,) * 2)
    async with connect("local:") as ctx:
        await ctx.download(str(source), str(folder / "target"))
    assert sorted(path.name for path in folder.iterdir()) == [".hx-tmp-new", "target", "theirs"]
