"""What a call would touch, what a person may answer, and the rules that follow from an answer. Plain values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from ...deprecated_names import renamed_names
from ..values import JsonObject, SubjectKind, ToolCall
from .rules.rule import Action, Match, Rule, RuleSubject

__all__ = [
    "AccessItem",
    "AccessRequest",
    "ApprovalDecision",
    "ApprovalRequest",
    "ApprovalScope",
    "may_be_kept",
    "rules_of",
]

if not TYPE_CHECKING:
    __getattr__ = renamed_names(
        __name__,
        Piece="AccessItem",
        Claim="AccessRequest",
        Question="ApprovalRequest",
        Answer="ApprovalDecision",
        Scope="ApprovalScope",
    )


# -- What a call would touch, in the form in which it is decided.


@dataclass(frozen=True, slots=True)
class AccessItem:
    """One thing that must be allowed: a path, or one simple command. A rule counts that covers any of its ``forms``."""

    what: str
    forms: tuple[RuleSubject, ...]
    read_only: bool = False
    """It certainly changes nothing: the quiet preset lets it run."""


@dataclass(frozen=True, slots=True)
class AccessRequest:
    """One subject of a call. It is allowed when each piece is."""

    kind: SubjectKind
    shown: str
    """What a person is asked about: the exact text."""
    whole: RuleSubject
    """What a grant for exactly this is a rule for."""
    pieces: tuple[AccessItem, ...]
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
    def forms(self) -> tuple[RuleSubject, ...]:
        """Everything that a rule may deny it by."""
        return (self.whole, *(form for piece in self.pieces for form in piece.forms))


# -- What a person may answer, and the rules that follow from an answer. Pure.


class ApprovalScope(StrEnum):
    """How far an answer goes. None but ``always`` outlives the session, and none leaves its target."""

    ONCE = "once"
    EXACT = "exact"
    """This, to the letter, for the session."""
    DIRECTORY = "directory"
    """Every file in the directory of this one, for this tool and the session."""
    TOOL = "tool"
    """Whatever this tool is asked, for the session."""
    SESSION = "session"
    """Everything, for the session."""
    ALWAYS = "always"
    """This, to the letter, from now on."""
    DENY_ONCE = "deny-once"
    DENY_SESSION = "deny-session"
    """Never this, to the letter, in this session."""

    @property
    def allows(self) -> bool:
        """It lets the call run."""
        return self not in (ApprovalScope.DENY_ONCE, ApprovalScope.DENY_SESSION)


@dataclass(frozen=True, slots=True)
class ApprovalDecision:
    """An answer, and whose it is.

    ``by`` names who answered (``operator``, a client). ``agent_id`` is set when an agent did, who may deny but never
    allow. ``call`` is the call as the person changed it: it is judged again. ``reason`` is for the model.
    """

    scope: ApprovalScope
    by: str = "operator"
    reason: str = ""
    agent_id: str = ""
    call: ToolCall | None = None


@dataclass(frozen=True, slots=True)
class ApprovalRequest:
    """What somebody has to decide. ``what`` is the exact text, redacted; ``details`` is what the caller says of it."""

    request_id: str
    call: ToolCall
    what: str
    reason: str
    target: str
    """Where it would run, in words; what is answered holds for the target all the same."""
    scopes: tuple[ApprovalScope, ...]
    """The answers that make sense; another one counts as ``once``."""
    details: JsonObject = field(default_factory=dict)
    session_id: str = ""
    preview: str = ""
    """Printable lines to show below ``what``; those that begin with ``| `` are the caller's."""
    broken: bool = False
    """The file of rules cannot be read, so that no rule can be added."""
    unseen: str = ""
    """Why nobody who is shown it knows what would be done; see :mod:`.asking`."""
    timeout: float = 0.0
    """Seconds until it is denied without an answer; 0 where that is not known."""


def may_be_kept(claims: Sequence[AccessRequest]) -> tuple[ApprovalScope, ...]:
    """The answers that a question about these offers."""
    if any(claim.unkept for claim in claims):
        return ApprovalScope.ONCE, ApprovalScope.DENY_ONCE
    paths = (ApprovalScope.DIRECTORY,) if claims and all(claim.is_path for claim in claims) else ()
    broad = () if any(claim.must_ask for claim in claims) else (*paths, ApprovalScope.TOOL, ApprovalScope.SESSION)
    return (
        ApprovalScope.ONCE,
        ApprovalScope.EXACT,
        *broad,
        ApprovalScope.ALWAYS,
        ApprovalScope.DENY_ONCE,
        ApprovalScope.DENY_SESSION,
    )


def rules_of(
    answer: ApprovalDecision,
    claims: Sequence[AccessRequest],
    *,
    tool: str,
    identity: str,
    directories: Sequence[str] = (),
) -> tuple[Rule, ...]:
    """The rules that an answer makes: literal ones for the target that was asked about. None for one that is for once.

    Args:
        directories: for ``directory``, those of the files, as the target has them.
    """
    origin = f"answered {answer.scope} by {answer.by}"
    allow, deny = Action.ALLOW, Action.DENY
    if answer.scope is ApprovalScope.TOOL:
        return (Rule(allow, identity, tool, origin=origin),)
    if answer.scope is ApprovalScope.SESSION:
        return (Rule(allow, identity, origin=origin),)
    if answer.scope is ApprovalScope.DIRECTORY:
        return tuple(Rule(allow, identity, tool, name, Match.BELOW, origin=origin) for name in directories)
    if answer.scope in (ApprovalScope.EXACT, ApprovalScope.ALWAYS, ApprovalScope.DENY_SESSION):
        action = allow if answer.scope.allows else deny
        return tuple(
            Rule(action, identity, tool, claim.whole.text, cwd=claim.whole.cwd, origin=origin) for claim in claims
        )
    return ()
