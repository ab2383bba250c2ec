"""Variables of this process that programs on this machine, as a target, do not inherit: such as the keys of models."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

__all__ = ["child_env", "exclude_from_child_env"]

_names: frozenset[str] = frozenset()


def exclude_from_child_env(names: Iterable[str]) -> None:
    """From now on no program that is started on the target ``local:`` inherits these variables."""
    global _names  # noqa: PLW0603  # the environment belongs to the process, too
    _names |= frozenset(names)


def child_env(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """What such a program inherits; of ``os.environ`` when not given."""
    return {name: value for name, value in (os.environ if environ is None else environ).items() if name not in _names}
