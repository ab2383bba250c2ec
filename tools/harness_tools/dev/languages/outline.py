"""Extracting declarations from a syntax tree: one walk for all languages, with rules for each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .model import Declaration, Group

if TYPE_CHECKING:
    from tree_sitter import Node

__all__ = [
    "DeclarationMatch",
    "Handler",
    "Outline",
    "Scope",
    "Walk",
    "child_of",
    "children_of",
    "declared",
    "field_text",
    "line_of",
    "one_line",
    "signature",
    "text_of",
    "unquoted",
]


# -- Texts of nodes: names, types, values, and signatures on one line.


SIGNATURE = 400
"""Maximum characters of a signature."""
VALUE = 120
"""Maximum characters of a name, a type or a value."""
LOOKED_AT = 2_000
"""Maximum nodes that are searched for comments in one signature."""


def text_of(node: Node | None) -> str:
    """Return the node's text, with replacement characters for invalid bytes."""
    data = node.text if node is not None else None
    return data.decode("utf-8", "replace") if data else ""


def one_line(text: str, limit: int = VALUE) -> str:
    """Return the text with white space collapsed, truncated at the limit."""
    joined = " ".join(text[: limit * 8].split())
    return joined if len(joined) <= limit and len(text) <= limit * 8 else joined[: limit - 1] + "…"


def field_text(node: Node, name: str) -> str:
    """Return the text of a field of the node on one line; empty if it has none."""
    return one_line(text_of(node.child_by_field_name(name)))


def line_of(node: Node) -> int:
    """Return the line that the node starts on, from 1."""
    return node.start_point.row + 1


def child_of(node: Node, *types: str) -> Node | None:
    """Return the first child of one of the types."""
    return next((child for child in node.children if child.type in types), None)


def children_of(node: Node, *types: str) -> list[Node]:
    """Return the children of one of the types."""
    return [child for child in node.children if child.type in types]


def unquoted(text: str) -> str:
    """Return a string literal without its quotes."""
    return text.strip("\"'`<>")


def signature(node: Node, end: Node | None = None, *, start: Node | None = None, prefix: str = "") -> str:
    """Return the source from ``start`` (or the node) to ``end`` (or the node's end) on one line, without comments."""
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
    """Return the text of the outer one of two nodes, and where it starts."""
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


# -- The walk.
#
# Only nodes that can contain declarations are entered, so function bodies cost nothing. The walk is limited in nodes
# and in depth.


DEPTH = 24
"""Maximum nesting of declarations and blocks."""
NODES = 200_000
DECLARATIONS = 20_000
TYPES = ("type", "return_type", "returns", "result")
LOOSE = frozenset(["", "namespace", "module"])
"""Scopes in which a function is not a method."""


@dataclass(slots=True)
class Scope:
    """The scope that is walked: the file, a class, a namespace; ``node`` is its declaration.

    ``access`` is the visibility of what follows, in languages that set it with a separate statement. ``exported`` are
    names that the file exports separately from their declarations.
    """

    kind: str = ""
    name: str = ""
    visibility: str = "public"
    access: str = ""
    exported: frozenset[str] | None = None
    node: Node | None = None


@dataclass(frozen=True, slots=True)
class DeclarationMatch:
    """A declaration as a rule finds it; ``inside`` is the node with its members."""

    node: Node
    group: Group
    kind: str
    name: str
    signature: str
    visibility: str = "public"
    type: str = ""
    value: str = ""
    receiver: str = ""
    inside: Node | None = None


Handler = Callable[["Node", Scope], Iterable[DeclarationMatch]]
Visibility = Callable[["Node", str, Scope], str]


@dataclass(frozen=True, slots=True)
class Outline:
    """The rules of a language: which nodes declare something, and which are searched for declarations."""

    handlers: Mapping[str, Handler]
    through: frozenset[str] = frozenset()
    prepare: Callable[[Node], Scope] = field(default=lambda root: Scope())
    package: Callable[[Node], str] = field(default=lambda root: "")


def always_public(node: Node, name: str, scope: Scope) -> str:
    """Return the visibility in languages without one."""
    return "public"


def declared(
    group: Group,
    kind: str,
    visibility: Visibility = always_public,
    *,
    name: str = "name",
    body: tuple[str, ...] = ("body",),
    members: bool = False,
) -> Handler:
    """Return the rule for a node that declares one name.

    Args:
        name: The field, or the type of the child, with the name.
        body: Fields, or types of children; the signature ends at the first of them.
        members: Whether the body contains declarations.
    """

    def find(node: Node, scope: Scope) -> Iterable[DeclarationMatch]:
        called = field_text(node, name) or _text_of_child(node, name)
        if not called:
            return
        end = first_of(node, body)
        yield DeclarationMatch(
            node,
            group,
            kind,
            called,
            signature(node, end),
            visibility(node, called, scope),
            _type_of(node),
            field_text(node, "value").removeprefix("=> "),
            inside=end if members else None,
        )

    return find


def _type_of(node: Node) -> str:
    """Return the type of a value, or the return type of a function, with the field names of all grammars."""
    return next((text for name in TYPES if (text := field_text(node, name))), "").removeprefix(":").strip()


def _text_of_child(node: Node, kind: str) -> str:
    return next((one_line(text_of(child)) for child in children_of(node, kind)), "")


def first_of(node: Node, names: tuple[str, ...]) -> Node | None:
    """Return the first child in one of these fields, or of one of these types."""
    for name in names:
        found = node.child_by_field_name(name) or next(iter(children_of(node, name)), None)
        if found is not None:
            return found
    return None


@dataclass(slots=True)
class Walk:
    """One walk through one tree; ``stop`` is polled at every node."""

    outline: Outline
    stop: Callable[[], bool]
    found: list[Declaration] = field(default_factory=list)
    complete: bool = True
    _left: int = NODES

    def file(self, root: Node) -> None:
        """Collect the declarations of a file."""
        self._inside(root, self.outline.prepare(root), (), 0)

    def _inside(self, node: Node, scope: Scope, path: tuple[str, ...], depth: int) -> None:
        if depth > DEPTH:
            self.complete = False
            return
        for child in node.named_children:
            self._left -= 1
            if self._left < 0 or len(self.found) >= DECLARATIONS or self.stop():
                self.complete = False
                return
            handler = self.outline.handlers.get(child.type)
            if handler is not None:
                for found in handler(child, scope):
                    if found.name:  # in damaged sources the name may be missing
                        self._take(found, scope, path, depth)
            elif child.type in self.outline.through or child.type == "ERROR":
                self._inside(child, scope, path, depth + 1)

    def _take(self, found: DeclarationMatch, scope: Scope, path: tuple[str, ...], depth: int) -> None:
        visibility = scope.visibility if scope.visibility == "private" else found.visibility
        kind = "method" if found.kind == "function" and scope.kind not in LOOSE else found.kind
        self.found.append(
            Declaration(
                found.group,
                kind,
                found.name,
                line_of(found.node),
                found.node.end_point.row + 1,
                found.signature,
                visibility,
                ".".join(path),
                len(path),
                found.type,
                found.value,
                found.receiver,
            )
        )
        if found.inside is not None:
            inner = Scope(found.kind, found.name, visibility, exported=scope.exported, node=found.node)
            self._inside(found.inside, inner, (*path, found.name), depth + 1)
