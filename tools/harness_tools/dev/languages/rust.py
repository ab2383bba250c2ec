"""Rust: declarations and uses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING

from .grammar import NodeFilter
from .model import Import
from .outline import (
    DeclarationMatch,
    Outline,
    Scope,
    child_of,
    declared,
    field_text,
    line_of,
    one_line,
    signature,
    text_of,
)

if TYPE_CHECKING:
    from tree_sitter import Node

__all__ = ["IMPORTS", "OUTLINE", "imports_of"]

_HOLDERS = [
    *("source_file", "mod_item", "declaration_list", "function_item", "impl_item", "trait_item", "block"),
    *("expression_statement", "if_expression", "else_clause", "match_expression", "match_block", "match_arm"),
    *("loop_expression", "for_expression", "while_expression", "unsafe_block", "async_block", "foreign_mod_item"),
]
IMPORTS = NodeFilter(frozenset(["use_declaration", "extern_crate_declaration", "mod_item"]), frozenset(_HOLDERS))
MAX_NAMES = 200
"""Maximum paths of one ``use``."""


def _visibility(node: Node, name: str, scope: Scope) -> str:
    if scope.kind in ("trait", "enum", "trait impl"):
        return "public"  # like its trait or enum
    modifier = text_of(child_of(node, "visibility_modifier"))
    return "public" if modifier == "pub" else "crate" if modifier else "private"


def _implementation(node: Node, scope: Scope) -> Iterable[DeclarationMatch]:
    body, trait = node.child_by_field_name("body"), field_text(node, "trait")
    kind = "trait impl" if trait else "impl"
    yield DeclarationMatch(node, "type", kind, field_text(node, "type"), signature(node, body), inside=body)


def _macro(node: Node, scope: Scope) -> Iterable[DeclarationMatch]:
    before = node.prev_named_sibling
    exported = before is not None and before.type == "attribute_item" and "macro_export" in text_of(before)
    name = field_text(node, "name")
    yield DeclarationMatch(node, "function", "macro", name, f"macro_rules! {name}", "public" if exported else "private")


FIELDS = ("field_declaration_list",)

OUTLINE = Outline(
    handlers={
        "function_item": declared("function", "function", _visibility),
        "function_signature_item": declared("function", "function", _visibility),
        "struct_item": declared("type", "struct", _visibility, body=FIELDS, members=True),
        "union_item": declared("type", "union", _visibility, body=FIELDS, members=True),
        "enum_item": declared("type", "enum", _visibility, members=True),
        "trait_item": declared("type", "trait", _visibility, members=True),
        "mod_item": declared("type", "module", _visibility, members=True),
        "impl_item": _implementation,
        "type_item": declared("type", "alias", _visibility, body=()),
        "associated_type": declared("type", "alias", _visibility, body=()),
        "const_item": declared("constant", "constant", _visibility, body=()),
        "static_item": declared("variable", "static", _visibility, body=()),
        "macro_definition": _macro,
        "field_declaration": declared("field", "field", _visibility, body=()),
        "enum_variant": declared("field", "variant", _visibility, body=()),
    },
    through=frozenset(["foreign_mod_item", "declaration_list"]),
)


def imports_of(found: list[Node]) -> Iterator[Import]:
    """Yield the imports of the nodes, including ``mod name;``."""
    for node in found:
        path = node.child_by_field_name("argument")
        if path is not None:
            paths = islice(_paths(path, ""), MAX_NAMES)
            yield from (Import(one, line_of(node)) for one in dict.fromkeys(paths))
        elif node.type == "extern_crate_declaration":
            yield Import(field_text(node, "name"), line_of(node))
        elif node.child_by_field_name("body") is None:
            yield Import(field_text(node, "name"), line_of(node), "declared")


def _paths(node: Node, prefix: str, depth: int = 0) -> Iterator[str]:
    """Yield the paths of a use tree: ``a::b`` and ``a::c::d`` for ``a::{b, c::d}``."""
    if node.type == "scoped_use_list" and depth < 20:
        before = _joined(prefix, field_text(node, "path"))
        inner = node.child_by_field_name("list")
        yield from _paths(inner, before, depth + 1) if inner is not None else ()
    elif node.type == "use_list" and depth < 20:
        for child in node.named_children[:MAX_NAMES]:
            yield from _paths(child, prefix, depth + 1)
    elif node.type == "use_as_clause":
        yield _joined(prefix, field_text(node, "path"))
    elif "comment" not in node.type:
        text = one_line(text_of(node))
        yield prefix if text == "self" and prefix else _joined(prefix, text)


def _joined(prefix: str, path: str) -> str:
    return f"{prefix}::{path}" if prefix and path else prefix or path
