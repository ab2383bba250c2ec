"""Who answers for ``harness exec`` without a terminal: nobody, or what the command line said in advance."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ..toolkit.assembly import ToolkitSettings
from ..toolkit.permissions.answers import Answer, Question, Scope
from ..toolkit.permissions.approver import Approver
from ..toolkit.permissions.asking import no_approver
from ..toolkit.permissions.rules import Action, Match, Rule
from ..toolkit.registry import Registry

__all__ = ["AUTO_APPROVE", "AutoApproval", "NobodyToAsk", "approval_rule", "with_rules"]

AUTO_APPROVE = "--dangerously-auto-approve"
OPTION = "--approve"


class NobodyToAsk(Approver):
    """Denies every question."""

    @property
    def by_sight(self) -> bool:
        """Nobody is shown anything."""
        return False

    async def ask(self, question: Question) -> Answer:
        """No, once."""
        advice = no_approver(question.scopes, broken=question.broken)
        return Answer(Scope.DENY_ONCE, "nobody", f"denied: nobody to ask ({question.reason}; {advice})")


class AutoApproval(Approver):
    """The operator's word for everything that would be asked (``--dangerously-auto-approve``).

    What is denied without a question stays denied.
    """

    @property
    def by_sight(self) -> bool:
        """It was given in advance."""
        return False

    async def ask(self, question: Question) -> Answer:
        """Yes, once."""
        return Answer(Scope.ONCE, f"operator ({AUTO_APPROVE})")


def approval_rule(text: str, registry: Registry, target: str) -> Rule:
    """The rule that an ``--approve`` stands for, for one target: ``systemctl status *``, or ``write_file:/etc/app/*``.

    What stands before the first colon is a tool when there is one of that name; else all of it is a command. Pure.

    Raises:
        ValueError: it is empty, or allows every command.
    """
    name, colon, rest = text.partition(":")
    tool = registry.get(name.strip()) if colon else None
    argument = (rest if tool is not None else text).strip()
    if not argument:
        raise ValueError(f"{text!r} approves nothing: write a command, or TOOL:ARGUMENT")
    if not argument.strip("*? "):
        raise ValueError(f"{text!r} would approve everything: that is {AUTO_APPROVE}")
    own = tool.own.name if tool is not None else "run_shell"
    return Rule(Action.ALLOW, target, own, argument, Match.GLOB, origin=OPTION)


def with_rules(settings: ToolkitSettings, rules: Iterable[Rule]) -> ToolkitSettings:
    """The settings with rules that count before their own; one that denies counts all the same. Pure."""
    permissions = settings.permissions
    return replace(settings, permissions=replace(permissions, rules=(*rules, *permissions.rules)))
