"""Python: declarations and imports of a module."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from .grammar import NodeFilter
from .model import Group, Import
from .outline import (
    DeclarationMatch,
    Outline,
    Scope,
    child_of,
    children_of,
    field_text,
    line_of,
    one_line,
    signature,
    text_of,
)

if TYPE_CHECKING:
    from tree_sitter import Node

__all__ = ["IMPORTS", "OUTLINE", "imports_of"]

MAX_TARGETS = 20
_BLOCKS = frozenset(
    [
        *("if_statement", "elif_clause", "else_clause", "try_statement", "except_clause", "finally_clause"),
        *("with_statement", "block"),
    ]
)
_HOLDERS = [
    *("module", "function_definition", "class_definition", "decorated_definition", "for_statement", "while_statement"),
    *("match_statement", "case_clause", "except_group_clause"),
    *_BLOCKS,
]
IMPORTS = NodeFilter(
    frozenset(["import_statement", "import_from_statement", "future_import_statement"]), frozenset(_HOLDERS)
)


def _visibility(name: str) -> str:
    return "private" if name.startswith("_") and not (name.startswith("__") and name.endswith("__")) else "public"


def _definition(node: Node, scope: Scope) -> Iterable[DeclarationMatch]:
    inner = node.child_by_field_name("definition") if node.type == "decorated_definition" else node
    name = field_text(inner, "name") if inner is not None else ""
    if inner is None or not name:
        return
    body = inner.child_by_field_name("body")
    text = signature(node, body)
    if inner.type == "class_definition":
        yield DeclarationMatch(node, "type", "class", name, text, _visibility(name), inside=body)
        return
    kind = "method" if scope.kind == "class" else "function"
    yield DeclarationMatch(node, "function", kind, name, text, _visibility(name), field_text(inner, "return_type"))


def _assignment(node: Node, scope: Scope) -> Iterable[DeclarationMatch]:
    for child in node.named_children:
        if child.type == "assignment":
            yield from _targets(child, scope)


def _targets(node: Node, scope: Scope) -> Iterator[DeclarationMatch]:
    for target in _names(node):
        name = one_line(text_of(target))
        constant = name.isupper()
        group: Group = "constant" if constant else "field" if scope.kind == "class" else "variable"
        yield DeclarationMatch(
            node,
            group,
            group,
            name,
            signature(node),
            _visibility(name),
            field_text(node, "type"),
            field_text(node, "right"),
        )


def _names(assignment: Node) -> Iterator[Node]:
    """Yield the plain names that are assigned to, also in ``a, b = c = …``."""
    following: Node | None = assignment
    for _ in range(MAX_TARGETS):
        left = following.child_by_field_name("left") if following is not None else None
        if following is None or left is None:
            return
        if left.type == "identifier":
            yield left
        elif left.type in ("pattern_list", "tuple_pattern", "list_pattern"):
            yield from children_of(left, "identifier")
        right = following.child_by_field_name("right")
        following = right if right is not None and right.type == "assignment" else None


def _alias(node: Node, scope: Scope) -> Iterable[DeclarationMatch]:
    left = node.child_by_field_name("left") or child_of(node, "type")
    name = one_line(text_of(left)).partition("[")[0]
    yield DeclarationMatch(node, "type", "alias", name, signature(node), _visibility(name))


OUTLINE = Outline(
    handlers={
        "function_definition": _definition,
        "class_definition": _definition,
        "decorated_definition": _definition,
        "expression_statement": _assignment,
        "type_alias_statement": _alias,
    },
    through=_BLOCKS,
)


def imports_of(found: list[Node]) -> Iterator[Import]:
    """Yield the imports of the nodes."""
    for node in found:
        if node.type == "import_statement":
            for part in children_of(node, "dotted_name", "aliased_import"):
                yield Import(field_text(part, "name") or one_line(text_of(part)), line_of(node))
        else:
            yield _from(node)


def _from(node: Node) -> Import:
    module = field_text(node, "module_name") or "__future__"
    names = tuple(
        field_text(part, "name") or one_line(text_of(part)) for part in node.children_by_field_name("name")
    ) or (("*",) if child_of(node, "wildcard_import") else ())
    return Import(module, line_of(node), "relative" if module.startswith(".") else "", names)
