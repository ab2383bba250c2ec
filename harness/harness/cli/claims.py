"""What the model says of a call that somebody has to approve, in words."""

from __future__ import annotations

from ..toolkit.values import Json, JsonObject

__all__ = ["claims_of"]

WORDS = {
    ("mutation", True): "changes something",
    ("mutation", False): "changes nothing",
    ("privesc", True): "with the rights of another user",
    ("privesc", False): "",
}
"""What a truth value means; empty is what needs no words."""


def claims_of(details: JsonObject) -> tuple[str, ...]:
    """``risk: low``, ``changes something``: all but the reason, which may be long. It may hold anything. Pure."""
    return tuple(claim for name, value in details.items() if name != "why" and (claim := _claim(name, value)))


def _claim(name: str, value: Json) -> str:
    if isinstance(value, bool):
        return WORDS.get((name, value), f"{name}: {'yes' if value else 'no'}")
    return f"{name}: {value}"
