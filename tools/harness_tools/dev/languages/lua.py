"""Lua: definitions and requires."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from .grammar import NodeFilter
from .model import Import
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

IMPORTS = NodeFilter(frozenset(["function_call"]))


def _function(node: Node, scope: Scope) -> Iterable[DeclarationMatch]:
    name = field_text(node, "name")
    kind = "method" if "." in name or ":" in name else "function"
    visible = "private" if child_of(node, "local") else "public"
    receiver = name.replace(":", ".").rpartition(".")[0]
    text = signature(node, node.child_by_field_name("body") or child_of(node, "end"))
    yield DeclarationMatch(node, "function", kind, name, text, visible, receiver=receiver)


def _local(node: Node, scope: Scope) -> Iterable[DeclarationMatch]:
    inner = child_of(node, "assignment_statement")
    if inner is not None:
        yield from _assigned(node, inner, "private")


def _assignment(node: Node, scope: Scope) -> Iterable[DeclarationMatch]:
    yield from _assigned(node, node, "public")


def _assigned(node: Node, assignment: Node, visible: str) -> Iterator[DeclarationMatch]:
    names, values = child_of(assignment, "variable_list"), child_of(assignment, "expression_list")
    for number, target in enumerate(names.named_children if names is not None else ()):
        name = one_line(text_of(target))
        value = values.named_children[number] if values is not None and number < values.named_child_count else None
        if value is not None and value.type == "function_definition":
            text = signature(node, value.child_by_field_name("body") or child_of(value, "end"))
            yield DeclarationMatch(node, "function", "function", name, text, visible)
        elif value is None or not text_of(value).startswith("require"):
            yield DeclarationMatch(
                node, "variable", "variable", name, signature(node), visible, value=one_line(text_of(value))
            )


OUTLINE = Outline(
    handlers={
        "function_declaration": _function,
        "variable_declaration": _local,
        "assignment_statement": _assignment,
    },
    through=frozenset(["if_statement", "block", "do_statement"]),
)


def imports_of(found: list[Node]) -> Iterator[Import]:
    """Yield the modules and files of the calls."""
    for node in found:
        how, arguments = field_text(node, "name"), node.child_by_field_name("arguments")
        if how in ("require", "dofile", "loadfile") and arguments is not None:
            path = next(iter(arguments.named_children), None)
            if path is not None and path.type == "string":
                yield Import(unquoted(one_line(text_of(path))), line_of(node), "" if how == "require" else "path")
