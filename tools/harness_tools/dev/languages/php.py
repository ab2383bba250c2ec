"""PHP: declarations, uses and includes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from .grammar import NodeFilter
from .model import Import
from .outline import (
    DeclarationMatch,
    Handler,
    Outline,
    Scope,
    child_of,
    children_of,
    declared,
    field_text,
    line_of,
    one_line,
    signature,
    text_of,
    unquoted,
)

if TYPE_CHECKING:
    from tree_sitter import Node

__all__ = ["IMPORTS", "OUTLINE", "imports_of", "package_of"]

IMPORTS = NodeFilter(
    frozenset(
        [
            "namespace_use_declaration",
            "require_expression",
            "require_once_expression",
            "include_expression",
            "include_once_expression",
        ]
    )
)


def _visibility(node: Node, name: str, scope: Scope) -> str:
    modifier = child_of(node, "visibility_modifier")
    return one_line(text_of(modifier)) if modifier is not None else "public"


def _type(kind: str) -> Handler:
    return declared("type", kind, members=True)


def _constants(node: Node, scope: Scope) -> Iterable[DeclarationMatch]:
    for part in children_of(node, "const_element"):
        name = one_line(text_of(child_of(part, "name")))
        value = one_line(text_of(part.named_children[-1]))
        yield DeclarationMatch(
            node, "constant", "constant", name, signature(node), _visibility(node, name, scope), value=value
        )


def _properties(node: Node, scope: Scope) -> Iterable[DeclarationMatch]:
    for part in children_of(node, "property_element"):
        name = field_text(part, "name") or one_line(text_of(child_of(part, "variable_name")))
        visible = _visibility(node, name, scope)
        yield DeclarationMatch(
            node, "field", "property", name.lstrip("$"), signature(node), visible, field_text(node, "type")
        )


def _namespace(node: Node, scope: Scope) -> Iterable[DeclarationMatch]:
    body = node.child_by_field_name("body")
    if body is not None:
        yield DeclarationMatch(node, "type", "namespace", field_text(node, "name"), signature(node, body), inside=body)


def package_of(root: Node) -> tuple[str, ...]:
    """Return the namespaces that a file declares."""
    return tuple(field_text(node, "name") for node in children_of(root, "namespace_definition"))


OUTLINE = Outline(
    handlers={
        "namespace_definition": _namespace,
        "class_declaration": _type("class"),
        "interface_declaration": _type("interface"),
        "trait_declaration": _type("trait"),
        "enum_declaration": _type("enum"),
        "enum_case": declared("field", "member", body=()),
        "function_definition": declared("function", "function"),
        "method_declaration": declared("function", "method", _visibility),
        "const_declaration": _constants,
        "property_declaration": _properties,
    },
    through=frozenset(["if_statement", "compound_statement"]),
    package=lambda root: next(iter(package_of(root)), ""),
)


def imports_of(found: list[Node]) -> Iterator[Import]:
    """Yield the names and files of the nodes."""
    for node in found:
        if node.type == "namespace_use_declaration":
            yield from (Import(name, line_of(node)) for name in _used(one_line(text_of(node), 2_000)))
        elif node.named_child_count:
            yield _included(node, node.named_children[0])


def _included(node: Node, path: Node) -> Import:
    text = one_line(text_of(path))
    literal = path.type in ("string", "encapsed_string") and "$" not in text
    return Import(unquoted(text) if literal else text, line_of(node), "path" if literal else "dynamic")


def _used(text: str) -> Iterator[str]:
    r"""Yield ``A\B``, ``A\C`` and ``E`` for ``use A\{B, C as D}, E;``."""
    words = text.rstrip("; ").removeprefix("use ").strip()
    before, brace, rest = words.partition("{")
    names = rest.partition("}")[0] if brace else words
    for name in names.split(","):
        plain = name.strip().removeprefix("function ").removeprefix("const ").split(" as ")[0].strip()
        prefix = before.strip().removeprefix("function ").removeprefix("const ") if brace else ""
        if plain:
            yield (prefix + plain).lstrip("\\")
