"""Objects of git whose content is shown without a file name: no rule about files can apply, so they ask."""

from __future__ import annotations

import pytest

from harness.toolkit.permissions.paths.git_shown_files import _unnamed
from harness.toolkit.permissions.shell.git_commands import object_names, shown_request

FILE, TREE, COMMIT, TAG = "blob", "tree", "commit", "tag"


@pytest.mark.parametrize(
    ("command", "types", "unnamed"),
    [
        ("git show HEAD", (COMMIT, COMMIT), False),
        ("git show v1", (TAG, COMMIT), False),
        ("git show 1a2b", (FILE, FILE), True),
        ("git show v1", (TAG, FILE), True),  # a tag of a file
        ("git show HEAD 1a2b", (COMMIT, COMMIT, FILE, FILE), True),
        ("git show HEAD:notes", (FILE, COMMIT), False),
        ("git show HEAD: 1a2b", (TREE, COMMIT, FILE, FILE), True),
        ("git show 1a2b:notes", (FILE, TREE), True),  # the name is relative to a tree that may be of any directory
        ("git show 1a2b", (TREE, TREE), False),  # shows names only
        ("git diff 1a2b 3c4d", (TREE, TREE, TREE, TREE), True),
        ("git diff HEAD~ HEAD", (COMMIT,) * 4, False),
        ("git diff HEAD 3c4d", (COMMIT, COMMIT, FILE, FILE), True),
        ("git grep word 1a2b", (TREE, TREE), True),
        ("git archive 1a2b", (TREE, TREE), True),
        ("git archive HEAD", (COMMIT, COMMIT), False),
    ],
)
def test_the_content_of_an_object_is_shown_without_a_name(command: str, types: tuple[str, ...], unnamed: bool) -> None:
    request = shown_request(command.split())
    assert request is not None
    assert len(object_names(request.objects)) == len(types)
    assert bool(_unnamed(request, types)) is unnamed
