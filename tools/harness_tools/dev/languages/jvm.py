"""Java, Kotlin and Scala: declarations and imports."""

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
    first_of,
    line_of,
    one_line,
    signature,
    text_of,
)

if TYPE_CHECKING:
    from tree_sitter import Node

__all__ = ["JAVA", "JAVA_IMPORTS", "KOTLIN", "KOTLIN_IMPORTS", "SCALA", "SCALA_IMPORTS", "imports_of", "package_of"]

JAVA_IMPORTS = NodeFilter(frozenset(["import_declaration"]), frozenset(["program"]))
KOTLIN_IMPORTS = NodeFilter(frozenset(["import"]), frozenset(["source_file", "import_list"]))
SCALA_IMPORTS = NodeFilter(frozenset(["import_declaration"]))
LEVELS = ("public", "protected", "private", "internal")


def _modifier(node: Node) -> str:
    """Return the access level among the modifiers; empty without one."""
    words = text_of(child_of(node, "modifiers")).replace("[", " ").split()
    return next((word for word in words if word in LEVELS), "")


# -- Java


def _java(node: Node, name: str, scope: Scope) -> str:
    default = "public" if scope.kind in ("interface", "annotation", "member") else "package"
    return _modifier(node) or default


def _java_fields(node: Node, scope: Scope) -> Iterable[DeclarationMatch]:
    words = text_of(child_of(node, "modifiers")).split()
    constant = scope.kind == "interface" or {"static", "final"} <= set(words)
    for part in children_of(node, "variable_declarator"):
        name, value = field_text(part, "name"), field_text(part, "value")
        group: Group = "constant" if constant else "field"
        yield DeclarationMatch(
            node, group, group, name, signature(node), _java(node, name, scope), field_text(node, "type"), value
        )


def _java_constant(node: Node, scope: Scope) -> Iterable[DeclarationMatch]:
    name = field_text(node, "name")
    yield DeclarationMatch(node, "field", "member", name, signature(node, node.child_by_field_name("body")))


def _java_type(kind: str) -> Handler:
    return declared("type", kind, _java, members=True)


def package_of(root: Node) -> str:
    """Return the package that a file declares."""
    clause = child_of(root, "package_declaration", "package_header", "package_clause")
    names = ("scoped_identifier", "identifier", "qualified_identifier", "package_identifier")
    return "".join(text_of(child_of(clause, *names)).split()) if clause is not None else ""


JAVA = Outline(
    handlers={
        "class_declaration": _java_type("class"),
        "interface_declaration": _java_type("interface"),
        "enum_declaration": _java_type("enum"),
        "record_declaration": _java_type("record"),
        "annotation_type_declaration": _java_type("annotation"),
        "method_declaration": declared("function", "method", _java),
        "annotation_type_element_declaration": declared("function", "method", _java),
        "constructor_declaration": declared("function", "constructor", _java),
        "compact_constructor_declaration": declared("function", "constructor", _java),
        "field_declaration": _java_fields,
        "constant_declaration": _java_fields,
        "enum_constant": _java_constant,
    },
    through=frozenset(["enum_body_declarations"]),
    package=package_of,
)

# -- Kotlin


def _kotlin(node: Node, name: str, scope: Scope) -> str:
    return _modifier(node) or "public"


def _kotlin_class(node: Node, scope: Scope) -> Iterable[DeclarationMatch]:
    words = text_of(node)[:400].split("{")[0].split()
    kind = "interface" if child_of(node, "interface") or "interface" in words[:4] else "class"
    kind = "enum" if child_of(node, "enum_class_body") else kind
    return declared("type", kind, _kotlin, name="name", body=("class_body", "enum_class_body"), members=True)(
        node, scope
    )


def _kotlin_companion(node: Node, scope: Scope) -> Iterable[DeclarationMatch]:
    body = child_of(node, "class_body")
    name = field_text(node, "name") or "Companion"
    yield DeclarationMatch(node, "type", "object", name, signature(node, body), _kotlin(node, name, scope), inside=body)


def _kotlin_function(node: Node, scope: Scope) -> Iterable[DeclarationMatch]:
    kind = "method" if scope.kind else "function"
    return declared("function", kind, _kotlin, body=("function_body",))(node, scope)


def _kotlin_property(node: Node, scope: Scope) -> Iterable[DeclarationMatch]:
    constant = "const" in text_of(child_of(node, "modifiers")).split()
    group: Group = "constant" if constant else "field" if scope.kind else "variable"
    end = first_of(node, ("getter", "setter"))
    for part in children_of(node, "variable_declaration"):
        name = one_line(text_of(child_of(part, "identifier", "simple_identifier")))
        made = one_line(text_of(child_of(part, "user_type", "nullable_type", "function_type")))
        yield DeclarationMatch(
            node,
            group,
            "constant" if constant else "property",
            name,
            signature(node, end),
            _kotlin(node, name, scope),
            made,
        )


def _kotlin_alias(node: Node, scope: Scope) -> Iterable[DeclarationMatch]:
    name = field_text(node, "type") or one_line(text_of(child_of(node, "identifier", "type_identifier")))
    yield DeclarationMatch(node, "type", "alias", name, signature(node), _kotlin(node, name, scope))


def _kotlin_entry(node: Node, scope: Scope) -> Iterable[DeclarationMatch]:
    name = one_line(text_of(child_of(node, "identifier", "simple_identifier")))
    yield DeclarationMatch(node, "field", "member", name, signature(node, child_of(node, "class_body")))


def _kotlin_constructor(node: Node, scope: Scope) -> Iterable[DeclarationMatch]:
    end = first_of(node, ("block", "constructor_delegation_call"))
    yield DeclarationMatch(
        node, "function", "constructor", "constructor", signature(node, end), _kotlin(node, "", scope)
    )


KOTLIN = Outline(
    handlers={
        "class_declaration": _kotlin_class,
        "object_declaration": declared("type", "object", _kotlin, body=("class_body",), members=True),
        "companion_object": _kotlin_companion,
        "function_declaration": _kotlin_function,
        "property_declaration": _kotlin_property,
        "type_alias": _kotlin_alias,
        "enum_entry": _kotlin_entry,
        "secondary_constructor": _kotlin_constructor,
    },
    package=package_of,
)

# -- Scala


def _scala(node: Node, name: str, scope: Scope) -> str:
    modifiers = child_of(node, "modifiers")
    access = text_of(child_of(modifiers, "access_modifier") if modifiers is not None else None)
    return access.partition("[")[0].strip() or "public"


def _scala_value(group: Group) -> Handler:
    def find(node: Node, scope: Scope) -> Iterable[DeclarationMatch]:
        name = field_text(node, "pattern") or field_text(node, "name")
        own: Group = "field" if scope.kind in ("class", "trait") else group
        value = field_text(node, "value")
        yield DeclarationMatch(
            node, own, own, name, signature(node), _scala(node, name, scope), field_text(node, "type"), value
        )

    return find


def _scala_case(node: Node, scope: Scope) -> Iterable[DeclarationMatch]:
    for part in children_of(node, "simple_enum_case", "full_enum_case"):
        yield DeclarationMatch(part, "field", "member", field_text(part, "name"), signature(part))


SCALA = Outline(
    handlers={
        "class_definition": declared("type", "class", _scala, members=True),
        "object_definition": declared("type", "object", _scala, members=True),
        "trait_definition": declared("type", "trait", _scala, members=True),
        "enum_definition": declared("type", "enum", _scala, members=True),
        "function_definition": declared("function", "function", _scala),
        "function_declaration": declared("function", "function", _scala),
        "val_definition": _scala_value("constant"),
        "val_declaration": _scala_value("constant"),
        "var_definition": _scala_value("variable"),
        "var_declaration": _scala_value("variable"),
        "type_definition": declared("type", "alias", _scala, body=()),
        "enum_case_definitions": _scala_case,
    },
    through=frozenset(["package_clause", "template_body"]),
    package=package_of,
)


# -- imports of all three languages


def imports_of(found: list[Node]) -> Iterator[Import]:
    """Yield the imports of the nodes: a class or a package each, with ``.*`` for a whole package."""
    for node in found:
        text = text_of(node).strip().rstrip(";").removeprefix("import")
        words = text.split(" as ")[0].replace("static ", " ", 1)
        yield from (Import(module, line_of(node)) for module in _selected("".join(words.split())))


def _selected(path: str) -> Iterator[str]:
    """Yield ``a.b.C`` and ``a.b.D`` for ``a.b.{C, D => E}``."""
    before, brace, rest = path.partition("{")
    if not brace:
        yield from (part for part in path.split(",") if part)
        return
    for name in rest.partition("}")[0].split(","):
        yield before + name.partition("=>")[0]
