"""Names of tools as an API takes them, and the way back."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..contract import Tool

__all__ = ["Names", "names_of"]

LONGEST = 64
_FOREIGN = re.compile(r"[^A-Za-z0-9_-]")


@dataclass(frozen=True, slots=True)
class Names:
    """The names that had to be changed, both ways."""

    by_own: Mapping[str, str] = field(default_factory=dict)
    by_shown: Mapping[str, str] = field(default_factory=dict)

    def shown(self, name: str) -> str:
        """The name that the model sees."""
        return self.by_own.get(name, name)

    def own(self, name: str) -> str:
        """The tool's own name; a name that was never shown stays as it is."""
        return self.by_shown.get(name, name)


def names_of(tools: Iterable[Tool[Any]], first: str = "") -> Names:
    """Names that match ``[A-Za-z0-9_-]{1,64}``, no two alike, whatever the order of the tools.

    Args:
        first: a pattern for the first character, where an API has one.
    """
    own = sorted({tool.name for tool in tools})
    plain = {name for name in own if _fits(name, first)}
    changed: dict[str, str] = {}
    for name in own:
        if name not in plain:
            changed[name] = _changed(name, first, plain | set(changed.values()))
    return Names(changed, {shown: name for name, shown in changed.items()})


def _fits(name: str, first: str) -> bool:
    return bool(name) and len(name) <= LONGEST and not _FOREIGN.search(name) and bool(re.match(first, name))


def _changed(name: str, first: str, taken: set[str]) -> str:
    simple = _FOREIGN.sub("_", name) or "tool"
    simple = simple if re.match(first, simple) else f"_{simple}"
    if len(simple) <= LONGEST and simple not in taken:
        return simple
    mark = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:10]
    return f"{simple[: LONGEST - 11]}_{mark}"
