"""What a call would touch, in the form in which it is decided."""

from __future__ import annotations

from dataclasses import dataclass

from ..values import SubjectKind
from .rules import Subjected

__all__ = ["Claim", "Piece"]


@dataclass(frozen=True, slots=True)
class Piece:
    """One thing that must be allowed: a path, or one simple command. A rule counts that covers any of its ``forms``."""

    what: str
    forms: tuple[Subjected, ...]
    read_only: bool = False
    """It certainly changes nothing: the quiet preset lets it run."""


@dataclass(frozen=True, slots=True)
class Claim:
    """One subject of a call. It is allowed when each piece is."""

    kind: SubjectKind
    shown: str
    """What a person is asked about: the exact text."""
    whole: Subjected
    """What a grant for exactly this is a rule for."""
    pieces: tuple[Piece, ...]
    forbidden: str = ""
    """Why nothing may allow it."""
    must_ask: str = ""
    """Why nothing but a rule for exactly this, or a person, may allow it."""
    unclear: tuple[str, ...] = ()
    """Programs of it with words that are only known at run time."""
    embedded: tuple[str, ...] = ()
    """Commands that programs of it may run, as their words look."""
    unkept: bool = False
    """It is asked each time, and no answer to it is kept: a password."""
    secret: bool = False
    """Its text is not for the screen."""

    @property
    def is_path(self) -> bool:
        """It is a file or a directory."""
        return self.whole.kind == "path"

    @property
    def forms(self) -> tuple[Subjected, ...]:
        """Everything that a rule may deny it by."""
        return (self.whole, *(form for piece in self.pieces for form in piece.forms))
