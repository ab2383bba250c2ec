"""A download is killed: what it leaves beside its target is removed by a later one, and nothing else is."""

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


async def test_a_killed_download_is_cleared_away_by_a_later_one(tmp_path: Path, needs_process: None) -> None:
    source, folder = tmp_path / "source", tmp_path / "folder"
    folder.mkdir()
    source.touch()
    os.truncate(source, 1 << 40)
    child = await anyio.open_process([sys.executable, "-c", DOWNLOAD, source, folder / "target"])
    try:
        await until(lambda: bool(list(folder.iterdir())), "the hidden file")
    finally:
        child.kill()
        await child.aclose()
    (left,) = folder.iterdir()
    assert left.name.startswith(".hx-tmp-")
    old = time.time() - DAY - 10
    os.utime(left, (old, old))
    kept = [folder / ".hx-tmp-theirs", folder / f".hx-tmp-{'0' * 24}"]
    for path in kept:
        path.touch()
    os.utime(kept[0], (old, old))
    (folder / f".hx-tmp-{'1' * 24}").mkdir()
    os.truncate(source, 10)
    async with connect("local:") as ctx:
        await ctx.download(str(source), str(folder / "target"))
    assert not left.exists()
    assert sorted(path.name for path in folder.iterdir()) == sorted(
        [f".hx-tmp-{'0' * 24}", f".hx-tmp-{'1' * 24}", ".hx-tmp-theirs", "target"]
    )
