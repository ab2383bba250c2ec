"""Swift: declarations and imports."""

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
    declared,
    field_text,
    first_of,
    line_of,
    one_line,
    signature,
    text_of,
)

if TYPE_CHECKING:
    from tree_sitter import Node

__all__ = ["IMPORTS", "OUTLINE", "imports_of"]

IMPORTS = NodeFilter(frozenset(["import_declaration"]), frozenset(["source_file"]))
LEVELS = {"open": "public", "public": "public", "internal": "internal", "fileprivate": "private", "private": "private"}
KINDS = ("class", "struct", "enum", "extension", "actor", "func", "protocol", "var", "let", "typealias")


def _visibility(node: Node, name: str, scope: Scope) -> str:
    words = text_of(child_of(node, "modifiers")).split()
    found = next((LEVELS[word] for word in words if word in LEVELS), "")
    return found or ("public" if scope.kind in ("protocol", "enum-case") else "internal")


def _type(node: Node, scope: Scope) -> Iterable[DeclarationMatch]:
    kind = field_text(node, "declaration_kind") or "class"
    body = node.child_by_field_name("body")
    name = field_text(node, "name")
    text = signature(node, body)
    yield DeclarationMatch(node, "type", kind, name, text, _visibility(node, name, scope), inside=body)


def _function(node: Node, scope: Scope) -> Iterable[DeclarationMatch]:
    kind = "method" if scope.kind else "function"
    return declared("function", kind, _visibility)(node, scope)


def _initializer(node: Node, scope: Scope) -> Iterable[DeclarationMatch]:
    text = signature(node, node.child_by_field_name("body"))
    yield DeclarationMatch(node, "function", "constructor", "init", text, _visibility(node, "init", scope))


def _property(node: Node, scope: Scope) -> Iterable[DeclarationMatch]:
    name = field_text(node, "name").rpartition(" ")[2]
    end = first_of(node, ("computed_value", "computed_property", "protocol_property_requirements"))
    head = text_of(node)[:300].split("=")[0].split()
    group: Group = "field" if scope.kind else "constant" if "let" in head else "variable"
    kind = "property" if scope.kind else group
    made = one_line(text_of(child_of(node, "type_annotation"))).lstrip(": ")
    value = field_text(node, "value")
    yield DeclarationMatch(node, group, kind, name, signature(node, end), _visibility(node, name, scope), made, value)


def _cases(node: Node, scope: Scope) -> Iterable[DeclarationMatch]:
    for name in children_of(node, "simple_identifier"):
        yield DeclarationMatch(node, "field", "member", one_line(text_of(name)), signature(node), scope.visibility)


OUTLINE = Outline(
    handlers={
        "class_declaration": _type,
        "protocol_declaration": declared("type", "protocol", _visibility, members=True),
        "function_declaration": _function,
        "protocol_function_declaration": _function,
        "init_declaration": _initializer,
        "property_declaration": _property,
        "protocol_property_declaration": _property,
        "typealias_declaration": declared("type", "alias", _visibility, body=()),
        "associatedtype_declaration": declared("type", "alias", _visibility, body=()),
        "enum_entry": _cases,
    },
)


def imports_of(found: list[Node]) -> Iterator[Import]:
    """Yield the modules of the nodes: ``Foundation`` of ``import struct Foundation.URL``."""
    for node in found:
        path = one_line(text_of(child_of(node, "identifier")))
        yield Import(path.partition(".")[0], line_of(node), "", (path,) if "." in path else ())
