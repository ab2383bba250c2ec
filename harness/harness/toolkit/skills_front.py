"""The front matter of a skill: YAML, because that is what skills are written in everywhere, read with PyYAML.

Anchors and aliases are refused, and so is what is nested deeply: with them a few lines can stand for gigabytes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from ..errors import HarnessError
from ..extras import install_extra

__all__ = ["Front", "SkillError", "split_front"]

FENCE = "---"
FRONT_LIMIT = 16 << 10
"""Characters of the front matter."""
DESCRIPTION_LIMIT = 1_024
DEPTH_LIMIT = 16
_ODD = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""What YAML can escape: control characters, changes of direction, halves of a surrogate pair."""


class SkillError(HarnessError):
    """A skill is not there, or cannot be used."""


@dataclass(frozen=True, slots=True)
class Front:
    """What counts of a front matter; other keys are for others."""

    name: str
    description: str


def split_front(data: bytes) -> tuple[Front, str]:
    """The front matter of a ``SKILL.md``, and the text below it. Pure.

    Raises:
        SkillError: it has none, or one that is wrong.
    """
    try:
        text = data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise SkillError("SKILL.md is not UTF-8") from error
    if "\0" in text:
        raise SkillError("SKILL.md holds a NUL")
    lines = text.split("\n")
    end = next((number for number, line in enumerate(lines) if number and line.rstrip() == FENCE), 0)
    if lines[0].rstrip() != FENCE or not end:
        raise SkillError("SKILL.md does not begin with a front matter between two lines of ---")
    return _front("\n".join(lines[1:end])), "\n".join(lines[end + 1 :]).strip("\n")


def _front(text: str) -> Front:
    if len(text) > FRONT_LIMIT:
        raise SkillError(f"the front matter of SKILL.md is longer than {FRONT_LIMIT} characters")
    values = _values(text)
    if not isinstance(values, dict):
        raise SkillError("the front matter of SKILL.md is no mapping; write name: and description:")
    name, description = (_text(values, key) for key in ("name", "description"))
    if len(description) > DESCRIPTION_LIMIT:
        raise SkillError(f"its description is longer than {DESCRIPTION_LIMIT} characters")
    line = " ".join(description.split())
    if odd := _ODD.search(line):  # the list of tools, which models and people get, holds every description
        raise SkillError(f"its description holds {odd[0]!a}, which is no text")
    return Front(name, line)


def _values(text: str) -> Any:
    try:
        yaml: Any = import_module("yaml")
    except ImportError as error:
        raise SkillError("skills need PyYAML", hint=install_extra("skills")) from error
    try:
        depth = 0
        for event in yaml.parse(text, Loader=yaml.SafeLoader):
            if isinstance(event, yaml.AliasEvent):
                raise SkillError("the front matter of SKILL.md has an alias (*name), which is not allowed")
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > DEPTH_LIMIT:
                raise SkillError(f"the front matter of SKILL.md is nested deeper than {DEPTH_LIMIT}")
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError) as error:  # a date that is none is a ValueError
        first = str(error).split("\n", 1)[0]
        raise SkillError(f"the front matter of SKILL.md is no YAML: {first}") from error


def _text(values: dict[Any, Any], key: str) -> str:
    value = values.get(key)
    if not isinstance(value, str) or not value.strip():
        raise SkillError(f"the front matter of SKILL.md needs {key}, a text; quote what YAML takes for something else")
    return value.strip()
