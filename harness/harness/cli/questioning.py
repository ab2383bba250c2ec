"""Asking the operator at the terminal what a tool wants to know."""

from __future__ import annotations

from ..login import LoginQuestion, TerminalPrompter
from ..toolkit.questions import Asked, Questioner, Replies, Reply, UserQuestion, check_replies
from .output import readable

__all__ = ["TerminalQuestioner", "parse_reply", "question_text"]

TRIES = 3
OWN = "="
"""Before a text that is to be taken as it is, although it looks like numbers of options."""


def question_text(question: UserQuestion, number: int, count: int) -> str:
    """The question as the terminal shows it: control characters are shown and not obeyed. Pure."""
    header = f" ({readable(question.header)})" if question.header else ""
    counted = f" {number} of {count}" if count > 1 else ""
    lines = [
        f"harness: the agent asks{counted}{header}:",
        *(f"  | {readable(line)}" for line in question.question.splitlines()),
        *(
            f"  {place}. {readable(option.label)}"
            + (f": {readable(option.description)}" if option.description.strip() else "")
            for place, option in enumerate(question.options, 1)
        ),
    ]
    return "\n".join(lines) + f"\n{_prompt(question)}"


def _prompt(question: UserQuestion) -> str:
    last = len(question.options)
    numbers = f"numbers from 1 to {last}, with commas" if question.multi_select else f"a number from 1 to {last}"
    return f"{numbers}, or your own words (Ctrl-C to cancel): "


def parse_reply(line: str, question: UserQuestion) -> Reply | str:
    """What an operator's line means, or what is wrong with it. Pure."""
    text = line.strip()
    if text.startswith(OWN):
        return _fitting(Reply(other=text[len(OWN) :].strip()), question)
    words = text.replace(",", " ").split()
    if not words or not all(word.isascii() and word.isdigit() and len(word) < 10 for word in words):
        return _fitting(Reply(other=text), question)
    return _fitting(Reply(tuple(dict.fromkeys(int(word) - 1 for word in words))), question)


def _fitting(reply: Reply, question: UserQuestion) -> Reply | str:
    try:
        check_replies([question], [reply])
    except ValueError as error:
        problem = str(error).partition(": ")[2]
        return (
            f"{problem}; a text of your own that looks like numbers is written after {OWN}" if reply.chosen else problem
        )
    return reply


class TerminalQuestioner(Questioner):
    """The operator at the controlling terminal; standard input is for the call's own use."""

    def __init__(self, prompter: TerminalPrompter | None = None) -> None:
        self._prompter = prompter or TerminalPrompter()

    def present(self) -> bool:
        """Whether there is a terminal, and this program is in its foreground."""
        return self._prompter.usable()

    async def ask(self, asked: Asked) -> Replies | None:
        """Show one question after the other, and read a line for each. An end of file declines all of them."""
        replies = []
        for number, question in enumerate(asked.questions, 1):
            reply = await self._reply(question_text(question, number, len(asked.questions)), question, asked.target)
            if reply is None:
                return None
            replies.append(reply)
        return tuple(replies)

    async def _reply(self, text: str, question: UserQuestion, target: str) -> Reply | None:
        for _ in range(TRIES):
            line = await self._prompter.answer(LoginQuestion("other", text, False, target))
            if line is None:
                return None
            reply = parse_reply(_decoded(line), question)
            if isinstance(reply, Reply):
                return reply
            text = f"harness: {reply}\n{_prompt(question)}"
        return None


def _decoded(line: str) -> str:
    """What was typed, with U+FFFD for each byte that is not UTF-8."""
    return line.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
