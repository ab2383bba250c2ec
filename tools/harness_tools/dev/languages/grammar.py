"""Parsers: tree-sitter grammars, each loaded on first use.

They accept any bytes, and keep what is valid around an error. They poll ``stop``, but sometimes late, so they run in
a separate process, see :mod:`.worker`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tree_sitter import Language, Node, Parser, Tree

__all__ = ["Grammar", "GrammarMissing", "NodeFilter", "Stopped", "Stopper", "collected", "first_damage", "parse"]

PIECE = 256
"""Bytes per read for the texts of nodes; the parser gets everything at once, because it looks ahead."""
Stopper = Callable[[], bool]
"""Polled during the work; True ends it."""


class GrammarMissing(Exception):
    """The grammar of this language is not installed."""


class Stopped(Exception):
    """The work was stopped."""


@dataclass(frozen=True, slots=True)
class Grammar:
    """A package with a grammar, and its function that returns the grammar."""

    package: str
    function: str = "language"


@cache
def _language(grammar: Grammar) -> Language:
    try:
        import tree_sitter

        module = importlib.import_module(grammar.package)
    except ImportError as error:
        raise GrammarMissing(grammar.package) from error
    return tree_sitter.Language(getattr(module, grammar.function)())


def parse(source: bytes, grammar: Grammar, stop: Stopper, row: int = 0) -> Tree:
    """Parse a source, or what follows its first ``row`` lines.

    Raises:
        GrammarMissing: The grammar is not installed.
        Stopped: It was stopped.
    """
    language = _language(grammar)
    room = len(source)

    def read(start: int, point: object) -> bytes:
        return source[start : start + room]

    def progress(offset: int, has_error: bool) -> bool:
        return stop()

    try:
        tree = _parser(language, source, row).parse(read, progress_callback=progress)
    except ValueError as error:
        raise Stopped from error
    if stop():
        raise Stopped
    room = PIECE
    return tree


def _parser(language: Language, source: bytes, row: int) -> Parser:
    import tree_sitter

    if not row:
        return tree_sitter.Parser(language)
    start = sum(len(line) + 1 for line in source.split(b"\n")[:row])
    rest = tree_sitter.Range((row, 0), ((1 << 32) - 1, (1 << 32) - 1), start, len(source))
    return tree_sitter.Parser(language, included_ranges=[rest])


@dataclass(frozen=True, slots=True)
class NodeFilter:
    """Which nodes to collect, and inside which types; None searches everywhere."""

    types: frozenset[str]
    inside: frozenset[str] | None = None

    def enters(self, kind: str) -> bool:
        """Return whether to search inside nodes of this type."""
        return self.inside is None or kind in self.inside or kind == "ERROR"


def collected(root: Node, wanted: NodeFilter, stop: Stopper) -> list[Node]:
    """Return the nodes of the requested types, in the order of the source.

    It does not use a query, because a callback that stops one ends the process in this binding.

    Raises:
        Stopped: It was stopped.
    """
    cursor, found = root.walk(), []
    while True:
        node = cursor.node
        kind = node.type if node is not None else ""
        if node is not None and kind in wanted.types:
            found.append(node)
        if wanted.enters(kind) and cursor.goto_first_child():
            continue
        while not cursor.goto_next_sibling():
            if not cursor.goto_parent():
                return found
        if stop():
            raise Stopped


def first_damage(root: Node) -> int | None:
    """Return the first line with a syntax error."""
    node = root
    while node.has_error and not (node.is_error or node.is_missing):
        inner = next((child for child in node.children if child.has_error or child.is_missing), None)
        if inner is None:
            break
        node = inner
    return node.start_point.row + 1 if root.has_error else None
