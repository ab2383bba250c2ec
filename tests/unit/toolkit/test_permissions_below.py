"""What is below a directory: excluded files for a search of many paths, and protected directories."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.own_home import here

from harness import connect
from harness.context import ExecutionContext
from harness.testing.memory import MemoryBackend, memory_context
from harness.toolkit.permissions.paths.hard_denials import AiExclude, HardDenials
from harness.toolkit.permissions.paths.target_paths import DIRECTORIES, links_among
from harness.toolkit.permissions.rules.settings import PermissionSettings

__all__ = ["here"]

FOUND = ("/r/t/a", "/r/t/b", "/r/t/s/a", "/r/t/s/b", "/r/t/s/c", "/r/t/s/d")


@pytest.mark.parametrize(
    ("holders", "excluded"),
    [
        (None, "/r/t/a /r/t/b /r/t/s/a /r/t/s/b /r/t/s/c"),
        (("/r/t", "/r/t/s"), "/r/t/a /r/t/b /r/t/s/a /r/t/s/b /r/t/s/c"),
        (("/r/t/s",), "/r/t/a /r/t/s/a /r/t/s/c"),
        ((), "/r/t/a /r/t/s/a"),
    ],
)
async def test_files_are_excluded_by_directories_above_the_search_and_by_those_that_it_found_to_exclude_some(
    holders: tuple[str, ...] | None, excluded: str
) -> None:
    execution = memory_context(MemoryBackend())
    for directory, name in (("/r", "a"), ("/r/t", "b"), ("/r/t/s", "c")):
        await execution.write_file(f"{directory}/.aiexclude", name, parents=True)
    found = await AiExclude(60, lambda: 0.0).among(FOUND, execution, "/r/t", holders)
    assert sorted(found) == excluded.split()


async def test_a_protected_directory_counts_before_it_exists_and_one_of_keys_only_when_it_does(
    here: ExecutionContext, tmp_path: Path
) -> None:
    own = tmp_path / "state/harness"
    denials = HardDenials(PermissionSettings(), lambda: 0.0, places=[str(own)])
    home = here.capabilities.home
    assert await denials.place_below(str(tmp_path / "state"), here) == str(own)
    assert await denials.place_below(str(own), here) == str(own)
    assert await denials.place_below(f"{own}2", here) == ""
    assert await denials.place_below(f"{home}/.config", here) == f"{home}/.config/harness"
    keys = Path(home, ".gnupg")
    assert await denials.place_below(str(keys), here, reads=True) == ""
    keys.mkdir()
    assert await denials.place_below(str(keys), here, reads=True) == str(keys)
    assert await denials.place_below(str(keys), here) == ""


async def test_links_are_told_for_directories_that_can_be_listed_and_are_not_too_many(
    needs_process: None, tmp_path: Path
) -> None:
    (tmp_path / "f").touch()
    (tmp_path / "l").symlink_to("f")
    (tmp_path / "other").symlink_to("f")
    names = [str(tmp_path / name) for name in ("f", "l", "none")]
    async with connect("local:") as execution:
        assert await links_among(names, execution) == {names[1]}
        assert await links_among([f"{names[1]}/"], execution) == {names[1]}
        assert await links_among([*names, str(tmp_path / "none/x")], execution) is None
        assert await links_among([f"/{number}/x" for number in range(DIRECTORIES + 1)], execution) is None
