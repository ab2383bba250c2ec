"""Backends are found by entry point, also without the slow way to read them."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness import discovery
from harness.errors import TargetNotFound


def test_the_fast_way_finds_what_the_standard_way_finds() -> None:
    assert discovery._listed() == discovery._names()
    assert discovery.find_backend("local").__module__ == "harness_backends.local"


@pytest.mark.parametrize(
    ("text", "points"),
    [
        ("[harness.backends]\nk8s = pkg.k8s:open\n", [("k8s", "pkg.k8s:open")]),
        ("[a]\nx = y:z\n\n[harness.backends]\na=b:c\n[z]\nq = r:s\n", [("a", "b:c")]),
        ("[harness.backends]\n# none\na = b:c [extra]\n", [("a", "b:c")]),
        ("[harness.backends.more]\na = b:c\n", []),
        ("", []),
    ],
)
def test_only_the_groups_own_section_counts(text: str, points: list[tuple[str, str]]) -> None:
    assert discovery._points(text) == points


def test_an_installed_third_backend_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = tmp_path / "other-1.0.dist-info"
    info.mkdir()
    (info / "entry_points.txt").write_text("[harness.backends]\nmoon = harness_backends.local:open_backend\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    discovery._listed.cache_clear()
    try:
        assert discovery.find_backend("moon") is discovery.find_backend("local")
    finally:
        discovery._listed.cache_clear()


def test_no_backend_is_an_error_that_lists_those_that_are() -> None:
    with pytest.raises(TargetNotFound, match=r"installed: .*local"):
        discovery.find_backend("no-such-scheme")
