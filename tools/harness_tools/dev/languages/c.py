"""C and C++: declarations and includes."""

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
    first_of,
    line_of,
    one_line,
    signature,
    text_of,
)

if TYPE_CHECKING:
    from tree_sitter import Node

__all__ = ["IMPORTS", "OUTLINE", "imports_of"]

_BLOCKS = frozenset(
    [
        *("preproc_if", "preproc_ifdef", "preproc_else", "preproc_elif", "preproc_elifdef", "linkage_specification"),
        *("declaration_list", "template_declaration", "export_declaration"),
    ]
)
IMPORTS = NodeFilter(frozenset(["preproc_include"]), frozenset(["translation_unit", *_BLOCKS]))
NAMES = frozenset(
    [
        *("identifier", "field_identifier", "type_identifier", "qualified_identifier", "destructor_name"),
        *("operator_name", "operator_cast", "template_function", "template_type", "primitive_type"),
    ]
)
TYPES = {
    "struct_specifier": "struct",
    "union_specifier": "union",
    "enum_specifier": "enum",
    "class_specifier": "class",
}
LEVELS = ("public", "protected", "private")
DECLARATORS = 32
"""Maximum nesting of declarators: pointers to functions that return pointers."""


def _visibility(node: Node, scope: Scope) -> str:
    if scope.kind in ("class", "struct", "union"):
        return scope.access or ("private" if scope.kind == "class" else "public")
    words = [text_of(child) for child in children_of(node, "storage_class_specifier")]
    return "private" if "static" in words else "public"


def _named(declarator: Node | None) -> tuple[str, bool]:
    """Return the name in a declarator, and whether it declares a function rather than a pointer to one."""
    function = False
    for _ in range(DECLARATORS):
        if declarator is None or declarator.type in NAMES:
            break
        if declarator.type == "function_declarator":
            function = True
        elif declarator.type in ("pointer_declarator", "array_declarator") and function:
            function = False
        inner = declarator.child_by_field_name("declarator") or first_of(declarator, ("parenthesized_declarator",))
        declarator = inner or next((child for child in declarator.named_children if _declares(child)), None)
    return (one_line(text_of(declarator)) if declarator is not None and declarator.type in NAMES else ""), function


def _declares(node: Node) -> bool:
    return node.type in NAMES or node.type.endswith("_declarator")


def _start(node: Node) -> Node:
    """Return the template around a declaration."""
    parent = node.parent
    return parent if parent is not None and parent.type == "template_declaration" else node


def _function(node: Node, scope: Scope) -> Iterable[DeclarationMatch]:
    name, _ = _named(node.child_by_field_name("declarator"))
    if not name:
        return
    body = first_of(node, ("body", "field_initializer_list", "try_statement"))
    initial = child_of(node, "field_initializer_list")
    end = initial or body
    kind = "method" if scope.kind in ("class", "struct", "union") else "function"
    receiver = name.rpartition("::")[0]
    text = signature(node, end, start=_start(node))
    visible = _visibility(node, scope)
    yield DeclarationMatch(node, "function", kind, name, text, visible, field_text(node, "type"), receiver=receiver)


def _declaration(node: Node, scope: Scope) -> Iterable[DeclarationMatch]:
    """Yield prototypes, variables and fields, after a type that is declared in the same statement."""
    made = node.child_by_field_name("type")
    if made is not None and made.type in TYPES and made.child_by_field_name("body") is not None:
        yield from _type(made, scope)
    inside = scope.kind in ("class", "struct", "union")
    for declarator in node.children_by_field_name("declarator"):
        name, function = _named(declarator)
        if not name:
            continue
        group: Group = "function" if function else "field" if inside else _stored(node)
        kind = ("method" if inside else "prototype") if function else group
        value = field_text(declarator, "value") or field_text(node, "default_value")
        end = made.child_by_field_name("body") if made is not None and made.type in TYPES else None
        text = signature(node, None if function else end, start=_start(node))
        yield DeclarationMatch(node, group, kind, name, text, _visibility(node, scope), one_line(text_of(made)), value)


def _stored(node: Node) -> Group:
    words = {text_of(child) for child in children_of(node, "type_qualifier")}
    return "constant" if words & {"const", "constexpr"} else "variable"


def _type(node: Node, scope: Scope) -> Iterable[DeclarationMatch]:
    name, body = field_text(node, "name"), node.child_by_field_name("body")
    if body is None:
        return
    shown = name or "(unnamed)"
    visible = _visibility(node, scope) if scope.kind in ("class", "struct") else "public"
    text = signature(node, body, start=_start(node))
    yield DeclarationMatch(node, "type", TYPES[node.type], shown, text, visible, inside=body)


def _typedef(node: Node, scope: Scope) -> Iterable[DeclarationMatch]:
    made = node.child_by_field_name("type")
    body = made.child_by_field_name("body") if made is not None and made.type in TYPES else None
    for declarator in node.children_by_field_name("declarator"):
        name, _ = _named(declarator)
        if not name:
            continue
        kind = TYPES[made.type] if made is not None and body is not None else "typedef"
        text = f"{signature(node, body)} {name}" if body is not None else signature(node)
        yield DeclarationMatch(
            node, "type", kind, name, text, type=field_text(node, "type") if body is None else "", inside=body
        )
        body = None


def _enumerator(node: Node, scope: Scope) -> Iterable[DeclarationMatch]:
    visible = scope.visibility
    yield DeclarationMatch(
        node, "field", "member", field_text(node, "name"), signature(node), visible, value=field_text(node, "value")
    )


def _macro(node: Node, scope: Scope) -> Iterable[DeclarationMatch]:
    name, value = field_text(node, "name"), node.child_by_field_name("value")
    function = node.type == "preproc_function_def"
    if not function and value is None:
        return  # a guard, or a switch
    text = f"#define {name}{field_text(node, 'parameters')}"
    group: Group = "function" if function else "constant"
    yield DeclarationMatch(node, group, "macro", name, text, value=one_line(text_of(value)))


def _access(node: Node, scope: Scope) -> Iterable[DeclarationMatch]:
    scope.access = next((level for level in LEVELS if level in text_of(node)), scope.access)
    return ()


def _namespace(node: Node, scope: Scope) -> Iterable[DeclarationMatch]:
    name, body = field_text(node, "name"), node.child_by_field_name("body")
    visible = "public" if name else "private"
    yield DeclarationMatch(node, "type", "namespace", name or "(unnamed)", signature(node, body), visible, inside=body)


def _using(node: Node, scope: Scope) -> Iterable[DeclarationMatch]:
    name = field_text(node, "name")
    text = signature(node, start=_start(node))
    visible = _visibility(node, scope)
    kind = "concept" if node.type == "concept_definition" else "alias"
    yield DeclarationMatch(node, "type", kind, name, text, visible, field_text(node, "type"))


OUTLINE = Outline(
    handlers={
        "function_definition": _function,
        "inline_method_definition": _function,
        "declaration": _declaration,
        "field_declaration": _declaration,
        **dict.fromkeys(TYPES, _type),
        "type_definition": _typedef,
        "enumerator": _enumerator,
        "preproc_def": _macro,
        "preproc_function_def": _macro,
        "access_specifier": _access,
        "namespace_definition": _namespace,
        "alias_declaration": _using,
        "concept_definition": _using,
    },
    through=_BLOCKS,
)


def imports_of(found: list[Node]) -> Iterator[Import]:
    """Yield the includes of the nodes."""
    for node in found:
        text = field_text(node, "path")
        form = "system" if text.startswith("<") else "quoted" if text.startswith('"') else ""
        yield Import(text.strip('<>"') if form else text, line_of(node), form)
