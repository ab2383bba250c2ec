"""Analyzing the bytes of a file; ``stop`` is polled, and True ends the work early."""

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
"""Maximum imports of one file."""
NAMES = 100
"""Maximum names of one import, and packages of one file."""
PATH = 300
"""Maximum characters of an import."""
RESTARTS = 8
"""Maximum number of times that parsing a damaged file is restarted."""
RECOVERED = 256 << 10
"""Maximum bytes of a file for which this is done, because each restart costs as much as the first parse."""
_PLUS = re.compile(
    rb"^[ \t]*(?:namespace[ \t{]|class[ \t]+\w|template[ \t]*<|using[ \t]+\w|(?:public|private|protected)[ \t]*:)", re.M
)
_WIDE = ((codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))


def utf8_of(data: bytes) -> bytes:
    """Return the text as UTF-8 without a byte order mark, converted if it was UTF-16."""
    for mark, encoding in _WIDE:
        if data.startswith(mark):
            return data[len(mark) :].decode(encoding, "replace").encode("utf-8", "replace")
    return data.removeprefix(codecs.BOM_UTF8)


def is_binary(data: bytes) -> bool:
    """Return whether a NUL shows that it is not text; for UTF-16, pass the result of :func:`utf8_of`."""
    return b"\0" in data


def outline_of(data: bytes, language: Language, stop: Stopper) -> FileOutline:
    """Return the declarations and imports of a file.

    Raises:
        GrammarMissing: The grammar is not installed.
        Stopped: It was stopped before the file was parsed.
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
    """Return the declarations, including those that a syntax error such as an unclosed bracket hid.

    The rest is parsed separately, from the next unindented line; the result counts if it has more declarations.
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
    """Return the number of lines before the next one, after the damage, that starts with a letter or decorator."""
    if damage is None:
        return None
    lines = data.split(b"\n")
    return next((row for row in range(damage, len(lines)) if lines[row][:1].isalpha() or lines[row][:1] == b"@"), None)


def facts_of(data: bytes, language: Language, stop: Stopper) -> FileImports:
    """Return the imports of a file, and the packages that it declares; raises the same as :func:`outline_of`."""
    language, tree = _parsed(data, language, stop)
    imports = _imports(tree, language, stop)
    return FileImports(
        language.name, tuple(imports), tuple(language.packages(tree.root_node))[:NAMES], first_damage(tree.root_node)
    )


def _parsed(data: bytes, language: Language, stop: Stopper) -> tuple[Language, Tree]:
    """Return the tree; C is parsed as C++ if only that is valid, or if it contains words of C++ only."""
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
