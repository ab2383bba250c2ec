"""What was typed before the prompt was drawn, as the terminal's own line editing has kept it. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from .plain import entries_of

__all__ = ["TypedBefore", "typed_before"]


@dataclass(frozen=True, slots=True)
class TypedBefore:
    """``entered`` is a whole prompt; ``keys`` are to be typed into the line, where they wait for an Enter."""

    entered: str = ""
    keys: str = ""


def typed_before(data: bytes) -> TypedBefore:
    """What an operator meant who could not see the prompt yet.

    Lines with an Enter are one prompt for the model. Nothing that was typed blind runs: a command waits in the line,
    where it can be seen, and so does whatever has other keys in it.
    """
    text = data.decode("utf-8", "surrogateescape")
    whole, ended, rest = text.rpartition("\n")
    if not ended or not whole.strip():
        return TypedBefore(keys=rest)
    lines = whole.split("\n")
    if any(one.lstrip().startswith(("!", "/")) for one in lines) or not all(map(_is_text, lines)):
        return TypedBefore(keys=f"{whole}\n{rest}" if rest else whole)
    return TypedBefore("\n".join(entries_of(lines)), rest)


def _is_text(line: str) -> bool:
    return line.replace("\t", " ").isprintable()
