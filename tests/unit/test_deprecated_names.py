"""Documented import paths that have moved give the same objects as before, with a warning."""

from __future__ import annotations

import sys
from importlib import import_module

import pytest

from harness.deprecated_names import MOVED

PACKAGES = {
    "harness.mcp.server": ("server", "open_session"),
    "harness.toolkit.hooks": ("dispatch", "Hook"),
    "harness.toolkit.permissions.rules": ("rule", "Rule"),
    "harness.toolkit.redaction": ("redactor", "PatternRedactor"),
}


@pytest.mark.parametrize("old", MOVED)
def test_an_old_path_gives_what_the_new_one_has(old: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, old, raising=False)
    with pytest.warns(DeprecationWarning, match=f"{old} has moved to {MOVED[old]}"):
        module = import_module(old)
    monkeypatch.delitem(sys.modules, old)
    new = import_module(MOVED[old])
    assert new.__all__
    assert all(getattr(module, name) is getattr(new, name) for name in new.__all__)


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_gives_the_names_of_the_module_that_it_was(package: str) -> None:
    module, name = PACKAGES[package]
    with pytest.warns(DeprecationWarning, match=f"{package}.{name} has moved"):
        found = getattr(import_module(package), name)
    assert found is getattr(import_module(f"{package}.{module}"), name)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        import_module(package).nothing  # noqa: B018 # what is asked for is the error
