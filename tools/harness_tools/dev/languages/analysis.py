"""From the bytes of a file to what is in it. ``stop`` is asked whether to end the work before it is done."""

from __future__ import annotations

import codecs
import re
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING

from .grammar import Stopped, Stopper, collected, first_damage, parse
from .model import Declaration, FileImports, FileOutline, Import
from .outline import Walk, one_line
from .table import Language, language_named

if TYPE_CHECKING:
    from tree_sitter import Tree

__all__ = ["facts_of", "is_binary", "outline_of", "utf8_of"]

IMPORTS = 1_000
"""Imports of one file."""
NAMES = 100
"""Names that one import takes, and places that one file belongs to."""
PATH = 300
"""Characters of what is imported."""
RESTARTS = 8
"""How often the parse of a damaged file is begun anew."""
RECOVERED = 256 << 10
"""Bytes of the largest file that this is done with: each time costs as much as the first."""
_PLUS = re.compile(
    rb"^[ \t]*(?:namespace[ \t{]|class[ \t]+\w|template[ \t]*<|using[ \t]+\w|(?:public|private|protected)[ \t]*:)", re.M
)
_WIDE = ((codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))


def utf8_of(data: bytes) -> bytes:
    """The text without a mark of its encoding, as UTF-8 when it was UTF-16."""
    for mark, encoding in _WIDE:
        if data.startswith(mark):
            return data[len(mark) :].decode(encoding, "replace").encode("utf-8", "replace")
    return data.removeprefix(codecs.BOM_UTF8)


def is_binary(data: bytes) -> bool:
    """Whether a NUL says that it is no text. Of UTF-16, ask what :func:`utf8_of` made of it."""
    return b"\0" in data


def outline_of(data: bytes, language: Language, stop: Stopper) -> FileOutline:
    """The declarations and imports of a file.

    Raises:
        GrammarMissing: the grammar is not installed.
        Stopped: it was told to stop before the file was parsed.
    """
    language, tree = _parsed(data, language, stop)
    root = tree.root_node
    walk = _walked(tree, language, stop)
    imports = _imports(tree, language, stop)
    return FileOutline(
        language.name,
        language.outline.package(root),
        tuple(_recovered(walk.found, data, tree, language, stop) if len(data) <= RECOVERED else walk.found),
        tuple(imports),
        first_damage(root),
        walk.complete,
    )


def _walked(tree: Tree, language: Language, stop: Stopper) -> Walk:
    walk = Walk(language.outline, stop)
    walk.file(tree.root_node)
    return walk


def _recovered(
    found: list[Declaration], data: bytes, tree: Tree, language: Language, stop: Stopper
) -> list[Declaration]:
    """The declarations with those that follow a mistake which swallowed them, such as a bracket that is never closed.

    What follows is parsed by itself, from the next line that begins without a blank; when more is found so, it counts.
    """
    with suppress(Stopped):
        for _ in range(RESTARTS):
            row = _restart(data, first_damage(tree.root_node))
            if row is None:
                break
            tree = parse(data, language.grammar, stop, row)
            rest = _walked(tree, language, stop).found
            before = [item for item in found if item.line <= row]
            found = [*before, *rest] if len(rest) > len(found) - len(before) else found
    return found


def _restart(data: bytes, damage: int | None) -> int | None:
    """How many lines are before the first one, after the damaged line, that begins with a letter or a decorator."""
    if damage is None:
        return None
    lines = data.split(b"\n")
    return next((row for row in range(damage, len(lines)) if lines[row][:1].isalpha() or lines[row][:1] == b"@"), None)


def facts_of(data: bytes, language: Language, stop: Stopper) -> FileImports:
    """The imports of a file, and what it says of where it belongs. Raises what :func:`outline_of` does."""
    language, tree = _parsed(data, language, stop)
    imports = _imports(tree, language, stop)
    return FileImports(
        language.name, tuple(imports), tuple(language.packages(tree.root_node))[:NAMES], first_damage(tree.root_node)
    )


def _parsed(data: bytes, language: Language, stop: Stopper) -> tuple[Language, Tree]:
    """The tree. A file of C is read as C++ when it is right only so, or has words that stand in C++ alone."""
    tree = parse(data, language.grammar, stop)
    plus = language.name == "c" and _PLUS.search(data) is not None
    if language.name != "c" or not (plus or tree.root_node.has_error):
        return language, tree
    other = language_named("cpp")
    better = parse(data, other.grammar, stop)
    return (other, better) if plus or not better.root_node.has_error else (language, tree)


def _imports(tree: Tree, language: Language, stop: Stopper) -> list[Import]:
    nodes = collected(tree.root_node, language.wanted, stop)
    found = islice((item for item in language.imports(nodes) if item.module), IMPORTS)
    merged: dict[tuple[str, int], Import] = {}
    for item in found:
        known = merged.get((item.module, item.line))
        names = tuple(dict.fromkeys((known.names if known else ()) + item.names))
        merged[item.module, item.line] = replace(item, module=one_line(item.module, PATH), names=names[:NAMES])
    return list(merged.values())
