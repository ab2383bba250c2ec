"""Go: declarations and imports."""

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

IMPORTS = NodeFilter(frozenset(["import_spec"]), frozenset(["source_file", "import_declaration", "import_spec_list"]))


def _visibility(name: str) -> str:
    return "public" if name[:1].isupper() else "private"


def _function(node: Node, scope: Scope) -> Iterable[DeclarationMatch]:
    name = field_text(node, "name")
    receiver = _receiver(node.child_by_field_name("receiver"))
    visible = "private" if receiver and _visibility(receiver) == "private" else _visibility(name)
    text = signature(node, node.child_by_field_name("body"))
    kind = "method" if receiver else "function"
    yield DeclarationMatch(node, "function", kind, name, text, visible, field_text(node, "result"), receiver=receiver)


def _receiver(node: Node | None) -> str:
    """Return the name of the type: ``Server`` of ``(s *Server[T])``."""
    declaration = child_of(node, "parameter_declaration") if node is not None else None
    text = field_text(declaration, "type") if declaration is not None else ""
    return text.lstrip("*( ").partition("[")[0].rstrip(") ")


def _types(node: Node, scope: Scope) -> Iterable[DeclarationMatch]:
    for spec in children_of(node, "type_spec", "type_alias"):
        name, made = field_text(spec, "name"), spec.child_by_field_name("type")
        kind, inside, end = _shape(spec, made)
        text = signature(spec, end, prefix="type ")
        underlying = "" if inside is not None else one_line(text_of(made))
        yield DeclarationMatch(spec, "type", kind, name, text, _visibility(name), underlying, inside=inside)


def _shape(spec: Node, made: Node | None) -> tuple[str, Node | None, Node | None]:
    """Return the kind of a type, the node with its members, and where its signature ends."""
    if made is not None and made.type == "struct_type":
        body = child_of(made, "field_declaration_list")
        return "struct", body, body
    if made is not None and made.type == "interface_type":
        return "interface", made, child_of(made, "{")
    return ("alias" if spec.type == "type_alias" else "named"), None, None


def _fields(node: Node, scope: Scope) -> Iterable[DeclarationMatch]:
    kind = field_text(node, "type")
    names = [one_line(text_of(name)) for name in node.children_by_field_name("name")]
    embedded = kind.lstrip("*").partition("[")[0].rpartition(".")[2]
    for name in names or [embedded]:
        how = "field" if names else "embedded"
        yield DeclarationMatch(
            node, "field", how, name, signature(node), _visibility(name), kind, field_text(node, "tag")
        )


def _element(node: Node, scope: Scope) -> Iterable[DeclarationMatch]:
    name = field_text(node, "name")
    if name:
        yield DeclarationMatch(
            node, "function", "method", name, signature(node), _visibility(name), field_text(node, "result")
        )


def _embedded(node: Node, scope: Scope) -> Iterable[DeclarationMatch]:
    name = one_line(text_of(node))
    yield DeclarationMatch(node, "field", "embedded", name, name, "public", name)


def _values(group: Group, spec_type: str) -> Handler:
    def find(node: Node, scope: Scope) -> Iterable[DeclarationMatch]:
        listed = child_of(node, f"{spec_type}_list")
        word = "const" if group == "constant" else "var"
        for spec in children_of(listed if listed is not None else node, spec_type):
            text = signature(spec, prefix=f"{word} ")
            for name in [one_line(text_of(part)) for part in spec.children_by_field_name("name") if part.is_named]:
                kind, value = field_text(spec, "type"), field_text(spec, "value")
                yield DeclarationMatch(spec, group, group, name, text, _visibility(name), kind, value)

    return find


def _package(root: Node) -> str:
    clause = child_of(root, "package_clause")
    return one_line(text_of(child_of(clause, "package_identifier"))) if clause is not None else ""


OUTLINE = Outline(
    handlers={
        "function_declaration": _function,
        "method_declaration": _function,
        "type_declaration": _types,
        "field_declaration": _fields,
        "method_elem": _element,
        "method_spec": _element,
        "type_elem": _embedded,
        "const_declaration": _values("constant", "const_spec"),
        "var_declaration": _values("variable", "var_spec"),
    },
    package=_package,
)


def imports_of(found: list[Node]) -> Iterator[Import]:
    """Yield the imports of the nodes."""
    for node in found:
        name = field_text(node, "name")
        yield Import(unquoted(field_text(node, "path")), line_of(node), "", (name,) if name else ())
