"""Ids of conversations: short enough to be typed, and never alike by chance. Pure, but for the making of new ones."""

from __future__ import annotations

import re

__all__ = ["is_session_id", "new_session_id", "prefix_of"]

ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
"""No i, l, o and u: what is read aloud or copied by hand stays the same."""
GROUPS, LENGTH = 3, 4
_ID = re.compile(rf"[{ALPHABET}]{{{LENGTH}}}(?:-[{ALPHABET}]{{{LENGTH}}}){{{GROUPS - 1}}}", re.ASCII)
_ALIKE = str.maketrans("ilo", "110")


def new_session_id() -> str:
    """A new one: ``k3f9-02mx-7yqa``."""
    import secrets

    return _grouped("".join(secrets.choice(ALPHABET) for _ in range(GROUPS * LENGTH)))


def is_session_id(text: str) -> bool:
    """Whether that is a whole id, safe as the name of a file."""
    return _ID.fullmatch(text) is not None


def prefix_of(text: str) -> str | None:
    """The beginning of an id as people write it, with or without its dashes; None when no id begins so."""
    letters = text.strip().lower().replace("-", "").translate(_ALIKE)
    if not letters or len(letters) > GROUPS * LENGTH or set(letters) - set(ALPHABET):
        return None
    return _grouped(letters)


def _grouped(letters: str) -> str:
    return "-".join(letters[start : start + LENGTH] for start in range(0, len(letters), LENGTH))
