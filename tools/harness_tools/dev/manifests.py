"""What the manifests of a tree say about which names are its own. Pure."""

from __future__ import annotations

import posixpath
import re
import tomllib

from .import_kinds import GoModule

__all__ = ["crate_names", "go_module"]

_MODULE = re.compile(r"^[ \t]*module[ \t]+(?:\"([^\"\n]{1,500})\"|`([^`\n]{1,500})`|([^\s/\"`][^\s\"`]{0,500}))", re.M)


def go_module(text: str, directory: str = "", below: str = "") -> GoModule | None:
    """The module of a ``go.mod`` in ``directory`` of the tree; None when it names none.

    ``below`` is the way from it down to the tree, for one that is above it.
    """
    match = _MODULE.search(text)
    if match is None:
        return None
    root = next(name for name in match.groups() if name)
    return GoModule(directory, posixpath.join(root, below) if below else root, root)


def crate_names(text: str) -> tuple[str, ...]:
    """The names under which the crate of a ``Cargo.toml`` is used; none when it is no such file."""
    try:
        manifest = tomllib.loads(text)
    except (ValueError, RecursionError):
        return ()
    tables = (manifest.get("package"), manifest.get("lib"))
    names = [table.get("name") for table in tables if isinstance(table, dict)]
    return tuple(name.replace("-", "_") for name in names if isinstance(name, str))
