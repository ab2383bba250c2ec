"""Ruby: declarations and requires."""

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

__all__ = ["IMPORTS", "OUTLINE", "imports_of"]

IMPORTS = NodeFilter(frozenset(["call"]))
LEVELS = ("public", "protected", "private")
FORMS = {"require": "", "require_relative": "relative", "load": "path"}
ATTRIBUTES = ("attr_reader", "attr_writer", "attr_accessor")


def _method(node: Node, scope: Scope) -> Iterable[DeclarationMatch]:
    name = field_text(node, "name")
    kind = "method" if scope.kind else "function"
    yield DeclarationMatch(node, "function", kind, name, _heading(node), scope.access or "public")


def _singleton(node: Node, scope: Scope) -> Iterable[DeclarationMatch]:
    name = f"{field_text(node, 'object')}.{field_text(node, 'name')}"
    yield DeclarationMatch(node, "function", "method", name, _heading(node))


def _heading(node: Node) -> str:
    parameters, name = node.child_by_field_name("parameters"), node.child_by_field_name("name")
    last = parameters or name
    following = last.next_sibling if last is not None else None
    return signature(node, following)


def _type(kind: str) -> Handler:
    def find(node: Node, scope: Scope) -> Iterable[DeclarationMatch]:
        body = node.child_by_field_name("body")
        head = node.child_by_field_name("superclass") or node.child_by_field_name("name")
        after = head.next_sibling if head is not None else None
        yield DeclarationMatch(node, "type", kind, field_text(node, "name"), signature(node, after), inside=body)

    return find


def _own(node: Node, scope: Scope) -> Iterable[DeclarationMatch]:
    """Yield ``class << self``, whose methods are those of the class."""
    body = node.child_by_field_name("body")
    yield DeclarationMatch(node, "type", "singleton", "self", "class << self", inside=body)


def _constant(node: Node, scope: Scope) -> Iterable[DeclarationMatch]:
    left = node.child_by_field_name("left")
    if left is None or left.type not in ("constant", "global_variable"):
        return
    group: Group = "constant" if left.type == "constant" else "variable"
    yield DeclarationMatch(
        node,
        group,
        group,
        one_line(text_of(left)),
        signature(node),
        value=field_text(node, "right"),
    )


def _word(node: Node, scope: Scope) -> Iterable[DeclarationMatch]:
    """Apply ``private`` on a line of its own to what follows."""
    if text_of(node) in LEVELS:
        scope.access = text_of(node)
    return ()


def _call(node: Node, scope: Scope) -> Iterable[DeclarationMatch]:
    method, arguments = field_text(node, "method"), node.child_by_field_name("arguments")
    if arguments is None or node.child_by_field_name("receiver") is not None:
        return
    if method in LEVELS:
        inner = Scope(scope.kind, scope.name, access=method)
        for child in children_of(arguments, "method"):
            yield from _method(child, inner)
    elif method in ATTRIBUTES:
        for symbol in children_of(arguments, "simple_symbol"):
            name = one_line(text_of(symbol)).lstrip(":")
            yield DeclarationMatch(node, "field", "attribute", name, f"{method} :{name}", scope.access or "public")


OUTLINE = Outline(
    handlers={
        "method": _method,
        "singleton_method": _singleton,
        "class": _type("class"),
        "module": _type("module"),
        "singleton_class": _own,
        "assignment": _constant,
        "identifier": _word,
        "call": _call,
        "alias": declared("function", "alias", body=()),
    },
    through=frozenset(["body_statement", "if", "unless", "then", "else", "begin"]),
)


def imports_of(found: list[Node]) -> Iterator[Import]:
    """Yield the files of the calls."""
    for node in found:
        how, arguments = field_text(node, "method"), node.child_by_field_name("arguments")
        if how in FORMS and arguments is not None and field_text(node, "receiver") in ("", "Kernel"):
            path = next(iter(arguments.named_children), None)
            if path is not None and path.type == "string":
                yield Import(unquoted(one_line(text_of(path))), line_of(node), FORMS[how])
