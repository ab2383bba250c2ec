"""A rule: on which target, for which tool and which argument, what is done. Pure."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from .globs import Kind, has_wildcard, matches

__all__ = ["ANYTHING", "Action", "Allows", "Match", "Rule", "Subjected", "target_matches"]

ANYTHING = "*"


class Action(StrEnum):
    """What a rule says."""

    ALLOW = "allow"
    DENY = "deny"
    ASK = "ask"


class Match(StrEnum):
    """How a rule's argument is compared."""

    LITERAL = "literal"
    """It is the text, exactly. What a person granted is always so."""
    GLOB = "glob"
    """It is a pattern (see :mod:`.globs`): only whoever writes a settings file, or uses ``--glob``, makes one."""
    BELOW = "below"
    """It is a directory on the target, and everything in it."""


Allows = Literal["any", "broad", "exact", "none"]
"""``broad``: rules for any argument, or for exactly this text; ``exact``: only the latter; ``none``: no rule."""


@dataclass(frozen=True, slots=True)
class Subjected:
    """One text as rules see it: where, by which tool, what."""

    identity: str
    """The target with its identity: ``docker://app#3f2a``."""
    tool: str
    text: str
    kind: Kind = "text"
    cwd: str = ""
    """Where a command starts, as far as the call says."""
    allows: Allows = "any"
    """Which rules may allow by it. Every rule that denies or asks goes by it."""

    @property
    def url(self) -> str:
        """The target without its identity."""
        return self.identity.partition("#")[0]


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule. ``argument`` None is any; ``target`` and ``tool`` are ``*`` for any.

    ``target`` is a URL, a URL with an identity, or a pattern of one. ``cwd`` is set in what a person granted for a
    command: the same words in another directory are another command. ``origin`` names the file, or who granted it.
    """

    action: Action
    target: str = ANYTHING
    tool: str = ANYTHING
    argument: str | None = None
    match: Match = Match.LITERAL
    cwd: str | None = None
    origin: str = ""

    @property
    def rule_id(self) -> str:
        """A short name of what it says, wherever it is from."""
        what = (self.action, self.target, self.tool, self.argument, self.match, self.cwd)
        return hashlib.sha256(repr(tuple(map(str, what))).encode("utf-8", "backslashreplace")).hexdigest()[:8]

    @property
    def is_exact(self) -> bool:
        """It matches by equality alone, so that it can be looked up."""
        fixed = self.match is Match.LITERAL or self.argument is None
        return fixed and not any(has_wildcard(part) and part != ANYTHING for part in (self.target, self.tool))

    def covers(self, what: Subjected) -> bool:
        """Whether it speaks of this."""
        return (
            self.cwd in (None, what.cwd)
            and self._argument_covers(what)
            and self._may_decide(what)
            and matches(self.tool, what.tool)
            and target_matches(self.target, what)
        )

    def _may_decide(self, what: Subjected) -> bool:
        if self.action is not Action.ALLOW or what.allows == "any":
            return True
        if what.allows == "broad" and self.argument is None:
            return True
        return what.allows != "none" and self.argument == what.text

    def _argument_covers(self, what: Subjected) -> bool:
        if self.argument is None or self.argument == what.text:
            return True
        if self.match is Match.BELOW:
            return what.kind == "path" and what.text.startswith(f"{self.argument.rstrip('/')}/")
        return self.match is Match.GLOB and matches(self.argument, what.text, what.kind)

    def __str__(self) -> str:
        argument = "" if self.argument is None else f" {self.argument!r}"
        below = " and below" if self.match is Match.BELOW else ""
        where = "" if self.target == ANYTHING else f" on {self.target}"
        inside = f" in {self.cwd}" if self.cwd else ""
        return f"{self.action} {self.tool}{argument}{below}{where}{inside}"


def target_matches(pattern: str, what: Subjected) -> bool:
    """Whether a rule's target is this one: its URL, or its URL with its identity."""
    if pattern == ANYTHING or pattern in (what.identity, what.url):
        return True
    return has_wildcard(pattern) and (matches(pattern, what.identity) or matches(pattern, what.url))
