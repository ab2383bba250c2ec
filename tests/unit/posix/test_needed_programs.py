"""The programs that a target needs: those of the documentation are enough, and a missing one is named."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

import harness
from harness.errors import ConnectError, FileError, UnsupportedOperation
from harness.operate.checks import NEEDED_PROGRAMS

pytestmark = pytest.mark.usefixtures("needs_process")

DOCUMENTED = Path(__file__).parents[3] / "docs/target-programs.md"


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with the needed programs, which is the whole PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ["sh", "setsid", "cksum", *NEEDED_PROGRAMS.split()]:
        path = shutil.which(name)
        assert path is not None, name
        (folder / name).symlink_to(Path(path).resolve())
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return folder


async def test_the_documented_programs_are_enough(programs: Path, tmp_path: Path) -> None:
    text = DOCUMENTED.read_text().partition("## What is needed")[2].partition("Without")[0]
    assert {"sh", *NEEDED_PROGRAMS.split()} == set(re.findall(r"`([a-z]+)`", text))
    async with harness.connect("local:") as ctx:
        result = await ctx.run_shell("echo out; exit 3")
        assert (result.exit_code, result.stdout) == (3, "out\n")
        for data in (b"x" * 10, b"x" * 900_000):
            await ctx.write_file(str(tmp_path / "file"), data)
            assert (await ctx.read_file(str(tmp_path / "file"))).data == data
            await ctx.download(str(tmp_path / "file"), str(tmp_path / "copy"))
        (tmp_path / "large").write_bytes(b"x" * (1 << 20))
        for copy in (ctx.download, ctx.upload):
            with pytest.raises(FileError, match="copy: tee is not installed where the file is to be written"):
                await copy(str(tmp_path / "large"), str(tmp_path / "copy"))
        assert sorted(path.name for path in tmp_path.iterdir()) == ["bin", "copy", "file", "large", "state"]
        (programs / "xargs").unlink()
        with pytest.raises(UnsupportedOperation, match="awk or xargs is not installed"):
            await ctx.jobs()


@pytest.mark.parametrize("name", ["head", "ls"])
async def test_a_target_without_a_program_that_reads_output_is_refused(programs: Path, name: str) -> None:
    (programs / name).unlink()
    with pytest.raises(ConnectError, match=f"not in its PATH: {name}"):
        async with harness.connect("local:"):
            pass
