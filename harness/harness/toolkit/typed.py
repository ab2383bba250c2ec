"""Taking what a call types or gives to a program out of its arguments: it may be a password of no known form."""

from __future__ import annotations

from collections.abc import Iterable

from .values import JsonObject, Subject

__all__ = ["panes_typed_into", "without_private", "without_typed"]


def panes_typed_into(subjects: Iterable[Subject]) -> frozenset[str] | None:
    """The panes that a call names to type into; None when it types nothing. Pure."""
    typed = [subject for subject in subjects if subject.kind == "keys"]
    return frozenset(subject.pane for subject in typed if subject.pane) if typed else None


def without_typed(arguments: JsonObject, panes: frozenset[str] | None) -> JsonObject:
    """Arguments without their texts, but for the panes and for what the caller says of the call. Pure.

    Args:
        panes: of :func:`panes_typed_into`; None leaves the arguments as they are.
    """
    if panes is None:
        return arguments
    from .contract import Intent
    from .redaction import MARK, redact_object

    typed = {name: value for name, value in arguments.items() if name not in Intent.model_fields}
    return {**arguments, **redact_object(typed, lambda text: text if text in panes else MARK)}


def without_private(arguments: JsonObject, names: frozenset[str]) -> JsonObject:
    """Arguments without those that may hold a password: :meth:`Tool.private_arguments`. Pure."""
    if not names:
        return arguments
    from .redaction import MARK

    return {name: MARK if value and name in names else value for name, value in arguments.items()}
