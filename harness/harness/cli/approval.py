"""Asking the operator at the terminal whether a call may run."""

from __future__ import annotations

import shutil

from ..login import LoginQuestion, TerminalPrompter
from ..toolkit.permissions.answers import Answer, Question, Scope
from ..toolkit.permissions.approver import Approver
from .asked import previewed, quoted, said
from .claims import claims_of
from .output import readable

__all__ = ["GivenApproval", "TerminalApprover", "parse_answer", "question_text"]

LETTERS = {
    "y": Scope.ONCE,
    "e": Scope.EXACT,
    "d": Scope.DIRECTORY,
    "t": Scope.TOOL,
    "s": Scope.SESSION,
    "a": Scope.ALWAYS,
    "n": Scope.DENY_ONCE,
    "x": Scope.DENY_SESSION,
}
WORDS = {"yes": Scope.ONCE, "no": Scope.DENY_ONCE, "": Scope.DENY_ONCE}
MEANINGS = {
    Scope.ONCE: "yes",
    Scope.ALWAYS: "always this, to the letter",
    Scope.DENY_ONCE: "no",
}
"""The answers that one call from the command line has a use for: its session ends with it."""
TRIES = 3


def parse_answer(text: str, question: Question) -> Scope | None:
    """What an operator's line means; None when it means nothing here. Nothing at all is no. Pure."""
    word = text.strip().lower()
    scope = LETTERS.get(word) or WORDS.get(word) or next((one for one in Scope if one == word), None)
    return scope if scope is None or not scope.allows or scope in question.scopes else None


def question_text(question: Question, width: int = 80) -> str:
    """The question as the terminal shows it: control characters are shown and not obeyed. Pure."""
    offered = [scope for scope in MEANINGS if scope in question.scopes]
    letters = {scope: letter for letter, scope in LETTERS.items()}
    choices = ", ".join(f"{letters[scope]} = {MEANINGS[scope]}" for scope in offered)
    why = question.details.get("why")
    claims = [*([f"why: {why}"] if why else []), *claims_of(question.details)]
    lines = [
        f"harness: may {readable(question.call.name)} run on {readable(question.target)}?",
        *quoted(question.what, width),
        *previewed(question.preview, width),
        *([f"  asked by the agent {readable(question.call.agent_id)}"] if question.call.agent_id else []),
        *(f"  {said(claim)}" for claim in claims),
        *quoted(f"({readable(question.reason)})", width, first="  ", further="  "),
    ]
    return "\n".join(lines) + f"\n{choices}: "


class TerminalApprover(Approver):
    """The operator at the controlling terminal; standard input is for the call's own use."""

    def __init__(self, prompter: TerminalPrompter | None = None) -> None:
        self._prompter = prompter or TerminalPrompter()

    def usable(self) -> bool:
        """Whether somebody is there."""
        return self._prompter.usable()

    async def ask(self, question: Question) -> Answer:
        """Show it and read a line. What was typed before it was shown does not count."""
        text = question_text(question, shutil.get_terminal_size().columns)
        for _ in range(TRIES):
            line = await self._prompter.answer(LoginQuestion("other", text, False, question.target))
            scope = Scope.DENY_ONCE if line is None else parse_answer(line, question)
            if scope is not None:
                return Answer(scope)
            text = "harness: answer with one of the letters: "
        return Answer(Scope.DENY_ONCE, reason="there was no clear answer")


class GivenApproval(Approver):
    """The operator's word, given on the command line for this one call (``--yes``)."""

    @property
    def by_sight(self) -> bool:
        """It was given in advance."""
        return False

    async def ask(self, question: Question) -> Answer:
        """Yes, once."""
        return Answer(Scope.ONCE, "operator (--yes)")
