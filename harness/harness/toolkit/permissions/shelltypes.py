"""What the judge finds in the text of a command, before it knows what the programs do."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

__all__ = ["Found", "Input", "Redirect", "Scan", "Word"]


@dataclass(frozen=True, slots=True)
class Word:
    """One word of a command.

    ``text`` is its value when it is ``known``; otherwise what is known of it, with the source of the rest.
    ``lead`` is its certain beginning. ``spread``: it may become several words, or none, that begin with anything.
    ``pattern``: it is known but for what file names match it.
    """

    raw: str
    text: str
    known: bool = True
    lead: str = ""
    spread: bool = False
    pattern: bool = False
    plain: bool = False
    """It becomes numbers, ids or names: none of them is an option or a pattern, but there may be none of them."""

    @classmethod
    def of(cls, text: str) -> Word:
        """A word that is exactly this."""
        return cls(text, text, lead=text)

    @classmethod
    def unknown(cls, raw: str, *, spread: bool = True) -> Word:
        """A word of which nothing is known."""
        return cls(raw, raw, known=False, spread=spread)

    @property
    def operand(self) -> bool:
        """It is certainly not an option, whatever it becomes."""
        first = self.text if self.known else self.lead
        certain = self.known or not self.spread or self.plain
        return certain and bool(first) and (first[0] != "-" or (self.known and first == "-"))


@dataclass(frozen=True, slots=True)
class Redirect:
    """A redirection to or from a file; of descriptors, ``word`` is None."""

    operator: str
    word: Word | None = None

    @property
    def writes(self) -> bool:
        """It opens its file for writing."""
        return ">" in self.operator


@dataclass(frozen=True, slots=True)
class Input:
    """What a command reads: the terminal, a pipe, a file, or a text that is written in the command."""

    kind: Literal["terminal", "pipe", "file", "text"] = "terminal"
    text: str | None = None
    """For ``text``: what it is; None when it is only known at run time."""
    source: tuple[Word, ...] = ()
    """For ``pipe``: the words of the simple command before it; empty when it is none."""


@dataclass(frozen=True, slots=True)
class Found:
    """One simple command as it stands in the text, or something else that runs or changes the shell (``special``)."""

    text: str
    words: tuple[Word, ...] = ()
    assigned: tuple[tuple[str, Word], ...] = ()
    redirects: tuple[Redirect, ...] = ()
    input: Input = Input()
    special: str = ""
    """Why it is not read-only, whatever its words say."""
    values: tuple[Word, ...] = ()
    """What a loop's variable becomes."""
    loops: tuple[tuple[str, tuple[Word, ...]], ...] = ()
    """The variables of the loops around it, each with its values."""


@dataclass(slots=True)
class Scan:
    """The whole text: what was found, why the text is not understood, why it is not read-only."""

    found: list[Found] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    doubts: list[str] = field(default_factory=list)
    shapes: list[tuple[int, tuple[str, ...]]] = field(default_factory=list)
    """Each simple command's place and raw words, to compare with another reading of the text."""
    targets: list[tuple[int, str]] = field(default_factory=list)
    """The places and words of the files of redirections, for the same."""
