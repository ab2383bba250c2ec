"""The directory of a host's downloads: one below the chosen one, and another for each name."""

from __future__ import annotations

from pathlib import PurePosixPath

from hypothesis import given
from hypothesis import strategies as st

from harness.cli.commands.fleet.files import directory_name

NAMES = st.text(st.sampled_from("./%aA:@~ \n\\2EFü\ud800") | st.characters(codec="utf-8"), min_size=1)


def test_usual_names_are_unchanged() -> None:
    for name in ("web1", "root@web1:2222", "db-1.example.org", "[::1]"):
        assert directory_name(name) == name
    assert directory_name("ssh://a+docker://b") == "ssh:%2F%2Fa+docker:%2F%2Fb"


@given(NAMES, NAMES)
def test_every_name_is_one_directory_of_its_own(one: str, other: str) -> None:
    name = directory_name(one)
    assert PurePosixPath(name).name == name not in {"", ".", ".."}
    assert "/" not in name
    assert "\0" not in name
    assert (name == directory_name(other)) == (one == other)
