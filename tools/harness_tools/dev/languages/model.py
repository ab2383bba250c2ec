"""Declarations and imports of a source file, and how a worker writes them. Plain values, without the parser."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

__all__ = [
    "Declaration",
    "FileImports",
    "FileOutline",
    "Group",
    "Import",
    "facts_from",
    "outlined_from",
]


# -- What is found in a source file: declarations and imports. Plain values, without the parser.


Group = Literal["type", "function", "constant", "variable", "field"]


@dataclass(frozen=True, slots=True)
class Declaration:
    """One declared name. ``line`` and ``end_line`` count from 1.

    ``signature`` is the declaration on one line, without its body. ``container`` is the dotted name of what it is
    declared in, and ``depth`` how many of those there are. ``type`` and ``value`` are as written, where they are.
    ``receiver`` is the type that a function belongs to without being declared inside it.
    """

    group: Group
    kind: str
    name: str
    line: int
    end_line: int
    signature: str
    visibility: str = "public"
    container: str = ""
    depth: int = 0
    type: str = ""
    value: str = ""
    receiver: str = ""


@dataclass(frozen=True, slots=True)
class FileOutline:
    """The declarations of one file, in the order of the source. ``complete`` is False when a limit ended the search.

    ``damage`` is the first line that the grammar does not know, None when it knows all of the file.
    """

    language: str
    package: str
    declarations: tuple[Declaration, ...]
    imports: tuple[Import, ...]
    damage: int | None = None
    complete: bool = True


@dataclass(frozen=True, slots=True)
class Import:
    """One import as the source has it.

    ``form`` is what the syntax alone tells: ``relative``, ``system`` (``<stdio.h>``), ``quoted`` (``"x.h"``),
    ``path`` (a file, not a module), ``declared`` (the file itself says that it is a part of the program); else empty.
    """

    module: str
    line: int
    form: str = ""
    names: tuple[str, ...] = ()

    def at(self, line: int) -> Import:
        """The same on another line."""
        return replace(self, line=line)


@dataclass(frozen=True, slots=True)
class FileImports:
    """What one file says of its neighbours: what it imports, and the package or namespaces that it declares."""

    language: str
    imports: tuple[Import, ...] = ()
    packages: tuple[str, ...] = ()
    damage: int | None = None


# -- What is found in a file, as JSON and back: it comes from a process of its own.


def to_json(found: FileOutline | FileImports) -> dict[str, Any]:
    """As a JSON object."""
    return asdict(found)


def _imports(items: list[dict[str, Any]]) -> tuple[Import, ...]:
    return tuple(Import(**{**item, "names": tuple(item["names"])}) for item in items)


def outlined_from(value: dict[str, Any]) -> FileOutline:
    """What :func:`to_json` made of declarations."""
    declarations = tuple(Declaration(**item) for item in value["declarations"])
    return FileOutline(**{**value, "declarations": declarations, "imports": _imports(value["imports"])})


def facts_from(value: dict[str, Any]) -> FileImports:
    """What :func:`to_json` made of imports."""
    return FileImports(**{**value, "imports": _imports(value["imports"]), "packages": tuple(value["packages"])})
