"""Permission bits as models write them."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator

__all__ = ["Permissions", "mode_of"]

_OCTAL = re.compile(r"(?:0o?)?[0-7]{3,4}")


def mode_of(value: str | int) -> int:
    """The bits of a text in octal (``0644``), or of a number, which is not read as octal (420 is 0644).

    Raises:
        ValueError: it is none; also a number whose bits nobody gives to a file, because 644 as a number is 01204.
    """
    if isinstance(value, str):
        if not _OCTAL.fullmatch(value.strip()):
            raise ValueError("it is no mode: write it in octal, such as '0644'")
        return int(value.strip(), 8)
    if not _is_usual(value):
        raise ValueError("it is no usual mode as a number: write it as a text in octal, such as '0644'")
    return value


def _is_usual(value: int) -> bool:
    """Whether the owner may read, nobody may more than who comes before him, and who may read may what all may."""
    if not 0o400 <= value <= 0o777:
        return False
    owner, group, other = value >> 6, value >> 3 & 7, value & 7
    classes = [who for who in (owner, group, other) if who]
    same_x = len({who & 1 for who in classes}) == 1
    return same_x and all(who & 4 for who in classes) and group & ~owner == 0 and other & ~group == 0


def _checked(value: str | int) -> str | int:
    mode_of(value)
    return value


Permissions = Annotated[str | int, AfterValidator(_checked)]
"""Permission bits: an octal text, or a number."""
