"""The advice in a result, for a model that has other arguments and tools than ours. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from .values import Advice, Block, Json, Text, ToolResult

__all__ = ["Names"]

TOLD = ("note", "notices")
"""The members of a result's data that hold the sentences of its text."""


@dataclass(frozen=True, slots=True)
class Names:
    """What a model has: our names of arguments and tools, and its own."""

    arguments: Mapping[str, str]
    tools: Mapping[str, str]

    def told(self, result: ToolResult) -> ToolResult:
        """The result with the advice in these names, and without what cannot be followed."""
        for advice in (advice for advice in result.advice if advice.text):
            result = _changed(result, advice.text, self._restated(advice))
        return result

    def _restated(self, advice: Advice) -> str:
        names = {**{name: self.tools.get(name) for name in advice.tools}}
        names |= {name: self.arguments.get(name) for name in advice.arguments}
        known = {name: theirs for name, theirs in names.items() if theirs is not None}
        if len(known) < len(names):
            return ""
        words = "|".join(map(re.escape, known))
        return re.sub(rf"\b(?:{words})\b", lambda match: known[match[0]], advice.text)


def _changed(result: ToolResult, old: str, new: str) -> ToolResult:
    content: tuple[Block, ...] = tuple(
        Text(_last(block.text, old, new)) if isinstance(block, Text) else block for block in result.content
    )
    return replace(result, content=content, data=_in_data(result.data, old, new))


def _in_data(data: Json, old: str, new: str) -> Json:
    if not isinstance(data, dict):
        return data
    return {**data, **{name: _in_told(data[name], old, new) for name in TOLD if name in data}}


def _in_told(told: Json, old: str, new: str) -> Json:
    if isinstance(told, list):
        return [_in_told(one, old, new) for one in told]
    return _last(told, old, new) if isinstance(told, str) else told


def _last(text: str, old: str, new: str) -> str:
    """With the last place replaced: what is said of a content comes behind it."""
    before, found, after = text.rpartition(old)
    return f"{before}{new}{after}" if found else text
