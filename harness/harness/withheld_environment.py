"""Environment variables, such as API keys, that programs on the target ``local:`` do not inherit."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

__all__ = ["child_env", "exclude_from_child_env"]

_names: frozenset[str] = frozenset()


def exclude_from_child_env(names: Iterable[str]) -> None:
    """Exclude these variables from the environment of programs that are started on the target ``local:``."""
    global _names  # noqa: PLW0603  # the environment belongs to the process, too
    _names |= frozenset(names)


def child_env(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment that such a program inherits, from ``os.environ`` by default."""
    return {name: value for name, value in (os.environ if environ is None else environ).items() if name not in _names}
