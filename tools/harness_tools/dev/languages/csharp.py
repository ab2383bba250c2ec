"""C#: declarations and imports."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from .grammar import NodeFilter
from .model import Group, Import
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
)

if TYPE_CHECKING:
    from tree_sitter import Node

__all__ = ["IMPORTS", "OUTLINE", "imports_of", "package_of"]

_HOLDERS = [
    *("compilation_unit", "namespace_declaration", "declaration_list", "file_scoped_namespace_declaration"),
    *("preproc_if", "preproc_else", "preproc_region"),
]
IMPORTS = NodeFilter(frozenset(["using_directive"]), frozenset(_HOLDERS))
LEVELS = ("public", "protected", "private", "internal", "file")
BODY = ("body", "accessor_list", "accessors", "arrow_expression_clause", "enum_member_declaration_list")


def _words(node: Node) -> list[str]:
    return [text_of(child) for child in children_of(node, "modifier")]


def _visibility(node: Node, name: str, scope: Scope) -> str:
    found = next((word for word in _words(node) if word in LEVELS), "")
    if found:
        return "private" if found == "file" else found
    if scope.kind in ("interface", "enum"):
        return "public"
    return "internal" if scope.kind in ("", "namespace") else "private"


def _type(kind: str) -> Handler:
    return declared("type", kind, _visibility, body=BODY, members=True)


def _member(kind: str, group: Group = "function") -> Handler:
    return declared(group, kind, _visibility, body=BODY)


def _operator(node: Node, scope: Scope) -> Iterable[DeclarationMatch]:
    sign = field_text(node, "operator") or field_text(node, "type")
    text = signature(node, node.child_by_field_name("body"))
    yield DeclarationMatch(node, "function", "operator", f"operator {sign}", text, _visibility(node, sign, scope))


def _indexer(node: Node, scope: Scope) -> Iterable[DeclarationMatch]:
    text = signature(node, node.child_by_field_name("accessors") or child_of(node, *BODY))
    yield DeclarationMatch(
        node, "function", "indexer", "this[]", text, _visibility(node, "", scope), field_text(node, "type")
    )


def _fields(node: Node, scope: Scope) -> Iterable[DeclarationMatch]:
    declaration = child_of(node, "variable_declaration")
    group: Group = "constant" if "const" in _words(node) else "field"
    kind = "event" if node.type == "event_field_declaration" else group
    for part in children_of(declaration, "variable_declarator") if declaration is not None else ():
        name = field_text(part, "name") or one_line(text_of(child_of(part, "identifier")))
        made = field_text(declaration, "type") if declaration is not None else ""
        yield DeclarationMatch(node, group, kind, name, signature(node), _visibility(node, name, scope), made)


OUTLINE = Outline(
    handlers={
        "namespace_declaration": declared("type", "namespace", members=True),
        "class_declaration": _type("class"),
        "struct_declaration": _type("struct"),
        "interface_declaration": _type("interface"),
        "record_declaration": _type("record"),
        "record_struct_declaration": _type("record"),
        "enum_declaration": _type("enum"),
        "enum_member_declaration": declared("field", "member", _visibility, body=()),
        "delegate_declaration": declared("type", "delegate", _visibility, body=()),
        "method_declaration": _member("method"),
        "constructor_declaration": _member("constructor"),
        "destructor_declaration": _member("destructor"),
        "operator_declaration": _operator,
        "conversion_operator_declaration": _operator,
        "indexer_declaration": _indexer,
        "property_declaration": _member("property", "field"),
        "event_declaration": _member("event", "field"),
        "field_declaration": _fields,
        "event_field_declaration": _fields,
        "local_function_statement": _member("function"),
    },
    through=frozenset(
        ["file_scoped_namespace_declaration", "global_statement", "preproc_if", "preproc_else", "preproc_region"]
    ),
    package=lambda root: next(iter(package_of(root)), ""),
)


def package_of(root: Node) -> tuple[str, ...]:
    """Return the namespaces that a file declares."""
    kinds = ("namespace_declaration", "file_scoped_namespace_declaration")
    return tuple(field_text(node, "name") for node in children_of(root, *kinds))


def imports_of(found: list[Node]) -> Iterator[Import]:
    """Yield the namespaces of the nodes: ``B`` of ``using A = B``."""
    for node in found:
        text = one_line(text_of(node)).rstrip("; ").removeprefix("global ").removeprefix("using ")
        text = text.removeprefix("static ").removeprefix("unsafe ")
        name, equals, right = text.partition("=")
        module = (right if equals else name).strip().removeprefix("global::")
        yield Import(module, line_of(node), "", (name.strip(),) if equals else ())
