"""Texts of nodes: names, types, values, and signatures on one line."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tree_sitter import Node

__all__ = ["child_of", "children_of", "field_text", "line_of", "one_line", "signature", "text_of", "unquoted"]

SIGNATURE = 400
"""Characters of a signature."""
VALUE = 120
"""Characters of a name, a type or a value."""
LOOKED_AT = 2_000
"""Nodes that are searched for comments inside one signature."""


def text_of(node: Node | None) -> str:
    """The node's text as it is, with marks for bytes that are no text."""
    data = node.text if node is not None else None
    return data.decode("utf-8", "replace") if data else ""


def one_line(text: str, limit: int = VALUE) -> str:
    """The text with single blanks for all white space, cut at the limit."""
    joined = " ".join(text[: limit * 8].split())
    return joined if len(joined) <= limit and len(text) <= limit * 8 else joined[: limit - 1] + "…"


def field_text(node: Node, name: str) -> str:
    """The text of a field of the node on one line; empty when it has none."""
    return one_line(text_of(node.child_by_field_name(name)))


def line_of(node: Node) -> int:
    """The line that it begins on, from 1."""
    return node.start_point.row + 1


def child_of(node: Node, *types: str) -> Node | None:
    """The first child of one of the types."""
    return next((child for child in node.children if child.type in types), None)


def children_of(node: Node, *types: str) -> list[Node]:
    """The children of one of the types."""
    return [child for child in node.children if child.type in types]


def unquoted(text: str) -> str:
    """A string literal without its quotes."""
    return text.strip("\"'`<>")


def signature(node: Node, end: Node | None = None, *, start: Node | None = None, prefix: str = "") -> str:
    """The source from ``start`` (or the node) to ``end`` (or the node's end) on one line, without comments."""
    first = start or node
    begin, stop = first.start_byte, end.start_byte if end is not None else node.end_byte
    data = _text_between(first if start is not None else node, node, begin, stop)
    text = one_line(prefix + data.decode("utf-8", "replace"), SIGNATURE)
    return text.rstrip(" {:;,=(" if text.endswith("= (") else " {:;,=").removesuffix(" =>").rstrip()


def _text_between(first: Node, node: Node, begin: int, stop: int) -> bytes:
    whole, base = _covering(first, node)
    pieces, at = [], begin
    for comment in _comments((first, node) if first is not node else (node,), stop):
        if comment.start_byte >= at:
            pieces.append(whole[at - base : comment.start_byte - base])
            at = comment.end_byte
    pieces.append(whole[at - base : max(at, stop) - base])
    return b" ".join(pieces)


def _covering(first: Node, node: Node) -> tuple[bytes, int]:
    """The text of the outer one of two nodes, and where it begins."""
    outer = first if first.start_byte <= node.start_byte and first.end_byte >= node.end_byte else node
    return outer.text or b"", outer.start_byte


def _comments(nodes: Iterable[Node], stop: int) -> list[Node]:
    found, waiting, left = [], list(nodes), LOOKED_AT
    while waiting and left > 0:
        left -= 1
        node = waiting.pop()
        if node.start_byte >= stop:
            continue
        if "comment" in node.type:
            found.append(node)
        else:
            waiting.extend(node.children if node.child_count <= left else ())
    return sorted(found, key=lambda comment: comment.start_byte)
