"""Declarations and imports of a source file, and their JSON form; independent of the parser."""

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


# -- Declarations and imports.


Group = Literal["type", "function", "constant", "variable", "field"]


@dataclass(frozen=True, slots=True)
class Declaration:
    """One declared name; ``line`` and ``end_line`` count from 1.

    ``signature`` is the declaration on one line, without its body. ``container`` is the dotted name of the enclosing
    declarations, and ``depth`` their number. ``type`` and ``value`` are as written, if present. ``receiver`` is the
    type of a function that is declared outside it.
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
    """The declarations of one file, in the order of the source.

    ``complete`` is False if a limit was reached. ``damage`` is the first line with a syntax error, or None.
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

    ``form`` is what the syntax tells: ``relative``, ``system`` (``<stdio.h>``), ``quoted`` (``"x.h"``), ``path`` (a
    file instead of a module), ``declared`` (the file declares a part of the program); else empty.
    """

    module: str
    line: int
    form: str = ""
    names: tuple[str, ...] = ()

    def at(self, line: int) -> Import:
        """Return the import on another line."""
        return replace(self, line=line)


@dataclass(frozen=True, slots=True)
class FileImports:
    """Facts about one file: its imports, and the packages or namespaces that it declares."""

    language: str
    imports: tuple[Import, ...] = ()
    packages: tuple[str, ...] = ()
    damage: int | None = None


# -- The JSON form, because the result comes from a separate process.


def to_json(found: FileOutline | FileImports) -> dict[str, Any]:
    """Return the result as a JSON object."""
    return asdict(found)


def _imports(items: list[dict[str, Any]]) -> tuple[Import, ...]:
    return tuple(Import(**{**item, "names": tuple(item["names"])}) for item in items)


def outlined_from(value: dict[str, Any]) -> FileOutline:
    """Restore declarations from the JSON form."""
    declarations = tuple(Declaration(**item) for item in value["declarations"])
    return FileOutline(**{**value, "declarations": declarations, "imports": _imports(value["imports"])})


def facts_from(value: dict[str, Any]) -> FileImports:
    """Restore imports from the JSON form."""
    return FileImports(**{**value, "imports": _imports(value["imports"]), "packages": tuple(value["packages"])})
