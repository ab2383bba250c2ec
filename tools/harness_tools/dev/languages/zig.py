"""Zig: declarations and imports."""

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
    field_text,
    line_of,
    one_line,
    signature,
    text_of,
    unquoted,
)

if TYPE_CHECKING:
    from tree_sitter import Node

__all__ = ["IMPORTS", "OUTLINE", "imports_of"]

IMPORTS = NodeFilter(frozenset(["builtin_function"]))
TYPES = {
    "struct_declaration": "struct",
    "enum_declaration": "enum",
    "union_declaration": "union",
    "opaque_declaration": "opaque",
    "error_set_declaration": "error set",
}


def _visibility(node: Node) -> str:
    return "public" if child_of(node, "pub") is not None else "private"


def _function(node: Node, scope: Scope) -> Iterable[DeclarationMatch]:
    name = field_text(node, "name")
    kind = "method" if scope.kind else "function"
    text = signature(node, node.child_by_field_name("body"))
    yield DeclarationMatch(node, "function", kind, name, text, _visibility(node), field_text(node, "type"))


def _variable(node: Node, scope: Scope) -> Iterable[DeclarationMatch]:
    name = one_line(text_of(child_of(node, "identifier")))
    value = node.named_children[-1] if node.named_child_count > 1 else None
    if value is None or text_of(value).startswith("@import"):
        return
    if value.type in TYPES:
        text = signature(node, child_of(value, "{"))
        yield DeclarationMatch(node, "type", TYPES[value.type], name, text, _visibility(node), inside=value)
        return
    group: Group = "constant" if child_of(node, "const") is not None else "variable"
    text, made = signature(node), field_text(node, "type")
    yield DeclarationMatch(node, group, group, name, text, _visibility(node), made, one_line(text_of(value)))


def _field(node: Node, scope: Scope) -> Iterable[DeclarationMatch]:
    name = field_text(node, "name") or one_line(text_of(child_of(node, "identifier")))
    yield DeclarationMatch(node, "field", "field", name, signature(node), scope.visibility, field_text(node, "type"))


OUTLINE = Outline(
    handlers={
        "function_declaration": _function,
        "variable_declaration": _variable,
        "container_field": _field,
    },
)


def imports_of(found: list[Node]) -> Iterator[Import]:
    """Yield the modules and files of the calls of ``@import``."""
    for node in found:
        arguments = child_of(node, "arguments")
        path = child_of(arguments, "string") if arguments is not None else None
        if path is not None and text_of(child_of(node, "builtin_identifier")) == "@import":
            name = unquoted(one_line(text_of(path)))
            yield Import(name, line_of(node), "path" if name.endswith((".zig", ".zon")) else "")
