"""What is found in a file, as JSON and back: it comes from a process of its own."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from .model import Declaration, Facts, Import, Outlined

__all__ = ["facts_from", "outlined_from", "to_json"]


def to_json(found: Outlined | Facts) -> dict[str, Any]:
    """As a JSON object."""
    return asdict(found)


def _imports(items: list[dict[str, Any]]) -> tuple[Import, ...]:
    return tuple(Import(**{**item, "names": tuple(item["names"])}) for item in items)


def outlined_from(value: dict[str, Any]) -> Outlined:
    """What :func:`to_json` made of declarations."""
    declarations = tuple(Declaration(**item) for item in value["declarations"])
    return Outlined(**{**value, "declarations": declarations, "imports": _imports(value["imports"])})


def facts_from(value: dict[str, Any]) -> Facts:
    """What :func:`to_json` made of imports."""
    return Facts(**{**value, "imports": _imports(value["imports"]), "packages": tuple(value["packages"])})
