"""Shell scripts: definitions and sourced files."""

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
    line_of,
    one_line,
    signature,
    text_of,
    unquoted,
)

if TYPE_CHECKING:
    from tree_sitter import Node

__all__ = ["IMPORTS", "OUTLINE", "imports_of"]

IMPORTS = NodeFilter(frozenset(["command"]))


def _visibility(name: str) -> str:
    return "private" if name.startswith("_") else "public"


def _function(node: Node, scope: Scope) -> Iterable[DeclarationMatch]:
    name = field_text(node, "name")
    yield DeclarationMatch(node, "function", "function", name, f"{name}()", _visibility(name))


def _assignment(node: Node, scope: Scope) -> Iterable[DeclarationMatch]:
    yield _variable(node, node, "variable")


def _declaration(node: Node, scope: Scope) -> Iterable[DeclarationMatch]:
    words = text_of(node)[:200].split()
    options = [word for word in words[1:] if word.startswith("-")]
    constant = words[:1] == ["readonly"] or any("r" in option for option in options)
    if words[:1] in (["local"], ["unset"]):
        return
    for child in children_of(node, "variable_assignment"):
        yield _variable(node, child, "constant" if constant else "variable")


def _variable(node: Node, assignment: Node, group: Group) -> DeclarationMatch:
    name = field_text(assignment, "name")
    return DeclarationMatch(
        node, group, group, name, signature(node), _visibility(name), value=field_text(assignment, "value")
    )


OUTLINE = Outline(
    handlers={
        "function_definition": _function,
        "variable_assignment": _assignment,
        "declaration_command": _declaration,
    },
    through=frozenset(
        [
            *(
                "if_statement",
                "elif_clause",
                "else_clause",
                "list",
                "compound_statement",
                "case_statement",
                "case_item",
            ),
            *("variable_assignments", "redirected_statement"),
        ]
    ),
)


def imports_of(found: list[Node]) -> Iterator[Import]:
    """Yield the files of ``source`` and ``.``, as written."""
    for node in found:
        path = node.child_by_field_name("argument")
        if path is not None and field_text(node, "name") in ("source", "."):
            form = "path" if _is_literal(path) else "dynamic"
            yield Import(unquoted(one_line(text_of(path))), line_of(node), form)


def _is_literal(node: Node) -> bool:
    computed = ("expansion", "simple_expansion", "command_substitution")
    return node.type in ("word", "raw_string") or (node.type == "string" and child_of(node, *computed) is None)
