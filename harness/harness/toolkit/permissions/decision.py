"""The order of steps that decide a call. Pure: data from the target is in the claims.

Hard denials → deny rules → mode ``deny`` → rules about unknown groups of hosts (they ask) → allow and ask rules of the
session, of the user's rule file and of the settings (in each the first match) → ``allowed_tools`` → what always asks →
mode ``auto`` → reading, unless the mode is ``strict`` → calls without access → ask. With an unusable rule file, the
call asks after the session rules.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from ...patterns.wildcards import matches
from ..values import Category
from .questions import AccessItem, AccessRequest
from .rules.rule import Action, Rule, RuleIndex, target_matches
from .rules.settings import Mode

__all__ = ["Decision", "DecisionContext", "DecisionStep", "decide"]


class DecisionStep(StrEnum):
    """The step that decided."""

    HARD = "hard denial"
    DENY_RULE = "deny rule"
    MODE_DENY = "mode deny"
    SESSION = "session rule"
    STORED = "rule of the rule file"
    PROFILE = "rule of the settings"
    BROKEN = "unusable rule file"
    ONLY = "tool allowlist"
    MUST_ASK = "always asked"
    AUTO = "mode auto"
    QUIET = "read-only"
    HARMLESS = "no access"
    DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class DecisionContext:
    """The input of a decision in addition to the claims."""

    mode: Mode
    category: Category = Category.NONE
    tool: str = ""
    mutating: bool = False
    requires_approval: bool = False
    only: tuple[str, ...] = ()
    session: RuleIndex = field(default_factory=RuleIndex)
    stored: RuleIndex = field(default_factory=RuleIndex)
    profile: RuleIndex = field(default_factory=RuleIndex)
    undecided: RuleIndex = field(default_factory=RuleIndex)
    """Rules that deny or ask on hosts of which it is not known whether this is one."""
    failure: str = ""
    """Why the user's rule file cannot be used."""

    @property
    def layers(self) -> tuple[tuple[DecisionStep, RuleIndex], ...]:
        """The rules, in order of precedence."""
        return (
            (DecisionStep.SESSION, self.session),
            (DecisionStep.STORED, self.stored),
            (DecisionStep.PROFILE, self.profile),
        )


@dataclass(frozen=True, slots=True)
class Decision:
    """The action for a call, the step that decided, and the reason; ``asks`` are the claims that require approval."""

    action: Action
    step: DecisionStep
    reason: str
    rule: Rule | None = None
    asks: tuple[AccessRequest, ...] = ()
    about: str = ""
    """The part of the call that decided it."""

    @property
    def by(self) -> str:
        """The step or rule that decided, as a phrase."""
        origin = f", {self.rule.origin}" if self.rule and self.rule.origin else ""
        return f"{self.step} {self.rule.rule_id}{origin}" if self.rule else self.step.value


def decide(claims: Sequence[AccessRequest], situation: DecisionContext) -> Decision:
    """Decide a call: one denied claim denies it, otherwise one that asks makes it ask.

    Args:
        claims: what the call would access.
        situation: mode, rules and traits of the tool.

    Returns:
        The decision.
    """
    found = [_of_claim(claim, situation) for claim in claims]
    for decision in found:
        if decision.action is Action.DENY:
            return decision
    asking = [(claim, one) for claim, one in zip(claims, found, strict=True) if one.action is Action.ASK]
    if not asking:
        return found[0] if found else Decision(Action.ASK, DecisionStep.DEFAULT, "its access is unknown")
    return replace(asking[0][1], asks=tuple(claim for claim, _ in asking))


def _of_claim(claim: AccessRequest, situation: DecisionContext) -> Decision:
    denied = _denied(claim, situation)
    if denied is not None:
        return replace(denied, about=claim.shown)
    if not claim.pieces:
        return Decision(Action.ASK, DecisionStep.DEFAULT, "its access is unknown")
    decisions = [_of_piece(piece, claim, situation) for piece in claim.pieces]
    return max(decisions, key=lambda decision: SEVERITY[decision.action])  # the first with the highest severity


SEVERITY = {Action.ALLOW: 0, Action.ASK: 1, Action.DENY: 2}


def _denied(claim: AccessRequest, situation: DecisionContext) -> Decision | None:
    if claim.forbidden:
        return Decision(Action.DENY, DecisionStep.HARD, claim.forbidden)
    for _, index in situation.layers:
        rule = index.first(claim.forms, (Action.DENY,))
        if rule is not None:
            return Decision(Action.DENY, DecisionStep.DENY_RULE, f"matched rule: {rule}", rule)
    if situation.mode is Mode.DENY:
        return Decision(Action.DENY, DecisionStep.MODE_DENY, "the mode is deny")
    return None


def _of_piece(piece: AccessItem, claim: AccessRequest, situation: DecisionContext) -> Decision:
    for step in STEPS:
        decision = step(piece, claim, situation)
        if decision is not None:
            return replace(decision, about=piece.what)
    return Decision(Action.ASK, DecisionStep.DEFAULT, _default_reason(situation), about=piece.what)


def _undecided(piece: AccessItem, claim: AccessRequest, situation: DecisionContext) -> Decision | None:
    rule = situation.undecided.first(claim.forms)
    if rule is None:
        return None
    reason = f"a rule may apply, but its group of hosts is not known here: {rule}"
    return Decision(Action.ASK, DecisionStep.MUST_ASK, reason, rule)


def _by_rules(piece: AccessItem, claim: AccessRequest, situation: DecisionContext) -> Decision | None:
    actions = (Action.ASK,) if claim.unkept else (Action.ALLOW, Action.ASK)
    for step, index in situation.layers:
        if situation.failure and step is not DecisionStep.SESSION:
            reason = f"the deny rules cannot be read: {situation.failure}"
            return _whitelisted(piece, claim, situation) or Decision(Action.ASK, DecisionStep.BROKEN, reason)
        rule = index.first(piece.forms, actions)
        if rule is not None:
            return Decision(rule.action, step, f"matched rule: {rule}", rule)
    return None


def _whitelisted(piece: AccessItem, claim: AccessRequest, situation: DecisionContext) -> Decision | None:
    if not situation.only or any(matches(pattern, situation.tool) for pattern in situation.only):
        return None
    return Decision(Action.DENY, DecisionStep.ONLY, f"{situation.tool} is not in permissions.allowed_tools")


def _must_ask(piece: AccessItem, claim: AccessRequest, situation: DecisionContext) -> Decision | None:
    return Decision(Action.ASK, DecisionStep.MUST_ASK, claim.must_ask) if claim.must_ask else None


def _may_be_denied(piece: AccessItem, claim: AccessRequest, situation: DecisionContext) -> Decision | None:
    """Ask if words only known at run time, or an embedded command, may match a deny rule."""
    if not (claim.unclear or claim.embedded) or situation.mode is not Mode.AUTO:
        return None
    for _, index in situation.layers:
        for rule in index.rules:
            if rule.action is Action.DENY and (program := _concerned(rule, claim)):
                reason = f"words only known at run time may match a deny rule for {program}: {rule}"
                return Decision(Action.ASK, DecisionStep.MUST_ASK, reason)
            if rule.action is Action.DENY and (command := _embedded(rule, claim)):
                return Decision(Action.ASK, DecisionStep.MUST_ASK, f"it may run {command}, denied by a rule: {rule}")
    return None


def _embedded(rule: Rule, claim: AccessRequest) -> str:
    """Return the embedded command that the rule denies; empty without one."""
    if rule.argument is None or not claim.embedded or not _may_concern(rule, claim):
        return ""
    return next((text for text in claim.embedded if matches(rule.argument, text)), "")


def _may_concern(rule: Rule, claim: AccessRequest) -> bool:
    return matches(rule.tool, claim.whole.tool) and target_matches(rule.target, claim.whole)


def _concerned(rule: Rule, claim: AccessRequest) -> str:
    if rule.argument is None or not _may_concern(rule, claim):
        return ""
    first = rule.argument.split(" ", 1)[0]
    names = ((program, form) for program in claim.unclear for form in (program, program.rpartition("/")[2]))
    return next((program for program, form in names if matches(first, form)), "")


def _automatic(piece: AccessItem, claim: AccessRequest, situation: DecisionContext) -> Decision | None:
    return Decision(Action.ALLOW, DecisionStep.AUTO, "the mode is auto") if situation.mode is Mode.AUTO else None


def _quiet(piece: AccessItem, claim: AccessRequest, situation: DecisionContext) -> Decision | None:
    if situation.mode is Mode.STRICT:
        return None
    looks = situation.category in (Category.FILE_READ, Category.SHELL) and claim.kind == "other"
    if piece.read_only or (looks and not situation.mutating and not situation.requires_approval):
        return Decision(Action.ALLOW, DecisionStep.QUIET, "it only reads")
    return None


def _harmless(piece: AccessItem, claim: AccessRequest, situation: DecisionContext) -> Decision | None:
    touches = situation.mutating or situation.requires_approval or situation.category is not Category.NONE
    return (
        None
        if touches or claim.kind != "other"
        else Decision(Action.ALLOW, DecisionStep.HARMLESS, "it accesses nothing")
    )


STEPS: tuple[Callable[[AccessItem, AccessRequest, DecisionContext], Decision | None], ...] = (
    _undecided, _by_rules, _whitelisted, _may_be_denied, _must_ask, _automatic, _quiet, _harmless,
)  # fmt: skip


def _default_reason(situation: DecisionContext) -> str:
    if situation.mode is Mode.STRICT:
        return "the mode is strict, and no rule allows it"
    return "no rule allows it, and it may change something" if situation.mutating else "no rule allows it"
