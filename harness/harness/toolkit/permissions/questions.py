"""Data types: what a call would access, the approval request and decision, and the rules made from a decision."""

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


# -- What a call would access, in the form in which it is decided.


@dataclass(frozen=True, slots=True)
class AccessItem:
    """One item that must be allowed: a path or a simple command; a rule applies if it covers any of the ``forms``."""

    what: str
    forms: tuple[RuleSubject, ...]
    read_only: bool = False
    """It certainly changes nothing, so it may run without asking unless the mode is ``strict``."""


@dataclass(frozen=True, slots=True)
class AccessRequest:
    """The access to one subject of a call, allowed if each piece is allowed."""

    kind: SubjectKind
    shown: str
    """The exact text, shown in the approval request."""
    whole: RuleSubject
    """The subject of a rule for exactly this text."""
    pieces: tuple[AccessItem, ...]
    forbidden: str = ""
    """Why it is a hard denial."""
    must_ask: str = ""
    """Why only a rule for exactly this text or an approval may allow it."""
    unclear: tuple[str, ...] = ()
    """Its programs with words only known at run time."""
    embedded: tuple[str, ...] = ()
    """Commands that its programs may run, judging by their words."""
    unkept: bool = False
    """It asks each time, and no decision about it is kept, as for a password."""
    secret: bool = False
    """Its text must not be shown."""

    @property
    def is_path(self) -> bool:
        """Whether it is a file or a directory."""
        return self.whole.kind == "path"

    @property
    def forms(self) -> tuple[RuleSubject, ...]:
        """All texts that deny rules are matched against."""
        return (self.whole, *(form for piece in self.pieces for form in piece.forms))


# -- The approval request and decision, and the rules made from a decision. Pure.


class ApprovalScope(StrEnum):
    """The scope of a decision; only ``always`` outlives the session, and each is limited to one target."""

    ONCE = "once"
    EXACT = "exact"
    """Exactly this text, for the session."""
    DIRECTORY = "directory"
    """Every file in the directory of this one, for this tool and the session."""
    TOOL = "tool"
    """Every call of this tool, for the session."""
    SESSION = "session"
    """Every call, for the session."""
    ALWAYS = "always"
    """Exactly this text, permanently."""
    DENY_ONCE = "deny-once"
    DENY_SESSION = "deny-session"
    """Deny exactly this text, for the session."""

    @property
    def allows(self) -> bool:
        """Whether the call may run."""
        return self not in (ApprovalScope.DENY_ONCE, ApprovalScope.DENY_SESSION)


@dataclass(frozen=True, slots=True)
class ApprovalDecision:
    """A decision about an approval request.

    ``by``: who decided (``operator``, a client). ``agent_id``: set if an agent decided; it may deny but not allow.
    ``call``: the call as the approver changed it; it is checked again. ``reason``: for the model.
    """

    scope: ApprovalScope
    by: str = "operator"
    reason: str = ""
    agent_id: str = ""
    call: ToolCall | None = None


@dataclass(frozen=True, slots=True)
class ApprovalRequest:
    """A request for an approval decision; ``what`` is the exact text, redacted, ``details`` the caller's statements."""

    request_id: str
    call: ToolCall
    what: str
    reason: str
    target: str
    """Where it would run, as shown; the decision is for the target itself."""
    scopes: tuple[ApprovalScope, ...]
    """The scopes offered; another one counts as ``once`` or ``deny-once``."""
    details: JsonObject = field(default_factory=dict)
    session_id: str = ""
    preview: str = ""
    """Printable lines to show below ``what``; those that begin with ``| `` are from the caller."""
    broken: bool = False
    """The rule file cannot be read, so no rule can be added."""
    unseen: str = ""
    """Why the redacted texts may hide what would run; see :mod:`.asking`."""
    timeout: float = 0.0
    """Seconds until it is denied without a decision; 0 if unknown."""


def may_be_kept(claims: Sequence[AccessRequest]) -> tuple[ApprovalScope, ...]:
    """Return the scopes that a request for these claims offers."""
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
    """Return the rules that a decision creates: literal ones for the target of the call.

    Args:
        answer: the decision.
        claims: what the request was about.
        tool: the name of the tool.
        identity: the target with its identity.
        directories: for ``directory``, the real directories of the files on the target.

    Returns:
        The rules; empty for ``once`` and ``deny-once``.
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
