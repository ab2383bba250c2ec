"""JavaScript and TypeScript: declarations, exports and imports of a module."""

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

IMPORTS = NodeFilter(frozenset(["import_statement", "export_statement", "call_expression"]))
FUNCTIONS = frozenset(["arrow_function", "function_expression", "function", "generator_function"])


def _names_in(clause: Node) -> Iterator[str]:
    for part in children_of(clause, "export_specifier"):
        yield field_text(part, "name")


def _prepare(root: Node) -> Scope:
    """Return the names in export clauses; a file without exports is a script, in which everything is visible."""
    names: set[str] = set()
    is_module = False
    for node in root.named_children:
        if node.type == "export_statement":
            is_module = True
            for clause in children_of(node, "export_clause"):
                names.update(_names_in(clause))
            names.add(field_text(node, "value"))
        elif node.type == "expression_statement" and text_of(node)[:14].startswith(("module.exports", "exports.")):
            is_module = True
            names.update(_assigned_names(node))
    return Scope(exported=frozenset(names) if is_module else None)


def _assigned_names(node: Node) -> Iterator[str]:
    """Yield the names in ``module.exports = { a, b: c }`` and ``module.exports = a``."""
    assignment = child_of(node, "assignment_expression")
    right = assignment.child_by_field_name("right") if assignment is not None else None
    if right is None:
        return
    yield one_line(text_of(right))
    for part in children_of(right, "shorthand_property_identifier", "pair"):
        yield one_line(text_of(part)) if part.type != "pair" else field_text(part, "value")


def _visibility(node: Node, name: str, scope: Scope) -> str:
    if scope.node is not None and scope.kind != "namespace":
        modifier = child_of(node, "accessibility_modifier")
        return one_line(text_of(modifier)) if modifier is not None else "private" if name.startswith("#") else "public"
    if _exporting(node) is not None or scope.exported is None or name in scope.exported:
        return "public"
    return "private"


def _exporting(node: Node) -> Node | None:
    """Return the export statement around a declaration."""
    parent = node.parent
    while parent is not None and parent.type in ("ambient_declaration", "lexical_declaration", "variable_declaration"):
        parent = parent.parent
    return parent if parent is not None and parent.type == "export_statement" else None


def _found(group: Group, kind: str, *, members: bool = False) -> Handler:
    def find(node: Node, scope: Scope) -> Iterable[DeclarationMatch]:
        name = one_line(text_of(node.child_by_field_name("name") or child_of(node, "property_identifier")))
        name = name or field_text(node, "property") or ("default" if _exporting(node) is not None else "")
        if not name:
            return
        body = node.child_by_field_name("body")
        how = kind if kind != "method" or name != "constructor" else "constructor"
        text = signature(node, body, start=_exporting(node))
        made = _type_of(node)
        value = field_text(node, "value")
        inside = body if members else None
        yield DeclarationMatch(
            node, group, how, unquoted(name), text, _visibility(node, name, scope), made, value, inside=inside
        )

    return find


def _type_of(node: Node) -> str:
    return (field_text(node, "return_type") or field_text(node, "type")).removeprefix(":").strip()


def _variables(node: Node, scope: Scope) -> Iterable[DeclarationMatch]:
    constant = text_of(node.child_by_field_name("kind") or node)[:5] == "const"
    for part in children_of(node, "variable_declarator"):
        name, value = field_text(part, "name"), part.child_by_field_name("value")
        if _is_require(value):
            continue
        pattern = part.child_by_field_name("name")
        if pattern is None or not name.startswith(("{", "[")):
            yield _variable(node, part, name, value, scope, constant=constant)
            continue
        for bound in _bound(pattern):
            if _exporting(node) is not None or bound in (scope.exported or ()):  # others are local
                yield _variable(node, part, bound, value, scope, constant=constant)


def _bound(pattern: Node) -> Iterator[str]:
    """Yield the names that a pattern such as ``{ a, b: [c] }`` declares."""
    if pattern.type in ("identifier", "shorthand_property_identifier_pattern"):
        yield one_line(text_of(pattern))
    elif pattern.type in _PARTS:
        inner = pattern.child_by_field_name(_PARTS[pattern.type])
        yield from _bound(inner) if inner is not None else ()
    else:
        for child in pattern.named_children:
            yield from _bound(child)


_PARTS = {"pair_pattern": "value", "assignment_pattern": "left", "object_assignment_pattern": "left"}
"""Patterns of which one part declares names; the others are keys and defaults."""


def _variable(
    node: Node, part: Node, name: str, value: Node | None, scope: Scope, *, constant: bool
) -> DeclarationMatch:
    start = _exporting(node) or node
    start = start if len(children_of(node, "variable_declarator")) == 1 else part
    visible = _visibility(node, name, scope)
    if value is not None and value.type in FUNCTIONS:
        text = signature(part, value.child_by_field_name("body"), start=start)
        return DeclarationMatch(part, "function", "function", name, text, visible, _type_of(value))
    if value is not None and value.type == "class":
        body = value.child_by_field_name("body")
        return DeclarationMatch(part, "type", "class", name, signature(part, body, start=start), visible, inside=body)
    group: Group = "constant" if constant else "variable"
    text = signature(part, start=start)
    return DeclarationMatch(part, group, group, name, text, visible, _type_of(part), one_line(text_of(value)))


def _is_require(value: Node | None) -> bool:
    return value is not None and value.type == "call_expression" and field_text(value, "function") == "require"


def _statement(node: Node, scope: Scope) -> Iterable[DeclarationMatch]:
    """Yield ``exports.name = function () {}``, and TypeScript namespaces, which are such statements, too."""
    for child in node.named_children:
        if child.type in ("internal_module", "module"):
            yield from _found("type", "namespace", members=True)(child, scope)
        elif child.type == "assignment_expression":
            yield from _assigned(child)


def _assigned(node: Node) -> Iterator[DeclarationMatch]:
    left, right = field_text(node, "left"), node.child_by_field_name("right")
    owner, _, name = left.rpartition(".") if left != "module.exports" else ("exports", "", left)
    if owner not in ("exports", "module.exports") or right is None:
        return
    body = right.child_by_field_name("body")
    if right.type in FUNCTIONS:
        yield DeclarationMatch(node, "function", "function", name, signature(node, body))
    elif right.type == "class":
        yield DeclarationMatch(node, "type", "class", name, signature(node, body), inside=body)
    elif name != left and right.type not in ("identifier", "member_expression"):
        yield DeclarationMatch(node, "variable", "variable", name, signature(node), value=one_line(text_of(right)))


def _default(node: Node, scope: Scope) -> Iterable[DeclarationMatch]:
    """Yield the exported declaration; ``export default () => …`` has no name."""
    value = node.child_by_field_name("value")
    if value is not None and value.type in FUNCTIONS:
        text = signature(node, value.child_by_field_name("body"))
        yield DeclarationMatch(node, "function", "function", "default", text, type=_type_of(value))
    elif value is not None and value.type == "class":
        body = value.child_by_field_name("body")
        yield DeclarationMatch(node, "type", "class", "default", signature(node, body), inside=body)
    elif value is not None and value.type not in ("identifier", "member_expression"):
        yield DeclarationMatch(node, "variable", "variable", "default", signature(node), value=one_line(text_of(value)))
    declaration = node.child_by_field_name("declaration")
    for child in (declaration,) if declaration is not None else ():
        inner = child_of(child, *_DECLARATIONS) if child.type == "ambient_declaration" else child
        handler = _DECLARATIONS.get(inner.type) if inner is not None else None
        if inner is not None and handler is not None:
            yield from handler(inner, scope)


_DECLARATIONS: dict[str, Handler] = {
    "function_declaration": _found("function", "function"),
    "generator_function_declaration": _found("function", "function"),
    "function_signature": _found("function", "function"),
    "class_declaration": _found("type", "class", members=True),
    "abstract_class_declaration": _found("type", "class", members=True),
    "interface_declaration": _found("type", "interface", members=True),
    "type_alias_declaration": _found("type", "alias"),
    "enum_declaration": _found("type", "enum", members=True),
    "internal_module": _found("type", "namespace", members=True),
    "module": _found("type", "namespace", members=True),
    "lexical_declaration": _variables,
    "variable_declaration": _variables,
}


def _unnamed(group: Group, kind: str, name: str) -> Handler:
    """Return the handler for an interface member without a name."""
    return lambda node, scope: (DeclarationMatch(node, group, kind, name, signature(node), type=_type_of(node)),)


def _enum_member(node: Node, scope: Scope) -> Iterable[DeclarationMatch]:
    name = field_text(node, "name") if node.type == "enum_assignment" else one_line(text_of(node))
    if scope.kind == "enum":
        yield DeclarationMatch(
            node, "field", "member", unquoted(name), signature(node), value=field_text(node, "value")
        )


OUTLINE = Outline(
    handlers={
        **_DECLARATIONS,
        "export_statement": _default,
        "expression_statement": _statement,
        "method_definition": _found("function", "method"),
        "method_signature": _found("function", "method"),
        "abstract_method_signature": _found("function", "method"),
        "public_field_definition": _found("field", "field"),
        "field_definition": _found("field", "field"),
        "property_signature": _found("field", "property"),
        "index_signature": _unnamed("field", "index", "[]"),
        "call_signature": _unnamed("function", "call", "()"),
        "construct_signature": _unnamed("function", "constructor", "new"),
        "property_identifier": _enum_member,
        "enum_assignment": _enum_member,
    },
    through=frozenset(["ambient_declaration", "statement_block"]),
    prepare=_prepare,
)


def imports_of(found: list[Node]) -> Iterator[Import]:
    """Yield imports: statements, and calls of ``require`` and ``import`` with a literal."""
    for node in found:
        source = _argument(node) if node.type == "call_expression" else node.child_by_field_name("source")
        if source is not None and source.type == "string":
            module = unquoted(one_line(text_of(source)))
            yield Import(module, line_of(source), "relative" if module.startswith(".") else "", _imported(node))


def _argument(node: Node) -> Node | None:
    function, arguments = node.child_by_field_name("function"), node.child_by_field_name("arguments")
    if function is None or arguments is None or function.type not in ("identifier", "import"):
        return None
    return next(iter(arguments.named_children), None) if text_of(function) in ("require", "import") else None


def _imported(node: Node) -> tuple[str, ...]:
    clause = child_of(node, "import_clause")
    if clause is None:
        return ()
    names = [one_line(text_of(part)) for part in children_of(clause, "identifier", "namespace_import")]
    for listed in children_of(clause, "named_imports"):
        names += [field_text(part, "name") for part in children_of(listed, "import_specifier")]
    return tuple(names)
