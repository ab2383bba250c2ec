"""Paths of a target as rsync takes them, whose names no shell reads."""

from __future__ import annotations

import pytest

from harness.cli.commands.copying.sync import _change
from harness.copying.rsync import path_for_rsync


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/var/www/", "target:/var/www/"),
        ("a b", "target:/home/me/a b"),
        ("~", "target:/home/me/"),
        ("~/", "target:/home/me/"),
        ("~/x/", "target:/home/me/x/"),
        (":x", "target:/home/me/:x"),
        ("-x", "target:/home/me/-x"),
        ("./~x", "target:/home/me/./~x"),
    ],
)
def test_a_path_starts_at_the_home_directory_or_the_root(path: str, expected: str) -> None:
    assert path_for_rsync(path, "/home/me/") == expected


def test_the_home_of_another_user_is_an_error() -> None:
    assert path_for_rsync("x", "") == "target:./x"
    with pytest.raises(ValueError, match="whole path"):
        path_for_rsync("~user/x", "/home/me")


@pytest.mark.parametrize("size", ["²", "9" * 5000, "x", ""])
def test_a_message_of_the_target_is_not_a_size(size: str) -> None:
    assert _change(f"text\t{size}\tmore".encode()) == {"change": "text", "size": None, "path": "more"}
    assert _change(b">f+++++++++\t12\ta\tb") == {"change": ">f+++++++++", "size": 12, "path": "a\tb"}
