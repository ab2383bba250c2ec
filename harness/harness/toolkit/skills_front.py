"""What counts of the front matter of a ``SKILL.md``."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import HarnessError
from .front_matter import FrontMatterError, split_front_matter

__all__ = ["Front", "SkillError", "split_front"]


class SkillError(HarnessError):
    """A skill is not there, or cannot be used."""


@dataclass(frozen=True, slots=True)
class Front:
    """The name and the description; other keys are for others."""

    name: str
    description: str


def split_front(data: bytes) -> tuple[Front, str]:
    """The front matter of a ``SKILL.md``, and the text below it. Pure.

    Raises:
        SkillError: it has none, or one that is wrong.
    """
    try:
        found = split_front_matter(data, "SKILL.md")
        return Front(found.text("name"), found.description()), found.body
    except FrontMatterError as error:
        raise SkillError(error.message, hint=error.hint) from error
